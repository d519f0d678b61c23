"""The doctor: all that looks wrong or odd about logs, before anything is learnt from them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from musbo.data.batch import Batch
from musbo.data.checks import findings, plain_findings
from musbo.data.doctor.actions import at_bounds, commanded, steered
from musbo.data.doctor.clock import clock
from musbo.data.doctor.drift import drift, machines
from musbo.data.doctor.earlier import Earlier, summary_of
from musbo.data.doctor.ends import ends
from musbo.data.doctor.interval import intervals
from musbo.data.doctor.lag import lag
from musbo.data.doctor.repeats import repeated_episodes, repeated_rows
from musbo.data.doctor.resampled import resampled
from musbo.data.doctor.rewards import rewards
from musbo.data.doctor.sensors import sensors
from musbo.data.doctor.units import unit_jumps
from musbo.data.finding import Finding, in_order
from musbo.data.logs import Logs
from musbo.data.rewards import has_rewards, rewarded
from musbo.tasks.task import Task

HOPELESS = {
    "empty", "wrong shape", "wrong type", "not finite", "too large", "episode in pieces", "steps do not count",
    "other columns", "other units",
}  # fmt: skip
"""Where numbers are missing, in no order or of something else, statistics of them say nothing."""


@dataclass(frozen=True)
class Expected:
    """What is known about logs beforehand."""

    transitions: int | None = None
    """As many were planned, in all logs together."""
    lag: int = 0
    """Rows from an action to its effect that are known about, beside those that the history of the task covers."""


NOTHING_KNOWN = Expected()


def examine(
    every: Sequence[Logs], task: Task | None = None, earlier: Iterable[Batch] = (), expected: Expected = NOTHING_KNOWN
) -> list[Finding]:
    """All findings about logs that belong together, the gravest first. Each names its log.

    With a task, its sizes, bounds, reward and termination are compared; with earlier batches, which are read one at a
    time, what is there again and what has drifted. A log with an error is not to be used; a warning is for a person to
    look at.
    """
    found: list[Finding] = []
    sound: list[Logs] = []
    before = summary_of(earlier)
    for logs in every:
        mine = list(_rules(logs, task))
        if not any(finding.kind in HOPELESS for finding in mine):
            sound.append(logs)
            mine += _alone(logs, task, before, expected)
        found += [replace(finding, source=logs.source) for finding in mine]
    if sound:
        found += repeated_episodes(sound, before.episodes)
        found += intervals(sound, task)
        found += unit_jumps(sound)
        found += machines(sound)
    found += _planned(every, expected)
    return in_order(found)


def _rules(logs: Logs, task: Task | None) -> list[Finding]:
    if task is not None:
        return findings(rewarded(logs.batch, task, logs.source), task, logs.origin)
    batch = logs.batch
    known = batch if has_rewards(batch) else replace(batch, reward=np.zeros(len(batch), np.float32))
    return plain_findings(known, logs.origin)


def _alone(logs: Logs, task: Task | None, earlier: Earlier, expected: Expected) -> Iterator[Finding]:
    yield from logs.told
    yield from resampled(logs)
    yield from sensors(logs)
    yield from repeated_rows(logs)
    yield from clock(logs)
    yield from commanded(logs, task)
    yield from steered(logs)
    yield from lag(logs, expected.lag, task.history if task is not None else 0)
    yield from drift(logs, earlier)
    if task is not None:
        yield from at_bounds(logs, task)
        yield from ends(logs, task)
        yield from rewards(logs, task)


def _planned(every: Sequence[Logs], expected: Expected) -> Iterator[Finding]:
    total = sum(len(logs) for logs in every)
    if expected.transitions is not None and total != expected.transitions:
        word = "fewer" if total < expected.transitions else "more"
        kind = f"{word} than planned"
        what = f"{total:,} transitions came home, {word} than the {expected.transitions:,} that were planned"
        yield Finding(kind, "note", what, "all are used", source=every[-1].source if every else "")
