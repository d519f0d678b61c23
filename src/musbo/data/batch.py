"""A batch: the transitions that one deployment brought home, in the order in which they happened.

Rows are grouped by episode: the rows of an episode are adjacent, `step` counts them from 0, and the last one alone
carries a flag. `terminated` says that the world ended the episode (no value lies beyond it); `truncated` says that we
stopped looking. `by` says who chose the action of a row. A Batch only holds the arrays. Whether they keep these rules
is judged in `checks`, because a batch may come from outside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, Int8, Int32
from numpy.typing import ArrayLike

from musbo.core.errors import UserError

LIMITED, FALLBACK, HUMAN, UNKNOWN = -1, -2, -3, -4
"""Who chose an action where it was not the policy alone: a limiter changed it, the fallback controller chose it, a
person did, or nobody said. Policies are 0, 1, 2, ...: 0 is the only one or the leader of those that share a batch."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Transitions of one deployment; `act` is the clipped action that was executed."""

    obs: Float32[np.ndarray, "n obs"]
    act: Float32[np.ndarray, "n act"]
    reward: Float32[np.ndarray, " n"]
    next_obs: Float32[np.ndarray, "n obs"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]
    episode: Int32[np.ndarray, " n"]
    step: Int32[np.ndarray, " n"]
    by: Int8[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.reward)

    def starts(self) -> Int[np.ndarray, " episodes"]:
        """Row at which each episode begins."""
        return np.flatnonzero(_begins(self.episode))

    def lengths(self) -> Int[np.ndarray, " episodes"]:
        """Number of rows of each episode."""
        return np.diff(self.starts(), append=len(self))

    def returns(self) -> Float64[np.ndarray, " episodes"]:
        """Undiscounted sum of rewards of each episode."""
        return np.add.reduceat(self.reward.astype(np.float64), self.starts())

    def initial(self) -> Bool[np.ndarray, " n"]:
        """Mask of the rows whose `obs` is the first state of an episode."""
        return self.step == 0


def make_batch(
    *,
    obs: ArrayLike,
    act: ArrayLike,
    reward: ArrayLike,
    next_obs: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike,
    episode: ArrayLike | None = None,
    step: ArrayLike | None = None,
    by: ArrayLike | None = None,
) -> Batch:
    """A Batch from arrays or lists. Without `episode`, episodes are derived from `terminated` and `truncated`.

    Without `by`, nobody knows who chose the actions.
    """
    numbers, ends = {"obs": obs, "act": act, "reward": reward, "next_obs": next_obs}, (terminated, truncated)
    return batch_of(numbers, ends, episode, step, by, copy=True)


def batch_of(
    numbers: Mapping[str, ArrayLike],
    ends: tuple[ArrayLike, ArrayLike],
    episode: ArrayLike | None,
    step: ArrayLike | None,
    by: ArrayLike | None,
    copy: bool,
) -> Batch:
    """The same; without `copy`, arrays of float32 are taken as they are."""
    columns = {name: _floats(name, values, 1 if name == "reward" else 2, copy) for name, values in numbers.items()}
    columns |= {name: as_flags(name, flags) for name, flags in zip(("terminated", "truncated"), ends, strict=True)}
    n = len(columns["reward"])
    columns["episode"] = (
        _episodes_from_flags(columns["terminated"] | columns["truncated"])
        if episode is None
        else _counts("episode", episode)
    )
    columns["step"] = _steps_from_episodes(columns["episode"]) if step is None else _counts("step", step)
    columns["by"] = np.full(n, UNKNOWN, np.int8) if by is None else as_choosers("by", by)
    wrong = [f"{name} has {len(array)}" for name, array in columns.items() if len(array) != n]
    if wrong:
        raise UserError(f"The columns of a batch must have one length, but reward has {n} rows and {', '.join(wrong)}.")
    if columns["obs"].shape != columns["next_obs"].shape:
        raise UserError(
            f"obs and next_obs must have the same width, but they have {columns['obs'].shape[1]} "
            f"and {columns['next_obs'].shape[1]} columns."
        )
    return Batch(**columns)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """The rows of all batches one after the other, as one batch whose episodes are numbered from 0."""
    if not batches:
        raise ValueError("concatenate needs at least one batch")
    # An episode never continues in the next batch, so a batch's first row always begins one.
    begins = np.concatenate([_begins(batch.episode) for batch in batches])
    if len(batches) == 1:  # nothing is copied
        return replace(batches[0], episode=(np.cumsum(begins) - 1).astype(np.int32))
    return Batch(
        obs=np.concatenate([batch.obs for batch in batches]),
        act=np.concatenate([batch.act for batch in batches]),
        reward=np.concatenate([batch.reward for batch in batches]),
        next_obs=np.concatenate([batch.next_obs for batch in batches]),
        terminated=np.concatenate([batch.terminated for batch in batches]),
        truncated=np.concatenate([batch.truncated for batch in batches]),
        episode=(np.cumsum(begins) - 1).astype(np.int32),
        step=np.concatenate([batch.step for batch in batches]),
        by=np.concatenate([batch.by for batch in batches]),
    )


def rows_of(batch: Batch, chosen: Bool[np.ndarray, " n"]) -> Batch:
    """Some rows of a batch; an episode keeps its number and its rows their steps."""
    return Batch(**{column.name: getattr(batch, column.name)[chosen] for column in fields(Batch)})


def _begins(episode: Int32[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    begins = np.ones(len(episode), bool)
    begins[1:] = episode[1:] != episode[:-1]
    return begins


def _episodes_from_flags(last: Bool[np.ndarray, " n"]) -> Int32[np.ndarray, " n"]:
    return (np.cumsum(last) - last).astype(np.int32)


def _steps_from_episodes(episode: Int32[np.ndarray, " n"]) -> Int32[np.ndarray, " n"]:
    row = np.arange(len(episode))
    start = np.maximum.accumulate(np.where(_begins(episode), row, 0))
    return (row - start).astype(np.int32)


def _array(name: str, values: ArrayLike, rank: int) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise UserError(f"{name} is not a rectangular array of numbers: {error}.") from error
    if array.ndim != rank:
        raise UserError(f"{name} must have {rank} dimension{'s' * (rank > 1)}, but its shape is {array.shape}.")
    if array.dtype.kind not in "biuf":
        raise UserError(f"{name} must hold numbers, but its type is {array.dtype}.")
    return array


def _floats(name: str, values: ArrayLike, rank: int, copy: bool) -> np.ndarray:
    # What float32 cannot hold becomes inf, which the checks report with its row.
    with np.errstate(over="ignore"):
        return _array(name, values, rank).astype(np.float32, copy=copy)


def as_flags(name: str, values: ArrayLike) -> Bool[np.ndarray, " n"]:
    """True and false, from those or from 1 and 0."""
    array = _array(name, values, 1)
    wrong = np.flatnonzero((array != 0) & (array != 1))
    if len(wrong):
        raise UserError(f"{name} must be true or false (or 1 or 0), but row {wrong[0]} holds {array[wrong[0]]}.")
    return array.astype(bool)


def _counts(name: str, values: ArrayLike) -> Int32[np.ndarray, " n"]:
    array = _array(name, values, 1)
    limit = np.iinfo(np.int32).max
    with np.errstate(invalid="ignore"):  # what is no number is wrong too, and said below
        wrong = np.flatnonzero(~((array >= 0) & (array <= limit)) | (array != np.floor(array)))
    if len(wrong):
        raise UserError(f"{name} must be whole numbers from 0 to {limit}, but row {wrong[0]} holds {array[wrong[0]]}.")
    return array.astype(np.int32)


def as_choosers(name: str, values: ArrayLike) -> Int8[np.ndarray, " n"]:
    """Who chose the actions, from whole numbers."""
    array = _array(name, values, 1)
    limit = np.iinfo(np.int8).max
    wrong = np.flatnonzero(~((array >= UNKNOWN) & (array <= limit)) | (array != np.floor(array)))
    if len(wrong):
        raise UserError(
            f"{name} must be whole numbers from {UNKNOWN} to {limit} (0 is the policy), but row {wrong[0]} holds "
            f"{array[wrong[0]]}."
        )
    return array.astype(np.int8)
