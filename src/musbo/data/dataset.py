"""D_all: every transition collected so far, in arrays of a fixed size.

The budget of a campaign is known from the start (deployments times batch size), so the arrays have that capacity at
once and a mask `live` says which rows are filled. What is compiled for these shapes is not compiled again when a batch
arrives.

Each batch is split into training and held-out rows when it arrives, by whole episodes, because neighbouring steps of
one episode are nearly copies of each other. The split depends on the seed, the deployment number and the batch's own
episodes only: a later batch never moves a row that a model was once judged on into the rows that it is trained on.
"""

import hashlib
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int, Int32

from musbo.core.errors import UserError
from musbo.data.batch import Batch


class Dataset(eqx.Module):
    """All batches in the order of their deployments, then free rows, which are zero."""

    obs: Float32[Array, "c obs"]
    act: Float32[Array, "c act"]
    reward: Float32[Array, " c"]
    next_obs: Float32[Array, "c obs"]
    terminated: Bool[Array, " c"]
    live: Bool[Array, " c"]
    heldout: Bool[Array, " c"]
    """Live rows that are kept from training; the other live rows are the training rows."""
    initial: Bool[Array, " c"]
    """Rows whose `obs` is the first state of an episode."""
    deployment: Int32[Array, " c"]
    """Number of the deployment that brought the row, from 1; 0 in free rows."""

    @property
    def capacity(self) -> int:
        return self.live.shape[0]

    @property
    def training(self) -> Bool[Array, " c"]:
        """Mask of the rows that models may be fitted on."""
        return self.live & ~self.heldout


def assemble(batches: Sequence[Batch], capacity: int, seed: int, heldout_share: float = 0.15) -> Dataset:
    """D_all from the batches of deployments 1, 2, ... in that order."""
    if not batches:
        raise UserError("There is no data yet: collect or ingest a batch first.")
    if not 0 < heldout_share < 1:
        raise UserError(f"The held-out share must lie between 0 and 1, but it is {heldout_share}.")
    sizes = [(batch.obs.shape[1], batch.act.shape[1]) for batch in batches]
    for number, size in enumerate(sizes, start=1):
        if size != sizes[0]:
            raise UserError(
                f"Batch {number} has {size[0]} observation and {size[1]} action columns, "
                f"but batch 1 has {sizes[0][0]} and {sizes[0][1]}: they belong to different tasks."
            )
    total = sum(len(batch) for batch in batches)
    if total > capacity:
        raise UserError(
            f"The batches hold {total} transitions, but the budget of this campaign is {capacity}: "
            "give it more deployments or a larger batch size."
        )

    numbers = range(1, len(batches) + 1)
    splits = [split(batch, seed, number, heldout_share) for number, batch in zip(numbers, batches, strict=True)]
    owners = [np.full(len(batch), number, np.int32) for number, batch in zip(numbers, batches, strict=True)]
    return Dataset(
        obs=_fill([batch.obs for batch in batches], capacity),
        act=_fill([batch.act for batch in batches], capacity),
        reward=_fill([batch.reward for batch in batches], capacity),
        next_obs=_fill([batch.next_obs for batch in batches], capacity),
        terminated=_fill([batch.terminated for batch in batches], capacity),
        live=_fill([np.ones(len(batch), bool) for batch in batches], capacity),
        heldout=_fill(splits, capacity),
        initial=_fill([batch.initial() for batch in batches], capacity),
        deployment=_fill(owners, capacity),
    )


def split(batch: Batch, seed: int, deployment: int, heldout_share: float = 0.15) -> Bool[np.ndarray, " n"]:
    """Mask of the held-out rows of one batch.

    Episodes are visited in a random order, and each is taken if it brings the number of held-out rows nearer to the
    share. A batch of one episode cannot be split by episodes: its last rows are held out.
    """
    lengths = batch.lengths()
    goal = heldout_share * len(batch)
    if len(lengths) <= 1:
        heldout = min(max(round(goal), 1), len(batch) - 1)
        return np.arange(len(batch)) >= len(batch) - heldout

    order = sorted(range(len(lengths)), key=lambda index: _lot(seed, deployment, index))
    chosen = np.zeros(len(lengths), bool)
    heldout = 0
    for index in order:
        longer = heldout + lengths[index]
        if abs(longer - goal) < abs(heldout - goal) and longer < len(batch):
            chosen[index] = True
            heldout = longer
    if not heldout:
        # Every episode is more than twice the share. One is held out all the same: the one that overshoots least.
        chosen[min(order, key=lambda index: lengths[index])] = True
    return np.repeat(chosen, lengths)


def rows(mask: Bool[Array, " c"] | Bool[np.ndarray, " c"]) -> Int[np.ndarray, " rows"]:
    """Indices of the rows that a mask selects, in order."""
    return np.flatnonzero(np.asarray(mask)).astype(np.int32)


def _lot(seed: int, deployment: int, index: int) -> bytes:
    # A hash and not a random generator, whose stream may change with the version of its library: the split is drawn
    # anew each time a campaign is opened and has to come out the same for years.
    return hashlib.sha256(f"split {seed} {deployment} {index}".encode()).digest()


def _fill(parts: list[np.ndarray], capacity: int) -> Array:
    whole = np.zeros((capacity, *parts[0].shape[1:]), parts[0].dtype)
    np.concatenate(parts, out=whole[: sum(map(len, parts))])
    return jnp.asarray(whole)
