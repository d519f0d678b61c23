"""Floors: what one has without learning anything, and what imitation alone brings."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.algorithms.method import DONE, Metrics, fit_metrics
from musbo.core.diagnostics import Stage
from musbo.core.registry import stored
from musbo.data.dataset import Dataset
from musbo.data.scaling import Normaliser, measure
from musbo.learning import start
from musbo.learning.explore import Plain
from musbo.learning.fit import FitState
from musbo.learning.start import Clone
from musbo.models.actor import Actor, UniformActor, uniform
from musbo.models.frame import Frame, frame_of
from musbo.models.policy import Policy, PolicySettings, init_policy, renormalise
from musbo.tasks.task import Task


@stored("method/imitation")
@dataclass(frozen=True)
class Imitation:
    """Behaviour cloning of the newest batch, and nothing else."""

    policy: PolicySettings = PolicySettings()
    """Shape of the policy."""
    clone: Clone = Clone()
    """How the newest batch is cloned."""
    explore: Plain = Plain(0.1)
    """Noise around the clone when it collects."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.clone.stages()

    def require(self, task: Task) -> None:
        """Any task will do."""

    def begin(self, task: Task, key: PRNGKeyArray) -> "State":
        return State("collected", init_policy(key, task, self.policy))

    def actor(self, task: Task, state: "State") -> Actor:
        if not state.trained:
            return uniform(task)
        assert isinstance(state.policy, Policy)
        return self.explore.actor(state.policy, None)

    def foresight(self, state: "State") -> None:
        """It has no model."""

    def train(self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray) -> Iterator[tuple["State", Metrics]]:
        policy = state.policy
        assert isinstance(policy, Policy)
        if state.stage == "collected":
            scaling = measure(data, learn_reward=False, predicted=task.predicted)
            normaliser = Normaliser(scaling.obs_mean, scaling.obs_std)
            # The weights of a new policy were drawn for normalised inputs.
            policy = renormalise(policy, normaliser) if state.trained else replace(policy, normaliser=normaliser)
            state = replace(state, stage="start", policy=policy)
        work = state.fit
        for work, epoch in self.clone.begin(data, policy, state.fit, key):
            yield replace(state, fit=work), fit_metrics(start.STAGE, epoch)
        yield State("collected", self.clone.policy(policy, work), trained=True), Metrics(DONE)


@stored("method/chance")
@dataclass(frozen=True)
class Chance:
    """Uniformly random actions, for collection and as the final policy."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        return ()

    def require(self, task: Task) -> None:
        """Any task will do."""

    def begin(self, task: Task, key: PRNGKeyArray) -> "State":
        return State("collected", Scatter(jax.random.normal(key, (task.obs_size, task.act_size)), frame_of(task)))

    def actor(self, task: Task, state: "State") -> UniformActor:
        return uniform(task)

    def foresight(self, state: "State") -> None:
        """It has no model."""

    def train(self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray) -> Iterator[tuple["State", Metrics]]:
        yield state, Metrics(DONE)


@stored("policy/scatter")
class Scatter(eqx.Module):
    """A function of the observation that looks like uniformly random actions: a policy has to be a function."""

    directions: Float[Array, "obs act"]
    frame: Frame

    def __call__(self, obs: Float[Array, "b obs"]) -> Float[Array, "b act"]:
        digits = 1e4 * jnp.sin(100.0 * obs @ self.directions)  # the far digits of a smooth function
        return self.frame.action(2.0 * (digits - jnp.floor(digits)) - 1.0)


@stored("state/floor")
class State(eqx.Module):
    """A policy, and a clone under way."""

    stage: str = eqx.field(static=True)
    policy: Policy | Scatter
    fit: FitState | None = None
    trained: bool = eqx.field(static=True, default=False)
