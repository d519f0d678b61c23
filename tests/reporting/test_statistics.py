"""Against rliable, by hand, and by what must hold for any scores."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from musbo.core.errors import UserError
from musbo.reporting.statistics import (
    Interval,
    Profile,
    Reach,
    area_under_curve,
    bootstrap,
    deployments_to_reach,
    interquartile_mean,
    interval,
    mean,
    normalise,
    paired_difference,
    performance_profile,
    probability_of_improvement,
    reach,
    share_above,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "statistics.json").read_text())
SCORES = {name: np.array(values) for name, values in GOLDEN["scores"].items()}
RESAMPLES = 50_000  # as many as rliable was given
UNEQUAL = [np.array([1.0, 2.0, 3.0, 6.0]), np.array([10.0, 20.0])]

some = st.floats(-1000, 1000, width=32)


def runs(n: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(float, n, elements=some)


tasks = st.lists(st.integers(1, 8).flatmap(runs), min_size=1, max_size=4)


@st.composite
def two_methods(draw: st.DrawFn) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The same tasks, each with its own number of runs; small whole numbers, so that there are ties."""
    method = partial(st.lists, st.lists(st.integers(-3, 3), min_size=1, max_size=6).map(np.array))
    n = draw(st.integers(1, 4))
    return draw(method(min_size=n, max_size=n)), draw(method(min_size=n, max_size=n))


# Against rliable


def assert_near(ours: Interval, theirs: dict[str, float]) -> None:
    """The same value; ends that differ by less than 2 % of the width, which is less than 2 % of what the ends are.

    Both are random, with a standard error of a third of a per cent of the width each: 2 % is four of the difference.
    """
    assert ours.value == pytest.approx(theirs["value"], rel=0, abs=1e-9)
    allowed = 0.02 * (theirs["high"] - theirs["low"])
    assert 0 < allowed < 0.02 * theirs["low"]
    assert ours.low == pytest.approx(theirs["low"], rel=0, abs=allowed)
    assert ours.high == pytest.approx(theirs["high"], rel=0, abs=allowed)


@pytest.mark.parametrize("method", ["x", "y"])
@pytest.mark.parametrize("statistic", [interquartile_mean, mean])
def test_aggregates_equal_those_of_rliable(statistic, method):
    theirs = GOLDEN["aggregates"][statistic.__name__][method]
    assert_near(interval(statistic, SCORES[method], seed=0, resamples=RESAMPLES), theirs)


def test_probability_of_improvement_equals_that_of_rliable():
    ours = interval(probability_of_improvement, SCORES["x"], SCORES["y"], seed=0, resamples=RESAMPLES)
    assert_near(ours, GOLDEN["probability_of_improvement"])


def assert_same_band(ours: Profile, wanted: np.ndarray, n: int) -> None:
    """Ends are whole numbers of runs: the same, but for one that may fall on the next run if chance has it."""
    apart = n * np.abs(np.array([ours.low, ours.high]) - wanted)
    assert apart.max() < 1 + 1e-6
    assert (apart > 1e-6).sum() <= 1


@pytest.mark.parametrize("method", ["x", "y"])
def test_performance_profile_equals_that_of_rliable(method):
    theirs = GOLDEN["profiles"][method]
    ours = performance_profile(SCORES[method], np.array(GOLDEN["profiles"]["tau"]), seed=0, resamples=RESAMPLES)
    np.testing.assert_allclose(ours.share, theirs["share"], rtol=0, atol=1e-9)
    assert_same_band(ours, np.array([theirs["low"], theirs["high"]]), SCORES[method].size)


# Against the whole distribution


def exact_ends(scores: np.ndarray) -> list[float]:
    """The ends of the 95 % interval of the mean of scores in hundredths, with every resample that there is."""
    hundredths = np.rint(100 * scores).astype(int)
    n, least, chance = len(scores), hundredths.min(0), np.ones(1)
    for task in (hundredths - least).T:
        for _ in range(n):
            chance = np.convolve(chance, np.bincount(task) / n)
    totals = np.searchsorted(np.cumsum(chance), [0.025, 0.975]) + n * least.sum()
    return (totals / (100 * scores.size)).tolist()


@pytest.mark.parametrize("method", ["x", "y"])
def test_the_interval_of_a_mean_is_that_of_all_resamples(method):
    low, high = exact_ends(SCORES[method])
    ours = interval(mean, SCORES[method], seed=0, resamples=RESAMPLES)
    assert (ours.low, ours.high) == pytest.approx((low, high), rel=0, abs=0.02 * (high - low))


@pytest.mark.parametrize("method", ["x", "y"])
def test_the_band_of_a_profile_is_that_of_all_resamples(method):
    tau = np.array(GOLDEN["profiles"]["tau"])
    ours = performance_profile(SCORES[method], tau, seed=0, resamples=RESAMPLES)
    exact = [exact_ends((SCORES[method] > level) / 100) for level in tau]
    assert_same_band(ours, 100 * np.array(exact).T, SCORES[method].size)


# By hand


def test_interquartile_mean_by_hand():
    assert interquartile_mean([np.array([7.0])]) == 7
    assert interquartile_mean(np.array([[1.0, 2.0, 6.0]])) == 3  # a quarter of three runs is no run
    assert interquartile_mean(np.array([[-99.0, 1.0], [2.0, 99.0]])) == 1.5
    # Ten runs: two are cut off at each end, wherever they are.
    assert interquartile_mean(np.array([[0, 9, 1, 8, 2], [7, 3, 6, 4, 500]]).T) == (2 + 3 + 4 + 6 + 7 + 8) / 6


def test_tasks_count_alike_whatever_their_number_of_runs():
    assert mean(UNEQUAL) == (3 + 15) / 2
    # Six runs on a line of length 6, the four of the first task 3/4 long and the others 3/2: [1, 5] is kept of it, that
    # is 1/2 of the run 2, all of 3 and of 6, all of 10, and 1/2 of 20.
    wanted = (0.5 * 2 + 0.75 * 3 + 0.75 * 6 + 1.5 * 10 + 0.5 * 20) / 4
    assert interquartile_mean(UNEQUAL) == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(share_above(UNEQUAL, np.array([0.0, 2.0, 10.0])), [1, (1 / 2 + 1) / 2, (0 + 1 / 2) / 2])


def test_the_runs_of_a_matrix_are_its_rows():
    matrix = np.array([[1.0, 2.0, 30.0], [3.0, 8.0, 40.0]])
    assert mean(matrix) == (2 + 5 + 35) / 3


def test_share_above_is_strict():
    np.testing.assert_allclose(share_above([np.array([1.0, 2.0, 2.0, 3.0])], np.array([2.0])), [1 / 4])


def test_probability_of_improvement_by_hand():
    x, y = np.array([1.0, 3.0]), np.array([1.0, 2.0, 4.0])  # pairs: tie, lost, lost, won, won, lost
    assert probability_of_improvement([x], [y]) == pytest.approx(2.5 / 6)
    assert probability_of_improvement([x, x], [y, np.array([0.0])]) == pytest.approx((2.5 / 6 + 1) / 2)


def test_area_under_the_curve_by_hand():
    returns = np.array([[0, 5, 10], [10, 10, 10]])
    np.testing.assert_allclose(area_under_curve(returns), [5, 10])
    np.testing.assert_allclose(area_under_curve(normalise(returns, 5.0, 10.0)), [0, 1])


def test_deployments_to_reach_by_hand():
    returns = np.array([[0.0, 5.0, 3.0, 9.0], [5.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    assert deployments_to_reach(returns, 5.0).tolist() == [2, 1, math.inf]
    assert deployments_to_reach(returns, 9.0).tolist() == [4, math.inf, math.inf]
    assert reach(returns, 5.0) == Reach(runs=3, reached=2, median=2.0)
    assert reach(returns, 9.0) == Reach(runs=3, reached=1, median=math.inf)
    assert reach(returns[:2], 9.0) == Reach(runs=2, reached=1, median=math.inf)  # half is not enough
    assert reach(returns, 100.0) == Reach(runs=3, reached=0, median=math.inf)


def test_a_bootstrap_draws_runs_inside_their_task():
    draws = bootstrap(lambda scores: np.stack([task.mean(-1) for task in scores], -1), UNEQUAL, seed=0, resamples=1200)
    assert draws.shape == (1200, 2)
    # Two draws out of two runs: a quarter of the resamples has one of them twice, a quarter the other.
    values, counts = np.unique(draws[:, 1], return_counts=True)
    assert values.tolist() == [10, 15, 20]
    np.testing.assert_allclose(counts / 1200, [1 / 4, 1 / 2, 1 / 4], atol=0.06)  # four standard errors
    assert np.unique(draws[:, 0]).min() >= 1 and np.unique(draws[:, 0]).max() <= 6
    assert draws[:, 0].std() == pytest.approx(np.std(UNEQUAL[0]) / 2, rel=0.1)  # sigma over the root of four runs
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.12  # tasks are drawn apart, four standard errors


def test_methods_are_resampled_apart():
    """The spread of a difference of independent means; drawn together, the same runs would have no difference."""
    x = [np.arange(10.0)]
    draws = bootstrap(lambda a, b: mean(a) - mean(b), x, x, seed=0, resamples=2000)
    assert draws.std() == pytest.approx(math.sqrt(2 / 10) * np.std(x[0]), rel=0.07)


def test_the_seed_decides():
    first, again, other = (interval(mean, SCORES["x"], seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.value == other.value
    assert first != other


def test_a_higher_level_is_wider():
    narrow, wide = (interval(mean, SCORES["x"], seed=0, level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_pairs_cancel_what_seeds_do_to_both():
    seeds = np.random.default_rng(0).normal(0, 100, (12, 3))
    noise = np.random.default_rng(1).normal(0, 1, (12, 3))
    difference = paired_difference(seeds + 2 + noise, seeds, seed=0)
    assert difference.value == pytest.approx(2 + noise.mean())
    # A mean of 12 x 3 differences with deviation 1: the width is 2 x 1.96 / 6, less the shrinkage of the bootstrap.
    assert difference.high - difference.low == pytest.approx(2 * 1.96 / 6, rel=0.25)
    unpaired = interval(lambda a, b: mean(a) - mean(b), seeds + 2 + noise, seeds, seed=0)
    assert unpaired.high - unpaired.low > 50


# For any scores


@given(tasks)
def test_averages_lie_between_the_least_and_the_most(scores):
    pooled = np.concatenate(scores)
    for statistic in (interquartile_mean, mean):
        assert pooled.min() - 1e-9 <= statistic(scores) <= pooled.max() + 1e-9


@given(st.integers(1, 60).flatmap(runs))
def test_interquartile_mean_of_one_task_is_a_trimmed_mean(values):
    ordered, cut = sorted(values.tolist()), len(values) // 4
    wanted = math.fsum(ordered[cut : len(ordered) - cut]) / (len(ordered) - 2 * cut)
    assert interquartile_mean([values]) == pytest.approx(wanted, abs=1e-9)


@given(tasks, some, st.floats(0.01, 100))
def test_averages_shift_and_scale_with_the_scores(scores, shift, scale):
    for statistic in (interquartile_mean, mean):
        moved = statistic([scale * task + shift for task in scores])
        assert moved == pytest.approx(scale * statistic(scores) + shift, abs=1e-6)


@given(tasks, st.integers(2, 3))
def test_repeating_the_runs_of_a_task_changes_no_mean(scores, times):
    """Tasks count alike: more runs that say the same say no more."""
    again = [np.tile(scores[0], times), *scores[1:]]
    assert mean(again) == pytest.approx(float(mean(scores)), abs=1e-9)
    tau = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(share_above(again, tau), share_above(scores, tau), atol=1e-12)


@given(two_methods())
def test_one_of_two_methods_is_better(methods):
    x, y = methods
    assert probability_of_improvement(x, y) + probability_of_improvement(y, x) == pytest.approx(1)
    assert probability_of_improvement(x, x) == pytest.approx(0.5)
    wins = [np.mean([[(a > b) + (a == b) / 2 for a in p] for b in q]) for p, q in zip(x, y, strict=True)]
    assert probability_of_improvement(x, y) == pytest.approx(np.mean(wins))


@given(tasks)
def test_a_profile_falls_from_one_to_nothing(scores):
    pooled = np.concatenate(scores)
    tau = np.concatenate([[pooled.min() - 1], np.sort(pooled), [pooled.max() + 1]])
    profile = performance_profile(scores, tau, seed=0, resamples=50)
    for curve in (profile.share, profile.low, profile.high):
        assert (np.diff(curve) <= 1e-12).all()
        assert curve[0] == pytest.approx(1)
        assert curve[-1] == 0
    assert (profile.low <= profile.high).all()


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(5, 20), min_size=1, max_size=4))
def test_an_interval_contains_its_estimate(seed, sizes):
    rng = np.random.default_rng(seed)
    x, y = ([rng.normal(size=size) for size in sizes] for _ in range(2))
    for found in (
        interval(interquartile_mean, x, seed=0, resamples=500),
        interval(mean, x, seed=0, resamples=500),
        interval(probability_of_improvement, x, y, seed=0, resamples=500),
        paired_difference(x, y, seed=0, resamples=500),
    ):
        assert found.low <= found.value <= found.high
        assert found.low < found.high or found.value in (0, 1)


@given(arrays(float, (3, 6), elements=some), some)
def test_a_score_is_reached_when_it_is_first_seen(returns, score):
    for needed, curve in zip(deployments_to_reach(returns, score), returns.tolist(), strict=True):
        assert needed == next((i for i, value in enumerate(curve, 1) if value >= score), math.inf)


def test_an_interval_covers_the_truth_as_often_as_it_says():
    """300 studies of 20 runs: some 93 % for the percentile method, with a standard error of 1.4 %."""
    rng = np.random.default_rng(0)
    found = [interval(mean, [rng.normal(5, 2, 20)], seed=i, resamples=1000) for i in range(300)]
    covered = np.mean([one.low <= 5 <= one.high for one in found])
    assert 0.90 <= covered <= 0.98
    below, above = np.mean([one.high < 5 for one in found]), np.mean([one.low > 5 for one in found])
    assert max(below, above) < 0.07  # it misses on both sides


# What a user can fix

EMPTY, NAN = np.zeros((0, 2)), np.array([[1.0, 2.0], [3.0, np.nan]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean([]), "there are no scores"),
        (lambda: mean(np.zeros((2, 0))), "there are no scores"),
        (lambda: interquartile_mean(EMPTY), "task 0 has no runs"),
        (lambda: mean([np.ones(2), np.ones(0)]), "task 1 has no runs"),
        (lambda: interval(interquartile_mean, NAN, seed=0), "task 1 has a score that is not a finite number"),
        (lambda: mean([np.array([1, np.inf])]), "task 0 has a score that is not a finite number"),
        (lambda: probability_of_improvement(np.ones((2, 3)), np.ones((2, 2))), "one has 3 tasks and the other 2"),
        (
            lambda: paired_difference(np.ones((2, 2)), np.ones((3, 2)), seed=0),
            "task 0 has 2 runs .* and 3 of the other",
        ),
        (lambda: performance_profile(np.ones((2, 2)), np.zeros(0), seed=0), "grid .* is empty"),
        (lambda: performance_profile(np.ones((2, 2)), np.array([np.nan]), seed=0), "not finite"),
        (lambda: interval(mean, np.ones((2, 2)), seed=0, level=95.0), "between 0 and 1, not at 95"),
        (lambda: interval(mean, np.ones((2, 2)), seed=0, resamples=0), "bootstrap of 0 resamples"),
        (lambda: normalise(np.ones(2), 3.0, 3.0), "between 3.0 and 3.0"),
        (lambda: normalise(np.ones(2), 3.0, np.nan), "between 3.0 and nan"),
        (lambda: area_under_curve(np.zeros((0, 3))), "there are no returns"),
        (lambda: area_under_curve(NAN), "run 1 has no finite return at deployment 2"),
        (lambda: reach(NAN, 1.0), "run 1 has no finite return at deployment 2"),
        (lambda: deployments_to_reach(np.ones((2, 2)), np.nan), "score to reach is not a number"),
    ],
)
def test_a_sentence_for_what_a_user_can_mend(call, message):
    with pytest.raises(UserError, match=message):
        call()
