"""Algorithm 1: policy optimisation in imagination between deployments.

MUSBO, its two ablations, BREMEN and ME-TRPO are values of `ImaginedTRPO`; they differ in settings only. `train` is a
generator: every state that it yields holds all that is needed to go on, inside a fit too, so that a killed process
resumes to the same bits as an uninterrupted one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from musbo.algorithms import imagined_findings as findings_of
from musbo.algorithms.method import DONE, Foresight, Metrics, fit_metrics
from musbo.core.diagnostics import Stage, quantiles
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.dataset import Dataset
from musbo.data.scaling import Normaliser, measure
from musbo.learning import fit, handover, learned, objectives, start
from musbo.learning.advantage import (
    Baseline,
    Discounting,
    Ridge,
    Value,
    discounted_returns,
    gae,
    limits,
    rollout_features,
    standardise,
)
from musbo.learning.explore import Explore, Seeking
from musbo.learning.fit import FitSettings, FitState
from musbo.learning.handover import Check, Choice, Handover, Last
from musbo.learning.imagine import (
    Imagine,
    Rollout,
    Starts,
    foresee,
    imagine,
    require_reset,
    start_states,
    trajectory_count,
)
from musbo.learning.label import SERIES, Disagreement, Label, Signals
from musbo.learning.places import from_beginnings, places
from musbo.learning.start import Clone, Start
from musbo.learning.trpo import TRPO, trpo_step
from musbo.models.actor import Actor, uniform
from musbo.models.dynamics import Dynamics
from musbo.models.labeler import Labeler, doubt
from musbo.models.policy import Policy, PolicySettings, init_policy, renormalise
from musbo.tasks.task import Task


@stored("method/imagined-trpo")
@dataclass(frozen=True)
class ImaginedTRPO:
    """Settings of Algorithm 1. The defaults are the paper's."""

    label: Label = Disagreement()
    """U: how far imagined steps are trusted (eq. 5)."""
    start: Start = Clone()
    """Where policy optimisation starts (line 5)."""
    explore: Explore = Seeking()
    """How data are collected (eq. 16)."""
    dynamics: FitSettings = field(default_factory=lambda: FitSettings(members=5))
    """M: the dynamics ensemble (line 2)."""
    labeler: FitSettings = field(default_factory=lambda: FitSettings(members=3))
    """P: the uncertainty labeler (line 3)."""
    policy: PolicySettings = PolicySettings()
    """pi: the policy."""
    imagine: Imagine = Imagine()
    """Imagined trajectories per update (lines 7 and 8)."""
    discount: Discounting = Discounting()
    """gamma and lambda."""
    baseline: Baseline = Ridge()
    """V: the value baseline."""
    trpo: TRPO = TRPO()
    """The trust-region step (eq. 6)."""
    updates: int = 2000
    """L: TRPO updates per deployment (paper: 2000, hopper 6000)."""
    handover: Handover = Last()
    """Which policy is handed over."""
    check: Check = Check()
    """Imagined evaluation during training."""

    def __post_init__(self) -> None:
        if self.updates < 1:
            raise UserError(f"updates (L) must be at least 1, not {self.updates}.")
        if self.labeler.members < 2:
            raise UserError(f"the labeler needs at least 2 members (K) to disagree, not {self.labeler.members}.")
        if self.imagine.member == "per_trajectory" and self.imagine.rollouts % self.dynamics.members:
            raise UserError(
                f"member per_trajectory needs rollouts ({self.imagine.rollouts}) to be a multiple of "
                f"the {self.dynamics.members} dynamics members."
            )

    @property
    def stages(self) -> tuple[Stage, ...]:
        fits = (Stage("dynamics", "fitting the dynamics M"), Stage("labeler", "fitting the labeler P"))
        return (*fits, *self.start.stages(), Stage(SERIES, "improving in imagination"))

    def require(self, task: Task) -> None:
        if self.imagine.starts == "reset":
            require_reset(task)

    def begin(self, task: Task, key: PRNGKeyArray) -> "State":
        """Before the first deployment: an untrained policy and no models."""
        self.require(task)
        k_policy, k_value = jax.random.split(key)
        value = self.baseline.begin(task.obs_size, k_value)
        return State("collected", init_policy(k_policy, task, self.policy), value)

    def actor(self, task: Task, state: "State") -> Actor:
        """Line 1: who collects the next batch. Without a model nobody knows better than uniformly random actions."""
        if state.labeler is None:
            return uniform(task)
        return self.explore.actor(state.policy, state.labeler)

    def foresight(self, state: "State") -> Foresight | None:
        """Courses in M; doubt is the disagreement behind U, of the two members of P that disagree most."""
        M, P = state.dynamics, state.labeler
        if M is None or P is None:
            return None
        return Foresight(
            lambda task, start, steps, actions: foresee(task, steps, state.policy, M, start, actions),
            lambda obs, act: doubt(P, obs, act),
        )

    def train(self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray) -> Iterator[tuple["State", Metrics]]:
        """Lines 2 to 4 of Algorithm 1 on everything collected so far."""
        k_M, k_P, k_clone, k_improve, k_new_M, k_new_P = jax.random.split(key, 6)
        scaling = measure(data, learn_reward=task.reward == "learned", predicted=task.predicted)

        if state.stage == "collected":
            normaliser = Normaliser(scaling.obs_mean, scaling.obs_std)
            if state.dynamics is None:  # an untrained policy: its weights were drawn for normalised inputs
                policy = replace(state.policy, normaliser=normaliser)
            else:
                policy = renormalise(state.policy, normaliser)
            state = replace(state, stage="dynamics", policy=policy)
        if state.stage == "dynamics":  # line 2: M <- learn the transition dynamics from D_all
            work = state.fit or objectives.begin_dynamics(task, self.dynamics, state.dynamics, scaling, k_new_M)
            rows_M = objectives.dynamics_rows(task, data, scaling)
            error = objectives.SquaredError(logit=task.terminated == "learned")
            fitted = work
            for fitted, epoch in fit.epochs(self.dynamics, error, rows_M, work, k_M):
                yield replace(state, fit=fitted), fit_metrics("dynamics", epoch, column="model\nerror")
            del rows_M  # as large as D_all
            M = Dynamics(fitted.best, scaling)
            state = replace(state, stage="labeler", dynamics=M, fit=None)
            if "learned" in (task.reward, task.terminated):
                told = learned.agreement(task, data, partial(learned.by_dynamics, task, M), task.reward == "learned")
                yield state, Metrics(learned.STAGE, findings=told)
        if state.stage == "labeler":  # line 3: train the uncertainty labeler on D_all
            work = state.fit or objectives.begin_labeler(task, self.labeler, state.labeler, scaling, k_new_P)
            rows_P = objectives.labeler_rows(task, data, scaling)
            fitted = work
            for fitted, epoch in fit.epochs(self.labeler, objectives.GaussianLikelihood(), rows_P, work, k_P):
                yield replace(state, fit=fitted), fit_metrics("labeler", epoch)
            del rows_P
            judge = Labeler(fitted.best, scaling, objectives.measure_levels(fitted.best, scaling, data))
            state = replace(state, stage="start", labeler=judge, fit=None)
        if state.stage == "start":  # line 5: pi_init <- the data-collection policy
            work = state.fit
            for work, epoch in self.start.begin(data, state.policy, state.fit, k_clone):
                yield replace(state, fit=work), fit_metrics(start.STAGE, epoch)
            policy = self.start.policy(state.policy, work)
            state = replace(state, stage="improve", policy=policy, fit=None, update=0, checked=-1, choice=None)
        if state.stage == "improve":  # lines 6 to 10: imagine, label, improve
            yield from self._improve(task, data, state, k_improve)

    def _improve(
        self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray
    ) -> Iterator[tuple["State", Metrics]]:
        k_update, k_outer, k_check, k_reset = jax.random.split(key, 4)
        k_value = jax.random.fold_in(key, 4)
        assert state.dynamics is not None and state.labeler is not None
        M, P = state.dynamics, state.labeler
        initial, anywhere, heldout = places(self.imagine, task, data, k_reset)
        rated = handover.rated_steps(task, self.check, self.imagine) if from_beginnings(self.imagine, data) else None

        while True:
            i = state.update
            due = i % self.check.every == 0 or i == self.updates
            if due and state.checked != i:
                seen = handover.rate(task, self.check, self.imagine, state.policy, M, P, heldout, k_check)
                choice = handover.choose(self.handover, state.choice, state.policy, seen, i)
                state = replace(state, choice=choice, checked=i)
                chosen = {"chosen": int(choice.update), "stopped": bool(choice.stopped)}
                numbers = {**findings_of.rating_numbers(seen), **chosen}
                yield (
                    state,
                    Metrics(
                        "check", i, self.updates, "update", numbers=numbers, forecast=findings_of.promise(seen, rated)
                    ),
                )
            assert state.choice is not None  # there is a check before the first update
            if i >= self.updates or bool(state.choice.stopped):
                break
            value, stuck = state.value, state.rejected // findings_of.MANY
            anew = i == 0
            if stuck and state.rejected % findings_of.MANY == 0:  # V may be what is wrong: another, and smaller steps
                value, anew = self.baseline.begin(task.obs_size, jax.random.fold_in(k_value, i)), True
            policy, value, numbers, signals = update(
                self, task, state.policy, value, M, P, initial, anywhere, jnp.asarray(i), k_update, k_outer,
                jnp.asarray(anew), jnp.asarray(0.5**stuck, jnp.float32),
            )  # fmt: skip
            rejected = 0 if bool(numbers.accepted) else state.rejected + 1
            state = replace(state, policy=policy, value=value, update=i + 1, rejected=rejected)
            yield state, self._update_metrics(i + 1, P, numbers, host(signals), rejected)
        choice = state.choice
        findings = findings_of.chosen(choice) + findings_of.calibration(objectives.calibration(P, data))
        state = replace(state, stage="collected", policy=choice.policy, choice=None, update=0, checked=-1, rejected=0)
        yield state, Metrics(DONE, findings=findings, forecast=findings_of.promise(choice.rating, rated))

    def _update_metrics(
        self, index: int, judge: Labeler, numbers: "Numbers", signals: dict[str, Any], rejected: int
    ) -> Metrics:
        seen = {name: quantiles(values) for name, values in signals.items()}
        findings = self.label.findings(judge, seen) + findings_of.rejections(rejected, float(numbers.value_explained))
        over = index >= self.updates
        return Metrics(SERIES, index, self.updates, "update", over, {**host(numbers._asdict()), **signals}, findings)


@stored("state/imagined-trpo")
class State(eqx.Module):
    """Everything that passes from one moment of a campaign to the next."""

    stage: str = eqx.field(static=True)
    policy: Policy
    value: Value
    dynamics: Dynamics | None = None
    labeler: Labeler | None = None
    fit: FitState | None = None  # a fit under way
    choice: Choice | None = None
    update: int = eqx.field(static=True, default=0)
    checked: int = eqx.field(static=True, default=-1)  # the update of the last check
    rejected: int = eqx.field(static=True, default=0)  # updates in a row that changed nothing


def host(numbers: dict[str, Array]) -> dict[str, Any]:
    """Arrays to plain numbers and lists."""
    return {name: np.asarray(value).tolist() for name, value in numbers.items()}


def update(
    settings: ImaginedTRPO,
    task: Task,
    policy: Policy,
    value: Value,
    M: Dynamics,
    P: Labeler,
    initial: Starts,
    anywhere: Starts,
    index: Int[Array, ""],
    key: PRNGKeyArray,
    outer_key: PRNGKeyArray,
    anew: Bool[Array, ""],
    share_of_delta: Float[Array, ""],
) -> tuple[Policy, Value, "Numbers", dict[str, Array]]:
    """One pass through lines 7 to 10: draw a member, imagine, label with U, one uncertainty-weighted TRPO step.

    A value that is `anew` is fitted on this batch before it is used.
    """
    where, again, k_imagine, keys = _begin_update(settings.imagine, task, initial, anywhere, index, key)
    rollout = imagine(task, settings.imagine, policy, M, where, index, k_imagine, outer_key, again)  # lines 7, 8
    noise = settings.policy
    parts = Learning(
        settings.label, settings.baseline, settings.discount, settings.trpo, noise.learned_sigma, noise.least_sigma
    )
    return _learn(parts, task, policy, value, P, rollout, anew, share_of_delta, *keys)


@partial(jax.jit, static_argnames=("settings", "task"))
def _begin_update(
    settings: Imagine, task: Task, initial: Starts, anywhere: Starts, index: Int[Array, ""], key: PRNGKeyArray
) -> tuple[Float[Array, "b obs"], Float[Array, "t b obs"] | None, PRNGKeyArray, tuple[PRNGKeyArray, ...]]:
    """Start states, those of trajectories that begin anew, the key of imagination, and the keys of what follows it."""
    k_start, k_imagine, *keys = jax.random.split(jax.random.fold_in(key, index), 5)

    def states(k: PRNGKeyArray) -> Float[Array, "b obs"]:
        return start_states(settings, task, initial, anywhere, settings.rollouts, k)

    k_again = jax.random.split(jax.random.fold_in(k_start, 1), settings.horizon)
    again = jax.vmap(states)(k_again) if settings.restart else None
    return states(k_start), again, k_imagine, tuple(keys)


class Learning(NamedTuple):
    """The settings that lines 9 and 10 depend on: with others changed, their program is the same."""

    label: Label
    baseline: Baseline
    discount: Discounting
    trpo: TRPO
    learned_sigma: bool
    least_sigma: float


@partial(jax.jit, static_argnames=("settings", "task"))
def _learn(
    settings: Learning,
    task: Task,
    policy: Policy,
    value: Value,
    P: Labeler,
    rollout: Rollout,
    anew: Bool[Array, ""],
    share_of_delta: Float[Array, ""],
    k_label: PRNGKeyArray,
    k_first: PRNGKeyArray,
    k_value: PRNGKeyArray,
) -> tuple[Policy, Value, "Numbers", dict[str, Array]]:
    """Lines 9 and 10 on what was imagined."""
    rollout, signals = settings.label(rollout, P, k_label)  # line 9

    live = rollout.live.astype(jnp.float32)
    phi = rollout_features(rollout, policy.normaliser)
    t1, b, f = phi.shape
    flat = phi[:-1].reshape(-1, f)
    allowed = limits(settings.discount, rollout)

    def fitted(v: Value, wanted: Float[Array, "t b"], k: PRNGKeyArray) -> Value:
        new = settings.baseline.fit(v, flat, wanted.reshape(-1), live.reshape(-1), k, allowed)
        # One that is no longer finite would have every further update rejected: the last sound one is kept.
        sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(new)]))
        return jax.tree.map(lambda now, before: jnp.where(sound, now, before), new, v)

    # The first baseline of a deployment is fitted on this batch before it is used.
    value = jax.lax.cond(
        anew, lambda v: fitted(v, discounted_returns(settings.discount, rollout), k_first), lambda v: v, value
    )
    values = value(phi.reshape(-1, f)).reshape(t1, b)
    advantages = gae(settings.discount, rollout, values)
    weighted = standardise(advantages, live) * rollout.weight
    policy, step = trpo_step(  # line 10
        settings.trpo,
        settings.learned_sigma,
        policy,
        rollout.obs.reshape(-1, task.obs_size),
        rollout.act.reshape(-1, task.act_size),
        weighted.reshape(-1),
        live.reshape(-1),
        share_of_delta,
    )
    if settings.learned_sigma:
        least = jnp.log(settings.least_sigma * policy.half_range)
        policy = replace(policy, log_sigma=jnp.maximum(policy.log_sigma, least))
    value = fitted(value, advantages + values[:-1], k_value)
    return policy, value, update_numbers(rollout, advantages, values[:-1], step), tenths(rollout, signals)


def tenths(rollout: Rollout, signals: Signals) -> dict[str, Array]:
    """The 10, 50 and 90 % quantiles of every signal of a label, over the steps that exist."""
    at = jnp.asarray([0.1, 0.5, 0.9])
    return {name: jnp.nanquantile(jnp.where(rollout.live, x, jnp.nan)[::4], at) for name, x in signals.items()}


class Numbers(NamedTuple):
    """What one update is worth knowing by."""

    imagined_sum: Float[Array, ""]
    length: Float[Array, ""]
    kl: Float[Array, ""]
    gain: Float[Array, ""]
    accepted: Bool[Array, ""]
    fraction: Float[Array, ""]
    value_explained: Float[Array, ""]


def update_numbers(rollout: Rollout, advantages: Array, values: Array, step: Any) -> Numbers:
    live = rollout.live.astype(jnp.float32)
    n = jnp.maximum(jnp.sum(live), 1.0)
    trajectories = trajectory_count(rollout).astype(jnp.float32)
    returns = advantages + values
    spread = jnp.sum(live * (returns - jnp.sum(live * returns) / n) ** 2)
    return Numbers(
        imagined_sum=jnp.sum(rollout.reward) / trajectories,
        length=n / trajectories,
        kl=step.kl,
        gain=step.gain,
        accepted=step.accepted,
        fraction=step.fraction,
        value_explained=1 - jnp.sum(live * advantages**2) / jnp.maximum(spread, 1e-12),
    )
