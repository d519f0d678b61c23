"""A value function that cannot run away: a few small networks of the observation alone, without a clock.

They are fitted by minibatches on lambda-returns, which are bootstrapped with V itself. Three things keep that sound: a
return is standardised with statistics that move slowly, and the networks are re-expressed when these do, so that V
stays the same function; V lies between what the worst and the best reward would be worth for ever, so the returns that
are bootstrapped with it do too; and the mean of several networks is believed.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.learning.fit import ADAM, adam
from musbo.models.mlp import MLP, affine_outputs, count, init_mlp, member

FIRST = 10
"""A new value function is fitted so many times as long as one that goes on."""


@stored("baseline/ensemble")
@dataclass(frozen=True)
class Ensemble:
    """V: a few networks of the observation, bounded by what the rewards allow."""

    members: int = 2
    """Networks whose mean is V."""
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    steps: int = 40
    """Minibatch steps of every network per TRPO update."""
    batch: int = 500
    """Minibatch size."""
    memory: float = 0.8
    """How much of the mean and the spread of returns is kept from update to update."""

    def __post_init__(self) -> None:
        if not self.hidden or min(*self.hidden, self.members, self.steps, self.batch) < 1:
            raise UserError("the baseline needs members, hidden layers, steps and batch of at least 1.")
        if not self.learning_rate > 0 or not 0 <= self.memory < 1:
            raise UserError("the baseline needs a learning rate above 0, and a memory in [0, 1).")

    def begin(self, obs_size: int, key: PRNGKeyArray) -> "EnsembleValue":
        sizes = (obs_size, *self.hidden, 1)
        networks = jax.vmap(lambda k: init_mlp(k, sizes, "tanh", last_gain=0.01))(jax.random.split(key, self.members))
        moments = jax.vmap(ADAM.init)(networks)  # type: ignore[arg-type]
        zero = jnp.zeros(())
        return EnsembleValue(networks, moments, zero, jnp.ones(()), zero, zero, jnp.zeros((), bool))

    def fit(
        self,
        value: "EnsembleValue",
        features: Float[Array, "n f"],
        wanted: Float[Array, " n"],
        live: Float[Array, " n"],
        key: PRNGKeyArray,
        limits: tuple[Float[Array, ""], Float[Array, ""]],
    ) -> "EnsembleValue":
        seen = observation(features)
        wanted = jnp.clip(jnp.where(live > 0, wanted, 0.0), *limits)
        n = jnp.maximum(jnp.sum(live), 1.0)
        mean = live @ wanted / n
        spread = jnp.sqrt(live @ (wanted - mean) ** 2 / n)
        kept = jnp.where(value.fitted, self.memory, 0.0)
        shift = kept * value.shift + (1 - kept) * mean
        scale = jnp.maximum(kept * value.scale + (1 - kept) * spread, 1e-6)
        same = jax.vmap(affine_outputs, in_axes=(0, None, None))(
            value.networks, (value.scale / scale)[None], ((value.shift - shift) / scale)[None]
        )
        start = jax.tree.map(lambda new, old: jnp.where(value.fitted, new, old), same, value.networks)
        target = (wanted - shift) / scale
        existing = jnp.argsort(live <= 0, stable=True)  # the rows that exist come first
        steps = self.steps * jnp.where(value.fitted, 1, FIRST)

        def minibatch(i: Int[Array, ""], carry: tuple) -> tuple:
            network, moments, k = carry
            rows = existing[jax.random.randint(jax.random.fold_in(k, i), (self.batch,), 0, n.astype(jnp.int32))]

            def loss(m: MLP) -> Float[Array, ""]:
                return jnp.mean((jax.vmap(m)(seen[rows])[:, 0] - target[rows]) ** 2)

            updates, moments = adam(jax.grad(loss)(network), moments)
            return jax.tree.map(lambda p, u: p - self.learning_rate * u, network, updates), moments, k

        # One after the other: a `vmap` over networks is slower.
        trained = [
            jax.lax.fori_loop(0, steps, minibatch, (member(start, i), member(value.moments, i), k))[:2]
            for i, k in enumerate(jax.random.split(key, self.members))
        ]
        networks, moments = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trained)
        return EnsembleValue(networks, moments, shift, scale, *limits, jnp.ones((), bool))


@stored("value/ensemble")
class EnsembleValue(eqx.Module):
    """V: shift + scale times the mean of the networks, within [low, high]."""

    networks: MLP
    moments: object
    shift: Float[Array, ""]
    scale: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    fitted: Bool[Array, ""]

    def __call__(self, features: Float[Array, "n f"]) -> Float[Array, " n"]:
        seen = observation(features)
        each = [jax.vmap(member(self.networks, i))(seen)[:, 0] for i in range(count(self.networks))]
        return jnp.clip(self.shift + self.scale * sum(each) / len(each), self.low, self.high)


def observation(features: Float[Array, "n f"]) -> Float[Array, "n obs"]:
    """The first part of [o, o^2, t, t^2, t^3, 1]."""
    return features[:, : (features.shape[1] - 4) // 2]
