"""Checks of a batch that came from outside: is it what the task says, and does it keep the rules of a batch?

Every check reports a finding with the column, the first row and what to do. An error makes the batch useless or
misleading for training, and a batch with one error is refused whole; warnings are for a person to look at.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int

from musbo.core.errors import UserError
from musbo.data.batch import Batch
from musbo.tasks.task import Task

ACTION_TOLERANCE = 1e-5
"""Part of the half-range by which an action may exceed its bounds: rounding on the way through a file."""
LARGEST = 1e15
"""The largest size of an observation or a reward: the square of a larger one, summed over a batch, is no number."""
SHOWN = 5
"""Findings that an error message spells out."""


@dataclass(frozen=True, eq=False)
class Origin:
    """What the log that a batch was read from calls its columns and rows; without names, as a batch does."""

    obs: tuple[str, ...] = ()
    act: tuple[str, ...] = ()
    next_obs: tuple[str, ...] = ()
    reward: str = "reward"
    row: Int[np.ndarray, " n"] | None = None
    """The row of every transition."""
    after: Int[np.ndarray, " n"] | None = None
    """The row that its next observation is taken from, where the log has no columns for that."""

    def name(self, block: str, i: int) -> str:
        names = getattr(self, block)
        return names[i] if names else f"{block}_{i}"

    def rows(self, chosen: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
        """Rows of the log, of rows of the batch."""
        return chosen if self.row is None else self.row[chosen]


PLAIN = Origin()


@dataclass(frozen=True)
class Finding:
    """Something wrong ("error") or odd ("warning") in a batch; `row` is the first row that shows it, if a row does."""

    severity: Literal["error", "warning"]
    row: int | None
    text: str


def findings(batch: Batch, task: Task, origin: Origin = PLAIN) -> list[Finding]:
    """All findings, errors first. Where the arrays do not fit together nothing else can be checked."""
    found = list(_layout(batch, task, origin))
    if not found:
        for check in (_finite, _actions, _episodes, _flags, _chain, _constant, _endless):
            found += check(batch, task, origin)
    return sorted(found, key=lambda finding: finding.severity != "error")


def require_sound(batch: Batch, task: Task, source: str, origin: Origin = PLAIN) -> list[Finding]:
    """Refuses a batch that has an error; otherwise returns the warnings."""
    found = findings(batch, task, origin)
    errors = [finding.text for finding in found if finding.severity == "error"]
    if errors:
        shown = "".join(f"\n  - {text}" for text in errors[:SHOWN])
        more = f"\n  - and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
        raise UserError(
            f"{source} is refused as a batch of task {task.name}; nothing of it was kept. "
            f"Fix {'this' if len(errors) == 1 else 'these'} and try again:{shown}{more}"
        )
    return found


def _layout(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
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


def _finite(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
    for name, values, rows in _columns(batch, origin):
        if len(wrong := np.flatnonzero(~np.isfinite(values))):
            text = (
                f"{name} is not a finite number in {_rows(rows[wrong])} ({values[wrong[0]]}): leave out such episodes"
            )
            yield Finding("error", int(rows[wrong[0]]), text)
        if len(wrong := np.flatnonzero(np.isfinite(values) & (np.abs(values) > LARGEST))):
            text = f"{name} is larger than {LARGEST:g} in {_rows(rows[wrong])} ({values[wrong[0]]:g}): use other units"
            yield Finding("error", int(rows[wrong[0]]), text)


def _actions(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
    for i, (low, high) in enumerate(zip(task.act_low, task.act_high, strict=True)):
        values = batch.act[:, i].astype(np.float64)
        slack = ACTION_TOLERANCE * (high - low) / 2
        wrong = np.flatnonzero((values < low - slack) | (values > high + slack))
        if len(wrong):
            rows = origin.rows(wrong)
            yield Finding(
                "error",
                int(rows[0]),
                f"{origin.name('act', i)} lies outside [{low:g}, {high:g}] in {_rows(rows)} ({values[wrong[0]]:g}): "
                "store the clipped action that was executed, in the units of the task",
            )


def _episodes(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
    starts = batch.starts()
    numbers = batch.episode[starts]
    _, first = np.unique(numbers, return_index=True)
    again = np.setdiff1d(np.arange(len(numbers)), first)
    if len(again):
        row = int(starts[again[0]])
        at = int(origin.rows(starts[again])[0])
        yield Finding(
            "error",
            at,
            f"episode {batch.episode[row]} appears again in row {at}: sort the rows by episode and step, "
            "and give every episode its own number",
        )
    position = np.arange(len(batch)) - np.repeat(starts, batch.lengths())
    wrong = np.flatnonzero(batch.step != position)
    if len(wrong):
        row, rows = int(wrong[0]), origin.rows(wrong)
        yield Finding(
            "error",
            int(rows[0]),
            f"step does not count the rows of an episode from 0 in {_rows(rows)} "
            f"({batch.step[row]} where {position[row]} is expected): sort the rows, or leave the column out",
        )


def _flags(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
    last = np.zeros(len(batch), bool)
    last[batch.starts() + batch.lengths() - 1] = True
    flagged = batch.terminated | batch.truncated
    for name in ("terminated", "truncated"):
        wrong = np.flatnonzero(getattr(batch, name) & ~last)
        if len(wrong):
            yield Finding(
                "error",
                int(origin.rows(wrong)[0]),
                f"{name} is set before the last row of its episode in {_rows(origin.rows(wrong))}: "
                "begin a new episode after it, or clear the flag",
            )
    wrong = np.flatnonzero(last & ~flagged)
    if len(wrong):
        yield Finding(
            "error",
            int(origin.rows(wrong)[0]),
            f"the last row of an episode is neither terminated nor truncated in {_rows(origin.rows(wrong))}: "
            "set truncated where the recording stopped",
        )


def _chain(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
    inside = batch.episode[1:] == batch.episode[:-1]
    broken = (batch.next_obs[:-1] != batch.obs[1:]) & inside[:, None]
    # Numbers that are not finite have a finding of their own and equal nothing.
    broken &= np.isfinite(batch.next_obs[:-1]) & np.isfinite(batch.obs[1:])
    wrong = np.flatnonzero(np.any(broken, axis=1))
    if len(wrong):
        row = int(wrong[0])
        column = int(np.flatnonzero(broken[row])[0])
        before, after = origin.name("next_obs", column), origin.name("obs", column)
        yield Finding(
            "warning",
            int(origin.rows(wrong)[0]),
            f"next_obs differs from obs of the following row in {_rows(origin.rows(wrong))} "
            f"({before} is {batch.next_obs[row, column]}, then {after} is {batch.obs[row + 1, column]}): "
            "are rows missing or shifted?",
        )


def _constant(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
    if len(batch) == 1:
        return
    for name, values, _ in _columns(batch, origin, ("obs", "act")):
        if np.all(values == values[0]):
            yield Finding("warning", None, f"{name} is {values[0]:g} in every row: nothing can be learnt about it")


def _endless(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
    wrong = np.flatnonzero(batch.terminated)
    if task.terminated is None and len(wrong):
        rows = origin.rows(wrong)
        yield Finding(
            "warning",
            int(rows[0]),
            f"terminated is set in {_rows(rows)}, but task {task.name} never terminates: "
            "imagined episodes will not end there",
        )


def _columns(
    batch: Batch, origin: Origin, blocks: tuple[str, ...] = ("obs", "act", "next_obs", "reward")
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, values and rows of every column. A next observation without columns of its own is in those of obs."""
    row = origin.rows(np.arange(len(batch)))
    for block in blocks:
        if block == "reward":
            yield origin.reward, batch.reward, row
        elif block == "obs" and origin.after is not None:
            new = ~np.isin(origin.after, row)
            rows = np.concatenate([row, origin.after[new]])
            for i in range(batch.obs.shape[1]):
                yield origin.name("obs", i), np.concatenate([batch.obs[:, i], batch.next_obs[new, i]]), rows
        elif block != "next_obs" or origin.after is None:
            for i, values in enumerate(getattr(batch, block).T):
                yield origin.name(block, i), values, row


def _rows(indices: np.ndarray) -> str:
    if len(indices) == 1:
        return f"row {indices[0]}"
    return f"{len(indices)} rows, first in row {indices[0]}"
