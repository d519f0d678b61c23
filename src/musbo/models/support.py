"""BCQ's policy: actions that a conditional VAE says the data would have taken, nudged a little, the best by Q taken.

The decoder maps a latent z to an action, the perturbation adds at most `reach` of the half-range to it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.registry import stored
from musbo.models.frame import Frame
from musbo.models.mlp import MLP, member

LATENT_CLIP = 0.5  # where actions are generated, z is kept where the data's actions lie (Fujimoto et al.)


@stored("networks/support")
class Support(eqx.Module):
    """The generative model of the data's actions, and the perturbation."""

    encoder: MLP  # [x, a] -> mean and log spread of z
    decoder: MLP  # [x, z] -> a, before tanh
    nudge: MLP  # [x, a] -> before tanh


def decode(decoder: MLP, x: Float[Array, "n obs"], z: Float[Array, "n z"]) -> Float[Array, "n act"]:
    return jnp.tanh(jax.vmap(decoder)(jnp.concatenate([x, z], axis=1)))


def nudged(nudge: MLP, reach: float, x: Float[Array, "n obs"], share: Float[Array, "n act"]) -> Float[Array, "n act"]:
    """a + reach tanh(xi(s, a)), inside the bounds."""
    move = reach * jnp.tanh(jax.vmap(nudge)(jnp.concatenate([x, share], axis=1)))
    return jnp.clip(share + move, -1.0, 1.0)


def latents(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    return jnp.clip(jax.random.normal(key, shape), -LATENT_CLIP, LATENT_CLIP)


def q_value(critic: MLP, x: Float[Array, "n obs"], share: Float[Array, "n act"]) -> Float[Array, " n"]:
    return jax.vmap(critic)(jnp.concatenate([x, share], axis=1))[:, 0]


@stored("policy/support")
class SupportPolicy(eqx.Module):
    """The best of some candidates. Evaluated with latents that were drawn once, so that it is deterministic."""

    support: Support
    critics: MLP  # the first one judges
    latents: Float[Array, "m z"]
    frame: Frame
    reach: float = eqx.field(static=True)

    def __call__(self, obs: Float[Array, "b obs"]) -> Float[Array, "b act"]:
        b, (m, size) = obs.shape[0], self.latents.shape
        return self._best(obs, jnp.broadcast_to(self.latents[None], (b, m, size)))

    def draw(self, obs: Float[Array, "b obs"], key: PRNGKeyArray) -> Float[Array, "b act"]:
        return self._best(obs, latents(key, (obs.shape[0], *self.latents.shape)))

    def _best(self, obs: Float[Array, "b obs"], z: Float[Array, "b m z"]) -> Float[Array, "b act"]:
        b, m, _ = z.shape
        x = jnp.repeat(self.frame.see(obs), m, axis=0)
        share = nudged(self.support.nudge, self.reach, x, decode(self.support.decoder, x, z.reshape(b * m, -1)))
        best = jnp.argmax(q_value(member(self.critics, 0), x, share).reshape(b, m), axis=1)
        return self.frame.action(share.reshape(b, m, -1)[jnp.arange(b), best])
