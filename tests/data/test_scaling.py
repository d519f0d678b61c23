"""Scaling against plain arithmetic, and its columns without spread."""

import dataclasses
import statistics

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.data.batch import make_batch
from musbo.data.dataset import Dataset, assemble
from musbo.data.scaling import measure, observed


def by_hand() -> Dataset:
    """Four rows; the last is held out, and two more are free."""
    batch = make_batch(
        obs=[[0.0, 5.0], [2.0, 5.0], [4.0, 5.0], [100.0, 9.0]],
        act=[[1.0], [1.0], [4.0], [100.0]],
        reward=[1.0, 2.0, 6.0, 100.0],
        next_obs=[[1.0, 5.0], [5.0, 5.0], [9.0, 5.0], [-100.0, 0.0]],
        terminated=[False] * 4,
        truncated=[False, False, False, True],
    )
    return assemble([batch], 6, 0)


def test_training_rows_by_hand():
    scaling = measure(by_hand(), learn_reward=True)
    np.testing.assert_allclose(scaling.obs_mean, [2.0, 5.0])
    np.testing.assert_allclose(scaling.obs_std, [np.sqrt(8 / 3), 1.0], rtol=1e-6)
    np.testing.assert_allclose(scaling.act_mean, [2.0])
    np.testing.assert_allclose(scaling.act_std, [np.sqrt(2.0)], rtol=1e-6)
    np.testing.assert_allclose(scaling.target_mean, [3.0, 0.0, 3.0])  # changes 1, 3, 5; none; rewards 1, 2, 6
    np.testing.assert_allclose(scaling.target_std, [np.sqrt(8 / 3), 1.0, np.sqrt(14 / 3)], rtol=1e-6)
    np.testing.assert_array_equal(scaling.obs_low, [0.0, 5.0])  # what is held out does not count
    np.testing.assert_array_equal(scaling.obs_high, [9.0, 5.0])  # the last state of an episode does


def test_how_far_a_state_may_be():
    """The width of what was observed further on either side, and a deviation more: the second column is constant."""
    scaling = measure(by_hand(), learn_reward=False)
    far = 9 + np.sqrt(8 / 3)
    for state, plausible in [
        ([2.0, 5.0], True),
        ([9 + 0.999 * far, 5.999], True),
        ([9 + 1.001 * far, 5.0], False),
        ([-0.999 * far, 4.001], True),
        ([-1.001 * far, 5.0], False),
        ([2.0, 6.001], False),
        ([2.0, 3.999], False),
        ([np.nan, 5.0], False),
        ([2.0, np.inf], False),
    ]:
        somewhere, there = jnp.asarray([[2.0, 5.0]]), jnp.asarray([state], jnp.float32)
        assert bool(scaling.reach(somewhere).holds(there)[0]) == plausible, state


def test_a_start_outside_of_the_data_counts_as_observed():
    """From 14 the first column has been seen from 0 to 14; the second is constant at 5, and a deviation of 1 wide."""
    scaling = measure(by_hand(), learn_reward=False)
    reach = scaling.reach(jnp.asarray([[14.0, 5.0], [2.0, 0.0]]))
    far = 14 + np.sqrt(8 / 3)
    np.testing.assert_allclose(reach.high, [[14 + far, 6.0], [9 + 9 + np.sqrt(8 / 3), 11.0]], rtol=1e-6)
    np.testing.assert_allclose(reach.low, [[-far, 4.0], [-9 - np.sqrt(8 / 3), -6.0]], rtol=1e-6)


def test_the_reward_is_a_target_only_where_it_is_learned():
    with_reward, without = measure(by_hand(), True), measure(by_hand(), False)
    np.testing.assert_array_equal(with_reward.target_mean[:-1], without.target_mean)
    np.testing.assert_array_equal(with_reward.target_std[:-1], without.target_std)


@given(offset=st.floats(-1e4, 1e4), spread=st.floats(0.1, 100), seed=st.integers(0, 100))
def test_against_exact_sums(make, offset, spread, seed):
    walk = make([40, 30, 20, 30], seed)
    batch = dataclasses.replace(walk, obs=np.float32(offset) + np.float32(spread) * walk.obs)
    data = assemble([batch], 150, seed)
    scaling = measure(data, learn_reward=False)
    training = np.asarray(data.training)
    for column in range(4):
        # statistics works in exact fractions.
        values = [float(value) for value in np.asarray(data.obs)[training, column]]
        assert float(scaling.obs_mean[column]) == pytest.approx(statistics.mean(values), rel=1e-6, abs=1e-6 * spread)
        assert float(scaling.obs_std[column]) == pytest.approx(statistics.pstdev(values), rel=1e-6)


def test_standardised_training_rows_have_mean_0_and_spread_1(make):
    data = assemble([make([50] * 20)], 1500, 0)
    scaling = measure(data, learn_reward=False)
    standardised = np.asarray((data.obs - scaling.obs_mean[None]) / scaling.obs_std[None])[np.asarray(data.training)]
    np.testing.assert_allclose(standardised.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(standardised.std(axis=0), 1, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e7, 1e-40])
def test_a_constant_column_is_only_centred(make, value):
    walk = make([5, 5, 5])
    constant = np.full_like(walk.obs, value)
    scaling = measure(assemble([dataclasses.replace(walk, obs=constant, next_obs=constant)], 15, 0), False)
    np.testing.assert_array_equal(scaling.obs_mean, constant[0])
    np.testing.assert_array_equal(scaling.obs_std, np.ones(4))
    np.testing.assert_array_equal(scaling.target_mean, np.zeros(4))
    np.testing.assert_array_equal(scaling.target_std, np.ones(4))


def test_rounding_is_not_a_spread():
    """A clock that advances by 0.01: in float32 its change has a spread, which is rounding alone."""
    clock = np.float32(1000) + np.float32(0.01) * np.arange(101, dtype=np.float32)
    batch = make_batch(
        obs=clock[:-1, None],
        act=np.zeros((100, 1)),
        reward=np.zeros(100),
        next_obs=clock[1:, None],
        terminated=np.zeros(100),
        truncated=np.arange(100) == 99,
    )
    assert np.std(np.diff(clock)) > 0
    scaling = measure(assemble([batch], 100, 0), False)
    assert float(scaling.target_std[0]) == 1
    assert 0.1 < float(scaling.obs_std[0]) < 0.5


def test_small_columns_are_scaled_too(make):
    walk = make([50, 50, 50])
    small = dataclasses.replace(walk, obs=walk.obs * np.float32(1e-12), next_obs=walk.next_obs * np.float32(1e-12))
    scaling, plain = measure(assemble([small], 150, 0), False), measure(assemble([walk], 150, 0), False)
    np.testing.assert_allclose(scaling.obs_std, 1e-12 * np.asarray(plain.obs_std), rtol=1e-5)
    np.testing.assert_allclose(scaling.target_std, 1e-12 * np.asarray(plain.target_std), rtol=1e-5)


def test_no_training_rows(make):
    data = assemble([make([5])], 5, 0)
    emptied = dataclasses.replace(data, live=jnp.zeros(5, bool), heldout=jnp.zeros(5, bool))
    with pytest.raises(UserError, match="no training rows"):
        measure(emptied, False)


def test_units_of_a_batch_by_hand():
    obs = np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0]], np.float32)
    units = observed(obs)
    np.testing.assert_allclose(units.mean, [3, 5])
    np.testing.assert_allclose(units.std, [np.sqrt(8 / 3), 1], rtol=1e-6)  # a constant column is only centred
