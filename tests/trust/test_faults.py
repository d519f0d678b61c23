"""Simulators and tasks that fail: one sentence, exit code 2, and everything that was complete is still there."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import musbo
from musbo.campaign import folders, runner
from musbo.campaign.events import Failed
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.campaign.settings import campaign
from musbo.campaign.summary import read_status
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.data.batch import Batch
from musbo.data.files import batch_from_bytes, write_batch
from musbo.field.dry_run import dry_run, same_values, values_of
from musbo.tasks.builtin import pointmass
from musbo.tasks.task import BuiltIn, Task
from tests.contract.test_recipes import awkward

gymnasium = pytest.importorskip("gymnasium")


class Plant(gymnasium.Env):
    """A point on a line, which fails as it is told in a step of an episode."""

    fails = ""
    at = 7
    episodes = 0

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        Plant.episodes += 1
        self.number, self.step_number = Plant.episodes, 0
        self.state = self.np_random.normal(size=2).astype(np.float32)
        return self.state, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        self.step_number += 1
        self.state = (0.9 * self.state + 0.1 * action[0]).astype(np.float32)
        reward: Any = -float(np.sum(self.state**2))
        if Plant.fails and self.number > 60 and self.step_number == Plant.at:
            match Plant.fails:
                case "raises":
                    raise RuntimeError("the valve is stuck")
                case "exits":
                    sys.exit(7)
                case "nan reward":
                    reward = float("nan")
                case "no reward":
                    reward = None
                case "nan observation":
                    return np.array([0.0, np.nan], np.float32), reward, False, False, {}
                case "huge observation":
                    return np.array([1e37, 0.0], np.float32), reward, False, False, {}
                case "wrong size":
                    return np.zeros(3, np.float32), reward, False, False, {}
        return self.state, reward, False, False, {}


gymnasium.register("musbo-plant-v0", entry_point=Plant, max_episode_steps=10)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setattr(Plant, "episodes", 0)
    return musbo.task_from("musbo-plant-v0", terminated=None, name="plant")


SETTINGS = {"algo": "random", "preset": "quick", "budget": 1, "batch_size": 1000, "episodes": 2}


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        ("raises", "it raised RuntimeError: the valve is stuck"),
        ("exits", "it raised SystemExit: 7"),
        ("nan reward", "the reward is nan"),
        ("no reward", "the reward is nan"),
        ("nan observation", "observation 1 is nan"),
        ("huge observation", r"observation 0 is 1e\+37"),
        ("wrong size", "it raised ValueError"),
    ],
)
def test_a_simulator_that_fails_loses_no_finished_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Task, fails: str, words: str
):
    """100 lanes in two groups of 50; the second group fails in step 7 of its first episodes."""
    monkeypatch.setattr(Plant, "fails", fails)
    with pytest.raises(UserError, match=f"simulator of task plant failed in step 7 of an episode: {words}.*are kept"):
        musbo.run(plant, **SETTINGS, out=tmp_path / "run")
    status = read_status(tmp_path / "run")
    kept = sum(len(stored(tmp_path / "run", shard.artefact)) for shard in status.shards)
    assert kept == 500 and status.failures == (1,)
    with pytest.raises(UserError, match="500 of 1000 transitions"):  # as long as it fails, it says so and keeps all
        musbo.resume(tmp_path / "run", task=plant)
    assert read_status(tmp_path / "run").failures == (1, 1)
    monkeypatch.setattr(Plant, "fails", "")
    done = musbo.resume(tmp_path / "run", task=plant)
    batch = stored(tmp_path / "run", done.summary.deployments[0].batch.artefact)
    assert len(batch) == 1000 and np.isfinite(batch.obs).all() and np.isfinite(batch.reward).all()
    assert done.summary.deployments[0].batch.episodes == 100


def stored(run: Path, artefact: str) -> Batch:
    return batch_from_bytes((run / "store" / artefact).read_bytes())


def test_an_episode_that_was_over_before_the_failure_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Task
):
    """One lane of 19 steps: an episode and the beginning of the next, which fails in its step 7."""
    monkeypatch.setattr(Plant, "fails", "raises")
    monkeypatch.setattr(Plant, "episodes", 54)  # the dry run takes five, the lane the next, and number 61 fails
    with pytest.raises(UserError, match="failed in step 7 of an episode.*10 of 19 transitions"):
        musbo.run(plant, **{**SETTINGS, "batch_size": 19}, out=tmp_path / "run")
    (shard,) = read_status(tmp_path / "run").shards
    kept = stored(tmp_path / "run", shard.artefact)
    assert kept.step.tolist() == list(range(10)) and kept.truncated.tolist() == [False] * 9 + [True]
    with Ledger(tmp_path / "run" / LEDGER) as ledger:
        assert isinstance(ledger.events()[-1].what, Failed)


def test_a_simulator_that_fails_in_the_evaluation_keeps_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Task
):
    monkeypatch.setattr(Plant, "fails", "raises")
    with pytest.raises(UserError, match="policy cannot be measured: the simulator of task plant failed in step 7"):
        musbo.run(plant, **{**SETTINGS, "batch_size": 500, "episodes": 30}, out=tmp_path / "run")
    assert sorted(read_status(tmp_path / "run").trained) == [1]
    monkeypatch.setattr(Plant, "fails", "")
    assert musbo.resume(tmp_path / "run", task=plant).final_return is not None


# Tasks of one's own


def reward(obs: Any, act: Any, next_obs: Any) -> Any:
    return -jnp.sum(next_obs**2)


def built_in(**changes: Any) -> Task:
    return replace(pointmass, name="own", **changes)


def raising(*rows: Any) -> Any:
    raise KeyError("speed")


SIMULATOR = pointmass.simulator
assert isinstance(SIMULATOR, BuiltIn)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward": lambda o, a, n: n}, "reward of task own must return one float .* shape .4,. and type float32"),
        ({"reward": lambda o, a, n: jnp.int32(1)}, "reward of task own must return one float"),
        ({"reward": lambda o, a, n: None}, "reward of task own must return one float .* returns a NoneType"),
        ({"reward": lambda o, a, n: 1.0 if o[0] > 0 else 0.0}, "reward of task own is Python .* jnp.where"),
        ({"reward": lambda o, a, n: np.sum(np.asarray(o))}, "reward of task own is Python or NumPy"),
        ({"reward": lambda o, a, n: jnp.sum(o + a)}, "reward of task own failed on an example: .*4 observations and 2"),
        ({"reward": raising}, "reward of task own failed on an example: KeyError"),
        ({"reward": lambda o, a, n: sys.exit(7)}, "reward of task own failed on an example: SystemExit: 7"),
        ({"terminated": lambda n: n[0]}, "terminated of task own must return true or false"),
        ({"terminated": raising}, "terminated of task own failed on an example: KeyError"),
        ({"initial": lambda key: jnp.zeros(3)}, "initial of task own must return 4 floats"),
        ({"obs_size": 3, "obs_names": (), "obs_units": ()}, "of task own"),
        (
            {"simulator": replace(SIMULATOR, observe=lambda s: s[:2])},
            "the simulator's observe of task own must return 4",
        ),
        ({"simulator": replace(SIMULATOR, reset=raising)}, "the simulator's observe of task own failed"),
        ({"simulator": replace(SIMULATOR, step=lambda s, a: (s, s))}, "the simulator's step .* of task own failed"),
    ],
)
def test_a_dry_run_says_what_is_wrong_with_a_task_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], words: str
):
    with pytest.raises(UserError, match=words):
        musbo.run(built_in(**changes), **SETTINGS, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_sound_task_passes(plant: Task):
    dry_run(built_in())
    dry_run(plant)
    assert values_of(plant) == ()
    values = values_of(built_in(reward=reward, terminated=lambda n: n[0] > 0))
    assert len(values) == 16 and set(values[8:]) == {0.0, 1.0}
    random = np.random.default_rng(0).normal(size=(2, 8, 4))
    np.testing.assert_allclose(values[:8], -np.sum(random[1] ** 2, axis=1), rtol=1e-5)
    np.testing.assert_array_equal(values[8:], random[1][:, 0] > 0)


def test_a_first_step_that_fails_is_a_failure_of_the_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Task
):
    monkeypatch.setattr(Plant, "fails", "raises")
    monkeypatch.setattr(Plant, "at", 2)
    monkeypatch.setattr(Plant, "episodes", 100)
    with pytest.raises(UserError, match="failed in step 2 of an episode: it raised RuntimeError.*nothing was written"):
        musbo.run(plant, **SETTINGS, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["import sys; sys.exit(7)", "def TASK(): import sys; sys.exit(7)", "TASK = 3", "1/0"])
def test_a_file_that_cannot_be_loaded_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str):
    (tmp_path / "own.py").write_text(text)
    assert main(["run", f"{tmp_path}/own.py:TASK", "--out", str(tmp_path / "run")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_reward_that_changed_is_refused(tmp_path: Path):
    settings = campaign(built_in(reward=reward), "random", "quick", 0, 1, 100, 1)
    folders.create(tmp_path / "run", settings, given=built_in(reward=reward))
    other = built_in(reward=lambda o, a, n: 2.0 * reward(o, a, n))
    with pytest.raises(UserError, match="gives other values than when this run began"):
        runner.advance(tmp_path / "run", given=other)
    with pytest.raises(UserError, match="is not what this run began with"):
        runner.advance(tmp_path / "run", given=built_in(reward=reward, terminated=lambda n: n[0] > 9))
    same = built_in(reward=lambda o, a, n: reward(o, a, n) * 1.000001)  # another machine
    runner.advance(tmp_path / "run", given=same)


def test_values_are_compared_where_they_were_numbers():
    assert same_values((1.0, float("nan")), (1.00001, 3.0))
    assert not same_values((1.0, 2.0), (1.0, 2.1))
    assert not same_values((1.0,), (1.0, 2.0))
    assert not same_values((1.0,), (float("nan"),))


def test_a_reward_that_is_no_number_stops_the_run_before_the_training(tmp_path: Path):
    """On what was collected, though not in the dry run, whose point stays below 1."""
    odd = built_in(reward=lambda o, a, n: jnp.log(n[0] + 10.0) + jnp.where(n[1] > 1.0, jnp.nan, 0.0))
    method = musbo.recipe("musbo", "quick", "pointmass")
    with pytest.raises(UserError, match="reward function of task own gives nan in .* transitions, first for"):
        musbo.run(odd, **{**SETTINGS, "algo": "musbo", "batch_size": 200}, method=method, out=tmp_path / "run")
    assert read_status(tmp_path / "run").deployed == 1
    mended = built_in(reward=lambda o, a, n: jnp.log(n[0] + 10.0))
    with pytest.raises(runner.Interrupted):  # it goes on with what it has
        runner.noted.set()
        try:
            musbo.resume(tmp_path / "run", task=mended)
        finally:
            runner.noted.clear()


# Data


def test_observations_too_large_to_be_squared_are_refused(tmp_path: Path):
    batch = awkward("one episode")
    batch.obs[3, 1] = 1e16
    with pytest.raises(UserError, match=r"obs_1 is larger than 1e\+15 in row 3"):
        musbo.run("pointmass", algo="bc", preset="quick", budget=1, data=[batch], out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_batch_of_one_row_is_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    batch = awkward("terminations everywhere")
    one = Batch(*(getattr(batch, name)[:1] for name in Batch.__dataclass_fields__))
    write_batch(tmp_path / "one.parquet", one)
    words = [
        "run",
        "pointmass",
        "--budget",
        "1",
        "--data",
        str(tmp_path / "one.parquet"),
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(words) == 2
    assert "has one transition" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# Standard output


NOISY = """
import ctypes
from musbo.tasks.builtin import pointmass
def TASK():
    print("hello from Python")
    ctypes.CDLL(None).puts(b"hello from C")
    return pointmass
"""


def test_what_a_task_prints_does_not_reach_the_json(tmp_path: Path):
    (tmp_path / "noisy.py").write_text(NOISY)
    words = ["run", "noisy.py:TASK", "--algo", "random", "--budget", "1", "--batch-size", "100", "--episodes", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "musbo", *words, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["finished"] is True
    assert "hello from Python" in done.stderr and "hello from C" in done.stderr
