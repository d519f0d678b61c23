"""What would be read from logs, before anything is run: rows, episodes, and the ranges beside the task's bounds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from musbo.data.batch import Batch
from musbo.data.doctor.examine import NOTHING_KNOWN, Expected, examine
from musbo.data.finding import Finding
from musbo.data.logs import Logs
from musbo.data.rewards import has_rewards, rewarded
from musbo.tasks.task import Task


@dataclass(frozen=True)
class Range:
    """The numbers of one column, after its scale and offset."""

    role: str
    """obs 0, act 1, reward, ..."""
    column: str
    """What the log calls it."""
    smallest: float
    mean: float
    largest: float
    low: float | None = None
    high: float | None = None
    """Bounds that the task has for it."""


@dataclass(frozen=True)
class Preview:
    """What was read from a log."""

    source: str
    said: str
    """The same as a sentence."""
    rows: int
    transitions: int
    episodes: int
    shortest: int
    longest: int
    terminated: int
    """Episodes that the world ended."""
    successors: int
    alone: int
    unordered: int
    gaps: int
    """As in `Logs`."""
    reward: Literal["logged", "from the formula of the task", "not logged"]
    ignored: tuple[str, ...]
    """Columns that are not used."""
    ranges: tuple[Range, ...]
    findings: tuple[Finding, ...]
    """What the doctor says, the gravest first."""


def preview(logs: Logs, task: Task | None = None) -> Preview:
    """What would be read, and what is wrong or odd about it."""
    return previews([logs], task)[0]


def previews(
    every: Sequence[Logs],
    task: Task | None = None,
    earlier: Iterable[Batch] = (),
    expected: Expected = NOTHING_KNOWN,
) -> list[Preview]:
    """The same of logs that belong together, each with the findings that are in it."""
    return previews_with(every, task, examine(every, task, earlier, expected))


def previews_with(every: Sequence[Logs], task: Task | None, left: list[Finding]) -> list[Preview]:
    """The same with findings that are known."""
    seen = []
    for logs in every:
        mine = tuple(finding for finding in left if finding.source == logs.source)
        left = [finding for finding in left if finding.source != logs.source]  # a log may be there twice
        seen.append(_preview(logs, task, mine))
    return seen


def _preview(logs: Logs, task: Task | None, found: tuple[Finding, ...]) -> Preview:
    batch, logged = logs.batch, has_rewards(logs.batch)
    if task is not None:
        batch = rewarded(batch, task, logs.source)
    lengths = batch.lengths()
    used = set(logs.used)
    return Preview(
        source=logs.source,
        said=str(logs),
        rows=logs.rows,
        transitions=len(batch),
        episodes=len(lengths),
        shortest=int(lengths.min(initial=len(batch))),
        longest=int(lengths.max(initial=0)),
        terminated=int(batch.terminated.sum()),
        successors=logs.successors,
        alone=logs.alone,
        unordered=logs.unordered,
        gaps=logs.gaps,
        reward="logged" if logged else "not logged" if task is None else "from the formula of the task",
        ignored=tuple(name for name in logs.columns if name not in used),
        ranges=tuple(_ranges(logs, task, logged)),
        findings=found,
    )


def _ranges(logs: Logs, task: Task | None, logged: bool) -> list[Range]:
    batch, found = logs.batch, []
    if not len(batch):
        return found
    blocks = [("obs", batch.obs), ("act", batch.act), *([("reward", batch.reward[:, None])] if logged else [])]
    for block, array in blocks:
        for i, values in enumerate(array.T.astype(np.float64)):
            bounded = block == "act" and task is not None and i < task.act_size
            name = logs.origin.reward if block == "reward" else logs.origin.name(block, i)
            found.append(
                Range(
                    block if block == "reward" else f"{block} {i}",
                    name,
                    *(float(value) for value in (np.min(values), np.mean(values), np.max(values))),
                    low=task.act_low[i] if bounded and task else None,
                    high=task.act_high[i] if bounded and task else None,
                )
            )
    return found
