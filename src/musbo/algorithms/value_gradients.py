"""Uncertainty-regularised value gradients in the ensemble: our own method.

Between deployments M is fitted on D_all; then an actor climbs the return of short imagined windows, differentiated
through M, with V at their ends. What follows a step counts as far as M's members agree about it. The latest policy that
the members do not rate worse than the one before is its candidate.

A rival, an off-policy actor-critic, learns beside it, half from the logged transitions and half from imagined ones.
Both collect a part of every batch. The one whose policy earned more in the newest batch leads, and collects the most.
Before there is such a batch, the members of M decide. Its new policy is handed over if the members of M agree that it
is better than the policy that earned the most so far; else that one is, and the new one only collects beside it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.algorithms import imagined_findings as findings_of
from musbo.algorithms.method import DONE, LEARN, Foresight, Metrics, fit_metrics, learn_metrics
from musbo.core.diagnostics import Diagnostic, Findings, Quantiles, Stage, finite, quantiles
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.dataset import Dataset
from musbo.data.scaling import Normaliser, Scaling, measure
from musbo.learning import climb, fit, handover, learned, objectives, replay, soft
from musbo.learning.appraise import appraise, ordinary
from musbo.learning.climb import Climber, ClimbSettings, Numbers, Worth
from musbo.learning.contest import Earned, Proven, agreed, came_true, leader, proven
from musbo.learning.dream import dream
from musbo.learning.fit import FitSettings, FitState
from musbo.learning.handover import BestImagined, Check, Choice, Handover, NotWorse, Rating
from musbo.learning.imagine import Imagine, foresee
from musbo.learning.places import from_beginnings, places
from musbo.learning.replay import Replay
from musbo.learning.soft import Entropy, Soft, SoftSettings
from musbo.learning.window import Ordinary, WindowSettings, beginnings, spread
from musbo.models.actor import HeldActor, SampleActor, SharedActor, UniformActor, held, uniform
from musbo.models.dynamics import Dynamics
from musbo.models.frame import Frame, frame_of
from musbo.models.gaussian import GaussianPolicy
from musbo.tasks.task import Task

SERIES = "climb"
STARTS = Imagine(starts="mixed")
CHUNK = 500  # gradient steps of the rival between two reports, and between two dreams
SLOTS = 10  # dreams that are remembered
CAUTION = 1.0  # standard deviations over members by which a rating is lowered
AHEAD = 300.0  # steps that gamma looks ahead at most


@stored("method/value-gradients")
@dataclass(frozen=True)
class ValueGradients:
    """Settings of value gradients."""

    dynamics: FitSettings = FitSettings(members=5, hidden=(128, 128, 128, 128), activation="silu")
    """M: the dynamics ensemble."""
    huber: float | None = 0.1
    """Standard deviations beyond which M's loss grows linearly (Huber); `None`: it is squared."""
    noise: float = 0.02
    """Noise on the states that M is fitted from, as a share of one step's change: it learns to lead back."""
    window: WindowSettings = WindowSettings()
    """Imagined windows and how far they are trusted."""
    climb: ClimbSettings = ClimbSettings()
    """Actor and critics."""
    soft: SoftSettings = SoftSettings(
        actor=(128, 128), critic=(128, 128), normalised=True, learning_rate=1e-3, batch=128
    )
    """Actor and critics of the rival."""
    steps: int = 40_000
    """Gradient steps of the rival per deployment; 0: there is none."""
    imagined_share: float = 0.5
    """Share of imagined rows in the rival's minibatches."""
    dream: WindowSettings = WindowSettings(imagined=10_000, steps=50, fresh=0.1, least=0.1)
    """Imagined steps between two chunks of the rival's gradient steps."""
    updates: int = 500
    """Windows per deployment."""
    patience: int = 20
    """Windows in which V learns alone, before the actor moves."""
    gamma: float | None = None
    """gamma: discount; `None`: it looks ahead ten times the time in which the state changes, but 100 to 300 steps, 300
    where episodes can end early, and at most 0.3 of an episode."""
    handover: Handover = NotWorse(caution=CAUTION)
    """Which policy is handed over."""
    check: Check = Check(every=50, rollouts=8)
    """Imagined evaluation during training."""

    def __post_init__(self) -> None:
        if self.updates < 1 or self.patience < 0 or self.steps < 0:
            raise UserError("updates must be at least 1, patience and steps at least 0.")
        if not 0 <= self.imagined_share < 1 or self.dream.steps is None:
            raise UserError("imagined_share must lie in [0, 1), and dream.steps must be a number.")
        if self.dynamics.members < 2:
            raise UserError(f"at least 2 members are needed to disagree, not {self.dynamics.members}.")

    @property
    def stages(self) -> tuple[Stage, ...]:
        rival = (LEARN,) if self.steps else ()
        return (Stage("dynamics", "fitting the dynamics M"), *rival, Stage(SERIES, "climbing in imagination"))

    def require(self, task: Task) -> None:
        """Any task will do."""

    def begin(self, task: Task, key: PRNGKeyArray) -> "State":
        k_climber, k_rival = jax.random.split(key)
        frame = frame_of(task)
        climber = climb.begin(self.climb, task.obs_size, task.act_size, k_climber)
        rival = soft.begin(self.soft, Entropy(), task.obs_size, task.act_size, k_rival) if self.steps else None
        worth = Worth(jnp.zeros(()), jnp.zeros(()), jnp.ones(()))
        return State("collected", frame, climber, worth, GaussianPolicy(climber.actor, frame), rival)

    def discount(self, task: Task, time: float) -> float:
        """gamma by the length of an episode and the time in which the state changes.

        Where episodes can end early, to fall must cost more than what leaping into the fall brings.
        """
        if self.gamma is not None:
            return self.gamma
        ahead = max(10.0 * time, 100.0) if task.terminated is None else AHEAD
        return 1.0 - 1.0 / max(10.0, min(0.3 * task.episode_steps, ahead, AHEAD))

    def rival_settings(self, task: Task) -> SoftSettings:
        """Where episodes can end early the rival looks as far ahead as the climber, for the same reason."""
        if task.terminated is None:
            return self.soft
        return replace(self.soft, gamma=max(self.soft.gamma, self.discount(task, 0.0)))

    def actor(self, task: Task, state: "State") -> UniformActor | HeldActor | SampleActor | SharedActor:
        """Random until something was learned; then samples of the newest policies, and of an earlier one that leads.

        Random actions are held for a while, unless that would end episodes early.
        """
        if state.dynamics is None:
            return held(task) if task.terminated is None else uniform(task)
        if len(state.collecting) == 1:
            return SampleActor(state.policy)
        leader, challenger, *rest = state.collecting
        return SharedActor(leader, challenger, rest[0] if rest else None)

    def foresight(self, state: "State") -> Foresight | None:
        """Courses in M; doubt is the largest disagreement of a member and the next."""
        M = state.dynamics
        if M is None:
            return None
        return Foresight(
            lambda task, start, steps, actions: foresee(task, steps, state.policy, M, start, actions),
            lambda obs, act: jnp.max(spread(M, obs, act), axis=0),
        )

    def train(self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray) -> Iterator[tuple["State", Metrics]]:
        k_fit, k_new, k_climb, k_noise, k_rival = jax.random.split(key, 5)
        scaling = measure(data, learn_reward=task.reward == "learned", predicted=task.predicted)
        if state.stage == "collected":
            frame = replace(state.frame, normaliser=Normaliser(scaling.obs_mean, scaling.obs_std))
            worth = self.worth(task, data, change_time(scaling, task.predicted))
            climber, rival = state.climber, state.rival
            if state.dynamics is not None:  # the weights of new networks were drawn for normalised inputs
                climber = climb.carry_over(climber, (state.frame, frame), (state.worth, worth))
                rival = rival and soft.renormalise(rival, state.frame, frame)
            earned, proven = brought_home(data, state)
            state = replace(
                state, stage="dynamics", frame=frame, worth=worth, climber=climber, rival=rival, earned=earned,
                proven=proven,
            )  # fmt: skip
        if state.stage == "dynamics":
            work = state.fit or objectives.begin_dynamics(task, self.dynamics, state.dynamics, scaling, k_new)
            rows_M = objectives.dynamics_rows(task, data, scaling)
            if self.noise:
                rows_M = objectives.steadied(task, rows_M, scaling, self.noise, k_noise)
            error = objectives.SquaredError(task.terminated == "learned", self.huber)
            fitted = work
            for fitted, epoch in fit.epochs(self.dynamics, error, rows_M, work, k_fit):
                yield replace(state, fit=fitted), fit_metrics("dynamics", epoch, column="model\nerror")
            del rows_M
            M = Dynamics(fitted.best, scaling)
            state = replace(
                state, stage=LEARN.name, dynamics=M, fit=None, ordinary=ordinary(task, M, data), update=0, checked=-1,
                choice=None, lanes=None, step=0,
            )  # fmt: skip
            if "learned" in (task.reward, task.terminated):
                told = learned.agreement(task, data, partial(learned.by_dynamics, task, M), task.reward == "learned")
                yield state, Metrics(learned.STAGE, findings=told)
        if state.stage == LEARN.name:
            reached = state
            for reached, metrics in self._learn(task, data, state, k_rival):
                yield reached, metrics
            state = replace(reached, stage=SERIES, lanes=None, dreamt=None)
        yield from self._climb(task, data, state, k_climb)

    def _learn(self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray) -> Iterator[tuple["State", Metrics]]:
        """The rival, on all that was logged and on what it imagines."""
        if state.rival is None:
            return
        M = state.dynamics
        assert M is not None and state.ordinary is not None
        k_reset, k_lanes, k_dream, k_learn = jax.random.split(key, 4)
        everything, unit = logged(data, state.frame, state.worth.unknown)
        settings = self.rival_settings(task)
        imagined = int(self.imagined_share * self.soft.batch)
        sources, shares = (everything,), (self.soft.batch,)
        initial, anywhere, _ = places(STARTS, task, data, k_reset)
        if imagined and state.dreamt is None:
            lanes = beginnings(self.dream, initial, anywhere, (self.dream.lanes,), k_lanes)
            empty = replay.empty(SLOTS, self.dream.lanes * (self.dream.steps or 1), task.obs_size, task.act_size, True)
            state = replace(state, lanes=lanes, dreamt=empty)
        dreamt = None
        while state.step < self.steps:
            if state.dreamt is not None:
                slot = jnp.asarray(state.step // CHUNK % SLOTS)
                filled, lanes, dreamt = dream(
                    task, self.dream, state.rival.parts.actor, state.frame, (state.worth.unknown, unit), M,
                    state.ordinary, initial, anywhere, state.lanes, state.dreamt, slot,
                    jax.random.fold_in(k_dream, state.step),
                )  # fmt: skip
                state = replace(state, dreamt=filled, lanes=lanes)
                sources, shares = (everything, filled), (self.soft.batch - imagined, imagined)
            n = min(CHUNK, self.steps - state.step)
            rival, seen = soft.soft_steps(
                settings, Entropy(), n, shares, state.rival, None, sources, jax.random.fold_in(k_learn, state.step)
            )
            state = replace(state, rival=rival, step=state.step + n)
            error, value = np.asarray(seen).tolist()
            report = learn_metrics(state.step, self.steps, error, value)
            if dreamt is not None:
                known, ended = np.asarray(dreamt).tolist()
                report = replace(report, numbers={**report.numbers, "dreamt_known": known, "dreamt_ended": ended})
            yield state, report

    def worth(self, task: Task, data: Dataset, time: float) -> Worth:
        """Discount, the reward of an unknown step and the unit of value, by the task and its data."""
        reward = np.asarray(data.reward)[np.asarray(data.training)].astype(np.float64)
        gamma = self.discount(task, time)
        unknown = float(reward.mean())
        if task.terminated is not None:
            unknown = min(0.0, unknown)  # to end is worth nothing more: doubt must not be better than that
        size = float(np.sqrt(np.mean((reward - unknown) ** 2)))
        unit = max(size, 1e-6) / (1 - gamma) ** 0.5
        return Worth(*(jnp.asarray(x, jnp.float32) for x in (gamma, unknown, unit)))

    def _climb(self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray) -> Iterator[tuple["State", Metrics]]:
        k_lanes, k_window, k_check, k_reset = jax.random.split(key, 4)
        M = state.dynamics
        assert M is not None and state.ordinary is not None
        window = self.window.lasting(change_time(M.scaling, task.predicted))
        initial, anywhere, heldout = places(STARTS, task, data, k_reset)
        steps = task.episode_steps
        rated = steps if from_beginnings(STARTS, data) else None
        known, unknown = state.ordinary, state.worth.unknown

        def judged(policy: GaussianPolicy) -> Rating:
            return appraise(task, self.check.rollouts, steps, policy, M, known, unknown, heldout, k_check)

        if state.lanes is None:
            lanes = beginnings(window, initial, anywhere, (window.lanes,), k_lanes)
            state = replace(state, lanes=lanes)
        while True:
            i = state.update
            if (i % self.check.every == 0 or i == self.updates) and state.checked != i:
                policy = GaussianPolicy(state.climber.actor, state.frame)
                seen = judged(policy)
                choice = handover.choose(self.handover, state.choice, policy, seen, i)
                state = replace(state, choice=choice, checked=i)
                chosen = {"chosen": int(choice.update), "stopped": bool(choice.stopped)}
                numbers = {**findings_of.rating_numbers(seen), **chosen}
                promise = findings_of.promise(seen, rated)
                yield state, Metrics("check", i, self.updates, "window", numbers=numbers, forecast=promise)
            assert state.choice is not None
            if i >= self.updates or bool(state.choice.stopped):
                break
            rate = jnp.asarray(0.0 if i < self.patience else 1.0 - 0.9 * i / self.updates)
            climber, lanes, level, numbers = climb.climb(
                task, self.climb, window, state.climber, state.frame, state.worth, M, state.ordinary, initial,
                anywhere, state.lanes, rate, jnp.asarray(i), k_window,
            )  # fmt: skip
            state = replace(state, climber=climber, lanes=lanes, ordinary=level, update=i + 1)
            yield state, self._metrics(i + 1, numbers)

        choice, challenger, leads = state.choice, None, False
        if state.rival is not None:
            policy = GaussianPolicy(state.rival.parts.actor, state.frame)
            other = replace(choice, policy=policy, rating=judged(policy))
            leads = rival_leads(choice, other, state.earned, state.rival_leads)
            choice, challenger = (other, choice.policy) if leads else (choice, other.policy)
        candidate = None
        if state.proven is not None:
            before = replace(choice, policy=state.proven.policy, rating=judged(state.proven.policy))
            if not agreed(before.rating, choice.rating):
                choice, candidate = before, choice.policy
        findings = findings_of.chosen(choice) + contest_findings(leads, candidate is not None, state.earned)
        state = replace(
            state, stage="collected", policy=choice.policy, challenger=challenger, candidate=candidate,
            rival_leads=leads, choice=None, lanes=None, update=0, checked=-1, step=0,
        )  # fmt: skip
        yield state, Metrics(DONE, findings=findings, forecast=findings_of.promise(choice.rating, rated))

    def _metrics(self, index: int, seen: Numbers) -> Metrics:
        findings = climb_findings(quantiles(np.asarray(seen.U).tolist()), float(seen.explained), float(seen.value))
        numbers = {name: np.asarray(x).tolist() for name, x in seen._asdict().items()}
        return Metrics(SERIES, index, self.updates, "window", index >= self.updates, numbers, findings)


@jax.jit
def logged(data: Dataset, frame: Frame, unknown: Float[Array, ""]) -> tuple[Replay, Float[Array, ""]]:
    """D_all for the rival, rewards above that of an unknown step and of unit size; also that unit.

    What entropy is worth beside them must not follow the unit of the task.
    """
    found = replay.logged(data, frame)
    live = data.live.astype(jnp.float32)
    reward = found.rows.reward - unknown
    unit = jnp.maximum(jnp.sqrt(jnp.sum(live * reward**2) / jnp.maximum(jnp.sum(live), 1.0)), 1e-6)
    rows = replace(found.rows, reward=reward / unit, trust=jnp.ones_like(reward))
    return Replay(rows, found.n), unit


def brought_home(data: Dataset, state: "State") -> tuple[Earned | None, Proven | None]:
    """What the newest batch says: of the climber's and the rival's policies, and of the best policy so far."""
    if not state.trained:
        return None, None
    policies = state.collecting
    earned = came_true(data, len(policies))
    if earned is None:
        return None, state.proven
    best = proven(state.proven, policies, earned, again=state.candidate is not None)
    if state.challenger is None:
        return None, best
    both = jnp.asarray([0 if state.candidate is None else 2, 1])  # of the leading learner, of the other one
    both = both[::-1] if state.rival_leads else both
    return Earned(earned.mean[both], earned.error[both]), best


def rival_leads(climber: Choice, rival: Choice, earned: Earned | None, before: bool) -> bool:
    """Who is handed over: whose last policy earned more in the newest batch; `before`: whether the rival led so far.

    A lead passes to the other one where the difference is larger than its standard error. M promises too much rather
    than too little: a policy of which even M promises less than the other one has earned already does not lead. Before
    there is such a batch, M decides.
    """
    if earned is None:
        return BestImagined(caution=CAUTION).choose(climber, rival) is rival
    leads = leader(earned, int(before))
    promised = [float(jnp.mean(each.rating.returns)) for each in (climber, rival)]
    return bool(leads if promised[leads] >= float(earned.mean[1 - leads]) else 1 - leads)


def contest_findings(leads: bool, stays: bool, earned: Earned | None) -> Findings:
    climber, rival = (None, None) if earned is None else (finite(float(x)) for x in earned.mean)
    about = "1 where the policy of the second learner is handed over."
    text = "Mean return of its episodes in the newest batch."
    shown = (
        Diagnostic("rival", float(leads), "rival leads", about, column="rival\nleads"),
        Diagnostic(
            "stays",
            float(stays),
            "an earlier policy stays",
            "1 where the members of M do not agree that the new policy is better than the one that earned the most.",
        ),
        Diagnostic("climber_earned", climber, "earned by the climber", text),
        Diagnostic("rival_earned", rival, "earned by the rival", text),
    )
    return Findings(shown)


def climb_findings(U: Quantiles | None, explained: float, value: float) -> Findings:
    """What is shown of a window."""
    shown = (
        Diagnostic(
            "U",
            U,
            "trust U",
            "How far what follows an imagined step counts, over the steps of a window: 1 is wholly.",
            column="U at\n10/50/90 %",
            series=SERIES,
        ),
        Diagnostic(
            "explained",
            finite(explained),
            "explained by V",
            "Share of the variance of the imagined returns that the critics predict.",
            series=SERIES,
            percent=True,
        ),
        Diagnostic(
            "value",
            finite(value),
            "imagined value",
            "Mean return of the lanes, above what an unknown step pays.",
            unit="units of the reward",
            series=SERIES,
        ),
    )
    return Findings(shown)


def _errors_unknown(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 kept the means of what was earned alone."""
    earned = fields.pop("earned", None)
    return {**fields, "earned": None if earned is None else Earned(earned, jnp.zeros(2))}


@stored("state/value-gradients", version=2, upgrades={1: _errors_unknown})
class State(eqx.Module):
    """Everything that passes from one moment of a campaign to the next."""

    stage: str = eqx.field(static=True)
    frame: Frame
    climber: Climber
    worth: Worth
    policy: GaussianPolicy  # the last one handed over
    rival: Soft | None = None
    challenger: GaussianPolicy | None = None  # the newest of the learner that does not lead
    candidate: GaussianPolicy | None = None  # the newest of the one that leads, where an earlier policy is handed over
    proven: Proven | None = None  # the policy that earned the most so far
    earned: Earned | None = None  # by the climber's and the rival's policy in the newest batch
    dynamics: Dynamics | None = None
    ordinary: Ordinary | None = None
    fit: FitState | None = None
    lanes: Float[Array, "b obs"] | None = None
    dreamt: Replay | None = None
    choice: Choice | None = None
    update: int = eqx.field(static=True, default=0)
    checked: int = eqx.field(static=True, default=-1)
    step: int = eqx.field(static=True, default=0)  # of the rival
    rival_leads: bool = eqx.field(static=True, default=False)

    @property
    def trained(self) -> bool:
        return self.dynamics is not None

    @property
    def collecting(self) -> tuple[GaussianPolicy, ...]:
        """The policies that share the lanes, by their numbers in the batch."""
        every = (self.policy, self.challenger, self.candidate)
        return tuple(policy for policy in every if policy is not None)


def change_time(scaling: Scaling, size: int) -> float:
    """In how many steps the state changes by as much as it varies: the median over its first `size` columns."""
    return float(1.0 / np.median(np.asarray(scaling.target_std)[:size] / np.asarray(scaling.obs_std)[:size]))
