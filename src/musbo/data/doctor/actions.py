"""Actions: how often they are at their bounds, and whether what was commanded was executed."""

from collections.abc import Iterator

import numpy as np

from musbo.data.batch import FALLBACK, HUMAN
from musbo.data.checks import ACTION_TOLERANCE
from musbo.data.finding import Finding, first_few
from musbo.data.logs import Logs
from musbo.tasks.task import Task

OFTEN, ALWAYS = 0.05, 0.95
"""Shares of the rows at a bound that are noted, and that are a warning."""
DIFFERENT = 1e-3
"""Part of the half-range by which an executed action may differ from the commanded one."""
FAR = 0.1
"""The same for the root of the mean square, where it becomes a warning."""
MOSTLY = 0.5
"""Share of the rows that others chose from which on it is a warning."""
LATEST = 5
"""Rows by which an execution may be late and still be recognised."""


def at_bounds(logs: Logs, task: Task) -> Iterator[Finding]:
    for i, (low, high) in enumerate(zip(task.act_low, task.act_high, strict=True)):
        values = logs.batch.act[:, i]
        slack = ACTION_TOLERANCE * (high - low) / 2
        rows = np.flatnonzero((values <= low + slack) | (values >= high - slack))
        share = len(rows) / len(values)
        if share < OFTEN:
            continue
        name = logs.origin.name("act", i)
        yield Finding(
            "action at bounds",
            "warning" if share >= ALWAYS else "note",
            f"{name} is at one of its bounds, {low:g} or {high:g}, in {share:.0%} of the rows",
            "see whether the bounds of the task are those of the machine; what lies between is seldom tried",
            (name,),
            int(logs.origin.rows(rows[:1])[0]),
            len(rows),
        )


def commanded(logs: Logs, task: Task | None) -> Iterator[Finding]:
    """Where a log has both: the commanded action against the executed one, except where a person chose."""
    if logs.commanded is None:
        return
    own = logs.batch.by != HUMAN
    if not np.any(own):
        return
    for i in range(logs.batch.act.shape[1]):
        asked, done = logs.commanded[:, i].astype(np.float64), logs.batch.act[:, i].astype(np.float64)
        half = (task.act_high[i] - task.act_low[i]) / 2 if task else float(np.ptp(asked)) / 2
        if not half > 0 or not np.all(np.isfinite(asked)):
            continue
        away = np.where(own, (done - asked) / half, 0.0)
        rows = np.flatnonzero(np.abs(away) > DIFFERENT)
        if not len(rows):
            continue
        name, size = logs.origin.name("act", i), float(np.sqrt(np.sum(away**2) / np.sum(own)))
        late = _late(logs, asked, done)
        said = f", and follows what was commanded {late} row{'s' * (late > 1)} later" if late else ""
        yield Finding(
            "commanded and executed differ",
            "warning" if size > FAR or late else "note",
            f"{name} differs from what was commanded in {len(rows) / np.sum(own):.0%} of the rows, by {size:.2g} of "
            f"the half-range (root of the mean square){said}",
            "the executed action is used: see that it is measured in the same row, and what limits or delays it",
            (name,),
            int(logs.origin.rows(rows[:1])[0]),
            len(rows),
            first_few(logs.batch.episode[rows]),
            logs.machines_of(rows),
        )


def steered(logs: Logs) -> Iterator[Finding]:
    """Rows whose actions the fallback controller or a person chose."""
    rows = np.flatnonzero((logs.batch.by == FALLBACK) | (logs.batch.by == HUMAN))
    if not len(rows):
        return
    people = int(np.sum(logs.batch.by == HUMAN))
    share = len(rows) / len(logs.batch)
    yield Finding(
        "steered by others",
        "warning" if share > MOSTLY else "note",
        f"the fallback controller chose the action in {len(rows) - people:,} of {len(logs.batch):,} steps, and a "
        f"person in {people:,}",
        "see why the policy did not act" if share > MOSTLY else "nothing; models learn from them, and no clone does",
        row=int(logs.origin.rows(rows[:1])[0]),
        rows=len(rows),
        episodes=first_few(logs.batch.episode[rows]),
        machines=logs.machines_of(rows),
    )


def _late(logs: Logs, asked: np.ndarray, done: np.ndarray) -> int:
    """By how many rows the execution follows the command; 0 where it does not."""
    errors = [float(np.mean((done - asked) ** 2))]
    for lag in range(1, LATEST + 1):
        same = logs.batch.step >= lag
        same[:lag] = False
        errors.append(float(np.mean((done[lag:] - asked[:-lag])[same[lag:]] ** 2)) if np.any(same) else np.inf)
    best = int(np.argmin(errors))
    return best if errors[best] < 0.1 * errors[0] else 0
