"""A task refuses what cannot be meant, and names lead to tasks."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.field.find import find_task
from musbo.tasks.builtin import pendulum, pointmass
from musbo.tasks.find import TASKS
from musbo.tasks.task import Task

PLAIN = Task(
    name="plain",
    obs_size=2,
    act_size=2,
    act_low=(-1.0, 0.0),
    act_high=(1.0, 3.0),
    episode_steps=10,
    reward="learned",
    terminated="learned",
)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"obs_size": 0}, "obs_size"),
        ({"act_size": 0, "act_low": (), "act_high": ()}, "act_size"),
        ({"episode_steps": 0}, "episode_steps"),
        ({"act_low": (-1.0,)}, "2 numbers each, not 1 and 2"),
        ({"act_low": (-1.0, 3.0)}, "action 1 needs finite bounds with low < high"),
        ({"act_high": (math.inf, 3.0)}, "action 0 needs finite bounds"),
        ({"act_low": (math.nan, 0.0)}, "action 0 needs finite bounds"),
        ({"speed": 2}, "speed is an index"),
        ({"speed": -1}, "speed is an index"),
    ],
)
def test_refusals_name_the_task_and_the_fault(change, text):
    with pytest.raises(UserError, match="'plain'") as caught:
        dataclasses.replace(PLAIN, **change)
    assert text in str(caught.value)


def test_middle_and_half_range():
    np.testing.assert_array_equal(PLAIN.centre, np.array([0.0, 1.5], np.float32))
    np.testing.assert_array_equal(PLAIN.half_range, np.array([1.0, 1.5], np.float32))


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=4))
def test_bounds_are_the_middle_plus_and_minus_the_half_range(pairs):
    low, high = tuple(a for a, _ in pairs), tuple(a + width for a, width in pairs)
    task = dataclasses.replace(PLAIN, act_size=len(pairs), act_low=low, act_high=high)
    np.testing.assert_allclose(task.centre - task.half_range, low, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(task.centre + task.half_range, high, rtol=1e-5, atol=1e-3)


def test_a_task_is_a_static_value():
    assert hash(dataclasses.replace(pendulum)) == hash(pendulum)
    assert dataclasses.replace(pendulum) == pendulum != pointmass


def test_every_listed_task_is_found_under_its_name():
    assert len(TASKS) == 8
    for name, line in TASKS.items():
        task = find_task(name)
        assert task.name == name
        assert f"{task.obs_size} observations, {task.act_size} action" in line
        assert f"{task.episode_steps} steps" in line


def test_a_misspelt_name_gets_close_matches_and_the_list():
    with pytest.raises(UserError, match="Did you mean halfcheetah") as caught:
        find_task("half-cheetah")
    assert all(name in str(caught.value) for name in TASKS)


def test_a_task_of_ones_own_from_a_module():
    assert find_task("musbo.tasks.builtin:pendulum") is pendulum


OWN = """
from musbo.tasks.builtin import pendulum
import dataclasses
MINE = dataclasses.replace(pendulum, name="mine")
def make():
    return MINE
def fails():
    raise KeyError('gain')
number = 3
"""


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_a_task_of_ones_own_from_a_file(own_file):
    mine = find_task(f"{own_file}:MINE")
    assert mine.name == "mine"
    assert find_task(f"{own_file}:make") is mine  # one module per file, so compiled functions are reused


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such.module:TASK", "cannot be imported"),
        ("musbo.tasks.builtin:swing", "the tasks in it are: pendulum, pointmass"),
        ("absent.py:TASK", "There is no file absent.py"),
    ],
)
def test_where_the_search_ended(name, text):
    with pytest.raises(UserError, match=text):
        find_task(name)


def test_a_file_that_holds_something_else(own_file, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="is a int; it must be a musbo Task"):
        find_task(f"{own_file}:number")
    environment = tmp_path / "environment.py"
    environment.write_text("class Tank: ...")
    with pytest.raises(UserError, match=r"Tank is a class; .* with musbo\.task_from"):
        find_task(f"{environment}:Tank")
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    with pytest.raises(UserError, match="ZeroDivisionError"):
        find_task(f"{broken}:TASK")
    with pytest.raises(UserError, match="ZeroDivisionError"):  # and not a half-loaded module the second time
        find_task(f"{broken}:TASK")
    with pytest.raises(UserError, match="fails failed: KeyError: 'gain'"):
        find_task(f"{own_file}:fails")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="Importing 'broken' failed: ZeroDivisionError"):
        find_task("broken:TASK")
    needs = tmp_path / "needs.py"
    needs.write_text("import no_such_package_at_all")
    with pytest.raises(UserError, match="no_such_package_at_all"):
        find_task(f"{needs}:TASK")
