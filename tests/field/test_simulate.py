"""Collection brings exactly what was asked for, of what really happened; evaluation measures whole episodes."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.data.batch import Batch, concatenate, rows_of
from musbo.data.checks import findings
from musbo.field.simulate import (
    Evaluation,
    Purpose,
    collect,
    evaluate,
    first_episodes,
    groups,
    lane_seeds,
    rollouts,
)
from musbo.field.worlds import make_gym, make_world, quiet_mujoco
from musbo.models.actor import SharedActor
from musbo.models.frame import frame_of
from musbo.models.gaussian import GaussianPolicy
from musbo.models.mlp import MLP
from musbo.tasks import paper
from musbo.tasks.builtin import pendulum, pointmass
from musbo.tasks.task import BuiltIn, Gym, Task
from tests.field.stand_in import Linear, Prophet, Wanderer


def wanderer(task: Task) -> Wanderer:
    return Wanderer(jnp.asarray(task.half_range))


def short(task: Task, steps: int) -> Task:
    return dataclasses.replace(task, episode_steps=steps)


def same(a: Batch, b: Batch) -> None:
    for field in dataclasses.fields(Batch):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


# --- quotas ---


@given(st.integers(1, 300_000), st.integers(1, 60), st.integers(1, 1500))
def test_quotas_sum_up_and_leave_room_for_a_whole_episode(size, lanes, episode_steps):
    plan = groups(size, lanes, episode_steps)
    quotas = [quota for group in plan for quota in group]
    assert sum(quotas) == size
    assert all(1 <= len(group) <= lanes for group in plan)
    assert all(len(group) == lanes for group in plan[:-1])
    assert max(quotas) - min(quotas) <= 1
    assert min(quotas) >= min(episode_steps, size)
    assert max(quotas) <= max(2 * episode_steps, size if size < episode_steps else 0)


def test_quotas_of_the_papers_batches():
    assert groups(50_000, 25, 1000) == [[1000] * 25] * 2
    assert groups(2_000, 25, 200) == [[200] * 10]
    assert groups(7, 25, 1000) == [[7]]
    assert groups(2_001, 25, 1000) == [[1001, 1000]]


def test_lanes_that_have_a_crew_to_themselves():
    def alone(task: Task, size: int) -> float:
        return sum(shard.alone for shard in collect(task, wanderer(task), size, seed=0)) / size

    task = short(paper.hopper, 10)  # two crews; a built-in task has one
    assert [alone(task, size) for size in (10, 20, 40, 500)] == [1.0, 1.0, 0.0, 0.0]
    assert alone(task, 30) == pytest.approx(1 / 3)  # crews of two and of one
    assert alone(task, 510) == pytest.approx(1 / 51)  # a second group of one lane
    assert [alone(short(pointmass, 10), size) for size in (10, 19, 20)] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(("size", "lanes"), [(0, 5), (-3, 5), (10, 0)])
def test_nothing_is_not_a_batch(size, lanes):
    with pytest.raises(UserError, match="at least one"):
        groups(size, lanes, 10)


# --- collection ---


@pytest.mark.parametrize(
    ("task", "size", "lanes"),
    [
        (pendulum, 2000, 25),
        (short(pointmass, 20), 517, 4),
        (short(paper.halfcheetah, 30), 200, 3),
        (short(paper.hopper, 60), 500, 3),
        (short(paper.cheetah_run, 20), 50, 2),
        (paper.walker2d, 1, 25),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_collection_has_exactly_the_size_and_keeps_the_rules_of_a_batch(task, size, lanes):
    shards = list(collect(task, wanderer(task), size, seed=3, lanes=lanes))
    plan = groups(size, lanes, task.episode_steps)
    assert [len(shard.batch) for shard in shards] == [sum(group) for group in plan]
    batch = concatenate([shard.batch for shard in shards])
    assert len(batch) == size
    assert not [found for found in findings(batch, task) if found.level == "error"]
    # Independently of those checks: the chain, the flags and the counting.
    last = batch.terminated | batch.truncated
    inside = ~last[:-1]
    np.testing.assert_array_equal(batch.next_obs[:-1][inside], batch.obs[1:][inside])
    np.testing.assert_array_equal(batch.step[1:], np.where(last[:-1], 0, batch.step[:-1] + 1))
    assert last[-1] and not (batch.terminated & batch.truncated).any()
    assert batch.lengths().max() <= task.episode_steps
    assert all(shard.signal.shape == (len(shard.batch),) and shard.extra_steps == 0 for shard in shards)
    # Every truncation is a time limit or the end of a quota.
    quota_ends = np.cumsum([quota for group in plan for quota in group]) - 1
    for row in np.flatnonzero(batch.truncated):
        assert batch.step[row] == task.episode_steps - 1 or row in quota_ends


@pytest.mark.parametrize("task", [short(pointmass, 20), short(paper.hopper, 60)], ids=lambda task: task.name)
def test_the_first_episode_of_a_lane_is_whole(task):
    """Quotas of more than an episode end in pieces that say nothing of what an episode brings."""
    lanes, size = 3, 5 * task.episode_steps - 7
    batch = concatenate([shard.batch for shard in collect(task, wanderer(task), size, seed=3, lanes=lanes)])
    first = first_episodes(task, batch, lanes)
    assert first.sum() == size // task.episode_steps == 4 and first[0] and not first[-1]
    begun = set(batch.starts()[first])
    quotas = [quota for group in groups(size, lanes, task.episode_steps) for quota in group]
    assert begun == set(np.cumsum([0, *quotas])[:-1])
    whole = batch.terminated[batch.starts() + batch.lengths() - 1] | (batch.lengths() == task.episode_steps)
    assert whole[first].all() and not whole.all()


def test_shards_are_functions_of_seed_and_group():
    task = short(paper.hopper, 40)
    whole = list(collect(task, wanderer(task), 400, seed=5, lanes=3))
    assert len(whole) == 4
    for first in (1, 3):
        for again, before in zip(collect(task, wanderer(task), 400, 5, 3, first), whole[first:], strict=True):
            same(again.batch, before.batch)
            np.testing.assert_array_equal(again.signal, before.signal)
    assert list(collect(task, wanderer(task), 400, 5, 3, first_group=4)) == []
    other = next(collect(task, wanderer(task), 400, seed=6, lanes=3))
    assert not np.array_equal(other.batch.obs[0], whole[0].batch.obs[0])
    starts = np.concatenate([shard.batch.obs[shard.batch.initial()] for shard in whole])
    assert len(np.unique(starts, axis=0)) == len(starts)  # no lane, group or episode repeats another
    acts = np.concatenate([shard.batch.act for shard in whole])
    assert len(np.unique(acts, axis=0)) == len(acts)


@pytest.mark.parametrize("task", [paper.halfcheetah, paper.hopper, paper.ant], ids=lambda task: task.name)
def test_stored_actions_replayed_in_gymnasium_give_the_stored_transitions(task):
    import gymnasium

    task = short(task, 50)
    shards = list(collect(task, wanderer(task), 150, seed=1, lanes=2))
    seeds = [seed for group, shard in enumerate(shards) for seed in lane_seeds(1, Purpose.COLLECT, group, 2)]
    batch = concatenate([shard.batch for shard in shards])
    assert isinstance(task.simulator, Gym)
    with quiet_mujoco():
        env = gymnasium.make(task.simulator.id, **dict(task.simulator.kwargs))
    row = 0
    for seed in seeds[:3]:
        obs, _ = env.reset(seed=seed)
        for _ in range(50):
            np.testing.assert_array_equal(batch.obs[row], obs.astype(np.float32))
            obs, reward, terminated, _, _ = env.step(batch.act[row])
            np.testing.assert_array_equal(batch.next_obs[row], obs.astype(np.float32))
            assert batch.reward[row] == np.float32(reward)
            assert batch.terminated[row] == terminated
            if batch.terminated[row] or batch.truncated[row]:
                obs, _ = env.reset()
            row += 1
    assert row == len(batch)


@pytest.mark.parametrize(
    "task", [pendulum, paper.halfcheetah, paper.ant, paper.cheetah_run], ids=lambda task: task.name
)
def test_peeking_leaves_the_world_as_it_was(task):
    """Twice the same lane with the same actions, once with a wild step tried before each: the same to the bit."""
    rng, lanes = np.random.default_rng(0), np.array([0, 1])
    acts = rng.uniform(task.low, task.high, (30, 2, task.act_size)).astype(np.float32)
    wild = rng.uniform(task.low, task.high, (30, 2, task.act_size)).astype(np.float32)
    runs = []
    for peeks in (False, True):
        world = make_world(task, 2)
        run = [world.begin([7, 8])]
        for act, other in zip(acts, wild, strict=True):
            if peeks:
                world.peek(lanes, other)
            run += [*world.step(lanes, act)]
        runs.append(run)
    for without, with_peeks in zip(*runs, strict=True):
        np.testing.assert_array_equal(without, with_peeks)


@pytest.mark.parametrize(("lanes", "challenged"), [(1, 0), (2, 1), (4, 1), (10, 3)])
def test_two_policies_share_the_lanes(lanes, challenged):
    """Each keeps its lanes to the end, however few lanes a crew has."""

    def pushes(share: float) -> GaussianPolicy:
        biases = jnp.asarray([np.arctanh(share)] * 2 + [-10.0] * 2, jnp.float32)
        return GaussianPolicy(MLP((jnp.zeros((4, 4)),), (biases,), "relu"), frame_of(pointmass))

    actor = SharedActor(pushes(0.5), pushes(-0.5))
    (shard,) = collect(pointmass, actor, lanes * pointmass.episode_steps, seed=0)
    episodes = shard.batch.act.reshape(lanes, pointmass.episode_steps, 2)
    signs = np.sign(episodes)
    assert (signs == signs[:, :1, :1]).all()
    assert (signs[:, 0, 0] < 0).sum() == challenged
    np.testing.assert_array_equal(shard.signal.reshape(lanes, -1)[:, 0], signs[:, 0, 0] < 0)
    share = actor.findings(shard.signal, 0.0).diagnostics[0].value
    assert share == pytest.approx(challenged / lanes)


def test_built_in_tasks_may_end():
    """A pendulum that ends when it is upright: the world applies the task's own termination."""
    task = dataclasses.replace(short(pendulum, 100), name="touch", terminated=lambda obs: obs[0] > 0.0)
    batch = next(collect(task, wanderer(task), 1000, seed=0)).batch
    np.testing.assert_array_equal(batch.terminated, batch.next_obs[:, 0] > 0.0)
    assert batch.terminated.any()


def test_built_in_collection_equals_the_dynamics_applied_by_hand():
    simulator = pendulum.simulator
    assert isinstance(simulator, BuiltIn)
    batch = next(collect(pendulum, wanderer(pendulum), 400, seed=2)).batch
    key = jax.random.fold_in(jax.random.key(np.uint32(lane_seeds(2, Purpose.COLLECT, 0, 1)[0])), 0)
    state = simulator.reset(key)
    for row in range(30):
        np.testing.assert_allclose(batch.obs[row], simulator.observe(state), atol=1e-4)
        state, reward = simulator.step(state, jnp.asarray(batch.act[row]))
        np.testing.assert_allclose(batch.reward[row], reward, rtol=1e-3, atol=1e-3)


def test_an_action_that_is_not_a_number_stops_the_collection():
    with pytest.raises(UserError, match="not a number"):
        list(collect(pendulum, Wanderer(jnp.array([jnp.nan])), 100, seed=0))


def test_a_task_without_simulator_says_so():
    with pytest.raises(UserError, match="no simulator"):
        list(collect(dataclasses.replace(pendulum, simulator=None), wanderer(pendulum), 100, seed=0))


def test_a_task_with_wrong_sizes_says_so():
    wrong = dataclasses.replace(paper.hopper, obs_size=12, obs_names=(), obs_units=())
    with pytest.raises(UserError, match="12 observations and 3 actions, but its environment has 11"):
        make_world(wrong, 1)
    with pytest.raises(UserError, match="but cheetah/run has 17 and 6"):
        make_world(dataclasses.replace(paper.cheetah_run, obs_size=12, obs_names=(), obs_units=()), 1)


def test_the_oracle_refuses_a_simulator_that_it_cannot_copy():
    from musbo.field.task_from import task_from

    task = task_from("Pendulum-v1")
    with pytest.raises(UserError, match="Mujoco without wrappers, not with .*Pendulum-v1"):
        list(collect(task, Prophet(jnp.array([2.0])), 10, seed=0))


# --- evaluation ---


def linear(task: Task) -> Linear:
    weight = np.random.default_rng(0).normal(size=(task.obs_size, task.act_size)) * 0.3
    return Linear(jnp.asarray(weight, jnp.float32))


@pytest.mark.parametrize("task", [short(paper.halfcheetah, 60), paper.hopper], ids=lambda task: task.name)
def test_evaluation_equals_episodes_by_hand(task):
    weight = np.asarray(linear(task).weight)

    def choose(obs):  # one row at a time, because legs amplify the roundings of a batched product
        return np.tanh(obs.astype(np.float32) @ weight)

    found = evaluate(task, lambda obs: np.stack([choose(row) for row in obs]), episodes=3, seed=4)
    assert isinstance(task.simulator, Gym)
    env = make_gym(task.simulator.id)
    for e, seed in enumerate(lane_seeds(4, Purpose.EVALUATE, 0, 3)):
        obs, _ = env.reset(seed=seed)
        total, model, speed, length, over = 0.0, 0.0, 0.0, 0, False
        while not over and length < task.episode_steps:
            act = choose(obs)
            next_obs, reward, over, _, _ = env.step(act)
            v = env.unwrapped.data.qvel[0]
            cost, bonus = (0.1, 0.0) if task.name == "halfcheetah" else (0.001, 1.0)
            total, speed, length = total + reward, speed + v, length + 1
            model += v - cost * float(act @ act) + bonus
            obs = next_obs
        assert found.lengths[e] == length
        np.testing.assert_allclose(found.returns[e], total, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.model_returns[e], model, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.speeds[e], speed / length, rtol=1e-4, atol=1e-4)
    assert found.steps == found.lengths.sum()


@pytest.mark.parametrize("task", [pendulum, short(paper.walker2d, 100)], ids=lambda task: task.name)
def test_evaluation_is_a_function_of_task_policy_and_seed(task):
    one, two = (evaluate(task, linear(task), 4, seed=9) for _ in range(2))
    for first, second in ((one, two), (one.batch, two.batch)):
        for field in dataclasses.fields(first):
            if field.name != "batch":
                np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name))
    other = evaluate(task, linear(task), 4, seed=10)
    assert not np.array_equal(one.returns, other.returns)
    assert len(np.unique(one.returns)) == 4


def test_evaluation_of_many_episodes_in_several_groups():
    found = evaluate(pointmass, linear(pointmass), episodes=60, seed=0)
    assert found.returns.shape == (60,) and (found.lengths == 50).all() and found.steps == 3000
    assert len(np.unique(found.returns)) == 60
    np.testing.assert_allclose(found.returns, found.model_returns, rtol=1e-5)
    assert np.isnan(found.speeds).all()


def test_a_learned_reward_has_no_model_return():
    found = evaluate(dataclasses.replace(pointmass, reward="learned"), linear(pointmass), 2, seed=0)
    assert np.isnan(found.model_returns).all() and np.isfinite(found.returns).all()
    assert found.early(50) == (pytest.approx(found.returns.mean()), 50)  # the simulator's own


def test_the_first_steps_of_episodes_by_hand():
    """Episodes of 2 and 4 steps; of the first three steps of each, 1 + 2 and 10 + 20 + 30."""
    batch = evaluate(pointmass, linear(pointmass), episodes=1, seed=0).batch
    rows = [dataclasses.replace(part, episode=part.episode * 0 + i) for i, part in enumerate(
        rows_of(batch, np.arange(len(batch)) < n) for n in (2, 4)
    )]  # fmt: skip
    rewards = np.array([1.0, 2.0, 10.0, 20.0, 30.0, 40.0])
    found = Evaluation(np.array([3.0, 100.0]), rewards, np.array([2, 4]), np.zeros(2), 6, concatenate(rows))
    assert found.model_returns.tolist() == [3.0, 100.0]
    assert found.early(3) == (31.5, 2.5) and found.early(100) == (51.5, 3.0)
    own = batch.reward.astype(float)
    assert found.early(3, own=True) == (pytest.approx((own[:2].sum() + own[:3].sum()) / 2), 2.5)


def test_rollouts_cut_short_are_truncated():
    batch = rollouts(pendulum, linear(pendulum), episodes=3, seed=0, steps=5)
    np.testing.assert_array_equal(batch.truncated, batch.step == 4)
    assert math.isclose(batch.returns()[0], float(batch.reward[:5].sum()), rel_tol=1e-5)


def test_no_episodes_is_an_error():
    with pytest.raises(UserError, match="at least one episode"):
        evaluate(pendulum, linear(pendulum), 0, seed=0)
