"""What would be read from logs, before anything is run: rows, episodes, and the ranges beside the task's bounds."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from musbo.data.checks import Finding, findings
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
    """Where a task was given."""


def preview(logs: Logs, task: Task | None = None) -> Preview:
    """What would be read; with a task, also what is wrong or odd about it."""
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
        findings=() if task is None else tuple(findings(batch, task, logs.origin)),
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
