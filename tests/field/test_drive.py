"""How lanes step: what an actor is told, what an oracle sees, and that spare rows change nothing."""

import jax.numpy as jnp
import numpy as np
import pytest

from musbo.field.simulate import collect, rollouts
from musbo.tasks import paper
from musbo.tasks.builtin import pendulum, pointmass
from tests.field.stand_in import Crowd, Prophet
from tests.field.test_simulate import short, wanderer


def test_the_actor_is_told_the_step_before_but_never_across_episodes():
    task = short(paper.hopper, 30)
    for shard in collect(task, wanderer(task), 120, seed=0, lanes=2):
        batch = shard.batch
        np.testing.assert_array_equal(np.isnan(shard.signal), batch.initial())
        told = batch.obs.sum(1) + 10 * batch.act.sum(1)
        later = np.flatnonzero(~batch.initial())
        np.testing.assert_allclose(shard.signal[later], told[later - 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("task", [pendulum, paper.hopper, paper.ant, paper.cheetah_run], ids=lambda task: task.name)
def test_an_oracle_sees_the_true_next_state_and_its_steps_are_counted(task):
    task = short(task, 25)
    shard = next(collect(task, Prophet(jnp.asarray(task.half_range)), 50, seed=0, lanes=2))
    moved = np.abs(shard.batch.next_obs - shard.batch.obs).sum(1)
    # dm_control steps once more from the same state; the others repeat the very same computation.
    np.testing.assert_allclose(shard.signal, moved, rtol=1e-4, atol=1e-4)
    assert shard.extra_steps == 50


def test_a_plain_function_may_be_a_policy_and_is_kept_inside_the_bounds():
    seen = []

    def policy(obs):
        seen.append(type(obs))
        return np.full((len(obs), 1), 50.0)

    batch = rollouts(pendulum, policy, episodes=2, seed=0, steps=7)
    assert (batch.act == 2.0).all() and len(batch) == 14
    assert set(seen) == {np.ndarray}  # numpy in, so the field runtime can be measured without jax


def test_rows_without_a_lane_repeat_one_that_runs():
    """An actor's mean over rows is one over lanes: three lanes two at a time, so the last group has a row to spare."""
    shards = list(collect(pointmass, Crowd(), 3 * pointmass.episode_steps, seed=0, lanes=2))
    both, alone = (shard.batch.obs[:, 0].reshape(-1, pointmass.episode_steps) for shard in shards)
    assert len(both) == 2 and len(alone) == 1
    np.testing.assert_allclose(shards[0].signal.reshape(2, -1), np.tile(both.mean(0), (2, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(shards[1].signal, alone[0], rtol=1e-5, atol=1e-6)
    assert np.abs(alone).mean() > 0.1
