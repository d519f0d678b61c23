"""Checks of a batch that came from outside: is it what the task says, and does it keep the rules of a batch?

Every check reports a finding with the column, the first row and what to do. An error makes the batch useless or
misleading for training, and a batch with one error is refused whole; warnings are for a person to look at.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from musbo.core.errors import UserError
from musbo.data.batch import Batch
from musbo.tasks.task import Task

ACTION_TOLERANCE = 1e-5
"""Part of the half-range by which an action may exceed its bounds: rounding on the way through a file."""
LARGEST = 1e15
"""The largest size of an observation or a reward: the square of a larger one, summed over a batch, is no number."""
SHOWN = 5
"""Findings that an error message spells out."""


@dataclass(frozen=True)
class Finding:
    """Something wrong ("error") or odd ("warning") in a batch; `row` is the first row that shows it, if a row does."""

    severity: Literal["error", "warning"]
    row: int | None
    text: str


def findings(batch: Batch, task: Task) -> list[Finding]:
    """All findings, errors first. Where the arrays do not fit together nothing else can be checked."""
    found = list(_layout(batch, task))
    if not found:
        for check in (_finite, _actions, _episodes, _flags, _chain, _constant, _endless):
            found += check(batch, task)
    return sorted(found, key=lambda finding: finding.severity != "error")


def require_sound(batch: Batch, task: Task, source: str) -> list[Finding]:
    """Refuses a batch that has an error; otherwise returns the warnings."""
    found = findings(batch, task)
    errors = [finding.text for finding in found if finding.severity == "error"]
    if errors:
        shown = "".join(f"\n  - {text}" for text in errors[:SHOWN])
        more = f"\n  - and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
        raise UserError(
            f"{source} is refused as a batch of task {task.name}; nothing of it was kept. "
            f"Fix {'this' if len(errors) == 1 else 'these'} and try again:{shown}{more}"
        )
    return found


def _layout(batch: Batch, task: Task) -> Iterator[Finding]:
    if not len(batch):
        yield Finding("error", None, "the batch is empty: it needs at least one transition")
        return
    n = len(batch)
    expected = {
        "obs": ((n, task.obs_size), np.float32),
        "act": ((n, task.act_size), np.float32),
        "reward": ((n,), np.float32),
        "next_obs": ((n, task.obs_size), np.float32),
        "terminated": ((n,), np.bool_),
        "truncated": ((n,), np.bool_),
        "episode": ((n,), np.int32),
        "step": ((n,), np.int32),
    }
    for name, (shape, dtype) in expected.items():
        array = getattr(batch, name)
        if array.shape != shape:
            yield Finding("error", None, f"{name} has shape {array.shape}, but task {task.name} needs {shape}")
        if array.dtype != dtype:
            yield Finding("error", None, f"{name} has type {array.dtype}, but a batch needs {np.dtype(dtype)}")


def _finite(batch: Batch, task: Task) -> Iterator[Finding]:
    for name, values in _columns(batch):
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            row = int(wrong[0])
            text = f"{name} is not a finite number in {_rows(wrong)} ({values[row]}): leave out such episodes"
            yield Finding("error", row, text)
        wrong = np.flatnonzero(np.isfinite(values) & (np.abs(values) > LARGEST))
        if len(wrong):
            row = int(wrong[0])
            text = f"{name} is larger than {LARGEST:g} in {_rows(wrong)} ({values[row]:g}): use other units"
            yield Finding("error", row, text)


def _actions(batch: Batch, task: Task) -> Iterator[Finding]:
    for i, (low, high) in enumerate(zip(task.act_low, task.act_high, strict=True)):
        values = batch.act[:, i].astype(np.float64)
        slack = ACTION_TOLERANCE * (high - low) / 2
        wrong = np.flatnonzero((values < low - slack) | (values > high + slack))
        if len(wrong):
            row = int(wrong[0])
            yield Finding(
                "error",
                row,
                f"act_{i} lies outside [{low:g}, {high:g}] in {_rows(wrong)} ({values[row]:g}): "
                "store the clipped action that was executed",
            )


def _episodes(batch: Batch, task: Task) -> Iterator[Finding]:
    starts = batch.starts()
    numbers = batch.episode[starts]
    _, first = np.unique(numbers, return_index=True)
    again = np.setdiff1d(np.arange(len(numbers)), first)
    if len(again):
        row = int(starts[again[0]])
        yield Finding(
            "error",
            row,
            f"episode {batch.episode[row]} appears again in row {row}: sort the rows by episode and step, "
            "and give every episode its own number",
        )
    position = np.arange(len(batch)) - np.repeat(starts, batch.lengths())
    wrong = np.flatnonzero(batch.step != position)
    if len(wrong):
        row = int(wrong[0])
        yield Finding(
            "error",
            row,
            f"step does not count the rows of an episode from 0 in {_rows(wrong)} "
            f"({batch.step[row]} where {position[row]} is expected): sort the rows, or leave the column out",
        )


def _flags(batch: Batch, task: Task) -> Iterator[Finding]:
    last = np.zeros(len(batch), bool)
    last[batch.starts() + batch.lengths() - 1] = True
    flagged = batch.terminated | batch.truncated
    for name in ("terminated", "truncated"):
        wrong = np.flatnonzero(getattr(batch, name) & ~last)
        if len(wrong):
            yield Finding(
                "error",
                int(wrong[0]),
                f"{name} is set before the last row of its episode in {_rows(wrong)}: "
                "begin a new episode after it, or clear the flag",
            )
    wrong = np.flatnonzero(last & ~flagged)
    if len(wrong):
        yield Finding(
            "error",
            int(wrong[0]),
            f"the last row of an episode is neither terminated nor truncated in {_rows(wrong)}: "
            "set truncated where the recording stopped",
        )


def _chain(batch: Batch, task: Task) -> Iterator[Finding]:
    inside = batch.episode[1:] == batch.episode[:-1]
    broken = (batch.next_obs[:-1] != batch.obs[1:]) & inside[:, None]
    # Numbers that are not finite have a finding of their own and equal nothing.
    broken &= np.isfinite(batch.next_obs[:-1]) & np.isfinite(batch.obs[1:])
    wrong = np.flatnonzero(np.any(broken, axis=1))
    if len(wrong):
        row = int(wrong[0])
        column = int(np.flatnonzero(broken[row])[0])
        yield Finding(
            "warning",
            row,
            f"next_obs differs from obs of the following row in {_rows(wrong)} "
            f"(next_obs_{column} is {batch.next_obs[row, column]}, then obs_{column} is {batch.obs[row + 1, column]}): "
            "are rows missing or shifted?",
        )


def _constant(batch: Batch, task: Task) -> Iterator[Finding]:
    if len(batch) == 1:
        return
    for name, values in _columns(batch):
        if not name.startswith(("obs_", "act_")):
            continue
        if np.all(values == values[0]):
            yield Finding("warning", None, f"{name} is {values[0]:g} in every row: nothing can be learnt about it")


def _endless(batch: Batch, task: Task) -> Iterator[Finding]:
    wrong = np.flatnonzero(batch.terminated)
    if task.terminated is None and len(wrong):
        yield Finding(
            "warning",
            int(wrong[0]),
            f"terminated is set in {_rows(wrong)}, but task {task.name} never terminates: "
            "imagined episodes will not end there",
        )


def _columns(batch: Batch) -> Iterator[tuple[str, np.ndarray]]:
    for name in ("obs", "act", "next_obs"):
        for i, values in enumerate(getattr(batch, name).T):
            yield f"{name}_{i}", values
    yield "reward", batch.reward


def _rows(indices: np.ndarray) -> str:
    if len(indices) == 1:
        return f"row {indices[0]}"
    return f"{len(indices)} rows, first in row {indices[0]}"
