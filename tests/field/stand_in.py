"""Small actors with the methods of the real one, whose behaviour a test can predict."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from musbo.core.diagnostics import NOTHING, Findings


class Wanderer(eqx.Module):
    """Uniform actions; its signal tells what the actor was told about the step before."""

    half_range: Float[Array, " act"]

    @property
    def needs_oracle(self) -> bool:
        return False

    def act(self, obs, key, previous_obs, previous_act, has_previous):
        share = jax.random.uniform(key, (len(obs), len(self.half_range)), minval=-1.0, maxval=1.0)
        told = previous_obs.sum(1) + 10 * previous_act.sum(1)
        return share * self.half_range[None, :], jnp.where(has_previous, told, jnp.nan)

    def findings(self, signal, alone) -> Findings:
        return NOTHING


class Crowd(eqx.Module):
    """Stays where it is, and reports as its signal the mean of what all its rows see."""

    needs_oracle: bool = eqx.field(static=True, default=False)

    def act(self, obs, key, previous_obs, previous_act, has_previous):
        return jnp.zeros((len(obs), 2)), jnp.full(len(obs), obs[:, 0].mean())

    def findings(self, signal, alone) -> Findings:
        return NOTHING


class Prophet(eqx.Module):
    """Acts on its tentative action, and reports as its signal how far the oracle said the state would move."""

    half_range: Float[Array, " act"]

    @property
    def needs_oracle(self) -> bool:
        return True

    def tentative(self, obs, key):
        share = jax.random.uniform(key, (len(obs), len(self.half_range)), minval=-1.5, maxval=1.5)
        return share * self.half_range[None, :]

    def act_oracle(self, obs, tentative, next_obs, key):
        bound = jnp.broadcast_to(self.half_range[None, :], tentative.shape)
        return jnp.clip(tentative, -bound, bound), jnp.abs(next_obs - obs).sum(1)

    def act(self, obs, key, previous_obs, previous_act, has_previous):
        raise NotImplementedError("an oracle is asked through act_oracle")

    def findings(self, signal, alone) -> Findings:
        return NOTHING


class Linear(eqx.Module):
    """A deterministic policy."""

    weight: Float[Array, "obs act"]

    def __call__(self, obs: Float[Array, "b obs"]) -> Float[Array, "b act"]:
        return jnp.tanh(obs @ self.weight)
