"""What is known of a candidate before it is deployed: ratings by models and by fitted Q, and where it would go.

Everything is paired: the candidate and the incumbent are rated from the same beginnings, by the same models, with the
same chance. Only data, models and the campaign's own past are used.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, PRNGKeyArray

from musbo.core.registry import stored
from musbo.data.dataset import Dataset, rows
from musbo.gate import fitted_q
from musbo.gate.fitted_q import FittedQ
from musbo.gate.real import newest_batch, real_return
from musbo.gate.refit import REFIT, Judges, refit
from musbo.learning.appraise import appraise
from musbo.learning.fit import FitSettings
from musbo.learning.handover import Rating
from musbo.learning.imagine import Imagine, Starts, draw_starts, foresee
from musbo.learning.places import places
from musbo.models.dynamics import Dynamics
from musbo.models.frame import AnyPolicy
from musbo.tasks.history import newest
from musbo.tasks.task import Task

ROLLOUTS = 20  # imagined episodes of each policy under each refit
FITTED = FittedQ()
EDGES = 0.005, 0.995  # quantiles of the data: beyond them a state is hardly covered


@stored("gate/evidence")
@dataclass(frozen=True)
class Evidence:
    """Of one comparison. Returns are those of an episode."""

    models: tuple[tuple[float, float], ...]
    """Return of candidate and incumbent under every refit."""
    fitted: tuple[tuple[float, float], ...]
    """The same by fitted Q, for every seed."""
    scale: float
    """Standard deviation of the returns of the logged episodes."""
    path: float
    """Disagreement of the refits along the candidate's path, in units of what is ordinary on held-out data."""
    lost: float
    """Share of the candidate's imagined episodes that leave all that is known."""
    steps: float
    """Mean length of the candidate's imagined episodes."""
    outside: tuple[tuple[str, float], ...] = ()
    """Observations that the candidate would take beyond nearly all data, with the share of its steps; most first."""
    at_bounds: tuple[tuple[str, float], ...] = ()
    """Actions that it would hold at a bound, with the share of its steps; most first."""
    changes: tuple[tuple[str, float], ...] = ()
    """Its largest change of an action from step to step (99 % of its steps), as a share of the range."""


def gather(
    task: Task,
    data: Dataset,
    candidate: AnyPolicy,
    incumbent: AnyPolicy | None,
    key: PRNGKeyArray,
    refits: FitSettings = REFIT,
    q: FittedQ = FITTED,
) -> Evidence:
    """Everything that the gate looks at. Without a policy as incumbent, it is the behaviour in the newest batch: what
    its episodes really earned stands on its side of every pair."""
    k_fit, k_q, k_starts, k_rate, k_path = jax.random.split(key, 5)
    judges = refit(task, data, k_fit, refits)
    _, _, starts = places(Imagine(starts="mixed"), task, data, k_starts)
    policies = (candidate,) if incumbent is None else (candidate, incumbent)
    mine, *others = (rating(task, policy, judges, starts, k_rate) for policy in policies)
    models = np.stack([np.asarray(each.returns, np.float64) for each in (mine, *others)])
    fitted = fitted_q.evaluate(task, data, policies, q, k_q) * task.episode_steps
    if incumbent is None:
        real = real_return(task, data, newest_batch(data))
        models, fitted = (np.stack([own[0], np.full_like(own[0], real)]) for own in (models, fitted))
    seen, done, live = course(task, judges.dynamics, candidate, draw_starts(starts, ROLLOUTS, k_path))
    return Evidence(
        models=tuple(map(tuple, models.T.tolist())),
        fitted=tuple(map(tuple, fitted.T.tolist())),
        scale=spread_of_returns(data),
        path=float(mine.path),
        lost=float(mine.cut),
        steps=float(mine.length),
        outside=outside(task, data, seen[live]),
        at_bounds=at_bounds(task, done[live]),
        changes=changes(task, done, live),
    )


def rating(task: Task, policy: AnyPolicy, judges: Judges, starts: Starts, key: PRNGKeyArray) -> Rating:
    """Whole episodes under every refit."""
    return appraise(
        task, ROLLOUTS, task.episode_steps, policy, judges.dynamics, judges.ordinary, judges.unknown, starts, key
    )


def spread_of_returns(data: Dataset) -> float:
    """Standard deviation of what logged episodes earned."""
    live = rows(data.live)
    number = np.cumsum(np.asarray(data.initial)[live])
    returns = np.bincount(number, np.asarray(data.reward)[live].astype(np.float64))[int(number[0]) :]
    return float(returns.std())


# Where it would go


def course(
    task: Task, model: Dynamics, policy: AnyPolicy, start: Float[Array, "b obs"]
) -> tuple[Float[np.ndarray, "b t obs"], Float[np.ndarray, "b t act"], Bool[np.ndarray, "b t"]]:
    """The states in which the policy would act, its actions, and which of them exist; members dealt out in turn."""
    states, length, _ = (np.asarray(x) for x in foresee(task, task.episode_steps, policy, model, start))
    seen = np.concatenate([np.asarray(start)[:, None], states[:, :-1]], axis=1)
    live = np.arange(seen.shape[1])[None] < length[:, None]
    flat = seen.reshape(-1, seen.shape[2])
    done = np.asarray(policy(jnp.asarray(flat))).reshape(*seen.shape[:2], -1)
    return seen, done, live


def outside(task: Task, data: Dataset, seen: Float[np.ndarray, "n obs"]) -> tuple[tuple[str, float], ...]:
    """The observations, by name, of which more than twice as many lie beyond the edges as in the data."""
    logged = np.asarray(newest(task, data.obs))[rows(data.live)]
    low, high = np.quantile(logged, EDGES, axis=0)
    mine = np.asarray(newest(task, jnp.asarray(seen)))
    share = ((mine < low) | (mine > high)).mean(axis=0)
    names = task.obs_names[: task.predicted] or tuple(f"observation {i}" for i in range(task.predicted))
    usual = 2 * (1 - EDGES[1] + EDGES[0])
    found = [(name, float(part)) for name, part in zip(names, share, strict=True) if part > usual]
    return tuple(sorted(found, key=lambda each: -each[1]))


def at_bounds(task: Task, done: Float[np.ndarray, "n act"]) -> tuple[tuple[str, float], ...]:
    """The actions, by name, that lie at a bound in a tenth of the steps or more."""
    share = (np.abs(done - task.centre) >= 0.999 * task.half_range).mean(axis=0)
    found = [(name, float(part)) for name, part in zip(_act_names(task), share, strict=True) if part >= 0.1]
    return tuple(sorted(found, key=lambda each: -each[1]))


def changes(
    task: Task, done: Float[np.ndarray, "b t act"], live: Bool[np.ndarray, "b t"]
) -> tuple[tuple[str, float], ...]:
    """How far each action moves from one step to the next."""
    both = live[:, 1:] & live[:, :-1]
    if not both.any():
        return ()
    moved: Float64[np.ndarray, "n act"] = np.abs(np.diff(done, axis=1))[both] / (2 * task.half_range)
    largest = np.quantile(moved, 0.99, axis=0)
    return tuple((name, float(part)) for name, part in zip(_act_names(task), largest, strict=True))


def _act_names(task: Task) -> tuple[str, ...]:
    return task.act_names or tuple(f"action {i}" for i in range(task.act_size))
