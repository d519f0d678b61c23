"""A probabilistic network: two heads over a standardised target, a mean and a log-variance that is soft-clamped between
learned bounds.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.registry import stored
from musbo.models.mlp import MLP, init_mlp


@stored("networks/probabilistic")
class Probabilistic(eqx.Module):
    """One probabilistic network: its MLP ends in [mean, raw log-variance]."""

    mlp: MLP
    max_logvar: Float[Array, "*k out"]
    min_logvar: Float[Array, "*k out"]

    def __call__(self, x: Float[Array, " in"]) -> tuple[Float[Array, " out"], Float[Array, " out"]]:
        """Mean and log-variance of the standardised target."""
        mean, raw = jnp.split(self.mlp(x), 2)
        logvar = self.max_logvar - jax.nn.softplus(self.max_logvar - raw)
        return mean, self.min_logvar + jax.nn.softplus(logvar - self.min_logvar)


@partial(jax.jit, static_argnames=("sizes", "activation", "n"))
def init_probabilistic(key: PRNGKeyArray, sizes: tuple[int, ...], activation: str, n: int) -> Probabilistic:
    """n networks from sizes[0] inputs to sizes[-1] targets."""

    def one(k: PRNGKeyArray) -> Probabilistic:
        mlp = init_mlp(k, (*sizes[:-1], 2 * sizes[-1]), activation)
        bounds = (jnp.full(sizes[-1], bound, jnp.float32) for bound in (0.5, -10.0))
        return Probabilistic(mlp, *bounds)

    return jax.vmap(one)(jax.random.split(key, n))
