"""Statistics of a study: what a few seeds on a few tasks say about a method, and how sure they are.

The scores of a method are an array [runs, tasks] or, where tasks have different numbers of runs, a list with the runs
of each task. Every task counts alike, however many runs it has. The definitions are those of Agarwal et al. (2021),
"Deep Reinforcement Learning at the Edge of the Statistical Precipice", and of their library rliable.

A statistic is a function of scores whose last axis is the runs of a task; axes in front of it are resamples. That is
why `interval(interquartile_mean, x, seed=0)` and `interval(probability_of_improvement, x, y, seed=0)` are one function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Real

from musbo.core.errors import UserError

Tasks = Sequence[Real[np.ndarray, "*b _"]]
"""The runs of each task, possibly many resamples of them."""
Scores = Real[np.ndarray, "_ _"] | Tasks
Statistic = Callable[..., Float[np.ndarray, "..."]]

BLOCK = 500
"""So many resamples are in memory at once: comparing all runs of two methods takes runs x runs numbers for each."""


@dataclass(frozen=True)
class Interval:
    """An estimate, and the ends of its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Profile:
    """The share of runs above each score in `tau`, with an interval for each point by itself."""

    tau: Float[np.ndarray, " tau"]
    share: Float[np.ndarray, " tau"]
    low: Float[np.ndarray, " tau"]
    high: Float[np.ndarray, " tau"]


@dataclass(frozen=True)
class Reach:
    """How many runs reached a score, and the median of the deployments that they needed.

    A run that never arrives counts as infinitely late. The median is therefore infinite unless more than half of the
    runs arrive: no run is left out, so a method cannot look quick by failing often.
    """

    runs: int
    reached: int
    median: float


def mean(scores: Scores) -> Float[np.ndarray, "*b"]:
    """The mean over tasks of the mean over runs."""
    return np.asarray(_task_means(scores).mean(-1))


def interquartile_mean(scores: Scores) -> Float[np.ndarray, "*b"]:
    """The mean of the middle half of all runs on all tasks: a quarter of them, rounded down, is cut off at each end.

    Where tasks have different numbers of runs, a run weighs the less the more runs its task has.
    """
    tasks = _tasks(scores)
    sizes = [task.shape[-1] for task in tasks]
    n = sum(sizes)
    weight = np.repeat([n / (len(sizes) * size) for size in sizes], sizes)  # 1 each, if the sizes are the same
    values = np.concatenate(tasks, axis=-1)
    order = np.argsort(values, axis=-1)
    values, weight = np.take_along_axis(values, order, -1), weight[order]
    # Runs lie side by side on a line of length n; what counts of a run is the part of it in [cut, n - cut].
    end, cut = np.cumsum(weight, axis=-1), n // 4
    inside = np.clip(end, cut, n - cut) - np.clip(end - weight, cut, n - cut)
    return np.asarray((values * inside).sum(-1) / inside.sum(-1))


def share_above(scores: Scores, tau: Float[np.ndarray, " tau"]) -> Float[np.ndarray, "*b tau"]:
    """The share of runs with a score above each of `tau`."""
    return np.mean([(task[..., None] > tau).mean(-2) for task in _tasks(scores)], axis=0)


def probability_of_improvement(x: Scores, y: Scores) -> Float[np.ndarray, "*b"]:
    """P(X > Y) for a run of each method on the same task, averaged over tasks; a tie counts as half.

    Per task this is the statistic U of Mann and Whitney over the number of pairs.
    """
    each = []
    for a, b in _pairs(x, y):
        a, b = a[..., :, None], b[..., None, :]
        each.append(((a > b).mean((-2, -1)) + (a >= b).mean((-2, -1))) / 2)
    return np.asarray(np.mean(each, axis=0))


def interval(statistic: Statistic, *methods: Scores, seed: int, resamples: int = 2000, level: float = 0.95) -> Interval:
    """The statistic of one or more methods, with a percentile interval from the stratified bootstrap."""
    value, low, high = _interval(statistic, methods, seed, resamples, level)
    return Interval(float(value), float(low), float(high))


def performance_profile(
    scores: Scores, tau: Float[np.ndarray, " tau"], *, seed: int, resamples: int = 2000, level: float = 0.95
) -> Profile:
    """The share of runs above each of `tau` (rliable: the run-score distribution), with pointwise bands."""
    if not tau.size or not np.isfinite(tau).all():
        raise UserError("the grid of scores of a performance profile is empty or not finite: give it numbers.")
    return Profile(tau, *_interval(partial(share_above, tau=tau), (scores,), seed, resamples, level))


def paired_difference(x: Scores, y: Scores, *, seed: int, resamples: int = 2000, level: float = 0.95) -> Interval:
    """The mean of X - Y over runs that share a seed (and are given in the same order), averaged over tasks.

    Pairs are resampled, so what a seed does to both methods alike leaves no trace in the width.
    """
    pairs = _pairs(x, y)
    for i, (a, b) in enumerate(pairs):
        if a.shape != b.shape:
            raise UserError(
                f"runs cannot be paired: task {i} has {a.shape[-1]} runs of one method and {b.shape[-1]} of the other;"
                " keep the seeds that both have."
            )
    return interval(mean, [a - b for a, b in pairs], seed=seed, resamples=resamples, level=level)


def bootstrap(
    statistic: Statistic, *methods: Scores, seed: int, resamples: int
) -> Float[np.ndarray, "{resamples} ..."]:
    """The statistic of resampled scores: runs drawn with replacement inside each task of each method."""
    if resamples < 1:
        raise UserError(f"a bootstrap of {resamples} resamples says nothing: take 2000 or so.")
    drawn, rng = [_tasks(method) for method in methods], np.random.default_rng(seed)
    blocks = []
    for start in range(0, resamples, BLOCK):
        size = min(BLOCK, resamples - start)
        again = [[task[rng.integers(len(task), size=(size, len(task)))] for task in tasks] for tasks in drawn]
        blocks.append(statistic(*again))
    return np.concatenate(blocks)


def normalise(scores: Real[np.ndarray, "*b"], zero: float, one: float) -> Float[np.ndarray, "*b"]:
    """Scores on the line where `zero` (say, random actions) is 0 and `one` (say, an expert) is 1."""
    if not np.isfinite([zero, one]).all() or zero == one:
        raise UserError(f"scores cannot be normalised between {zero} and {one}: give two different finite numbers.")
    return (scores - zero) / (one - zero)


def area_under_curve(returns: Real[np.ndarray, "runs deployments"]) -> Float[np.ndarray, " runs"]:
    """The mean of the return over the deployments of each run: high for a method that is good early.

    It commutes with `normalise`: of normalised returns, it is 1 for a run that is an expert from the first deployment.
    """
    return _curves(returns).mean(1)


def deployments_to_reach(returns: Real[np.ndarray, "runs deployments"], score: float) -> Float[np.ndarray, " runs"]:
    """The first deployment, counted from 1, of each run whose return is at least `score`; infinite if there is none."""
    if np.isnan(score):
        raise UserError("the score to reach is not a number: give one.")
    there = _curves(returns) >= score
    return np.where(there.any(1), there.argmax(1) + 1.0, np.inf)


def reach(returns: Real[np.ndarray, "runs deployments"], score: float) -> Reach:
    """How many runs reach `score`, and after how many deployments."""
    needed = deployments_to_reach(returns, score)
    return Reach(runs=len(needed), reached=int(np.isfinite(needed).sum()), median=float(np.median(needed)))


def _interval(
    statistic: Statistic, methods: Sequence[Scores], seed: int, resamples: int, level: float
) -> tuple[Float[np.ndarray, "*out"], Float[np.ndarray, "*out"], Float[np.ndarray, "*out"]]:
    if not 0 < level < 1:
        raise UserError(f"a confidence level lies between 0 and 1, not at {level}: 0.95 means 95 %.")
    tail = (1 - level) / 2
    draws = bootstrap(statistic, *methods, seed=seed, resamples=resamples)
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return np.asarray(statistic(*methods)), np.asarray(low), np.asarray(high)


def _tasks(scores: Scores) -> list[Float[np.ndarray, "..."]]:
    """The runs of each task on the last axis, as doubles, none missing."""
    tasks = [np.asarray(task, float) for task in (scores.T if isinstance(scores, np.ndarray) else scores)]
    if not tasks:
        raise UserError("there are no scores: a statistic needs one task with one run, or more.")
    for i, task in enumerate(tasks):
        if not task.size:
            raise UserError(f"task {i} has no runs: leave the task out, or run it first.")
        if not np.isfinite(task).all():
            raise UserError(f"task {i} has a score that is not a finite number: fix this run or leave it out.")
    return tasks


def _task_means(scores: Scores) -> Float[np.ndarray, "*b tasks"]:
    return np.stack([task.mean(-1) for task in _tasks(scores)], axis=-1)


def _pairs(x: Scores, y: Scores) -> list[tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]]:
    left, right = _tasks(x), _tasks(y)
    if len(left) != len(right):
        raise UserError(
            f"methods cannot be compared: one has {len(left)} tasks and the other {len(right)}; keep those of both."
        )
    return list(zip(left, right, strict=True))


def _curves(returns: Real[np.ndarray, "runs deployments"]) -> Float[np.ndarray, "runs deployments"]:
    if not returns.size:
        raise UserError("there are no returns: a curve needs one run with one deployment, or more.")
    bad = np.argwhere(~np.isfinite(returns))
    if len(bad):
        run, deployment = bad[0]
        raise UserError(f"run {run} has no finite return at deployment {deployment + 1}: fix this run or leave it out.")
    return np.asarray(returns, float)
