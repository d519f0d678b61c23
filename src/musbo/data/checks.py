"""Checks of a batch that came from outside: is it what the task says, and does it keep the rules of a batch?

Every check reports a finding with the column, the first row and what to do. An error makes the batch useless or
misleading for training, and a batch with one error is refused whole; warnings are for a person to look at. What may be
wrong with the world that the batch came from, such as a stuck sensor, is for the doctor: see `doctor.examine`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int

from musbo.core.errors import UserError
from musbo.data.batch import Batch
from musbo.data.finding import Finding, first_few, in_order, said_rows
from musbo.data.said import Said, strangers
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
    said: Mapping[str, tuple[Said, ...]] = field(default_factory=dict)
    """What the log says that the columns of a block are."""

    def name(self, block: str, i: int) -> str:
        names = getattr(self, block)
        return names[i] if names else f"{block}_{i}"

    def rows(self, chosen: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
        """Rows of the log, of rows of the batch."""
        return chosen if self.row is None else self.row[chosen]


PLAIN = Origin()


def findings(batch: Batch, task: Task, origin: Origin = PLAIN) -> list[Finding]:
    """All findings, errors first. Where the arrays do not fit together nothing else can be checked."""
    found = list(_layout(batch, task, origin))
    if not found:
        for block, said in origin.said.items():
            found += strangers(block, said, task)
        found += [*_finite(batch, origin), *_actions(batch, task, origin), *_order(batch, origin)]
        found += [*_constant(batch, origin), *_endless(batch, task, origin)]
    return in_order(found)


def plain_findings(batch: Batch, origin: Origin = PLAIN) -> list[Finding]:
    """What can be found without a task."""
    if not len(batch):
        return [Finding("empty", "error", "the batch is empty", "it needs at least one transition")]
    return in_order([*_finite(batch, origin), *_order(batch, origin), *_constant(batch, origin)])


def _order(batch: Batch, origin: Origin) -> Iterator[Finding]:
    for check in (_episodes, _flags, _chain):
        yield from check(batch, origin)


def require_sound(batch: Batch, task: Task, source: str, origin: Origin = PLAIN) -> list[Finding]:
    """Refuses a batch that has an error; otherwise returns the warnings."""
    found = findings(batch, task, origin)
    errors = [finding.text for finding in found if finding.level == "error"]
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
        yield Finding("empty", "error", "the batch is empty", "it needs at least one transition")
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
        "by": ((n,), np.int8),
    }
    for name, (shape, dtype) in expected.items():
        array = getattr(batch, name)
        columns = getattr(origin, name, ())
        columns = columns if isinstance(columns, tuple) else ()
        if array.shape != shape:
            what = f"{name} has shape {array.shape}, but task {task.name} needs {shape}"
            do = "name as many columns as the task has numbers" if array.ndim == len(shape) > 1 else "write it again"
            yield Finding("wrong shape", "error", what, do, columns)
        if array.dtype != dtype:
            what = f"{name} has type {array.dtype}, but a batch needs {np.dtype(dtype)}"
            yield Finding("wrong type", "error", what, "convert it", columns)


def _finite(batch: Batch, origin: Origin) -> Iterator[Finding]:
    for name, values, rows in _columns(batch, origin):
        if len(wrong := np.flatnonzero(~np.isfinite(values))):
            what = f"{name} is not a finite number in {said_rows(rows[wrong])} ({values[wrong[0]]})"
            yield Finding(
                "not finite", "error", what, "leave out such episodes", (name,), int(rows[wrong[0]]), len(wrong)
            )
        if len(wrong := np.flatnonzero(np.isfinite(values) & (np.abs(values) > LARGEST))):
            what = f"{name} is larger than {LARGEST:g} in {said_rows(rows[wrong])} ({values[wrong[0]]:g})"
            yield Finding("too large", "error", what, "use other units", (name,), int(rows[wrong[0]]), len(wrong))


def _actions(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
    for i, (low, high) in enumerate(zip(task.act_low, task.act_high, strict=True)):
        values = batch.act[:, i].astype(np.float64)
        slack = ACTION_TOLERANCE * (high - low) / 2
        wrong = np.flatnonzero((values < low - slack) | (values > high + slack))
        if len(wrong):
            rows, name = origin.rows(wrong), origin.name("act", i)
            yield Finding(
                "action outside bounds",
                "error",
                f"{name} lies outside [{low:g}, {high:g}] in {said_rows(rows)} ({values[wrong[0]]:g})",
                "store the clipped action that was executed, in the units of the task",
                (name,),
                int(rows[0]),
                len(rows),
                first_few(batch.episode[wrong]),
            )


def _episodes(batch: Batch, origin: Origin) -> Iterator[Finding]:
    starts = batch.starts()
    numbers = batch.episode[starts]
    _, first = np.unique(numbers, return_index=True)
    again = np.setdiff1d(np.arange(len(numbers)), first)
    if len(again):
        row = int(starts[again[0]])
        at = int(origin.rows(starts[again])[0])
        yield Finding(
            "episode in pieces",
            "error",
            f"episode {batch.episode[row]} appears again in row {at}",
            "sort the rows by episode and step, and give every episode its own number",
            row=at,
            rows=len(again),
            episodes=first_few(numbers[again]),
        )
    position = np.arange(len(batch)) - np.repeat(starts, batch.lengths())
    wrong = np.flatnonzero(batch.step != position)
    if len(wrong):
        row, rows = int(wrong[0]), origin.rows(wrong)
        yield Finding(
            "steps do not count",
            "error",
            f"step does not count the rows of an episode from 0 in {said_rows(rows)} "
            f"({batch.step[row]} where {position[row]} is expected)",
            "sort the rows, or leave the column out",
            row=int(rows[0]),
            rows=len(rows),
            episodes=first_few(batch.episode[wrong]),
        )


def _flags(batch: Batch, origin: Origin) -> Iterator[Finding]:
    last = np.zeros(len(batch), bool)
    last[batch.starts() + batch.lengths() - 1] = True
    flagged = batch.terminated | batch.truncated
    for name in ("terminated", "truncated"):
        wrong = np.flatnonzero(getattr(batch, name) & ~last)
        if len(wrong):
            rows = origin.rows(wrong)
            yield Finding(
                "flag inside an episode",
                "error",
                f"{name} is set before the last row of its episode in {said_rows(rows)}",
                "begin a new episode after it, or clear the flag",
                row=int(rows[0]),
                rows=len(rows),
                episodes=first_few(batch.episode[wrong]),
            )
    wrong = np.flatnonzero(last & ~flagged)
    if len(wrong):
        rows = origin.rows(wrong)
        yield Finding(
            "end without a flag",
            "error",
            f"the last row of an episode is neither terminated nor truncated in {said_rows(rows)}",
            "set truncated where the recording stopped",
            row=int(rows[0]),
            rows=len(rows),
            episodes=first_few(batch.episode[wrong]),
        )


def _chain(batch: Batch, origin: Origin) -> Iterator[Finding]:
    inside = batch.episode[1:] == batch.episode[:-1]
    broken = (batch.next_obs[:-1] != batch.obs[1:]) & inside[:, None]
    # Numbers that are not finite have a finding of their own and equal nothing.
    broken &= np.isfinite(batch.next_obs[:-1]) & np.isfinite(batch.obs[1:])
    wrong = np.flatnonzero(np.any(broken, axis=1))
    if len(wrong):
        row = int(wrong[0])
        column = int(np.flatnonzero(broken[row])[0])
        before, after = origin.name("next_obs", column), origin.name("obs", column)
        rows = origin.rows(wrong)
        yield Finding(
            "next state does not match",
            "warning",
            f"next_obs differs from obs of the following row in {said_rows(rows)} "
            f"({before} is {batch.next_obs[row, column]}, then {after} is {batch.obs[row + 1, column]})",
            "see whether rows are missing or shifted",
            tuple(origin.name("next_obs", int(i)) for i in np.flatnonzero(np.any(broken, axis=0))),
            int(rows[0]),
            len(rows),
            first_few(batch.episode[wrong]),
        )


def _constant(batch: Batch, origin: Origin) -> Iterator[Finding]:
    if len(batch) == 1:
        return
    for name, values, _ in _columns(batch, origin, ("obs", "act")):
        if np.all(values == values[0]):
            what = f"{name} is {values[0]:g} in every row"
            yield Finding("dead", "warning", what, "nothing can be learnt about it", (name,), rows=len(values))


def _endless(batch: Batch, task: Task, origin: Origin) -> Iterator[Finding]:
    wrong = np.flatnonzero(batch.terminated)
    if task.terminated is None and len(wrong):
        rows = origin.rows(wrong)
        yield Finding(
            "unexpected termination",
            "warning",
            f"terminated is set in {said_rows(rows)}, but task {task.name} never terminates",
            "imagined episodes will not end there",
            row=int(rows[0]),
            rows=len(rows),
            episodes=first_few(batch.episode[wrong]),
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
