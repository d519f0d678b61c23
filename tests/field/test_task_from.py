"""An environment with measured numbers and bounded actions becomes a task; others are refused in words."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import musbo.field.worlds as worlds
from musbo.core.errors import UserError
from musbo.field.find import find_task, found_again
from musbo.field.simulate import collect, rollouts
from musbo.field.spaces import observation_names, observed_parts, reader
from musbo.field.task_from import gym_task, task_from
from musbo.tasks.task import DmControl, Factory, Gym, Single
from tests.field.test_simulate import wanderer

FLAT = spaces.Box(-np.inf, np.inf, (2,), np.float32)
BOUNDED = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Odd(gymnasium.Env):
    """An environment with whatever spaces a test wants, which truncates itself at its fourth step."""

    def __init__(self, see: spaces.Space = FLAT, do: spaces.Space = BOUNDED):
        self.observation_space, self.action_space, self.t, self.closed = see, do, 0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.uniform(size=2), {}

    def step(self, action):
        self.t += 1
        action *= 0  # bad manners: writes into the caller's array
        return np.full(2, self.t, float), 1.0, False, self.t == 4, {}

    def close(self):
        self.closed = True


class Arm(gymnasium.Env):
    """Observations in a Dict inside a Dict, and actions of doubles in a matrix, which it checks."""

    def __init__(self):
        inner = spaces.Dict({"place": spaces.Box(-9, 9, (2,)), "load": spaces.Box(0, 9, ())})
        self.observation_space = spaces.Dict({"arm": inner, "clock": spaces.Box(0, 9, (1,), np.int64)})
        self.action_space = spaces.Box(-0.1, 0.1, (2, 2), np.float64)

    def _see(self):
        arm = {"place": self.place.astype(np.float32), "load": np.float32(7)}
        return {"clock": np.array([self.t]), "arm": arm}  # not in the order of the space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.t = self.np_random.uniform(size=2), 0
        return self._see(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.place, self.t = self.place + action[0], self.t + 1
        return self._see(), float(action.sum()), False, False, {}


@pytest.fixture(autouse=True, scope="module")
def registered():
    gymnasium.register("Odd-v0", entry_point=lambda **kwargs: Odd(**kwargs), max_episode_steps=10)
    gymnasium.register("Endless-v0", entry_point=lambda **kwargs: Odd(**kwargs))
    yield
    for id in ("Odd-v0", "Endless-v0"):
        gymnasium.registry.pop(id)


# Names


def test_sizes_bounds_and_length_are_read():
    task = task_from("Hopper-v5", speed=5, terminate_when_unhealthy=False)
    assert (task.name, task.obs_size, task.act_size, task.episode_steps) == ("Hopper-v5", 11, 3, 1000)
    assert task.act_low == (-1.0,) * 3 and task.act_high == (1.0,) * 3
    assert task.reward == task.terminated == "learned" and task.speed == 5
    assert task.simulator == Gym("Hopper-v5", (("terminate_when_unhealthy", False),))
    assert hash(task) == hash(gym_task("Hopper-v5", speed=5, terminate_when_unhealthy=False))


def test_a_task_of_the_suite_of_dm_control():
    task = task_from("dm_control:walker-walk")
    assert (task.obs_size, task.act_size, task.episode_steps) == (24, 6, 1000)
    assert task.simulator == DmControl("walker", "walk") and task.reward == "learned"
    assert task.terminated is None  # no task of a walker ends: there is nothing to learn
    assert task.obs_names[13:16] == ("orientations_13", "height", "velocity_0")
    standing = task_from("dm_control:walker-stand", episode_steps=25)
    batch = next(collect(standing, wanderer(standing), 50, seed=0)).batch
    assert len(batch) == 50 and batch.truncated.sum() == 2
    height = batch.obs[:, task.obs_names.index("height")]
    assert (height > 0.0).all() and (height < 2.0).all()  # metres of a body of 1.3
    assert task_from("dm_control:lqr-lqr_2_1", episode_steps=50).terminated == "learned"  # this one ends


def test_a_name_leads_to_a_task_and_back():
    for name in ("Hopper-v5", "dm_control:walker-walk"):
        task = find_task(name)
        assert task.name == name and found_again(task) and find_task(task.name) == task
    module = find_task("gymnasium:Pendulum-v1")
    assert module.obs_size == 3 and not found_again(module)  # a module has to be trusted first
    assert not found_again(task_from("Pendulum-v1", g=3.0))
    assert not found_again(task_from("Pendulum-v1", episode_steps=20))
    assert not found_again(task_from(gymnasium.make("Pendulum-v1")))
    assert not found_again(task_from("Pendulum-v1", lambda obs, act, next_obs: obs[0]))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("hoper", "Did you mean hopper or Hopper-v5"),
        ("hopper-v5", "Did you mean Hopper-v5"),
        ("Hopper", "Did you mean Hopper-v5"),
        ("dm_control:walker-wlak", "did you mean dm_control:walker-walk"),
        ("Mine-v0", "--import where a module of yours registers it"),
    ],
)
def test_a_name_that_leads_nowhere(name, nearest):
    with pytest.raises(UserError, match=nearest):
        find_task(name)


# Objects and functions


def test_an_object_is_the_environment_itself():
    env = gymnasium.make("Pendulum-v1")
    setattr(env.unwrapped, "g", 0.0)  # noqa: B010  (no copy that is made anew would know)
    task = task_from(env, episode_steps=20)
    assert task.name == "Pendulum-v1" and isinstance(task.simulator, Single) and task.simulator.env is env
    shards = list(collect(task, wanderer(task), 60, seed=0))
    assert [len(shard.batch) for shard in shards] == [20, 20, 20]
    batch = shards[1].batch
    cos, sin, speed = batch.obs.T
    torque = batch.act[:, 0]
    np.testing.assert_allclose(batch.next_obs[:, 2], np.clip(speed + 0.15 * torque, -8, 8), atol=1e-5)
    again = next(collect(task, wanderer(task), 60, seed=0, first_group=1))
    np.testing.assert_array_equal(again.batch.obs, batch.obs)


def test_an_object_is_not_closed_and_what_is_made_is():
    env = Odd()
    rollouts(task_from(env, episode_steps=5), lambda obs: np.zeros((len(obs), 1), np.float32), 2, seed=0)
    assert not env.closed
    made = []

    def make():
        made.append(Odd())
        return made[-1]

    task = task_from(make, episode_steps=5)
    rollouts(task, lambda obs: np.zeros((len(obs), 1), np.float32), 2, seed=0)
    assert len(made) == 3 and all(env.closed for env in made)


def test_a_wrapped_environment_is_taken_as_it_is():
    env = gymnasium.wrappers.TransformReward(gymnasium.make("Pendulum-v1"), lambda reward: 5.0)
    task = task_from(gymnasium.wrappers.TimeLimit(env, 7))
    assert task.episode_steps == 7  # the outermost limit
    batch = next(collect(task, wanderer(task), 14, seed=0)).batch
    assert (batch.reward == 5.0).all() and batch.truncated.tolist() == [False] * 6 + [True]


def test_a_function_makes_one_environment_for_every_lane():
    task = task_from(lambda: gymnasium.make("Pendulum-v1", g=5.0), episode_steps=20)
    named = task_from("Pendulum-v1", episode_steps=20, g=5.0)
    assert isinstance(task.simulator, Factory) and task.name == "Pendulum-v1"
    one, other = (next(collect(each, wanderer(each), 60, seed=0)).batch for each in (task, named))
    assert len(one) == 60
    np.testing.assert_array_equal(one.next_obs, other.next_obs)


def test_a_function_that_returns_the_same_environment_again():
    env = gymnasium.make("Pendulum-v1")
    task = task_from(lambda: gymnasium.wrappers.TimeLimit(env, 20))
    with pytest.raises(UserError, match="make a new one at every call"):
        next(collect(task, wanderer(task), 60, seed=0))


def test_observations_in_a_dict_become_a_vector_with_names():
    task = task_from(Arm, episode_steps=10)
    assert task.name == "Arm" and (task.obs_size, task.act_size) == (4, 4)
    assert task.obs_names == ("arm.load", "arm.place_0", "arm.place_1", "clock")  # the order of the space
    assert task.act_low == (-0.1,) * 4
    batch = next(collect(task, wanderer(task), 20, seed=0)).batch
    np.testing.assert_array_equal(batch.obs[:, 0], 7.0)
    np.testing.assert_array_equal(batch.obs[:, 3], batch.step)
    np.testing.assert_allclose(batch.next_obs[:, 1:3] - batch.obs[:, 1:3], batch.act[:, :2], atol=1e-6)
    np.testing.assert_allclose(batch.reward, batch.act.sum(1), atol=1e-6)
    mine = task_from(Arm, episode_steps=10, obs_names=("load", "x", "y", "time"), obs_units=("N", "m", "m", "s"))
    assert mine.obs_labels == ("load (N)", "x (m)", "y (m)", "time (s)")
    assert task.act_labels == ("action 0", "action 1", "action 2", "action 3")


boxes = st.lists(st.integers(1, 3), max_size=2).map(lambda shape: spaces.Box(-1, 1, tuple(shape)))
nested = st.recursive(
    boxes,
    lambda inner: (
        st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, min_size=1, max_size=3).map(spaces.Dict)
        | st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
    ),
    max_leaves=5,
)


@given(nested)
def test_a_nested_space_is_flattened_as_gymnasium_does(space):
    """Gymnasium's own flatten is the oracle."""
    space.seed(0)
    parts, sample = observed_parts(space, "it"), space.sample()
    np.testing.assert_array_equal(np.ravel(reader(parts)(sample)), spaces.flatten(space, sample))
    names = observation_names(parts)
    assert len(names) == (0 if isinstance(space, spaces.Box) else spaces.flatdim(space))
    assert len(set(names)) == len(names)


# Collecting


def test_a_gymnasium_task_can_be_collected():
    task = task_from("Pendulum-v1", terminated=None, episode_steps=20)
    batch = next(collect(task, wanderer(task), 60, seed=0)).batch
    assert len(batch) == 60 and batch.truncated.sum() == 3
    assert np.abs(batch.act).max() > 1.0


def test_an_environment_that_truncates_itself_is_believed_and_cannot_change_the_stored_action():
    task = task_from("Odd-v0")
    batch = next(collect(task, wanderer(task), 10, seed=0)).batch
    np.testing.assert_array_equal(np.flatnonzero(batch.truncated), [3, 7, 9])
    assert (batch.act != 0).all()


# What is refused


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"do": spaces.Discrete(3)}, "musbo is for continuous actions.*such as DQN or PPO"),
        ({"do": spaces.MultiDiscrete([3, 2])}, "musbo is for continuous actions"),
        ({"do": spaces.Box(0, 3, (2,), np.int64)}, "musbo is for continuous actions"),
        ({"do": spaces.Dict({"a": BOUNDED})}, "join them into one Box in a wrapper"),
        ({"do": spaces.Box(-np.inf, np.inf, (1,), np.float32)}, "unbounded.*TransformAction"),
        ({"see": spaces.Discrete(3)}, "are Discrete.*such as Q-learning"),
        ({"see": spaces.Dict({"a": FLAT, "b": spaces.Discrete(3)})}, "The part 'b' .* is Discrete.*FilterObservation"),
        ({"see": spaces.Box(0, 255, (64, 64, 3), np.uint8)}, "are pictures .*such as DreamerV3"),
        ({"see": spaces.Box(0, 255, (64, 64), np.uint8)}, "are pictures"),
        ({"see": spaces.Dict({"a": spaces.Box(0, 1, (9, 9, 3))})}, "The part 'a' .* is pictures .*FilterObservation"),
        ({"see": spaces.Dict({})}, "holds no number"),
    ],
)
def test_other_spaces_are_refused_in_one_sentence(kwargs, text):
    with pytest.raises(UserError, match=text) as caught:
        task_from(Odd(**kwargs), episode_steps=5)
    assert "\n" not in str(caught.value)


def test_what_a_refusal_advises_can_be_done():
    unbounded = Odd(do=spaces.Box(-np.inf, np.inf, (1,), np.float32))
    bounded = gymnasium.wrappers.TransformAction(unbounded, lambda act: act, spaces.Box(-1, 1, (1,)))
    assert task_from(bounded, episode_steps=5).act_high == (1.0,)
    mixed = Odd(see=spaces.Dict({"a": FLAT, "b": spaces.Discrete(3)}))
    assert task_from(gymnasium.wrappers.FilterObservation(mixed, ["a"]), episode_steps=5).obs_size == 2


def test_other_slips():
    with pytest.raises(UserError, match="pass episode_steps"):
        task_from("Endless-v0")
    assert task_from("Endless-v0", episode_steps=7).episode_steps == 7
    with pytest.raises(UserError, match="no environment 'Hoper-v5'"):
        task_from("Hoper-v5")
    with pytest.raises(UserError, match="no_such_argument"):
        task_from("Hopper-v5", no_such_argument=1)
    with pytest.raises(UserError, match="tuples in place of lists"):
        task_from("Hopper-v5", healthy_z_range=[0.5, 2.0])
    with pytest.raises(UserError, match="make the environment with them"):
        task_from(Odd, see=FLAT)
    with pytest.raises(UserError, match="not a int"):
        task_from(3)
    with pytest.raises(UserError, match="musbo makes as many as it needs"):
        task_from(gymnasium.make_vec("Pendulum-v1", 2))
    with pytest.raises(UserError, match="'dm_control:walker-walk', or wrap yours"):
        task_from(worlds.import_suite().load("walker", "walk"))
    with pytest.raises(UserError, match="returned a str, not a gymnasium.Env"):
        task_from(lambda: "Hopper-v5")
    with pytest.raises(UserError, match="Making the environment failed: ZeroDivisionError"):
        task_from(lambda: 1 / 0)
    with pytest.raises(UserError, match="obs_names needs 2 entries or none, not 1"):
        task_from(Odd, episode_steps=5, obs_names=("a",))
    with pytest.raises(UserError, match="the same name twice: 'a'"):
        task_from(Odd, episode_steps=5, obs_names=("a", "a"))


@pytest.mark.parametrize("package", ["gymnasium", "dm_control"])
def test_a_missing_simulator_names_the_command_to_install_it(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"pip install 'musbo\[sim\]'"):
        find_task("Hopper-v5" if package == "gymnasium" else "dm_control:walker-walk")


def test_simulators_are_imported_only_when_needed():
    code = """
import sys
import musbo.field.simulate, musbo.field.find, musbo.field.render, musbo.campaign.api
musbo.find_task("hopper")
assert not {"gymnasium", "mujoco", "dm_control"} & set(sys.modules)
"""
    source = str(Path(worlds.__file__).parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": source})


def test_mujoco_warnings_other_than_the_known_one_are_passed_on(capfd):
    mujoco = importlib.import_module("mujoco")
    with worlds.quiet_mujoco():
        gymnasium.make("HalfCheetah-v5")  # its model file has the deprecated attribute
    assert "settotalmass" not in "".join(capfd.readouterr())
    before = mujoco.get_mju_user_warning()
    with pytest.warns(UserWarning, match="Mujoco: something else"), worlds.quiet_mujoco():
        mujoco.get_mju_user_warning()("something else")
    assert mujoco.get_mju_user_warning() is before
