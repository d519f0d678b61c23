"""SAC, BCQ and BRAC between deployments: actor-critics on everything collected so far, networks carried over.

They differ in the regulariser only (`learning/soft.py`). Every method takes the same number of gradient steps per
deployment.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.algorithms.method import DONE, LEARN, Metrics, fit_metrics, gradient_steps, learn_metrics
from musbo.core.diagnostics import Stage
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.dataset import Dataset, rows
from musbo.data.scaling import Normaliser, measure
from musbo.learning import fit, soft
from musbo.learning.fit import FitSettings, FitState, Rows
from musbo.learning.replay import logged
from musbo.learning.soft import Entropy, Regulariser, Soft, SoftSettings
from musbo.models.actor import SampleActor, UniformActor, uniform
from musbo.models.frame import Frame, frame_of
from musbo.models.gaussian import GaussianPolicy, log_density
from musbo.models.mlp import MLP, init_mlp, member
from musbo.models.support import SupportPolicy
from musbo.tasks.task import Task

CHUNK = 500  # gradient steps between two reports
# The largest share that is cloned. Where an action was clipped to its bound, the data do not say how far beyond it was
# meant; taken nearly as it is, it lies so far out before squashing that such rows alone set the clone's spread.
CLONED = 1.0 - 1e-2


@stored("method/model-free")
@dataclass(frozen=True)
class ModelFree:
    """Settings of a model-free method. The defaults are SAC's."""

    regulariser: Regulariser = Entropy()
    """What keeps the policy near: entropy (SAC), nearness to the behaviour (BRAC), support of the data (BCQ)."""
    soft: SoftSettings = SoftSettings()
    """Actor and critics."""
    steps: int = 20_000
    """Gradient steps per deployment."""
    per_transition: float = 0.0
    """Gradient steps per transition of D_all, where that is more than `steps`."""
    behaviour: FitSettings = FitSettings(members=1, hidden=(200, 200), learning_rate=5e-4, batch=256, epochs=50, l2=0.0)
    """The clone of the newest batch's behaviour, where the regulariser needs one."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UserError(f"steps must be at least 1, not {self.steps}.")
        if not self.per_transition >= 0:
            raise UserError(f"per_transition must be at least 0, not {self.per_transition}.")
        if self.behaviour.members != 1:
            raise UserError("the behaviour is one network: --behaviour.members must be 1.")

    @property
    def stages(self) -> tuple[Stage, ...]:
        cloning = (Stage("behaviour", "cloning the behaviour"),) if self.regulariser.clones() else ()
        return (*cloning, LEARN)

    def require(self, task: Task) -> None:
        """Any task will do: rewards and terminations come from the data."""

    def begin(self, task: Task, key: PRNGKeyArray) -> "State":
        frame = frame_of(task)
        networks = soft.begin(self.soft, self.regulariser, task.obs_size, task.act_size, key)
        return State("collected", frame, networks, self.regulariser.policy(networks.parts, networks.critics, frame))

    def actor(self, task: Task, state: "State") -> UniformActor | SampleActor:
        """Uniformly random until something was learned, then samples of the policy."""
        if not state.trained:
            return uniform(task)
        return SampleActor(state.policy)

    def foresight(self, state: "State") -> None:
        """It has no model."""

    def train(self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray) -> Iterator[tuple["State", Metrics]]:
        k_new, k_fit, k_learn = jax.random.split(key, 3)
        if state.stage == "collected":
            scaling = measure(data, learn_reward=False, predicted=task.predicted)
            frame = replace(state.frame, normaliser=Normaliser(scaling.obs_mean, scaling.obs_std))
            networks = state.networks
            if state.trained:  # the weights of new networks were drawn for normalised inputs
                networks = soft.renormalise(networks, state.frame, frame)
            state = replace(state, stage="behaviour", frame=frame, networks=networks)
        if state.stage == "behaviour":
            if self.regulariser.clones():
                sizes = (task.obs_size, *self.behaviour.hidden, 2 * task.act_size)
                work = state.fit or fit.begin(
                    jax.tree.map(lambda leaf: leaf[None], init_mlp(k_new, sizes, self.behaviour.activation))
                )
                fitted = work
                for fitted, epoch in fit.epochs(self.behaviour, Likelihood(), newest(data, state.frame), work, k_fit):
                    yield replace(state, fit=fitted), fit_metrics("behaviour", epoch)
                state = replace(state, behaviour=member(fitted.best, 0), fit=None)
            state = replace(state, stage="learn", step=0)
        everything = logged(data, state.frame)
        total = gradient_steps(self.steps, self.per_transition, data)
        while state.step < total:
            steps = min(CHUNK, total - state.step)
            networks, seen = soft.soft_steps(
                self.soft, self.regulariser, steps, (self.soft.batch,), state.networks, state.behaviour, (everything,),
                jax.random.fold_in(k_learn, state.step),
            )  # fmt: skip
            state = replace(state, networks=networks, step=state.step + steps)
            error, value = np.asarray(seen).tolist()
            yield state, learn_metrics(state.step, total, error, value)
        policy = self.regulariser.policy(state.networks.parts, state.networks.critics, state.frame)
        yield replace(state, stage="collected", step=0, trained=True, policy=policy), Metrics(DONE)


@stored("state/model-free")
class State(eqx.Module):
    """Everything that passes from one moment of a campaign to the next."""

    stage: str = eqx.field(static=True)
    frame: Frame
    networks: Soft
    policy: GaussianPolicy | SupportPolicy  # the last one handed over
    behaviour: MLP | None = None
    fit: FitState | None = None
    step: int = eqx.field(static=True, default=0)
    trained: bool = eqx.field(static=True, default=False)


@dataclass(frozen=True)
class Likelihood:
    """-log b(a | s): the behaviour as a distribution, and not only its mean."""

    def errors(self, network: MLP, x: Float[Array, "n obs"], y: Float[Array, "n act"]) -> Float[Array, " n"]:
        return -log_density(network, x, y)

    def loss(self, network: MLP, x: Float[Array, "n obs"], y: Float[Array, "n act"]) -> Float[Array, ""]:
        return jnp.mean(self.errors(network, x, y))

    def kernels(self, network: MLP) -> tuple[Float[Array, "_ _"], ...]:
        return ()


def newest(data: Dataset, frame: Frame) -> Rows:
    """The newest batch, for cloning."""
    deployment, heldout = np.asarray(data.deployment), np.asarray(data.heldout)
    mine = np.asarray(data.live) & (deployment == deployment.max())
    share = jnp.clip(frame.share(data.act), -CLONED, CLONED)
    return Rows(frame.see(data.obs), share, rows(mine & ~heldout), rows(mine & heldout))
