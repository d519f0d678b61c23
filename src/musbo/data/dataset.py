"""D_all: every transition collected so far, in arrays of a fixed size.

The budget of a campaign is known from the start (deployments times batch size), so the arrays have that capacity at
once and a mask `live` says which rows are filled. What is compiled for these shapes is not compiled again when a batch
arrives.

Each batch is split into training and held-out rows when it arrives, by whole episodes, because neighbouring steps of
one episode are nearly copies of each other. The split depends on the seed, the deployment number and the batch's own
episodes only: a later batch never moves a row that a model was once judged on into the rows that it is trained on.
"""

import hashlib
from collections.abc import Iterable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int, Int8, Int32

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.batch import Batch


@stored("data/dataset")
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
    by: Int8[Array, " c"]
    """Who chose the action, as in a batch; 0 in free rows."""

    @property
    def capacity(self) -> int:
        return self.live.shape[0]

    @property
    def training(self) -> Bool[Array, " c"]:
        """Mask of the rows that models may be fitted on."""
        return self.live & ~self.heldout


def assemble(batches: Iterable[Batch], capacity: int, seed: int, heldout_share: float = 0.15) -> Dataset:
    """D_all from the batches of deployments 1, 2, ... in that order, of which one at a time is held in memory."""
    if not 0 < heldout_share < 1:
        raise UserError(f"The held-out share must lie between 0 and 1, but it is {heldout_share}.")
    columns: dict[str, np.ndarray] = {}
    sizes: list[tuple[int, int]] = []
    total = 0
    for number, batch in enumerate(batches, start=1):
        parts = {
            "obs": batch.obs,
            "act": batch.act,
            "reward": batch.reward,
            "next_obs": batch.next_obs,
            "terminated": batch.terminated,
            "live": np.ones(len(batch), bool),
            "heldout": split(batch, seed, number, heldout_share),
            "initial": batch.initial(),
            "deployment": np.full(len(batch), number, np.int32),
            "by": batch.by,
        }
        sizes.append((batch.obs.shape[1], batch.act.shape[1]))
        if sizes[-1] != sizes[0]:
            raise UserError(
                f"Batch {number} has {sizes[-1][0]} observation and {sizes[-1][1]} action columns, "
                f"but batch 1 has {sizes[0][0]} and {sizes[0][1]}: they belong to different tasks."
            )
        here = slice(total, total + len(batch))
        total = here.stop
        if total > capacity:
            raise UserError(
                f"Batches 1 to {number} hold {total} transitions, but the budget of this campaign is {capacity}: "
                "give it more deployments or a larger batch size."
            )
        for name, part in parts.items():
            if number == 1:
                columns[name] = np.zeros((capacity, *part.shape[1:]), part.dtype)
            columns[name][here] = part
    if not columns:
        raise UserError("There is no data yet: collect a batch first, or bring one with --data.")
    return Dataset(**{name: jnp.asarray(columns.pop(name)) for name in list(columns)})


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


def episodes(data: Dataset) -> Int[np.ndarray, " c"]:
    """A number for every row that is the same within an episode only."""
    deployment = np.asarray(data.deployment)
    another = np.diff(deployment, prepend=deployment[0]) != 0  # logs need not hold an episode's beginning
    return np.cumsum(np.asarray(data.initial) | another)


def _lot(seed: int, deployment: int, index: int) -> bytes:
    # A hash and not a random generator, whose stream may change with the version of its library: the split is drawn
    # anew each time a campaign is opened and has to come out the same for years.
    return hashlib.sha256(f"split {seed} {deployment} {index}".encode()).digest()
