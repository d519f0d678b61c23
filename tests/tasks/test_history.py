"""The past that a policy sees: batches, imagination and simulators build the same vector."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.data.batch import Batch, make_batch
from musbo.data.dataset import assemble
from musbo.data.history import raw_batch, stacked_batch
from musbo.data.scaling import measure
from musbo.field import simulate
from musbo.learning import objectives, window
from musbo.models import dynamics, labeler, stochastic
from musbo.models.probabilistic import init_probabilistic
from musbo.tasks.builtin import pointmass
from musbo.tasks.history import stacked
from musbo.tasks.task import Task


def plant(history: int, **more: Any) -> Task:
    return Task(
        "plant", 2, 1, (0.0,), (4.0,), 50, reward=_reward, terminated=_over, history=history,
        obs_names=("level", "flow"), obs_units=("m", "l/s"), act_names=("valve",), act_units=("%",), **more,
    )  # fmt: skip


def _reward(obs, act, next_obs):
    assert obs.shape == next_obs.shape == (2,) and act.shape == (1,)
    return obs[0] + 10 * act[0] + 100 * next_obs[1]


def _over(next_obs):
    return next_obs[0] > 0.5


def test_without_history_nothing_changes():
    task = plant(0)
    batch = walk([4])
    assert stacked(task) is task and stacked_batch(task, batch) is batch and task.predicted == 2


def test_the_vector_by_hand():
    """Newest first; before the first step, the first observation and the middle of the range."""
    batch = make_batch(
        obs=[[1, 10], [2, 20], [3, 30], [7, 70]],
        act=[[0], [1], [3], [4]],
        reward=[0, 0, 0, 0],
        next_obs=[[2, 20], [3, 30], [4, 40], [8, 80]],
        terminated=[False] * 4,
        truncated=[False, False, True, True],
    )
    seen = stacked_batch(plant(2), batch)
    assert seen.obs.tolist() == [
        [1, 10, 1, 10, 2, 1, 10, 2],
        [2, 20, 1, 10, 0, 1, 10, 2],
        [3, 30, 2, 20, 1, 1, 10, 0],
        [7, 70, 7, 70, 2, 7, 70, 2],
    ]
    assert seen.next_obs.tolist() == [
        [2, 20, 1, 10, 0, 1, 10, 2],
        [3, 30, 2, 20, 1, 1, 10, 0],
        [4, 40, 3, 30, 3, 2, 20, 1],
        [8, 80, 7, 70, 4, 7, 70, 2],
    ]
    back = raw_batch(plant(2), seen)
    np.testing.assert_array_equal(back.obs, batch.obs)
    np.testing.assert_array_equal(back.next_obs, batch.next_obs)


def test_the_task_that_a_learner_knows():
    task = stacked(plant(2, obs_low=(0.0, 0.0), obs_high=(9.0, 90.0), initial=lambda key: jnp.array([5.0, 6.0])))
    assert (task.obs_size, task.predicted, task.history) == (8, 2, 0)
    assert task.obs_labels[1:5] == (
        "flow (l/s)", "level, 1 step before (m)", "flow, 1 step before (l/s)", "valve, 1 step before (%)"
    )  # fmt: skip
    assert task.obs_high == (9, 90, 9, 90, 4, 9, 90, 4)
    assert callable(task.reward) and callable(task.terminated) and task.initial is not None
    one, other = jnp.arange(8.0), jnp.arange(8.0) + 1
    assert float(task.reward(one, jnp.array([2.0]), other)) == 0 + 20 + 200 and bool(task.terminated(other))
    assert task.initial(jax.random.key(0)).tolist() == [5, 6, 5, 6, 2, 5, 6, 2]
    assert stacked(plant(2)) == stacked(plant(2))  # static under jit: an equal one compiles nothing


def walk(lengths: list[int], seed: int = 0) -> Batch:
    """Episodes of a random walk; what one row leads to is the next row."""
    random = np.random.default_rng(seed)
    paths = [random.normal(size=(length + 1, 2)).astype(np.float32) for length in lengths]
    last = np.concatenate([np.arange(length) == length - 1 for length in lengths])
    return make_batch(
        obs=np.concatenate([path[:-1] for path in paths]),
        act=random.uniform(0, 4, (len(last), 1)),
        reward=random.normal(size=len(last)),
        next_obs=np.concatenate([path[1:] for path in paths]),
        terminated=np.zeros_like(last),
        truncated=last,
    )


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_what_follows_is_what_the_next_row_sees(lengths: list[int], history: int, seed: int):
    """And each row, rebuilt by a loop over time, is the same."""
    batch, task = walk(lengths, seed), plant(history)
    seen = stacked_batch(task, batch)
    inside = ~(batch.terminated | batch.truncated)[:-1]
    np.testing.assert_array_equal(seen.next_obs[:-1][inside], seen.obs[1:][inside])
    for start, length in zip(batch.starts(), batch.lengths(), strict=True):
        past = history * [(batch.obs[start], task.centre)]
        for i in range(start, start + length):
            np.testing.assert_array_equal(
                seen.obs[i], np.concatenate([batch.obs[i], *(x for one in past for x in one)])
            )
            past = [(batch.obs[i], batch.act[i]), *past][:history]


def test_a_missing_row_begins_the_past_anew():
    batch = walk([6])
    holed = replace(batch, step=np.array([0, 1, 2, 5, 6, 7], np.int32))
    seen = stacked_batch(plant(2), holed).obs
    np.testing.assert_array_equal(seen[3], np.concatenate([batch.obs[3], *2 * (batch.obs[3], [2.0])]))
    np.testing.assert_array_equal(seen[:3], stacked_batch(plant(2), batch).obs[:3])


@pytest.mark.parametrize("reward", [_reward, "learned"])
def test_imagination_predicts_the_newest_and_shifts_the_rest(reward: Any):
    """Every model, exactly; the labeler predicts no more than the newest either."""
    raw = replace(plant(3), reward=reward)
    task, batch = stacked(raw), stacked_batch(raw, walk([9, 5]))
    data = assemble([batch], 20, 0)
    scaling = measure(data, reward == "learned", task.predicted)
    assert scaling.target_mean.shape == (2 + (reward == "learned"),) and scaling.obs_mean.shape == (11,)
    obs, act = jnp.asarray(batch.obs[:6]), jnp.asarray(batch.act[:6])
    rest = np.concatenate([batch.obs[:6, :2], batch.act[:6], batch.obs[:6, 2:-3]], axis=1)
    members = dynamics.init_members(jax.random.key(0), task, (8,), "tanh", 2)
    one = jax.tree.map(lambda leaf: leaf[0], members)
    moved, paid, _ = jax.vmap(lambda s, a: dynamics.step(task, one, scaling, s, a))(obs, act)
    np.testing.assert_array_equal(moved[:, 2:], rest)
    if reward != "learned":
        wanted = batch.obs[:6, 0] + 10 * batch.act[:6, 0] + 100 * np.asarray(moved[:, 1])
        np.testing.assert_allclose(paid, wanted, rtol=1e-5)
    said = jax.vmap(lambda s, a: dynamics.predict(one, scaling, s, a))(obs, act)
    kept, _ = window.moved(task, scaling, obs, act, said)
    np.testing.assert_array_equal(kept[:, 2:], rest)
    rows = objectives.dynamics_rows(task, data, scaling)
    assert rows.y.shape[1] == 2 + (reward == "learned") and rows.x.shape[1] == 12
    judge = labeler.init_members(jax.random.key(1), task, (8,), "tanh", 3)
    assert labeler.member_means(judge, scaling, obs, act).shape == (3, 6, 2)
    if reward == "learned":
        network = init_probabilistic(jax.random.key(2), (12, 8, 3), "silu", 6)
        moved, _, _ = stochastic.mean_step(replace(task, terminated=None), network, scaling, obs, act)
        np.testing.assert_array_equal(moved[:, 2:], rest)


@pytest.mark.parametrize("history", [0, 1, 3])
def test_a_simulator_shows_what_its_batch_says(history: int):
    """What a policy saw in the simulator is what `stacked_batch` makes of the recorded rows, in episodes and lanes."""
    task = replace(pointmass, history=history, episode_steps=6)
    met: list[np.ndarray] = []

    def policy(obs: Any) -> Any:
        met.append(np.array(obs))
        return np.asarray(obs)[:, :2] * 0.3 + 0.1 * np.asarray(obs)[:, -2:]

    batch = simulate.rollouts(task, policy, 60, seed=3)  # more than there are lanes
    assert batch.obs.shape == (360, 4)
    wanted = stacked_batch(task, batch).obs
    seen = {row.tobytes() for rows in met for row in rows}
    assert all(row.tobytes() in seen for row in wanted)
    if history:
        plain = simulate.rollouts(replace(task, history=0), lambda obs: np.zeros((len(obs), 2)), 2, seed=3)
        np.testing.assert_array_equal(plain.obs[0], batch.obs[0])  # the simulator itself is another in nothing


@pytest.mark.parametrize("history", [-1, True, 10**6])
def test_what_is_no_history_is_refused(history: Any):
    with pytest.raises(UserError, match="history"):
        plant(history)
