"""Actors: what goes into the field. An actor maps observations to executed actions, one row per lane.

Beside an action it gives a number, its signal: how far it explores there, say. What that number is, the actor's
findings tell. Actors that explore around a policy are made by `learning/explore.py`.
"""

from typing import Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from musbo.core.diagnostics import NOTHING, Findings
from musbo.models.gaussian import GaussianPolicy
from musbo.models.support import SupportPolicy
from musbo.tasks.task import Task

Act: TypeAlias = Float[Array, "b act"]
Obs: TypeAlias = Float[Array, "b obs"]
Signal: TypeAlias = Float[Array, " b"]


@runtime_checkable
class Actor(Protocol):
    """What can go into the field: a pytree with pure methods that are batched over lanes.

    With `needs_oracle` it also has tentative(obs, key) -> act and act_oracle(obs, tentative, next_obs, key) ->
    (act, signal).
    """

    @property
    def needs_oracle(self) -> bool: ...

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        """The executed action, inside the bounds, and the actor's signal."""
        ...

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        """What the signals of a batch show; `alone` is the share of its steps whose lane was the only one in step."""
        ...


class UniformActor(eqx.Module):
    """Uniformly random actions inside the bounds: the first deployment."""

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    needs_oracle: bool = eqx.field(static=True, default=False)

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        b = obs.shape[0]
        share = jax.random.uniform(key, (b, self.low.shape[0]))
        return self.low[None] + share * (self.high - self.low)[None], jnp.zeros(b)

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        return NOTHING


def uniform(task: Task) -> UniformActor:
    """Uniformly random actions of a task."""
    return UniformActor(jnp.asarray(task.low), jnp.asarray(task.high))


class SampleActor(eqx.Module):
    """Samples of a stochastic policy."""

    policy: GaussianPolicy | SupportPolicy
    needs_oracle: bool = eqx.field(static=True, default=False)

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        return self.policy.draw(obs, key), jnp.zeros(obs.shape[0])

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        return NOTHING
