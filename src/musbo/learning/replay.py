"""What actor-critics draw their minibatches from: logged transitions, and imagined ones that are forgotten again."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from musbo.core.registry import stored
from musbo.data.dataset import Dataset
from musbo.models.frame import Frame


@stored("state/transitions")
class Transitions(eqx.Module):
    """Rows as the networks see them: normalised observations, actions as shares of the half-range."""

    x: Float[Array, "n obs"]
    a: Float[Array, "n act"]
    reward: Float[Array, " n"]
    next_x: Float[Array, "n obs"]
    goes_on: Float[Array, " n"]
    trust: Float[Array, " n"] | None = None
    """U: how far what a row promises counts, where that is a gain; None: wholly."""


@stored("state/replay")
class Replay(eqx.Module):
    """Slots of equal size one after the other, in each of which the first n rows count.

    D_all is one slot. Imagined rows have a slot per rollout, so that the oldest rollout is forgotten as a whole.
    """

    rows: Transitions
    n: Int[Array, " slots"]

    def draw(self, size: int, key: PRNGKeyArray) -> Transitions:
        """Uniformly, with replacement, among the rows that count."""
        slot_size = self.rows.reward.shape[0] // self.n.shape[0]
        ends = jnp.cumsum(self.n)
        number = jax.random.randint(key, (size,), 0, ends[-1])
        slot = jnp.searchsorted(ends, number, side="right")
        picked = slot * slot_size + number - (ends - self.n)[slot]
        return jax.tree.map(lambda column: column[picked], self.rows)

    def put(self, slot: Int[Array, ""], rows: Transitions, live: Bool[Array, " n"]) -> "Replay":
        """This slot filled anew, with the live ones of `rows`."""
        order = jnp.argsort(~live, stable=True)  # live ones first
        begin = slot * live.shape[0]
        written = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new[order], begin, 0), self.rows, rows
        )
        return Replay(written, self.n.at[slot].set(jnp.sum(live, dtype=self.n.dtype)))


def empty(slots: int, slot_size: int, obs: int, act: int, doubted: bool = False) -> Replay:
    """Nothing yet; `doubted` rows say how far they are trusted."""
    c = slots * slot_size
    zeros = jnp.zeros(c)
    rows = Transitions(jnp.zeros((c, obs)), jnp.zeros((c, act)), zeros, jnp.zeros((c, obs)), zeros)
    if doubted:
        rows = replace(rows, trust=zeros)
    return Replay(rows, jnp.zeros(slots, jnp.int32))


@jax.jit
def logged(data: Dataset, frame: Frame) -> Replay:
    """D_all as the networks see it. Only a termination ends the future: a cut by the clock does not."""
    rows = Transitions(
        frame.see(data.obs),
        frame.share(data.act),
        data.reward,
        frame.see(data.next_obs),
        1.0 - data.terminated.astype(jnp.float32),
    )
    return Replay(rows, jnp.sum(data.live, dtype=jnp.int32)[None])
