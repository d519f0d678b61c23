"""The policy pi (vartheta): an MLP whose mean is squashed by tanh to the action range, Gaussian noise added
afterwards.

The observation normaliser is part of the policy: when it changes, the first layer is re-expressed and the policy
stays the same function.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.scaling import Normaliser
from musbo.models.frame import Frame
from musbo.models.mlp import MLP, init_mlp, rescale_inputs
from musbo.tasks.task import Task


@stored("settings/policy")
@dataclass(frozen=True)
class PolicySettings:
    """pi: shape and noise of the policy."""

    hidden: tuple[int, ...] = (200, 200)
    """Hidden layers (paper, appendix F: two of 200)."""
    activation: Literal["relu", "tanh", "silu"] = "relu"
    """Activation of the hidden layers (BREMEN: ReLU)."""
    sigma: float = 0.1
    """sigma: standard deviation in imagination, as a share of the action half-range; the density uses the same."""
    learned_sigma: bool = False
    """Learn a state-independent log sigma, starting from `sigma`."""
    least_sigma: float = 0.0
    """A learned sigma does not fall below this share of the half-range."""

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise UserError(f"policy sigma must be above 0, not {self.sigma}.")
        if not 0 <= self.least_sigma <= self.sigma:
            raise UserError(f"policy least_sigma must lie between 0 and sigma, {self.sigma}, not {self.least_sigma}.")
        if not self.hidden or min(self.hidden) < 1:
            raise UserError(f"policy hidden layers must be positive sizes, not {self.hidden}.")


@stored("policy/squashed")
class Policy(eqx.Module):
    """pi: mean(s) = centre + half_range * tanh(mlp(normalised s)); log_sigma is per action, in action units."""

    mlp: MLP
    log_sigma: Float[Array, " act"]
    normaliser: Normaliser
    centre: Float[Array, " act"]
    half_range: Float[Array, " act"]

    @property
    def frame(self) -> Frame:
        return Frame(self.normaliser, self.centre, self.half_range)

    def mean(self, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
        x = (obs - self.normaliser.mean) / self.normaliser.std
        return self.centre + self.half_range * jnp.tanh(self.mlp(x))

    def __call__(self, obs: Float[Array, "b obs"]) -> Float[Array, "b act"]:
        """The deterministic policy, one row per observation: what is evaluated and handed over."""
        return jax.vmap(self.mean)(obs)

    def clip(self, act: Float[Array, "*b act"]) -> Float[Array, "*b act"]:
        """The executed action: inside the task's bounds."""
        low, high = self.centre - self.half_range, self.centre + self.half_range
        return jnp.clip(act, jnp.broadcast_to(low, act.shape), jnp.broadcast_to(high, act.shape))


@partial(jax.jit, static_argnames=("task", "settings"))
def init_policy(key: PRNGKeyArray, task: Task, settings: PolicySettings) -> Policy:
    """A policy that starts near the middle of the action range, whatever it observes."""
    sizes = (task.obs_size, *settings.hidden, task.act_size)
    half_range = jnp.asarray(task.half_range, jnp.float32)
    return Policy(
        init_mlp(key, sizes, settings.activation, last_gain=0.01),
        jnp.log(settings.sigma * half_range),
        Normaliser(jnp.zeros(task.obs_size), jnp.ones(task.obs_size)),
        jnp.asarray(task.centre, jnp.float32),
        half_range,
    )


@jax.jit
def renormalise(policy: Policy, normaliser: Normaliser) -> Policy:
    """The same policy under another observation normaliser."""
    old = policy.normaliser
    mlp = rescale_inputs(policy.mlp, (old.mean, normaliser.mean), (old.std, normaliser.std))
    return replace(policy, mlp=mlp, normaliser=normaliser)
