"""The first hour of somebody new: an environment in a file of their own, its page, its policy, and the help."""

import json
import shlex
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import musbo
from musbo.cli import main
from musbo.core.errors import UserError

TANK = '''
import gymnasium as gym
import numpy as np


class Tank(gym.Env):
    """Keep a level at half with a pump; it draws no picture."""

    observation_space = gym.spaces.Box(0, 2, (1,), np.float32)
    action_space = gym.spaces.Box(0, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = float(self.np_random.uniform(0, 1))
        return np.array([self.level], np.float32), {}

    def step(self, action):
        self.level = min(max(self.level + 0.2 * float(action[0]) - 0.1, 0.0), 2.0)
        return np.array([self.level], np.float32), -abs(self.level - 0.5), False, False, {}


gym.register("FrontDoorTank-v0", entry_point=Tank, max_episode_steps=20)
'''
SMALL = shlex.split("--algo bc --preset quick --budget 1 --batch-size 60 --episodes 2")


@pytest.fixture
def tank(tmp_path: Path):
    file = tmp_path / "tank.py"
    file.write_text(TANK)
    yield str(file)
    gymnasium.registry.pop("FrontDoorTank-v0", None)


def test_an_environment_that_a_file_registers(tank: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """One command trains, one more writes the page, though the environment draws no picture. Warnings are errors."""
    run = str(tmp_path / "run")
    words = ["run", "FrontDoorTank-v0", "--import", tank, *SMALL, "--out", run, "--json"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["transitions"] == 60 and -20 * 1.5 <= result["final_return"] <= 0
    assert main(["report", run, "--import", tank]) == 0
    assert "FrontDoorTank-v0" in (tmp_path / "run" / "report" / "index.html").read_text()

    policy = musbo.load_policy(run)
    for ask in (policy, lambda obs: policy.explore(obs, np.random.default_rng(0))):
        for rows in (1, 3, 5):
            action = ask(np.full((rows, 1), 0.3))
            assert action.shape == (rows, 1) and np.all((action >= 0) & (action <= 1))
        with pytest.raises(UserError, match="finite"):
            ask(np.array([np.nan]))


def test_a_class_in_place_of_a_task(tank: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", f"{tank}:Tank", *SMALL, "--out", str(tmp_path / "run")]) != 0
    assert "musbo.task_from" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_help_fits_two_screens(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["run", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 100
    assert sum(line.strip().startswith("-h") for line in lines) <= 1


class Space(gymnasium.Env):
    """An environment that does nothing, with spaces of one's choice."""

    def __init__(self, obs: gymnasium.Space, act: gymnasium.Space) -> None:
        self.observation_space, self.action_space = obs, act

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


BOX = gymnasium.spaces.Box(-1.0, 1.0, (3,))


@pytest.mark.parametrize(
    "obs, act, said",
    [
        (gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8), BOX, "picture"),
        (gymnasium.spaces.Discrete(5), BOX, "Discrete"),
        (BOX, gymnasium.spaces.Discrete(5), "continuous actions"),
    ],
)
def test_spaces_that_cannot_be_learned_from_are_refused_in_a_sentence(obs, act, said):
    with pytest.raises(UserError) as refused:
        musbo.task_from(lambda: Space(obs, act), episode_steps=10)
    text = str(refused.value)
    assert said.lower() in text.lower() and "FlattenObservation" not in text and len(text) < 400


@pytest.mark.long
def test_the_default_run_shows_the_idea(tmp_path, capsys):
    """One batch is not enough, U and zeta vary, the return rises, and nothing is wrong."""
    assert main(["run", "--json", "--out", str(tmp_path / "run")]) == 0
    out, progress = capsys.readouterr()
    result = json.loads(out)
    first, last = result["returns"][0], result["returns"][-1]
    assert result["task"] == "pendulum" and first < -700 and last > -350
    assert "warning" not in progress and result["advice"] == [] and "Nothing looks wrong" in result["verdict"]
    for deployment in result["deployments"]:
        U = next(each["value"] for each in deployment["training"]["findings"]["diagnostics"] if each["name"] == "U")
        assert U["high"] - U["low"] > 0.2
