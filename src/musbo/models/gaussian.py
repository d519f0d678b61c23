"""A stochastic policy: a Gaussian with its own spread in every state, squashed by tanh to the action range.

Networks of the model-free methods see the normalised observation and the action as a share of its half-range, so that
every action lies in [-1, 1].
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.registry import stored
from musbo.models.frame import Frame
from musbo.models.mlp import MLP

LOG_SPREAD = (-5.0, 2.0)
EDGE = 1.0 - 1e-6  # an action on the bound has no finite density under tanh


def head(network: MLP, x: Float[Array, "n obs"]) -> tuple[Float[Array, "n act"], Float[Array, "n act"]]:
    """Mean and log spread before squashing; the spread is bounded smoothly, so that its gradient never dies."""
    mean, raw = jnp.split(jax.vmap(network)(x), 2, axis=1)
    low, high = LOG_SPREAD
    return mean, low + 0.5 * (high - low) * (jnp.tanh(raw) + 1.0)


def sample(
    network: MLP, x: Float[Array, "n obs"], key: PRNGKeyArray
) -> tuple[Float[Array, "n act"], Float[Array, " n"]]:
    """An action and its log density, both in shares of the half-range."""
    mean, log_spread = head(network, x)
    noise = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_spread) * noise
    return jnp.tanh(u), _log_density(noise, log_spread, u)


def sample_beside(
    network: MLP, other: MLP, x: Float[Array, "n obs"], key: PRNGKeyArray
) -> tuple[Float[Array, "n act"], Float[Array, " n"]]:
    """An action of `network`, and the log ratio of its density to that under `other`.

    Both are squashed in the same way, so the ratio is that of the Gaussians, and exact near the bounds too.
    """
    mean, log_spread = head(network, x)
    noise = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_spread) * noise
    other_mean, other_spread = head(other, x)
    other_noise = (u - other_mean) * jnp.exp(-other_spread)
    return jnp.tanh(u), jnp.sum(0.5 * (other_noise**2 - noise**2) + other_spread - log_spread, axis=1)


def log_density(network: MLP, x: Float[Array, "n obs"], share: Float[Array, "n act"]) -> Float[Array, " n"]:
    """log pi(a | s) of actions that were taken by somebody else."""
    mean, log_spread = head(network, x)
    u = jnp.arctanh(jnp.clip(share, -EDGE, EDGE))
    return _log_density((u - mean) * jnp.exp(-log_spread), log_spread, u)


def _log_density(
    noise: Float[Array, "n act"], log_spread: Float[Array, "n act"], u: Float[Array, "n act"]
) -> Float[Array, " n"]:
    normal = -0.5 * noise**2 - log_spread - 0.5 * jnp.log(2 * jnp.pi)
    # log(1 - tanh(u)^2), in a form that does not lose its digits for large u
    squash = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    return jnp.sum(normal - squash, axis=1)


@stored("policy/gaussian")
class GaussianPolicy(eqx.Module):
    """The policy with its frame: its mean is evaluated and handed over, samples of it collect."""

    network: MLP
    frame: Frame

    def __call__(self, obs: Float[Array, "b obs"]) -> Float[Array, "b act"]:
        return self.frame.action(jnp.tanh(head(self.network, self.frame.see(obs))[0]))

    def draw(self, obs: Float[Array, "b obs"], key: PRNGKeyArray) -> Float[Array, "b act"]:
        return self.frame.action(sample(self.network, self.frame.see(obs), key)[0])
