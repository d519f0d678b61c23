"""Any Gymnasium environment with flat observations and bounded actions becomes a task; the rest is refused in words."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import musbo.field.worlds as worlds
from musbo.core.errors import UserError
from musbo.field.gym_task import gym_task
from musbo.field.simulate import collect
from musbo.tasks.task import Gym
from tests.field.test_simulate import wanderer

FLAT = spaces.Box(-np.inf, np.inf, (2,), np.float32)
BOUNDED = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Odd(gymnasium.Env):
    """An environment with whatever spaces a test wants, which truncates itself at its fourth step."""

    def __init__(self, see=FLAT, do=BOUNDED):
        self.observation_space, self.action_space, self.t = see, do, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.uniform(size=2), {}

    def step(self, action):
        self.t += 1
        action *= 0  # bad manners: writes into the caller's array
        return np.full(2, self.t, float), 1.0, False, self.t == 4, {}


@pytest.fixture(autouse=True, scope="module")
def registered():
    gymnasium.register("Odd-v0", entry_point=lambda **kwargs: Odd(**kwargs), max_episode_steps=10)
    gymnasium.register("Endless-v0", entry_point=lambda **kwargs: Odd(**kwargs))
    yield
    for id in ("Odd-v0", "Endless-v0"):
        gymnasium.registry.pop(id)


def test_sizes_bounds_and_length_are_read():
    task = gym_task("Hopper-v5", speed=5, terminate_when_unhealthy=False)
    assert (task.name, task.obs_size, task.act_size, task.episode_steps) == ("Hopper-v5", 11, 3, 1000)
    assert task.act_low == (-1.0,) * 3 and task.act_high == (1.0,) * 3
    assert task.reward == task.terminated == "learned" and task.speed == 5
    assert task.simulator == Gym("Hopper-v5", (("terminate_when_unhealthy", False),))
    assert hash(task) == hash(gym_task("Hopper-v5", speed=5, terminate_when_unhealthy=False))


def test_a_gymnasium_task_can_be_collected():
    task = gym_task("Pendulum-v1", terminated=None, episode_steps=20)
    batch = next(collect(task, wanderer(task), 60, seed=0)).batch
    assert len(batch) == 60 and batch.truncated.sum() == 3
    assert np.abs(batch.act).max() > 1.0


def test_an_environment_that_truncates_itself_is_believed_and_cannot_change_the_stored_action():
    task = gym_task("Odd-v0")
    batch = next(collect(task, wanderer(task), 10, seed=0)).batch
    np.testing.assert_array_equal(np.flatnonzero(batch.truncated), [3, 7, 9])
    assert (batch.act != 0).all()


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"do": spaces.Discrete(3)}, "not discrete or nested"),
        ({"do": spaces.Box(-np.inf, np.inf, (1,), np.float32)}, "unbounded"),
        ({"do": spaces.Box(-1.0, 1.0, (2, 2), np.float32)}, "one flat vector of floats"),
        ({"see": spaces.Dict({"a": FLAT})}, "FlattenObservation"),
        ({"see": spaces.Box(0, 255, (4,), np.uint8)}, "one flat vector of floats"),
        ({"see": spaces.Box(-1.0, 1.0, (3, 3), np.float32)}, "FlattenObservation"),
    ],
)
def test_other_spaces_are_refused_in_one_sentence(kwargs, text, monkeypatch):
    # Spaces are not hashable, which gym_task refuses first; so they go round it.
    monkeypatch.setattr("musbo.field.gym_task.make_gym", lambda id: Odd(**kwargs))
    with pytest.raises(UserError, match=text):
        gym_task("Odd-v0")


def test_other_slips():
    with pytest.raises(UserError, match="pass episode_steps"):
        gym_task("Endless-v0")
    assert gym_task("Endless-v0", episode_steps=7).episode_steps == 7
    with pytest.raises(UserError, match="no environment 'Hoper-v5'"):
        gym_task("Hoper-v5")
    with pytest.raises(UserError, match="no_such_argument"):
        gym_task("Hopper-v5", no_such_argument=1)
    with pytest.raises(UserError, match="tuples in place of lists"):
        gym_task("Hopper-v5", healthy_z_range=[0.5, 2.0])


@pytest.mark.parametrize("package", ["gymnasium", "dm_control"])
def test_a_missing_simulator_names_the_command_to_install_it(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"pip install 'musbo\[sim\]'"):
        worlds.import_gymnasium() if package == "gymnasium" else worlds.import_suite()


def test_simulators_are_imported_only_when_needed():
    code = """
import sys
import musbo.field.simulate, musbo.field.gym_task, musbo.field.render, musbo.tasks.find
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
