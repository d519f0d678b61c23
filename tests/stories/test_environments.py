"""Somebody brings an environment that musbo has never met, from the command line and from Python."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import musbo
from musbo.campaign import api
from musbo.campaign.settings import campaign
from musbo.cli import main
from musbo.reporting.live import Lines
from musbo.tasks.builtin import pendulum, pendulum_reward
from tests.stories import tiny

SMALL: dict[str, Any] = {"algo": "random", "preset": "quick", "budget": 1, "batch_size": 60, "episodes": 2}


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints that must succeed."""
    assert main(list(words)) == 0
    return capsys.readouterr().out


# By name


@pytest.mark.parametrize(
    ("algo", "words"), [("bc", tiny.BUDGET), pytest.param("musbo", tiny.FLAGS, marks=pytest.mark.long)]
)
def test_a_gymnasium_environment_by_its_id(algo, words, tmp_path, capsys):
    """Reward and ends are learned. Everything that is asked of the run later finds the task by its name alone."""
    run = str(tmp_path / "run")
    asked = ["InvertedPendulum-v5", "--algo", algo, "--preset", "quick", *words, "--json", "--out", run]
    result = json.loads(said(capsys, "run", *asked))
    assert result["task"] == "InvertedPendulum-v5" and result["transitions"] == 200
    assert result["trial_steps"] == 50  # counted apart
    assert all(value > 1 for value in result["returns"])  # one for every step upright
    again = json.loads(said(capsys, "evaluate", run, "--json"))
    assert again["mean_return"] == result["final_return"]
    said(capsys, "resume", run)
    assert "InvertedPendulum-v5" in said(capsys, "status", run)
    said(capsys, "report", run, "--no-film")
    assert "InvertedPendulum-v5" in (tmp_path / "run" / "report" / "index.html").read_text()


def test_a_task_of_dm_control_by_its_name(tmp_path, capsys):
    settings = campaign("dm_control:cartpole-balance", **{**SMALL, "algo": "bc"})
    folder = api.start(settings, out=tmp_path / "run")
    result = json.loads(said(capsys, "resume", str(folder), "--json"))  # without --trust-task: it is no Python of ours
    assert 0 < result["final_return"] <= 1000
    names = musbo.resume(folder).summary.task.obs_names
    assert names == ("position_0", "position_1", "position_2", "velocity_0", "velocity_1")


def test_a_slip_in_a_name(tmp_path, capsys):
    assert main(["run", "InvertedPendulum-v9", "--out", str(tmp_path / "run")]) == 2
    assert "Did you mean InvertedPendulum-v5" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# Objects


class Turned(gymnasium.ObservationWrapper):
    """A wrapper of one's own: degrees in place of radians, in a Dict."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        box = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
        self.observation_space = gymnasium.spaces.Dict({"angle": box, "speed": box})

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        cos, sin, speed = observation
        return {"angle": np.degrees(np.arctan2([sin], [cos])).astype(np.float32), "speed": np.array([speed])}


def test_an_object_with_a_wrapper_of_ones_own(tmp_path):
    task = musbo.task_from(Turned(gymnasium.make("Pendulum-v1")), terminated=None, obs_units=("deg", "rad/s"))
    assert task.obs_labels == ("angle (deg)", "speed (rad/s)")
    result = musbo.run(task, **SMALL, out=tmp_path / "run")
    batch = musbo.read_batch(tmp_path / "run" / "data" / "deployment-1.parquet")
    assert batch.obs.shape == (60, 2) and 2 * np.pi < np.abs(batch.obs[:, 0]).max() <= 180
    assert result.summary.task.obs_labels == ("angle (deg)", "speed (rad/s)")
    with pytest.raises(musbo.UserError, match="was an object of a Python program.*task="):
        musbo.evaluate(tmp_path / "run")
    assert musbo.evaluate(tmp_path / "run", task=task).episodes.mean_return == result.final_return


# Formulas


def tenth(obs: Any, act: Any, next_obs: Any) -> Any:
    return 0.1 * pendulum_reward(obs, act, next_obs)


def test_a_formula_that_is_a_tenth_of_the_simulators_reward_is_said_before_the_batch(tmp_path, capsys):
    task = musbo.task_from("Pendulum-v1", tenth, terminated=None)
    result = musbo.run(task, **SMALL, out=tmp_path / "run", observe=Lines())
    shown = "".join(capsys.readouterr())
    assert shown.index("is 0.1 times the simulator's reward (mean ") < shown.index("collected")
    assert shown.count("is 0.1 times") == 1
    (caution,) = result.summary.deployments[0].cautions
    assert caution.kind == "reward formula" and "correlation 1.00" in caution.text
    right = musbo.task_from("Pendulum-v1", pendulum_reward, terminated=None)
    assert musbo.run(right, **SMALL, out=tmp_path / "right").summary.deployments[0].cautions == ()


def test_a_formula_that_disagrees_with_the_logs(tmp_path):
    logs = replace(pendulum, name="logs", simulator=None, reward=tenth)
    batch = musbo.read_batch(_collected(tmp_path))
    result = musbo.run(logs, **SMALL, data=[batch], out=tmp_path / "run")
    (caution,) = result.summary.deployments[0].cautions
    assert "is 0.1 times the logged reward" in caution.text and result.summary.trial_steps == 0


def _collected(tmp_path: Path) -> Path:
    musbo.run("pendulum", **SMALL, out=tmp_path / "logs")
    return tmp_path / "logs" / "data" / "deployment-1.parquet"


OWN = """
import musbo
from musbo.tasks.builtin import pendulum_reward

def reward(o, a, n):
    if o[0] > 0:
        return o[0]
    return 0.0

BRANCHES = musbo.task_from("Pendulum-v1", reward, terminated=None)
TASK = musbo.task_from("Pendulum-v1", pendulum_reward, terminated=None, name="plant")
"""


def test_a_reward_with_if_is_one_line_before_anything_is_written(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(OWN)
    assert main(["run", f"{tmp_path}/mine.py:BRANCHES", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0 and "jnp.where in place of if (mine.py, line 6)" in error
    assert not (tmp_path / "run").exists()


def test_a_task_is_called_what_it_says_and_measured_like_ours(tmp_path, capsys, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    words = ["--algo", "random", "--preset", "quick", "--budget", "1", "--batch-size", "60"]
    said(capsys, "run", "mine.py:TASK", *words)
    run = tmp_path / "runs" / "plant-random-quick-s0"
    result = musbo.resume(run, trust_task=True)
    episodes = result.summary.deployments[0].evaluation
    assert episodes and episodes.episodes and len(episodes.episodes.returns) == 20 == campaign("pendulum").episodes
    said(capsys, "report", str(run), "--no-film")
    page = (run / "report" / "index.html").read_text()
    assert "random on plant" in page and "random on TASK" not in page


# Settings


def test_settings_from_python_are_those_of_the_command_line(tmp_path, capsys):
    words = json.loads(said(capsys, "run", "pointmass", *tiny.FLAGS, "--json", "--out", str(tmp_path / "words")))
    flat = [each.split() for each in shlex.join(tiny.METHOD).split("--")[1:]]
    values = {name: value if value in ("mixed", "auto") else json.loads(value) for name, value in flat}
    hidden = {name: (value,) if name.endswith("hidden") else value for name, value in values.items()}
    result = musbo.run("pointmass", budget=2, batch_size=100, episodes=2, settings=hidden, out=tmp_path / "values")
    assert result.summary.policy_sha256 == words["policy_sha256"]
