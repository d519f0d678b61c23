"""Frames show the state: the rod's tip, the dot and the body are where the numbers say."""

import ctypes.util
import dataclasses

import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.field import render as module
from musbo.field.render import draw_pendulum, draw_pointmass, render
from musbo.field.simulate import rollouts
from musbo.tasks import paper
from musbo.tasks.builtin import pendulum, pointmass
from musbo.tasks.task import BuiltIn


def at(frame, x, y, reach):
    """The pixel at a place of the world."""
    side = len(frame)
    row, column = (1 - y / reach) / 2 * side, (1 + x / reach) / 2 * side
    return frame[int(row), int(column)].astype(int)


def is_red(pixel):
    return pixel[0] > 180 and pixel[1] < 120


@pytest.mark.parametrize("angle", [0.0, 1.0, np.pi / 2, np.pi, -2.0])
def test_pendulum_is_drawn_upright_at_angle_zero(angle):
    frame = draw_pendulum(np.array([np.cos(angle), np.sin(angle), 0.0], np.float32), side=200)
    assert frame.shape == (200, 200, 3) and frame.dtype == np.uint8
    assert is_red(at(frame, 0.9 * np.sin(angle), 0.9 * np.cos(angle), 1.4))
    assert not is_red(at(frame, -0.9 * np.sin(angle), -0.9 * np.cos(angle), 1.4))


def test_pointmass_is_drawn_at_its_place():
    frame = draw_pointmass(np.array([1.0, -0.5, 0.0, 0.0], np.float32), side=200)
    assert is_red(at(frame, 1.0, -0.5, 2.0))
    assert not is_red(at(frame, -1.0, 0.5, 2.0))


def push(obs):
    return np.full((len(obs), 1), 2.0, np.float32)


def test_frames_follow_the_episode_that_an_evaluation_measures():
    batch = rollouts(pendulum, push, 1, seed=3, steps=5)
    frames = list(render(pendulum, push, seed=3, steps=5, side=64))
    states = [batch.obs[0], *batch.next_obs]
    assert len(frames) == 6
    for frame, obs in zip(frames, states, strict=True):
        np.testing.assert_array_equal(frame, draw_pendulum(obs, 64))


def test_own_built_in_tasks_have_no_picture():
    assert isinstance(pointmass.simulator, BuiltIn)
    own = dataclasses.replace(pointmass.simulator, observe=lambda state: state + 0)
    with pytest.raises(UserError, match="no picture of 'pointmass'"):
        next(render(dataclasses.replace(pointmass, simulator=own), push, 0))


def test_without_a_graphics_library_the_package_is_named(monkeypatch):
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    with pytest.raises(UserError, match="apt install libegl1"):
        module._gl_context(64)


needs_gl = pytest.mark.skipif(
    not any(ctypes.util.find_library(name) for name in module.LIBRARIES.values()), reason="needs EGL or OSMesa"
)


@needs_gl
@pytest.mark.parametrize("task", [paper.hopper, paper.cheetah_run], ids=lambda task: task.name)
def test_mujoco_frames_show_a_moving_body(task):
    frames = list(render(task, lambda obs: np.ones((1, task.act_size), np.float32), seed=0, steps=20, side=96))
    assert all(frame.shape == (96, 96, 3) for frame in frames)
    assert frames[0].std() > 10  # not one colour
    assert (frames[0] != frames[-1]).mean() > 0.01


@needs_gl
def test_mujoco_frames_stop_where_the_episode_ends():
    def lean(obs):
        return np.ones((1, 3), np.float32)

    batch = rollouts(paper.hopper, lean, 1, seed=0)
    assert batch.terminated[-1]
    assert sum(1 for _ in render(paper.hopper, lean, seed=0, side=16)) == len(batch) + 1
