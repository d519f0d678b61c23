"""Tasks as TOML files: strict, and no Python without the user's word."""

from pathlib import Path

import numpy as np
import pytest

from musbo.campaign.settings import load_task, require_trusted, task_for, task_in, task_name
from musbo.core.errors import UserError
from musbo.field.find import find_task
from musbo.tasks.find import digest

GOLDEN = Path(__file__).parents[1] / "golden" / "plant-v1"
PLANT = """name = "boiler"
interval = 5.0
episode_steps = 288
reward = "learned"
terminated = "never"

[[observation]]
name = "temperature"
unit = "C"
low = 0
high = 200

[[action]]
name = "valve"
low = 0
high = 100
change = 5
"""


def written(folder: Path, text: str = PLANT) -> str:
    (folder / "plant.toml").write_text(text)
    return str(folder / "plant.toml")


def test_what_it_says_is_the_task(tmp_path: Path):
    task = find_task(written(tmp_path))
    assert (task.name, task.obs_names, task.obs_units, task.act_names) == (
        "boiler",
        ("temperature",),
        ("C",),
        ("valve",),
    )
    assert (task.act_low, task.act_high, task.act_change) == ((0.0,), (100.0,), (5.0,))
    assert (task.obs_low, task.obs_high, task.interval, task.episode_steps) == ((0.0,), (200.0,), 5.0, 288)
    assert task.reward == "learned" and task.terminated is None and task.simulator is None and task.history == 0
    assert find_task(written(tmp_path, PLANT.replace("interval = 5.0", "history = 4"))).history == 4


def test_the_golden_file_says_what_it_said():
    task = find_task(str(GOLDEN / "plant.toml"))
    assert (task.name, task.interval, task.history, task.episode_steps) == ("boiler", 5.0, 4, 288)
    assert (task.obs_names, task.obs_units) == (("temperature", "load"), ("°C", ""))
    assert (task.obs_low, task.obs_high) == ((0.0, -1000.0), (200.5, 1000.0))
    assert (task.act_names, task.act_units) == (("valve", "fan"), ("%", ""))
    assert (task.act_low, task.act_high, task.act_change) == ((0.0, -1.0), (100.0, 1.0), (5.0, None))
    assert callable(task.reward) and callable(task.terminated)
    hot, cold = np.array([151.0, 0.0]), np.array([150.0, 0.0])
    assert task.reward(cold, np.array([8.0, 1.0]), hot) == 147.0  # type: ignore[arg-type]
    assert task.terminated(hot) and not task.terminated(cold)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("interval =", "intervall =", "line 2: 'intervall' means nothing here: did you mean interval?"),
        ("change =", "chnge =", "line 17: action 1: 'chnge' means nothing here: did you mean change?"),
        ("high = 200", "high = -1", "low must be below high"),
        ("high = 200", "", "a range has both ends"),
        ("high = 200", "high = nan", "must be a finite number"),
        ("288", "0", "line 3: episode_steps is a whole number"),
        ("interval = 5.0", "history = 1.5", "line 2: history is a count of past steps from 0 to 1,000, not 1.5"),
        ("interval = 5.0", "history = -1", "line 2: history is a count of past steps"),
        ("interval = 5.0", "history = true", "line 2: history is a count of past steps"),
        ('reward = "learned"', "", "lacks reward"),
        ('"learned"', '"os:system"', "reward cannot be"),
        ('"never"', '"sometimes"', "terminated cannot be"),
        ("[[action]]", "[action]", "two brackets"),
        ("change = 5", "change = 0", "must be above 0"),
    ],
)
def test_a_slip_is_named(tmp_path: Path, old: str, new: str, said: str):
    with pytest.raises(UserError, match="plant.toml") as refused:
        find_task(written(tmp_path, PLANT.replace(old, new, 1)))
    assert said in str(refused.value)


def test_python_needs_the_users_word(tmp_path: Path):
    (tmp_path / "own.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
        "def reward(obs, act, next_obs):\n    return next_obs[0]\n"
    )
    name = written(tmp_path, PLANT.replace('reward = "learned"', 'reward = "own.py:reward"'))
    before = digest(name)
    with pytest.raises(UserError, match="--trust-task"):
        load_task(name)
    with pytest.raises(UserError, match="--trust-task"):  # what the record of a study names goes through here
        require_trusted(name, trusted=False)
    assert not (tmp_path / "ran").exists()
    assert callable(load_task(name, trusted=True).reward) and (tmp_path / "ran").exists()
    (tmp_path / "own.py").write_text("def reward(obs, act, next_obs):\n    return obs[0]\n")
    assert digest(name) != before


def test_without_python_no_word_is_needed(tmp_path: Path):
    assert load_task(written(tmp_path)).name == "boiler"


def test_a_run_names_it_by_its_path_from_there(tmp_path: Path):
    name, run = task_name(written(tmp_path)), tmp_path / "runs" / "first"
    assert task_for(run, name) == "../../plant.toml" and task_in(run, task_for(run, name)) == name
