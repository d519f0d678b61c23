"""How a policy's networks see the world: the observation's normaliser and the action's range."""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from musbo.core.registry import stored
from musbo.data.scaling import Normaliser
from musbo.tasks.task import Task


@stored("networks/frame")
class Frame(eqx.Module):
    """Raw observations in, raw actions out; in between, standard units and shares of the action's half-range."""

    normaliser: Normaliser
    centre: Float[Array, " act"]
    half_range: Float[Array, " act"]

    def see(self, obs: Float[Array, "n obs"]) -> Float[Array, "n obs"]:
        return (obs - self.normaliser.mean[None]) / self.normaliser.std[None]

    def share(self, act: Float[Array, "n act"]) -> Float[Array, "n act"]:
        """An action as a share of the half-range."""
        return (act - self.centre[None]) / self.half_range[None]

    def action(self, share: Float[Array, "n act"]) -> Float[Array, "n act"]:
        return self.centre[None] + self.half_range[None] * jnp.clip(share, -1.0, 1.0)


def frame_of(task: Task) -> Frame:
    """Before any data: observations as they are."""
    nothing = Normaliser(jnp.zeros(task.obs_size), jnp.ones(task.obs_size))
    return Frame(nothing, jnp.asarray(task.centre, jnp.float32), jnp.asarray(task.half_range, jnp.float32))


@runtime_checkable
class AnyPolicy(Protocol):
    """What is evaluated and handed over, whatever the method: a deterministic function that knows its frame."""

    @property
    def frame(self) -> Frame: ...

    def __call__(self, obs: Float[Array, "b obs"]) -> Float[Array, "b act"]: ...
