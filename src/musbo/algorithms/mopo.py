"""MOPO between deployments (Yu et al., 2020): soft actor-critic on short branches of a stochastic ensemble whose
rewards are lowered by the ensemble's own doubt.

Per deployment the ensemble is fitted from scratch on D_all, actor and critics are carried over, and the imagined rows
are forgotten.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.algorithms.method import DONE, LEARN, Foresight, Metrics, fit_metrics, gradient_steps, learn_metrics
from musbo.core.diagnostics import Stage, quantiles
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.dataset import Dataset
from musbo.data.scaling import Normaliser, measure
from musbo.learning import fit, learned, replay, soft
from musbo.learning.branch import foresee, refill
from musbo.learning.fit import FitSettings, FitState
from musbo.learning.imagine import Starts
from musbo.learning.label import Penalty, penalty_findings
from musbo.learning.objectives import BOUND_WEIGHT, dynamics_rows
from musbo.learning.replay import Replay
from musbo.learning.soft import Entropy, Soft, SoftSettings
from musbo.models.actor import SampleActor, UniformActor, uniform
from musbo.models.frame import Frame, frame_of
from musbo.models.gaussian import GaussianPolicy
from musbo.models.probabilistic import Probabilistic, init_probabilistic
from musbo.models.stochastic import Stochastic, largest_spread
from musbo.tasks.task import Task

CHUNK = 500  # gradient steps between two reports


@stored("method/mopo")
@dataclass(frozen=True)
class MOPO:
    """Settings of MOPO. The defaults are its authors'."""

    dynamics: FitSettings = FitSettings(
        members=7, hidden=(200, 200, 200, 200), activation="silu", batch=256, patience=5, weights="fresh",
        bootstrap=True, l2=0.0,
    )  # fmt: skip
    """The stochastic ensemble: 7 networks of 4 x 200."""
    decay: tuple[float, ...] = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
    """Weight decay of each layer of the ensemble."""
    elites: int = 5
    """Members that move the imagined world: the best on held-out data."""
    penalty: Penalty = Penalty()
    """lambda_p: the price of doubt."""
    horizon: int = 5
    """h: imagined steps per branch (walker2d: 1)."""
    branches: int = 50_000
    """Branches per rollout, from states of D_all."""
    refresh: int = 1000
    """Gradient steps between two rollouts."""
    kept: int = 5
    """Rollouts that are remembered."""
    real_share: float = 0.05
    """Share of logged rows in every minibatch."""
    soft: SoftSettings = SoftSettings(actor=(256, 256), critic=(256, 256))
    """Actor and critics."""
    steps: int = 200_000
    """Gradient steps per deployment."""
    per_transition: float = 0.0
    """Gradient steps per transition of D_all, where that is more than `steps`."""

    def __post_init__(self) -> None:
        for name in ("elites", "horizon", "branches", "refresh", "kept", "steps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} of MOPO must be at least 1, not {getattr(self, name)}.")
        if not self.per_transition >= 0:
            raise UserError(f"per_transition of MOPO must be at least 0, not {self.per_transition}.")
        if self.elites > self.dynamics.members:
            raise UserError(f"{self.elites} elites cannot be chosen among {self.dynamics.members} members.")
        layers = len(self.dynamics.hidden) + 1
        if len(self.decay) != layers:
            raise UserError(f"decay needs one number per layer of the ensemble: {layers}, not {len(self.decay)}.")
        if self.dynamics.weights != "fresh" or self.dynamics.l2:
            raise UserError(
                "MOPO fits from scratch and decays by layer: dynamics.weights is fresh and dynamics.l2 is 0."
            )
        if not 0 <= self.real_share < 1:
            raise UserError(f"real_share must lie in [0, 1), not {self.real_share}.")

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (Stage("dynamics", "fitting the dynamics"), LEARN)

    def require(self, task: Task) -> None:
        """Any task will do: the reward is learned, and so is the termination where the task does not give it."""

    def begin(self, task: Task, key: PRNGKeyArray) -> "State":
        frame = frame_of(task)
        networks = soft.begin(self.soft, Entropy(), task.obs_size, task.act_size, key)
        return State("collected", frame, networks, GaussianPolicy(networks.parts.actor, frame))

    def actor(self, task: Task, state: "State") -> UniformActor | SampleActor:
        """Uniformly random until something was learned, then samples of the policy."""
        if state.model is None:
            return uniform(task)
        return SampleActor(state.policy)

    def foresight(self, state: "State") -> Foresight | None:
        """Doubt is what the penalty charges for, at a price of 1."""
        model = state.model
        if model is None:
            return None
        return Foresight(
            lambda task, start, steps, actions: foresee(task, steps, state.policy, model, start, actions),
            lambda obs, act: largest_spread(model, obs, act),
            learns_reward=True,
        )

    def train(self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray) -> Iterator[tuple["State", Metrics]]:
        k_new, k_fit, k_branch, k_learn = jax.random.split(key, 4)
        scaling = measure(data, learn_reward=True, predicted=task.predicted)
        if state.stage == "collected":
            frame = replace(state.frame, normaliser=Normaliser(scaling.obs_mean, scaling.obs_std))
            networks = state.networks
            if state.model is not None:  # the weights of new networks were drawn for normalised inputs
                networks = soft.renormalise(networks, state.frame, frame)
            state = replace(state, stage="dynamics", frame=frame, networks=networks)
        if state.stage == "dynamics":
            rows = dynamics_rows(replace(task, reward="learned"), data, scaling)
            sizes = (rows.x.shape[1], *self.dynamics.hidden, rows.y.shape[1])
            fitted = work = state.fit or fit.begin(
                init_probabilistic(k_new, sizes, self.dynamics.activation, self.dynamics.members)
            )
            objective = DecayedLikelihood(self.decay, self.dynamics.members)
            for fitted, epoch in fit.epochs(self.dynamics, objective, rows, work, k_fit):
                yield replace(state, fit=fitted), fit_metrics("dynamics", epoch, column="model\nerror")
            elites = jnp.argsort(fitted.best_error)[: self.elites]
            model = Stochastic(fitted.best, scaling, elites)
            state = replace(state, stage="learn", model=model, fit=None, step=0)
            told = learned.agreement(task, data, partial(learned.by_stochastic, task, model), reward=True)
            yield state, Metrics(learned.STAGE, findings=told)
        assert state.model is not None
        everything = replay.logged(data, state.frame)
        anywhere = Starts(data.obs, everything.n[0])
        real = int(self.real_share * self.soft.batch)
        imagined = state.imagined or replay.empty(self.kept, self.branches * self.horizon, task.obs_size, task.act_size)
        price = state.price
        total = gradient_steps(self.steps, self.per_transition, data)
        while state.step < total:
            if state.step % self.refresh == 0:
                slot = jnp.asarray(state.step // self.refresh % self.kept)
                imagined, price = refill(
                    task, self.horizon, self.branches, self.penalty, state.networks.parts.actor, state.frame,
                    state.model, anywhere, imagined, slot, jax.random.fold_in(k_branch, state.step),
                )  # fmt: skip
            steps = min(CHUNK, self.refresh - state.step % self.refresh, total - state.step)
            networks, seen = soft.soft_steps(
                self.soft, Entropy(), steps, (real, self.soft.batch - real), state.networks, None,
                (everything, imagined), jax.random.fold_in(k_learn, state.step),
            )  # fmt: skip
            state = replace(state, networks=networks, step=state.step + steps, imagined=imagined, price=price)
            paid = np.asarray(price).tolist()
            findings = penalty_findings(quantiles(paid))
            error, value = np.asarray(seen).tolist()
            report = learn_metrics(state.step, total, error, value, findings)
            yield state, replace(report, numbers={**report.numbers, "penalty": paid})
        policy = GaussianPolicy(state.networks.parts.actor, state.frame)
        done = replace(state, stage="collected", step=0, policy=policy, imagined=None, price=jnp.zeros(3))
        yield done, Metrics(DONE)


@stored("state/mopo")
class State(eqx.Module):
    """Everything that passes from one moment of a campaign to the next."""

    stage: str = eqx.field(static=True)
    frame: Frame
    networks: Soft
    policy: GaussianPolicy  # the last one handed over
    model: Stochastic | None = None
    fit: FitState | None = None
    imagined: Replay | None = None
    price: Float[Array, "3"] = eqx.field(default_factory=lambda: jnp.zeros(3))
    step: int = eqx.field(static=True, default=0)


@dataclass(frozen=True)
class DecayedLikelihood:
    """Gaussian likelihood per output, with the learned bounds pulled together and every layer decayed.

    The authors' members share one pair of bounds, which is pulled together once against the likelihoods of all. Here
    every member has its own, so each is pulled by its part. By the whole, the price of the bounds' distance outweighs
    what a spread that depends on the state is worth; the bounds meet, and the penalty is a constant.
    """

    decay: tuple[float, ...]
    members: int

    def errors(self, network: Probabilistic, x: Float[Array, "n in"], y: Float[Array, "n out"]) -> Float[Array, " n"]:
        return jnp.sum((jax.vmap(network)(x)[0] - y) ** 2, axis=1)

    def loss(self, network: Probabilistic, x: Float[Array, "n in"], y: Float[Array, "n out"]) -> Float[Array, ""]:
        mean, logvar = jax.vmap(network)(x)
        likelihood = jnp.mean((mean - y) ** 2 * jnp.exp(-logvar) + logvar)
        bounds = BOUND_WEIGHT / self.members * (jnp.sum(network.max_logvar) - jnp.sum(network.min_logvar))
        weights = zip(self.decay, network.mlp.weights, strict=True)
        return likelihood + bounds + sum(0.5 * decay * jnp.sum(w**2) for decay, w in weights)

    def kernels(self, network: Probabilistic) -> tuple[Float[Array, "_ _"], ...]:
        return ()
