"""Which policy is handed over: on planted ratings, and ratings in worlds whose returns are known by hand."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.learning.handover import (
    BestImagined,
    Check,
    Choice,
    Guarded,
    Handover,
    Last,
    NotWorse,
    Rating,
    choose,
    rate,
)
from musbo.learning.imagine import Imagine, Starts
from musbo.models.policy import Policy
from tests.learning.small import ending, endless, f32, linear_dynamics, linear_policy, observed, shifting_labeler

KEY = jax.random.PRNGKey(0)


def numbered(i: int) -> Policy:
    return linear_policy(np.full((2, 1), float(i)), [0.0])


def number(policy: Any) -> int:
    return int(policy.mlp.weights[0][0, 0])


def rating(returns: list[float], path: float = 1.0) -> Rating:
    return Rating(f32(returns), f32(20.0), f32(0.0), f32(path))


def after(handover: Handover, *ratings: Rating) -> Choice:
    """Policy i is rated i-th; checks every 10 updates, until the choice has stopped."""
    choice: Choice | None = None
    for i, one in enumerate(ratings):
        if choice is None or not bool(choice.stopped):
            choice = choose(handover, choice, numbered(i), one, 10 * i)
    assert choice is not None
    return choice


UP_AND_DOWN = [rating([0.0, 0.0]), rating([2.0, 4.0]), rating([9.0, 1.0]), rating([3.0, 3.0])]


def test_last():
    choice = after(Last(), *UP_AND_DOWN)
    assert number(choice.policy) == 3 and int(choice.update) == 30 and not bool(choice.stopped)


def test_best_imagined():
    """By the mean over members: 0, 3, 5, 3."""
    choice = after(BestImagined(), *UP_AND_DOWN)
    assert number(choice.policy) == 2 and int(choice.update) == 20 and not bool(choice.stopped)


def test_best_imagined_may_be_the_start():
    choice = after(BestImagined(), rating([0.0, 0.0]), rating([-1.0, 0.5]), rating([0.0, 0.0]))
    assert number(choice.policy) == 0 and int(choice.update) == 0


def test_no_rating_that_is_no_number_is_the_best():
    choice = after(BestImagined(), rating([0.0, 0.0]), rating([np.nan, 9.0]), rating([1.0, 1.0]))
    assert number(choice.policy) == 2
    choice = after(BestImagined(), rating([np.nan, 0.0]), rating([-9.0, -9.0]), rating([np.nan, np.nan]))
    assert number(choice.policy) == 1


@pytest.mark.parametrize(
    ("ratings", "handed", "stopped"),
    [
        ([rating([0] * 4), rating([1] * 4), rating([2] * 4)], 2, False),  # all is well
        ([rating([0] * 4), rating([1] * 4, path=3.1), rating([2] * 4)], 0, True),  # the path leaves the data at once
        ([rating([0] * 4), rating([1] * 4), rating([2] * 4, path=3.1), rating([3] * 4)], 1, True),
        ([rating([0] * 4), rating([1] * 4), rating([2, 2, 0, 0]), rating([3] * 4)], 1, True),  # half see it worse
        ([rating([0] * 4), rating([1] * 4), rating([2, 2, 2, 0]), rating([3] * 4)], 3, False),  # 75 % still improve
        ([rating([0] * 4), rating([1] * 4, path=2.9), rating([2] * 4, path=3.0)], 2, False),  # at the bound
        ([rating([0] * 4), rating([1] * 4), rating([np.nan] * 4)], 1, True),
        ([rating([0] * 4), rating([1] * 4), rating([2] * 4, path=np.nan)], 1, True),
    ],
)
def test_guarded(ratings: list[Rating], handed: int, stopped: bool):
    choice = after(Guarded(multiple=3.0, improved=0.7), *ratings)
    assert number(choice.policy) == handed and bool(choice.stopped) == stopped
    assert int(choice.update) == 10 * handed


@pytest.mark.parametrize(
    ("better", "improved"), [(1, 0.5), (1, 0.6), (3, 0.75), (7, 0.7), (9, 0.9), (3, 0.3), (0, 0.0)]
)
def test_a_share_of_exactly_what_is_asked_for_is_enough(better: int, improved: float):
    """7 members of 10 are a share of 0.7, whatever the digits of float32 are."""
    members = {0.5: 2, 0.6: 2, 0.75: 4}.get(improved, 10)
    rated = rating([1.0] * better + [-1.0] * (members - better))
    choice = after(Guarded(improved=improved), rating([0.0] * members), rated)
    assert number(choice.policy) == (improved != 0.6) and bool(choice.stopped) == (improved == 0.6)


def test_a_choice_keeps_the_rating_of_its_policy():
    """Not that of the last check."""
    ratings = [rating([0.0, 0.0], path=1.0), rating([5.0, 7.0], path=2.0), rating([1.0, 1.0], path=9.0)]
    for handover, chosen in ((Last(), 2), (BestImagined(), 1), (Guarded(multiple=3.0), 1)):
        choice = after(handover, *ratings)
        assert isinstance(handover, Handover) and int(choice.update) == 10 * chosen
        jax.tree.map(np.testing.assert_array_equal, choice.rating, ratings[chosen])


def test_guarded_compares_with_the_last_check():
    """Not with the first: returns that fall back to the start stop it."""
    choice = after(Guarded(), rating([0] * 4), rating([5] * 4), rating([1] * 4))
    assert number(choice.policy) == 1 and bool(choice.stopped)


# Ratings in linear worlds: member i adds its own constant to the state

CHECK, HORIZON = Check(rollouts=6), Imagine(3, 21)
long, long_ending = (replace(task, episode_steps=40) for task in (endless, ending))
STARTS = Starts(f32([[0.0, 0.0], [0.0, 0.0], [7.0, 7.0]]), jnp.asarray(2))
JUDGE = shifting_labeler([[0.0, 0.0], [0.1, -0.2]], levels=(1.0, 1.0, 1.0, 0.2))  # 0.3 apart everywhere


def rated(task: Any, speeds: list[float], policy: Policy | None = None) -> Rating:
    moves = [(np.zeros((3, 2)), [speed, 0.0]) for speed in speeds]
    policy = policy or linear_policy(np.zeros((2, 1)), [0.0], sigma=0.5)
    return rate(task, CHECK, HORIZON, policy, linear_dynamics(*moves), JUDGE, STARTS, KEY)


def test_the_return_under_every_member():
    """r = s' - 0.1 a^2 with s' = v, 2v, 3v ...; the mean action is 0, and its noise is left out."""
    got = rated(long, [0.1, 0.5, -1.0])
    np.testing.assert_allclose(got.returns, np.array([0.1, 0.5, -1.0]) * 21 * 22 / 2, rtol=1e-4)
    assert float(got.length) == 21
    assert float(got.path) == pytest.approx(0.3 / 0.2, rel=1e-4)  # in multiples of the held-out mean


def test_a_rating_ends_with_the_episode():
    assert endless.episode_steps == 20
    got = rated(endless, [0.1, 0.5, -1.0])
    np.testing.assert_allclose(got.returns, np.array([0.1, 0.5, -1.0]) * 20 * 21 / 2, rtol=1e-4)
    assert float(got.length) == 20


def test_the_mean_action_is_paid_for():
    policy = linear_policy(np.zeros((2, 1)), [0.5], sigma=0.5)
    got = rated(long, [0.0, 0.0, 0.0], policy)
    np.testing.assert_allclose(got.returns, -0.1 * np.tanh(0.5) ** 2 * 21, rtol=1e-4)


def test_terminations_shorten_a_rating():
    """Beyond 1 it is over: with 0.3 per step after 4 steps, with 0.6 after 2, with 0 never."""
    got = rated(long_ending, [0.3, 0.6, 0.0])
    np.testing.assert_allclose(got.returns, [0.3 * 10, 0.6 * 3, 0.0], atol=1e-5)
    assert float(got.length) == pytest.approx((4 + 2 + 21) / 3)


def test_running_away_is_no_way_out():
    """From data within 1, what goes 1 per step is cut after 4 steps: costs 1, 2, 3, 4, and goes on like that to 21."""
    policy = linear_policy(np.zeros((2, 1)), [0.0], sigma=0.5)
    moves = [(np.zeros((3, 2)), [speed, 0.0]) for speed in (-1.0, -0.1, -100.0)]
    got = rate(long, CHECK, HORIZON, policy, observed(linear_dynamics(*moves), 1.0), JUDGE, STARTS, KEY)
    np.testing.assert_allclose(got.returns, [-10 / 4 * 21, -0.1 * 21 * 22 / 2, np.nan], rtol=1e-4)
    assert float(got.cut) == pytest.approx(2 / 3)


def test_the_same_key_the_same_rating():
    """So that two checks differ by the policy alone."""
    starts = replace(STARTS, obs=f32(np.random.default_rng(0).normal(size=(3, 2))), n=jnp.asarray(3))
    one, two = (
        rate(
            endless,
            CHECK,
            HORIZON,
            numbered(1),
            linear_dynamics(*[(np.zeros((3, 2)), [0.1, 0.0])] * 3),
            JUDGE,
            starts,
            KEY,
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(one.returns, two.returns)


@pytest.mark.parametrize("wrong", [{"every": 0}, {"rollouts": 0}])
def test_impossible_checks(wrong: dict):
    with pytest.raises(UserError):
        Check(**wrong)


@pytest.mark.parametrize("wrong", [{"multiple": 0.0}, {"improved": -0.1}, {"improved": 1.1}])
def test_impossible_guards(wrong: dict):
    with pytest.raises(UserError):
        Guarded(**wrong)


@pytest.mark.parametrize(
    ("returns", "chosen"),
    [
        ([[1.0, 2.0], [1.0, 2.0]], 1),  # the same: the later one
        ([[1.0, 2.0], [3.0, 1.5]], 1),  # better on average
        ([[1.0, 2.0], [2.0, 0.5]], 1),  # worse by .25, and the differences (1, -1.5) have a standard error of 1.25
        ([[1.0, 2.0], [0.9, 1.8]], 0),  # worse by .15, with a standard error of .05
        ([[1.0, 2.0], [0.9, 1.8], [1.0, 2.0]], 2),  # against the one that was kept
        ([[float("nan"), 1.0], [1.0, 1.0]], 1),
        ([[1.0, 1.0], [float("nan"), 9.0]], 0),
    ],
)
def test_not_worse(returns: list[list[float]], chosen: int):
    assert number(after(NotWorse(), *map(rating, returns)).policy) == chosen


def test_the_best_with_patience():
    """The best is the second of five, at update 10; twenty updates later nothing was better, and it is over."""
    falling = [rating([x]) for x in (0.0, 5.0, 4.0, 3.0, 9.0)]
    choice = after(BestImagined(patience=20), *falling)
    assert number(choice.policy) == 1 and bool(choice.stopped)
    choice = after(BestImagined(patience=30), *falling)
    assert number(choice.policy) == 4 and not bool(choice.stopped)
    assert number(after(BestImagined(), *falling).policy) == 4
    with pytest.raises(UserError):
        BestImagined(patience=0)


def test_a_check_may_look_further_than_an_update():
    """H is 21, an episode 20 steps long; a check follows a policy for 5 of them, or for all."""
    policy, moves = linear_policy(np.zeros((2, 1)), [0.0]), ((np.zeros((3, 2)), [0.0, 0.0]),)
    for steps, wanted in ((5, 5), (15, 15), (1000, 20), (None, 20)):
        check = Check(rollouts=6, steps=steps)
        got = rate(endless, check, HORIZON, policy, linear_dynamics(*moves), JUDGE, STARTS, KEY)
        assert float(got.length) == wanted
    further = rate(
        endless,
        Check(rollouts=6, steps=20),
        Imagine(3, 4, restart=True),
        policy,
        linear_dynamics(*moves),
        JUDGE,
        STARTS,
        KEY,
    )
    assert float(further.length) == 20
    with pytest.raises(UserError):
        Check(steps=0)


@pytest.mark.parametrize("handover", [BestImagined, NotWorse])
def test_what_only_some_members_promise_counts_less(handover: Any):
    """Two members that promise 10 and 0 have a mean of 5 and a standard deviation of 5."""
    torn, agreed = rating([10.0, 0.0]), rating([4.0, 4.0])
    assert number(after(handover(), agreed, torn).policy) == 1
    assert number(after(handover(caution=1.0), torn, agreed).policy) == 1
    assert number(after(handover(caution=0.1), agreed, torn).policy) == 1  # 4.5 against 4
    with pytest.raises(UserError, match="caution"):
        handover(caution=-1.0)


def test_caution_keeps_the_better_policy():
    """NotWorse takes the newer one where their difference may be chance, so only the other rule is strict here."""
    assert number(after(BestImagined(caution=1.0), rating([4.0, 4.0]), rating([10.0, 0.0])).policy) == 0
    far = [rating([400.0, 400.0, 400.0, 400.0]), rating([420.0, 430.0, 440.0, 100.0])]
    assert number(after(NotWorse(caution=1.0), *far).policy) == 0
