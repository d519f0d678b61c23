"""Which policy of a deployment's updates is handed over. No reading looks at a simulator.

Every few updates the policy's mean is rolled out in every member of M from held-out start states: the imagined return
per member, and the labeler's disagreement along the way. `Last` only logs that; `BestImagined` keeps the policy with
the best mean return over members; `Guarded` stops when the path leaves the data's support or too few members see an
improvement. A new one is a frozen dataclass with `choose`, stored as `handover/...`.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.learning.imagine import Imagine, Rollout, Starts, draw_starts, trajectories
from musbo.learning.label import disagreement
from musbo.models.dynamics import Dynamics
from musbo.models.frame import AnyPolicy
from musbo.models.labeler import Labeler
from musbo.models.mlp import count, member
from musbo.models.policy import Policy
from musbo.tasks.task import Task


@runtime_checkable
class Handover(Protocol):
    """Which policy is handed over, as the checks come in."""

    def choose(self, before: "Choice", now: "Choice") -> "Choice":
        """The choice after a check that would choose `now`; `before` is the one so far."""
        ...


@stored("handover/last")
@dataclass(frozen=True)
class Last:
    """Hand over the policy after the last update (the paper)."""

    def choose(self, before: "Choice", now: "Choice") -> "Choice":
        return now


@stored("handover/best_imagined")
@dataclass(frozen=True)
class BestImagined:
    """Hand over the policy that all members of M together rate best."""

    patience: int | None = None
    """Stop after this many updates without a better rating; `None`: take all of them."""
    caution: float = 0.0
    """How many standard deviations over members are subtracted from their mean: what only some promise counts less."""

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise UserError(f"patience of the handover must be at least 1 or none, not {self.patience}.")
        if not self.caution >= 0:
            raise UserError(f"caution of the handover must be at least 0, not {self.caution}.")

    def choose(self, before: "Choice", now: "Choice") -> "Choice":
        old, new = (cautious(choice.rating, self.caution) for choice in (before, now))
        # What is not a number is no rating: it is never better, and anything is better than it.
        if new > old or (math.isnan(old) and not math.isnan(new)):
            return now
        over = self.patience is not None and int(now.update) - int(before.update) >= self.patience
        return replace(before, stopped=jnp.ones((), bool)) if over else before


def cautious(rating: "Rating", caution: float) -> float:
    """Mean over members, less `caution` times their standard deviation."""
    returns = np.asarray(rating.returns, np.float64)
    return float(returns.mean() - caution * returns.std())


@stored("handover/not_worse")
@dataclass(frozen=True)
class NotWorse:
    """Hand over the latest policy that the members of M do not rate worse than the one chosen before it.

    Ratings are means over few trajectories of models, so a small difference means nothing: worse is what lies below
    by more than the standard error of the members' differences.
    """

    caution: float = 0.0
    """How many standard deviations over members are subtracted from their mean: what only some promise counts less."""

    def __post_init__(self) -> None:
        BestImagined(caution=self.caution)  # refuses what cannot be

    def choose(self, before: "Choice", now: "Choice") -> "Choice":
        gained = np.asarray(now.rating.returns, np.float64) - np.asarray(before.rating.returns, np.float64)
        if not np.isfinite(gained).all():
            return BestImagined(caution=self.caution).choose(before, now)
        error = gained.std(ddof=1) / math.sqrt(len(gained)) if len(gained) > 1 else 0.0
        better = cautious(now.rating, self.caution) - cautious(before.rating, self.caution)
        return now if better >= -error else before


@stored("handover/guarded")
@dataclass(frozen=True)
class Guarded:
    """Hand over the last policy before the models stop being credible."""

    multiple: float = 3.0
    """Largest disagreement along the policy's imagined path, in multiples of its mean on held-out data."""
    improved: float = 0.7
    """Smallest share of members that must rate the policy at least as good as at the last check (ME-TRPO: 0.7)."""

    def __post_init__(self) -> None:
        if not self.multiple > 0 or not 0 <= self.improved <= 1:
            raise UserError("guarded handover needs a multiple above 0 and a share between 0 and 1.")

    def choose(self, before: "Choice", now: "Choice") -> "Choice":
        # In double precision: 7 members of 10 are a share of 0.7, and in single precision a little less.
        share = float(np.mean(np.asarray(now.rating.returns >= before.rating.returns)))
        if float(now.rating.path) <= self.multiple and share >= self.improved:
            return now
        return replace(before, stopped=jnp.ones((), bool))


@stored("settings/check")
@dataclass(frozen=True)
class Check:
    """Imagined evaluation of the policy during training."""

    every: int = 10
    """Updates between checks."""
    rollouts: int = 20
    """Start states per check; every member of M rolls out from all of them."""
    steps: int | None = None
    """How far a policy is followed, at most a whole episode; `None`: as far as the updates imagine (H)."""

    def __post_init__(self) -> None:
        if self.every < 1 or self.rollouts < 1 or (self.steps is not None and self.steps < 1):
            raise UserError("checks need every, rollouts and steps of at least 1.")


@stored("state/rating")
class Rating(eqx.Module):
    """How the models rate one policy."""

    returns: Float[Array, " k"]  # mean imagined return under each member of M
    length: Float[Array, ""]  # mean imagined steps
    cut: Float[Array, ""]  # share of trajectories that ran away and were cut
    path: Float[Array, ""]  # mean disagreement along the path, in multiples of its held-out mean


def _unrated(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 kept the returns of a rating alone."""
    returns, unknown = fields.pop("returns"), jnp.asarray(jnp.nan)
    return {**fields, "rating": Rating(returns, unknown, unknown, unknown)}


@stored("state/choice", version=2, upgrades={1: _unrated})
class Choice(eqx.Module):
    """The policy that would be handed over now, and its rating."""

    policy: AnyPolicy
    rating: Rating
    update: Int[Array, ""]
    stopped: Bool[Array, ""]


def rated_steps(task: Task, check: Check, settings: Imagine) -> int:
    """How far a policy is followed: no further than an episode lasts, since no real one goes on."""
    return min(settings.horizon if check.steps is None else check.steps, task.episode_steps)


@partial(jax.jit, static_argnames=("task", "check", "settings"))
def rate(
    task: Task,
    check: Check,
    settings: Imagine,
    policy: Policy,
    model: Dynamics,
    judge: Labeler,
    starts: Starts,
    key: PRNGKeyArray,
) -> Rating:
    """Roll the mean policy out in every member; the same key gives the same start states at every check."""
    k_start, k_pair = jax.random.split(key)
    start = draw_starts(starts, check.rollouts, k_start)
    alone = replace(settings, member="per_step", horizon=rated_steps(task, check, settings))
    first = jnp.zeros(alone.horizon, jnp.int32)
    silence = jnp.zeros((alone.horizon, check.rollouts, task.act_size))  # the policy's mean

    def under(index: Int[Array, ""]) -> tuple:
        one = Dynamics(jax.tree.map(lambda leaf: leaf[None], member(model.members, index)), model.scaling)
        rollout = trajectories(task, alone, policy, one, start, first, silence)
        # Every tenth step is enough for the mean disagreement along the path.
        some = eqx.tree_at(lambda r: (r.obs, r.executed), rollout, (rollout.obs[::10], rollout.executed[::10]))
        apart = disagreement("batch", "mean", some, judge, k_pair)
        live = rollout.live[::10].astype(jnp.float32)
        path = jnp.sum(live * apart) / jnp.maximum(jnp.sum(live), 1.0)
        return *_rewarded(rollout), path

    returns, lengths, cut, path = jax.lax.map(under, jnp.arange(count(model.members)))
    path = jnp.mean(path) / jnp.maximum(judge.levels.pair_mean, 1e-12)
    return Rating(returns, jnp.mean(lengths), jnp.mean(cut), path)


def _rewarded(rollout: Rollout) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Mean return and length of trajectories, and the share that was cut.

    What was cut without having terminated goes on at its own mean reward: where rewards are costs, running away would
    otherwise be the cheapest way to end. A trajectory that was cut in its first step says nothing.
    """
    horizon = rollout.reward.shape[0]
    lived = jnp.sum(rollout.live, axis=0, dtype=jnp.float32)
    cut = (lived < horizon) & ~jnp.any(rollout.terminated, axis=0)
    length = jnp.where(cut, horizon, lived)
    returns = jnp.sum(rollout.reward, axis=0) * length / jnp.maximum(lived, 1.0)
    known = (lived > 0).astype(jnp.float32)
    return known @ returns / jnp.sum(known), known @ length / jnp.sum(known), jnp.mean(cut.astype(jnp.float32))


def choose(handover: Handover, choice: Choice | None, policy: AnyPolicy, rating: Rating, update: int) -> Choice:
    """The choice after a check at `update`; the first one has no predecessor."""
    now = Choice(policy, rating, jnp.asarray(update, jnp.int32), jnp.zeros((), bool))
    return now if choice is None else handover.choose(choice, now)
