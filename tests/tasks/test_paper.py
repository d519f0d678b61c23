"""Rewards and terminations of the Mujoco tasks against the simulators they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.field.worlds import import_suite, make_gym, quiet_mujoco
from musbo.tasks import paper
from musbo.tasks.task import Gym, Task

GYM_TASKS = [paper.halfcheetah, paper.ant, paper.hopper, paper.walker2d, paper.cheetah_run_gym]
named = pytest.mark.parametrize("task", GYM_TASKS, ids=lambda task: task.name)


def simulator(task: Task):
    assert isinstance(task.simulator, Gym)
    return make_gym(task.simulator.id, **dict(task.simulator.kwargs))


def model_reward(task: Task, *transition) -> float:
    assert callable(task.reward)
    return float(task.reward(*(jnp.asarray(part, jnp.float32) for part in transition)))


def ends(task: Task, obs) -> bool:
    assert callable(task.terminated)
    return bool(task.terminated(jnp.asarray(obs, jnp.float32)))


@named
def test_sizes_bounds_and_length(task):
    env = simulator(task)
    assert env.observation_space.shape == (task.obs_size,)
    np.testing.assert_array_equal(env.action_space.low, task.low)
    np.testing.assert_array_equal(env.action_space.high, task.high)
    assert env.spec.max_episode_steps is None  # no TimeLimit: whoever drives the lane cuts the episode
    assert task.episode_steps == 1000


# The oracle: the same formulas on the simulator's own positions and velocities, in float64.
ORACLE = {
    "halfcheetah": lambda q, v, a: v[0] - 0.1 * a @ a,
    "cheetah-run-gym": lambda q, v, a: min(max(v[0] / 10, 0), 1),
    "ant": lambda q, v, a: v[0] - 0.1 * a @ a - 3 * (q[2] - 0.57) ** 2 + 1,
    "hopper": lambda q, v, a: v[0] - 0.001 * a @ a + 1,
    "walker2d": lambda q, v, a: v[0] - 0.001 * a @ a + 1,
}


@named
def test_model_reward_equals_positions_and_velocities(task):
    env, rng = simulator(task), np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    for _ in range(100):
        act = rng.uniform(-1, 1, task.act_size).astype(np.float32)
        next_obs, _, terminated, _, _ = env.step(act)
        data = env.unwrapped.data
        expected = ORACLE[task.name](data.qpos, data.qvel, act.astype(np.float64))
        np.testing.assert_allclose(model_reward(task, obs, act, next_obs), expected, rtol=1e-5, atol=1e-5)
        assert next_obs[task.speed] == data.qvel[0]
        obs = env.reset()[0] if terminated else next_obs


def test_cheetah_run_reward_equals_positions_and_velocities():
    task, rng = paper.cheetah_run, np.random.default_rng(0)
    suite = import_suite()
    with quiet_mujoco():
        env = suite.load("cheetah", "run", task_kwargs={"random": 0})
    now, seen = env.reset(), set()
    for t in range(300):
        if t == 150:
            env.physics.data.qvel[0] = 15.0  # faster than any gait, to reach the cap
        obs = np.concatenate(list(now.observation.values()))
        act = rng.uniform(-1, 1, 6).astype(np.float32)
        now = env.step(act)
        next_obs = np.concatenate(list(now.observation.values()))
        v = env.physics.data.qvel[0]
        assert next_obs[task.speed] == v
        expected = min(max(v / 10, 0), 1)
        np.testing.assert_allclose(model_reward(task, obs, act, next_obs), expected, rtol=1e-5, atol=1e-6)
        seen.add("low" if v <= 0 else "high" if v >= 10 else "between")
    assert seen == {"low", "between", "high"}


def test_ant_reward_hand_numbers():
    next_obs = np.zeros(27)
    next_obs[0], next_obs[13] = 0.77, 2.0
    # 2 - 0.1 * 8 * 0.25 - 3 * 0.04 + 1
    np.testing.assert_allclose(model_reward(paper.ant, np.zeros(27), np.full(8, 0.5), next_obs), 2.68, rtol=1e-6)


@pytest.mark.parametrize("task", [paper.hopper, paper.walker2d], ids=lambda task: task.name)
def test_terminations_equal_the_simulators_on_recorded_transitions(task):
    env, rng, ended = simulator(task), np.random.default_rng(0), 0
    for episode in range(20):
        env.reset(seed=episode)
        for _ in range(1000):
            obs, _, terminated, _, _ = env.step(rng.uniform(-1, 1, task.act_size).astype(np.float32))
            assert ends(task, obs) == terminated
            if terminated:
                ended += 1
                break
    assert ended == 20


@named
def test_tasks_without_termination_never_end(task):
    if task.terminated is not None:
        return
    env, rng = simulator(task), np.random.default_rng(0)
    env.reset(seed=0)
    # On its back and far up: Ant would count as unhealthy here.
    qpos = env.unwrapped.data.qpos.copy()
    qpos[2 if task is paper.ant else 1] = 3.0
    env.unwrapped.set_state(qpos, env.unwrapped.data.qvel)
    for _ in range(50):
        assert env.step(rng.uniform(-1, 1, task.act_size).astype(np.float32))[2] is False


SMALL = 1e-5  # well above the rounding of float32 at these sizes
HOPPER_EDGES = [
    (z, angle, joint)
    for z in (0.7 - SMALL, 0.7 + SMALL, 1.25, 5.0, -1.0)
    for angle in (-0.2 - SMALL, -0.2 + SMALL, 0.0, 0.2 - SMALL, 0.2 + SMALL)
    for joint in (0.0, -99.99, 99.99, -100.01, 100.01)
]
WALKER_EDGES = [
    (z, angle, joint)
    for z in (0.8 - SMALL, 0.8 + SMALL, 1.25, 2.0 - SMALL, 2.0 + SMALL)
    for angle in (-1.0 - SMALL, -1.0 + SMALL, 0.0, 1.0 - SMALL, 1.0 + SMALL)
    for joint in (0.0, -150.0, 150.0)
]


@pytest.mark.parametrize(
    ("task", "edges"),
    [(paper.hopper, HOPPER_EDGES), (paper.walker2d, WALKER_EDGES)],
    ids=lambda x: getattr(x, "name", ""),
)
def test_terminations_equal_the_simulators_on_constructed_states(task, edges):
    env, seen = simulator(task).unwrapped, set()
    env.reset(seed=0)
    for z, angle, joint in edges:
        for last in range(3, env.model.nq):  # the large value in every joint in turn
            qpos = np.zeros(env.model.nq)
            qpos[1], qpos[2], qpos[last] = z, angle, joint
            env.set_state(qpos, np.zeros(env.model.nv))
            assert ends(task, env._get_obs()) == (not env.is_healthy), (z, angle, joint, last)
            seen.add(env.is_healthy)
    assert seen == {True, False}


def test_hopper_bound_of_100_is_on_the_size_and_on_every_coordinate():
    """The slip that three public codebases share, abs(x < 100), lets -200 pass."""
    healthy = np.zeros(11)
    healthy[0] = 1.25
    assert not ends(paper.hopper, healthy)
    for i in range(2, 11):
        for value, over in ((-200.0, True), (200.0, True), (-99.0, False), (99.0, False), (np.nan, True)):
            state = healthy.copy()
            state[i] = value
            assert ends(paper.hopper, state) == over
    healthy[0] = 150.0  # the height has no such bound
    assert not ends(paper.hopper, healthy)


def test_hopper_velocity_beyond_100_cannot_be_seen():
    """Gymnasium clips observed velocities at 10 but judges the unclipped ones: the one state where we differ."""
    env = simulator(paper.hopper).unwrapped
    env.reset(seed=0)
    qpos, qvel = np.zeros(6), np.zeros(6)
    qpos[1], qvel[3] = 1.25, 150.0
    env.set_state(qpos, qvel)
    assert env._get_obs().max() == 10.0
    assert not env.is_healthy and not ends(paper.hopper, env._get_obs())


@named
def test_reset_distribution_equals_the_simulators(task):
    n, env = 500, simulator(task)
    theirs = np.array([env.reset(seed=seed)[0] for seed in range(n)])
    assert task.initial is not None
    ours = np.asarray(jax.vmap(task.initial)(jax.random.split(jax.random.key(0), n)))
    spread = theirs.std(0)
    np.testing.assert_array_less(np.abs(ours.mean(0) - theirs.mean(0)), 5 * spread * np.sqrt(2 / n))
    np.testing.assert_allclose(ours.std(0), spread, rtol=0.15)
    # The shape, too: uniform and normal differ in their fourth moment (1.8 and 3).
    fourth = [(((x - x.mean(0)) / x.std(0)) ** 4).mean(0) for x in (ours, theirs)]
    np.testing.assert_array_equal(fourth[0] < 2.3, fourth[1] < 2.3)


@named
def test_names_are_those_of_the_body(task):
    """Mujoco's joints say in which order the numbers come; words of ours are theirs, spelt out."""
    model = simulator(task).unwrapped.model
    legs = {"1": "front left", "2": "front right", "3": "back left", "4": "back right", "b": "back", "f": "front"}

    def words(joint: str) -> set[str]:
        kind, _, number = joint.removesuffix("_joint").partition("_")
        if number in legs:
            return {*legs[number].split(), kind}
        if joint in ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"):
            return {legs[joint[0]], joint[1:]}
        return {kind, number or "right"} if task.name == "walker2d" else {kind}

    joints = [model.joint(i).name for i in range(model.njnt)][1 if task.name == "ant" else 3 :]
    moved = [model.joint(model.actuator(i).trnid[0]).name for i in range(model.nu)]
    first = task.obs_size - model.nv + (6 if task.name == "ant" else 3)
    assert task.obs_names[task.speed] == "forward velocity" and task.obs_names[0] == "height"
    for joint, name in zip(joints, task.obs_names[first:], strict=True):
        assert {*name.split()} == {*words(joint), "velocity"} and name.removesuffix(" velocity") in task.obs_names
    for joint, name in zip(moved, task.act_names, strict=True):
        assert {*name.split()} == {*words(joint), "torque"}
    assert list(task.obs_units[first:]) == ["rad/s"] * len(joints)
