"""Two methods that share every batch: trust-region steps in imagination (MUSBO) and value gradients.

They win on different tasks, and nobody knows beforehand on which. So both learn from all data, each with models of its
own, and each collects half of the lanes of every batch with its own exploration. The one that earned more in the newest
batch leads: its policy is handed over. Before there is such a batch, each policy is rated by the models of the other
method, in which it was not optimised.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, PRNGKeyArray

from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.method import DONE, Forecast, Foresight, Metrics
from musbo.algorithms.value_gradients import ValueGradients
from musbo.core.diagnostics import NOTHING, Diagnostic, Findings, Stage, finite
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.batch import HUMAN
from musbo.data.dataset import Dataset
from musbo.learning.contest import Earned, came_true, leader
from musbo.learning.imagine import Imagine, draw_starts, foresee
from musbo.learning.places import places
from musbo.models.actor import PairActor, policies_of
from musbo.models.frame import AnyPolicy
from musbo.tasks.task import Task

RATED = 20  # start states from which a policy is rated
AGAIN = " (value gradients)"
"""Behind the names of the second method's stages and reports that the first one has too."""


@stored("method/together")
@dataclass(frozen=True)
class Together:
    """Settings of the two methods."""

    first: ImaginedTRPO = ImaginedTRPO()
    """Trust-region steps in imagination."""
    second: ValueGradients = ValueGradients()
    """Value gradients and their rival."""

    def __post_init__(self) -> None:
        if getattr(self.first.explore, "zeta", None) == "oracle":
            raise UserError("methods that share a batch cannot ask an oracle: choose another zeta of the exploration.")

    @property
    def stages(self) -> tuple[Stage, ...]:
        first = self.first.stages
        taken = {stage.name for stage in first}
        return (*first, *(Stage(_renamed(stage.name, taken), stage.doing) for stage in self.second.stages))

    def require(self, task: Task) -> None:
        self.first.require(task)
        self.second.require(task)

    def begin(self, task: Task, key: PRNGKeyArray) -> "State":
        k_first, k_second = jax.random.split(key)
        first, second = self.first.begin(task, k_first), self.second.begin(task, k_second)
        return State("collected", first, second, first.policy)

    def actor(self, task: Task, state: "State") -> PairActor:
        """The leader has the even lanes, the other one the odd ones."""
        first, second = self.first.actor(task, state.first), self.second.actor(task, state.second)
        return PairActor(first, second) if state.leads == 0 else PairActor(second, first)

    def foresight(self, state: "State") -> Foresight | None:
        """That of the leader."""
        if state.leads == 0:
            return self.first.foresight(state.first)
        return self.second.foresight(state.second)

    def train(self, task: Task, data: Dataset, state: "State", key: PRNGKeyArray) -> Iterator[tuple["State", Metrics]]:
        k_first, k_second, k_rate = jax.random.split(key, 3)
        numbers = self._numbers(task, state)
        if state.stage == "collected":
            state = replace(state, stage="first")
        if state.stage == "first":
            mine = seen_by(data, numbers[0])
            for first, metrics in self.first.train(task, mine, state.first, k_first):
                if metrics.stage == DONE:
                    state = replace(state, first=first, stage="second", promised=metrics.forecast)
                    yield state, replace(metrics, stage="trust region", forecast=None)
                else:
                    state = replace(state, first=first)
                    yield state, metrics
        taken = {"check", "learned", *(stage.name for stage in self.first.stages)}
        mine = seen_by(data, numbers[1])
        findings, promised = NOTHING, state.promised
        for second, metrics in self.second.train(task, mine, state.second, k_second):
            state = replace(state, second=second)
            if metrics.stage == DONE:
                findings, promised = metrics.findings, metrics.forecast
                break
            again = metrics.stage in taken  # its numbers and diagnostics would be taken for the first one's
            shown = NOTHING if again else metrics.findings
            yield state, replace(metrics, stage=_renamed(metrics.stage, taken), findings=shown)
        earned = came_true(data, sum(map(len, numbers))) if state.trained else None
        both = None if earned is None else jnp.asarray([each[0] for each in numbers])
        told = None if earned is None or both is None else Earned(earned.mean[both], earned.error[both])
        start = beginnings(task, data, k_rate)
        learned = state.first, state.second
        if told is not None:
            leads = leader(told, state.leads)
        else:
            of_first, of_second = (rated(task, learned[i].policy, learned[1 - i], start) for i in (0, 1))
            leads = 0 if of_first.mean() > of_second.mean() else 1
        policy, judge = learned[leads].policy, learned[1 - leads]
        forecast = promised if leads else state.promised
        again = state.trained and leads == state.leads == 0  # value gradients see to it themselves
        if again and worse(rated(task, policy, judge, start), rated(task, state.policy, judge, start)):
            policy, forecast = state.policy, None
            state = replace(state, first=replace(state.first, policy=policy))
        shown = findings_of(leads, told) + (findings if leads else NOTHING)
        metrics = Metrics(DONE, findings=shown, forecast=forecast)
        yield replace(state, stage="collected", policy=policy, leads=leads, trained=True, promised=None), metrics

    def _numbers(self, task: Task, state: "State") -> tuple[tuple[int, ...], tuple[int, ...]]:
        """By which numbers a batch knows the policies of the first and of the second method."""
        counts = (
            policies_of(self.first.actor(task, state.first)),
            policies_of(self.second.actor(task, state.second)),
        )
        return numbered(counts, state.leads)


def beginnings(task: Task, data: Dataset, key: PRNGKeyArray) -> Float[Array, "b obs"]:
    """Held-out states in which episodes begin, where there are some."""
    k_places, k_start = jax.random.split(key)
    _, _, heldout = places(Imagine(starts="mixed"), task, data, k_places)
    return draw_starts(heldout, RATED, k_start)


def rated(task: Task, policy: AnyPolicy, judge: Any, start: Float[Array, "b obs"]) -> Float64[np.ndarray, " b"]:
    """The imagined return from every start, by the models of `judge`: a method that did not optimise the policy."""
    return np.asarray(foresee(task, task.episode_steps, policy, judge.dynamics, start)[2], np.float64)


def worse(new: Float64[np.ndarray, " b"], old: Float64[np.ndarray, " b"]) -> bool:
    """Whether the mean difference lies below zero by more than its standard error; what is no number is worse."""
    gained = new - old
    if not np.isfinite(gained).all():
        return not np.isfinite(new).all()
    return bool(gained.mean() < -gained.std(ddof=1) / len(gained) ** 0.5)


def _renamed(name: str, taken: set[str]) -> str:
    return name + AGAIN if name in taken else name


def numbered(counts: tuple[int, int], leads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of two methods' policies in a batch: the leader's come first."""
    first, second = counts
    if leads == 0:
        return tuple(range(first)), tuple(range(first, first + second))
    return tuple(range(second, second + first)), tuple(range(second))


def seen_by(data: Dataset, numbers: tuple[int, ...]) -> Dataset:
    """D_all as one of the methods sees it: its own policies are 0, 1, ...; what the other one steered, others did.

    Only the newest batch is asked who steered, so the numbers of that one are put in all of them.
    """
    by = np.asarray(data.by)
    seen = np.where(by >= 0, np.int8(HUMAN), by)
    for own, number in enumerate(numbers):
        seen[by == number] = own
    return replace(data, by=jnp.asarray(seen))


def findings_of(leads: int, earned: Earned | None) -> Findings:
    """What is shown of the contest."""
    first, second = (None, None) if earned is None else (finite(float(x)) for x in earned.mean)
    about = "0: the policy of the trust-region steps is handed over, 1: that of the value gradients."
    text = "Mean return of its episodes in the newest batch."
    shown = (
        Diagnostic("leads", float(leads), "value gradients lead", about, column="gradients\nlead"),
        Diagnostic("trust_region_earned", first, "earned by trust-region steps", text),
        Diagnostic("gradients_earned", second, "earned by value gradients", text),
    )
    return Findings(shown)


@stored("state/together")
class State(eqx.Module):
    """The states of both, and who leads."""

    stage: str = eqx.field(static=True)
    first: Any
    second: Any
    policy: AnyPolicy  # of the leader
    leads: int = eqx.field(static=True, default=0)
    trained: bool = eqx.field(static=True, default=False)  # whether the newest batch compares anything
    promised: Forecast | None = eqx.field(static=True, default=None)  # by M for the first one's new policy
