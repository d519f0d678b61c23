"""Probe transitions: a change in any part of any range lies on one of them."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.data.batch import make_batch
from musbo.field.dry_run import probe_values, same_values, values_of
from musbo.field.probes import EVENLY, MOST, covering, covering_rows, transitions_of
from musbo.tasks.task import Task

LOW, HIGH = (0.0, -5.0, 1e4), (300.0, 5.0, 1e6)
TASK = Task("plant", 3, 2, (0.0, -1.0), (100.0, 1.0), 50, reward=lambda o, a, n: n[0], obs_low=LOW, obs_high=HIGH)


def test_every_range_is_covered_evenly_from_end_to_end():
    obs, act, next_obs = covering(TASK)
    for values, low, high in ((obs, LOW, HIGH), (act, TASK.act_low, TASK.act_high), (next_obs, LOW, HIGH)):
        for column, a, b in zip(np.sort(values, axis=0).T, low, high, strict=True):
            np.testing.assert_allclose(column, np.linspace(a, b, len(column)), rtol=1e-5, atol=1e-5 * (b - a))
    both = np.concatenate([obs, act, next_obs], axis=1)
    assert np.abs(np.corrcoef(both.T) - np.eye(8)).max() < 0.4  # in no common order


@given(column=st.integers(0, 7), part=st.integers(0, 49))
def test_a_reward_that_changed_in_a_fiftieth_of_a_range_is_another(column: int, part: int):
    ends = [*zip(LOW, HIGH, strict=True), *zip(TASK.act_low, TASK.act_high, strict=True), *zip(LOW, HIGH, strict=True)]
    low, high = ends[column]
    begin, end = low + (high - low) * part / 50, low + (high - low) * (part + 1) / 50

    def other(o, a, n):
        value = jnp.concatenate([o, a, n])[column]
        return n[0] + jnp.where((value >= begin) & (value <= end), 1.0, 0.0)

    now = replace(TASK, reward=other)
    assert not same_values(probe_values(TASK), probe_values(now))


def test_what_old_runs_have_comes_first():
    assert probe_values(TASK)[:8] == values_of(TASK)


def test_small_rewards_are_rewards_too():
    small = replace(TASK, reward=lambda o, a, n: 1e-9 * n[0])
    assert not same_values(probe_values(small), probe_values(replace(small, reward=lambda o, a, n: 1.1e-9 * n[0])))
    assert same_values(probe_values(small), probe_values(replace(small, reward=lambda o, a, n: 1.000001e-9 * n[0])))


@given(seed=st.integers(0, 1000), n=st.integers(1, 3000))
def test_rows_cover_what_a_batch_has(seed: int, n: int):
    """The ends of every number, something of every part between them that has rows, and the whole length."""
    random = np.random.default_rng(seed)
    obs, after = np.exp(random.normal(size=(2, n, 3))).astype(np.float32)
    obs[:, 2] = 7.0
    batch = make_batch(
        obs=obs, act=random.uniform(-1, 1, (n, 2)).astype(np.float32), reward=np.zeros(n), next_obs=after,
        terminated=np.zeros(n, bool), truncated=np.arange(n) == n - 1,
    )  # fmt: skip
    rows = covering_rows(batch)
    assert len(set(rows.tolist())) == len(rows) <= MOST and np.all(np.diff(rows) > 0)
    for chosen, every in zip(transitions_of(batch, rows), (batch.obs, batch.act, batch.next_obs), strict=True):
        for some, column in zip(chosen.T, every.T, strict=True):
            assert (some.min(), some.max()) == (column.min(), column.max())
            edges = np.linspace(column.min(), column.max(), 33)
            there, seen = (np.histogram(values.astype(np.float64), edges)[0] > 0 for values in (column, some))
            assert seen[there].mean() > 0.9
    assert np.diff(rows).max(initial=0) <= max(1, n // min(n, EVENLY) + 1)


@pytest.mark.parametrize("size", [1, 40])
def test_a_wide_batch_has_no_more_than_the_most(size: int):
    random = np.random.default_rng(0)
    obs = random.normal(size=(20_000, size)).astype(np.float32)
    n = len(obs)
    batch = make_batch(
        obs=obs, act=obs[:, :1], reward=np.zeros(n), next_obs=obs, terminated=np.zeros(n, bool),
        truncated=np.arange(n) == n - 1,
    )  # fmt: skip
    assert 100 < len(covering_rows(batch)) <= MOST
