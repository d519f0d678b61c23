"""The rival of value gradients: it learns from logged and imagined transitions, and the better one is handed over."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from musbo.algorithms.value_gradients import ValueGradients, _errors_unknown, brought_home, logged, rival_leads
from musbo.core.errors import UserError
from musbo.data.batch import HUMAN, LIMITED, Batch
from musbo.data.dataset import assemble
from musbo.learning.climb import ClimbSettings
from musbo.learning.contest import Earned, Proven, agreed, came_true, proven
from musbo.learning.handover import BestImagined, Check, Choice, Rating
from musbo.learning.replay import logged as as_logged
from musbo.learning.soft import SoftSettings
from musbo.learning.window import WindowSettings
from musbo.models.actor import SampleActor, SharedActor
from musbo.models.frame import frame_of
from musbo.models.gaussian import GaussianPolicy
from musbo.models.mlp import MLP
from musbo.tasks.builtin import pointmass
from tests.algorithms.tiny import FIT, batch
from tests.contract.test_recipes import random_batch, random_data, value_of

TINY = ValueGradients(
    dynamics=FIT,
    climb=ClimbSettings(actor=(16,), critic=(32,), actor_rate=5e-3, critic_rate=5e-3),
    window=WindowSettings(imagined=400, steps=8),
    soft=SoftSettings(actor=(32, 32), critic=(32, 32), normalised=True, learning_rate=2e-3, batch=64, gamma=0.95),
    steps=3000,
    updates=60,
    patience=5,
    check=Check(every=30, rollouts=10),
)
STANDING = replace(TINY, climb=replace(TINY.climb, actor_rate=1e-20))
"""Its climber learns nothing."""


def trained(method: ValueGradients) -> tuple[Any, Any]:
    key = jax.random.PRNGKey(3)
    *_, (state, metrics) = method.train(pointmass, random_data(), method.begin(pointmass, key), key)
    return state, metrics


def won(metrics: Any) -> float:
    return next(each.value for each in metrics.findings.diagnostics if each.name == "rival")


def test_a_rival_that_is_rated_better_is_handed_over():
    state, metrics = trained(STANDING)
    assert won(metrics) == 1.0
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(50, pointmass.obs_size)), jnp.float32)
    rival = GaussianPolicy(state.rival.parts.actor, state.frame)
    np.testing.assert_array_equal(state.policy(obs), rival(obs))
    assert value_of(state.policy) > value_of(trained(replace(STANDING, steps=0))[0].policy) / 2  # costs


def test_a_rival_that_has_learned_nothing_is_not():
    state, metrics = trained(replace(TINY, steps=1))
    assert won(metrics) == 0.0
    obs = jnp.zeros((1, pointmass.obs_size))
    rival = GaussianPolicy(state.rival.parts.actor, state.frame)
    assert not np.array_equal(state.policy(obs), rival(obs))
    np.testing.assert_array_equal(state.challenger(obs), rival(obs))


def test_without_a_rival():
    method = replace(TINY, steps=0, updates=2)
    assert [stage.name for stage in method.stages] == ["dynamics", "climb"]
    state, metrics = trained(method)
    assert state.rival is None and state.challenger is None and won(metrics) == 0.0
    with pytest.raises(UserError, match="steps"):
        replace(TINY, steps=-1)


def test_the_rival_with_and_without_imagined_rows():
    """Its minibatches are half imagined; without them it reports nothing about them."""
    key = jax.random.PRNGKey(3)

    def learned(method: ValueGradients) -> Any:
        reports = (metrics for _, metrics in method.train(pointmass, random_data(), method.begin(pointmass, key), key))
        return next(metrics.numbers for metrics in reports if metrics.stage == "learn")

    half, none = learned(replace(TINY, steps=1)), learned(replace(TINY, steps=1, imagined_share=0.0))
    assert 0 < half["dreamt_known"] <= 1 and half["dreamt_ended"] == 0  # nothing ends here
    assert "dreamt_known" not in none and half["Q"] != none["Q"]
    for wrong in ({"imagined_share": 1.0}, {"dream": replace(TINY.dream, steps=None)}):
        with pytest.raises(UserError, match="imagined_share"):
            replace(TINY, **wrong)
    with pytest.raises(UserError, match="least"):
        replace(TINY.dream, least=1.5)


def test_the_unit_and_the_zero_of_rewards_are_nothing_to_the_rival():
    data, frame = random_data(), frame_of(pointmass)
    zero = jnp.zeros(())
    plain, unit = logged(data, frame, zero)
    live = np.asarray(data.live)
    assert np.sqrt(np.mean(np.asarray(plain.rows.reward)[live] ** 2)) == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(plain.rows.reward * unit, data.reward, rtol=1e-5)
    other, _ = logged(eqx.tree_at(lambda d: d.reward, data, 1024 * data.reward), frame, zero)
    np.testing.assert_array_equal(other.rows.reward, plain.rows.reward)
    other, _ = logged(eqx.tree_at(lambda d: d.reward, data, data.reward + 8), frame, zero + 8)
    np.testing.assert_allclose(other.rows.reward[live], plain.rows.reward[live], atol=1e-5)
    for name in ("x", "a", "next_x", "goes_on"):
        np.testing.assert_array_equal(getattr(plain.rows, name), getattr(as_logged(data, frame).rows, name))
    assert np.asarray(plain.rows.trust).all()  # what was logged is wholly trusted


@pytest.mark.parametrize(
    "earned, promised, before, leads",
    [
        (None, (3.0, 5.0), False, True),  # nothing came true yet: M decides
        (None, (5.0, 3.0), False, False),
        ((10.0, 20.0), (99.0, 25.0), False, True),  # what came true decides, not what is promised
        ((20.0, 10.0), (25.0, 99.0), True, False),
        ((10.0, 20.0), (99.0, 9.0), False, False),  # even M promises less of it than the other has earned
        ((20.0, 10.0), (9.0, 99.0), True, True),
        ((10.0, 14.0), (99.0, 99.0), False, False),  # the standard error is 5: the lead stays where it was
        ((14.0, 10.0), (99.0, 99.0), True, True),
    ],
)
def test_who_leads(earned: tuple[float, float] | None, promised: tuple[float, float], before: bool, leads: bool):
    def choice(value: float) -> Choice:
        rating = Rating(jnp.full(3, value), jnp.ones(()), jnp.zeros(()), jnp.ones(()))
        return Choice(policies((0.1, 0.2))[0], rating, jnp.asarray(1), jnp.asarray(False))

    told = None if earned is None else Earned(jnp.asarray(earned), jnp.asarray([3.0, 4.0]))
    assert rival_leads(choice(promised[0]), choice(promised[1]), told, before) is leads


def policies(means: tuple[float, float]) -> tuple[GaussianPolicy, GaussianPolicy]:
    """Two that push by a share of the half-range, with a spread of e^-2 before squashing."""
    spread = float(np.arctanh((-2.0 + 5.0) / 3.5 - 1.0))  # what `head` makes a log spread of -2
    found = []
    for mean in means:
        n, m = pointmass.obs_size, pointmass.act_size
        biases = jnp.asarray([np.arctanh(mean)] * m + [spread] * m, jnp.float32)
        found.append(GaussianPolicy(MLP((jnp.zeros((n, 2 * m)),), (biases,), "relu"), frame_of(pointmass)))
    return found[0], found[1]


def shared(leader: GaussianPolicy, challenger: GaussianPolicy) -> Batch:
    return batch(SharedActor(leader, challenger), 20, seed=4)


def test_what_each_policy_earned():
    """Beside the lanes that each had: every fourth is the challenger's."""
    newest = shared(*policies((0.05, 0.4)))
    lane = np.arange(len(newest.returns()))
    mine = [newest.returns()[lane % 4 != 1], newest.returns()[lane % 4 == 1]]
    data = assemble([random_batch(), newest], 3 * len(newest), 0)
    earned = came_true(data, 2)
    assert earned is not None
    np.testing.assert_allclose(earned.mean, [one.mean() for one in mine], rtol=1e-5)
    # The standard error of a mean difference, as in a t test with equal variances.
    statistic = np.asarray(stats.ttest_ind(*mine))[0]
    error = np.sqrt(np.sum(np.asarray(earned.error) ** 2))
    assert (earned.mean[0] - earned.mean[1]) / error == pytest.approx(statistic, rel=1e-4)
    assert came_true(data, 3) is None  # nobody else was there


def test_an_episode_belongs_to_whoever_chose_most_of_it():
    newest = shared(*policies((0.05, 0.4)))
    by, episode, returns = newest.by.copy(), newest.episode, newest.returns()
    by[(episode == 1) & (newest.step % 3 > 0)] = HUMAN
    by[(episode == 2) & (newest.step % 3 == 0)] = LIMITED
    by[(episode == 3) & (newest.step % 3 > 0)] = 2
    earned = came_true(assemble([replace(newest, by=by)], len(newest), 0), 3)
    lane = np.arange(len(returns))
    one = (lane % 4 == 1) & (lane != 1)
    wanted = [returns[(lane % 4 != 1) & (lane != 3)].mean(), returns[one].mean(), returns[3]]
    assert earned is not None
    np.testing.assert_allclose(earned.mean, wanted, rtol=1e-5)
    cut = replace(newest, step=newest.step + (episode % 4 == 1))  # the challenger's have no beginning
    assert came_true(assemble([cut], len(cut), 0), 2) is None


def test_a_batch_of_one_policy_compares_nothing():
    assert came_true(assemble([random_batch()], len(random_batch()), 0), 2) is None
    alone = batch(SampleActor(policies((0.05, 0.4))[0]), 4, seed=4)
    assert came_true(assemble([alone], len(alone), 0), 2) is None


@pytest.mark.parametrize("better", [0, 1])
def test_what_came_true_decides(better: int):
    """Whoever earned more leads, whatever the members of M say."""
    method = replace(STANDING, updates=2, steps=600)
    state, _ = trained(method)
    weak, strong = policies((0.6, 0.0))  # pushing away, standing still
    both = (strong, weak) if better == 0 else (weak, strong)
    told = replace(state, policy=both[0], challenger=both[1], rival_leads=False)
    newest = shared(*both)
    data = assemble([random_batch(), newest], 2 * len(random_batch()) + len(newest), 0)
    *_, (after, metrics) = method.train(pointmass, data, told, jax.random.PRNGKey(5))
    assert won(metrics) == float(better) and after.rival_leads == bool(better)
    assert after.earned is not None and float(after.earned.mean[better]) > float(after.earned.mean[1 - better])
    again = replace(told, policy=both[1], challenger=both[0], rival_leads=True)
    swapped = assemble([random_batch(), shared(both[1], both[0])], 2 * len(random_batch()) + len(newest), 0)
    *_, (after, metrics) = method.train(pointmass, swapped, again, jax.random.PRNGKey(5))
    assert won(metrics) == float(better)


@pytest.mark.parametrize("shove, kept", [(0.0, True), (0.6, False)])
def test_the_best_policy_so_far_stays_where_the_new_one_is_not_rated_better(shove: float, kept: bool):
    """A climber that learns nothing pushes a little; the best policy so far stands still, or pushes harder."""
    method = replace(STANDING, steps=0, updates=2, handover=BestImagined())
    state, _ = trained(method)
    before = policies((shove, 0.0))[0]
    pushing = eqx.tree_at(lambda actor: actor.biases[-1], state.climber.actor, replace_fn=lambda bias: bias + 0.3)
    best = Proven(before, jnp.zeros(()))  # more than anyone earns here
    told = replace(state, proven=best, climber=replace(state.climber, actor=pushing))
    *_, (after, metrics) = method.train(pointmass, random_data(), told, jax.random.PRNGKey(5))
    obs = jnp.zeros((4, pointmass.obs_size))
    assert np.array_equal(after.policy(obs), before(obs)) is kept
    assert (after.candidate is not None) is kept and len(after.collecting) == 1 + kept
    assert next(each.value for each in metrics.findings.diagnostics if each.name == "stays") == float(kept)
    actor = method.actor(pointmass, after)
    assert isinstance(actor, SharedActor) is kept  # what stays shares its batch with the new policy


def test_what_the_newest_batch_says_of_three_policies():
    """Leader, challenger, candidate: the learners are the last two, and the best of all three is remembered."""
    state, _ = trained(replace(STANDING, updates=2, steps=600))
    hard, soft = policies((0.6, 0.2))
    still = policies((0.0, 0.0))[0]
    for leads in (False, True):
        told = replace(state, policy=hard, challenger=soft, candidate=still, rival_leads=leads)
        newest = batch(SharedActor(*told.collecting), 20, seed=4)
        data = assemble([random_batch(), newest], 3 * len(newest), 0)
        returns, lane = newest.returns(), np.arange(20) % 4
        mean = [returns[np.isin(lane, lanes)].mean() for lanes in ((0,), (1,), (2, 3))]
        earned, best = brought_home(data, told)
        assert earned is not None and best is not None
        learners = mean[1], mean[2]
        np.testing.assert_allclose(earned.mean, learners if leads else learners[::-1], rtol=1e-5)
        assert best.policy is still and float(best.earned) == pytest.approx(mean[2], rel=1e-5)


def test_nothing_is_said_before_a_policy_was_trained():
    data, begun = random_data(), TINY.begin(pointmass, jax.random.PRNGKey(0))
    assert brought_home(data, begun) == (None, None)


def test_the_best_policy_so_far():
    low, high = policies((0.1, 0.2))
    one, other = Earned(jnp.asarray([3.0, 7.0]), jnp.zeros(2)), Earned(jnp.asarray([5.0, 4.0]), jnp.zeros(2))
    first = proven(None, (low, high), one, again=False)
    assert first.policy is high and float(first.earned) == 7.0
    assert proven(first, (low, low), other, again=False) is first  # nobody earned more
    again = proven(first, (high, low), other, again=True)  # it collected again, and earned less than it seemed
    assert again.policy is high and float(again.earned) == 5.0
    lost = proven(first, (high, low), Earned(jnp.asarray([2.0, 4.0]), jnp.zeros(2)), again=True)
    assert lost.policy is low and float(lost.earned) == 4.0


def test_members_agree_where_their_gain_is_larger_than_its_spread():
    def rating(*returns: float) -> Rating:
        return Rating(jnp.asarray(returns), jnp.ones(()), jnp.zeros(()), jnp.ones(()))

    before = rating(10.0, 20.0)
    assert agreed(before, rating(12.0, 23.0))  # gains 2 and 3: mean 2.5, deviation 0.5
    assert not agreed(before, rating(10.0, 26.0))  # gains 0 and 6: mean 3, deviation 3
    assert not agreed(before, rating(9.0, 19.0)) and not agreed(before, before)
    assert not agreed(before, rating(float("nan"), 99.0))


def test_states_of_the_first_version_have_no_errors():
    fields = _errors_unknown({"stage": "collected", "earned": jnp.asarray([1.0, 2.0])})
    np.testing.assert_array_equal(fields["earned"].mean, [1.0, 2.0])
    np.testing.assert_array_equal(fields["earned"].error, [0.0, 0.0])
    assert _errors_unknown({"stage": "collected"})["earned"] is None
