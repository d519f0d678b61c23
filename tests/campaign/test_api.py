"""The package from Python: run, resume, evaluate, and the policy as a function of numpy arrays."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import musbo
from musbo.algorithms import recipes
from musbo.algorithms.model_free import ModelFree
from musbo.campaign.api import film
from musbo.campaign.events import Collected
from musbo.campaign.news import Completed, News
from musbo.campaign.settings import campaign, default_folder, task_name
from musbo.campaign.summary import summary
from musbo.core import serial
from musbo.field import simulate
from musbo.models.actor import uniform
from musbo.models.policy import Policy
from musbo.reporting.live import Lines
from musbo.tasks import builtin
from tests.stories import tiny

MINE = replace(builtin.pointmass, name="mine")  # an object that no name leads to
LOGS_ONLY = replace(builtin.pointmass, name="logs", simulator=None)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> musbo.Result:
    out = tmp_path_factory.mktemp("api") / "run"
    return musbo.run("pointmass", budget=1, batch_size=100, episodes=2, method=tiny.method(), out=out)


@pytest.fixture(scope="module")
def batch() -> musbo.Batch:
    (shard,) = simulate.collect(builtin.pointmass, uniform(builtin.pointmass), 100, seed=5)
    return shard.batch


def test_a_run_gives_a_policy_and_its_story(result):
    assert result.summary.finished and result.summary.settings.task == "pointmass"
    assert result.returns == (result.final_return,)
    assert (result.folder / "policy.safetensors").is_file()


def test_the_policy_takes_one_observation_or_rows(result):
    rows = np.random.default_rng(0).normal(size=(3, 4))
    acts = result.policy(rows)
    assert isinstance(acts, np.ndarray) and acts.shape == (3, 2) and acts.dtype == np.float32
    np.testing.assert_allclose(result.policy(rows[1].tolist()), acts[1], rtol=1e-5)
    assert np.abs(result.policy(rows * 1e6)).max() <= 1


def test_the_policy_is_the_formula(result):
    """mean = centre + half_range * tanh(mlp((s - m) / d)), worked out with numpy."""
    policy = result.policy.policy
    obs = np.array([0.3, -0.2, 0.1, 0.5], np.float32)
    x = (obs - np.asarray(policy.normaliser.mean)) / np.asarray(policy.normaliser.std)
    layers = list(zip(policy.mlp.weights, policy.mlp.biases, strict=True))
    for weight, bias in layers[:-1]:
        x = np.tanh(x @ np.asarray(weight) + np.asarray(bias))
    wanted = np.tanh(x @ np.asarray(layers[-1][0]) + np.asarray(layers[-1][1]))
    np.testing.assert_allclose(result.policy(obs), wanted, atol=1e-5)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 1, 4), ()])
def test_an_observation_of_the_wrong_shape_is_a_sentence(result, shape):
    with pytest.raises(musbo.UserError, match="observation of 4 numbers or rows of such"):
        result.policy(np.zeros(shape))


def test_the_policy_can_be_loaded_from_the_folder_or_the_file(result):
    obs = np.ones(4)
    for path in (result.folder, str(result.folder / "policy.safetensors")):
        np.testing.assert_array_equal(musbo.load_policy(path)(obs), result.policy(obs))


@pytest.mark.parametrize("algo", ["sac", "bcq", "brac", "bc", "random"])
def test_every_kind_of_policy_goes_through_a_campaign(algo, tmp_path):
    """Run, load from the file, call, evaluate again: with the numbers of the run."""
    method = recipes.recipe(algo, "quick", "pointmass")
    if isinstance(method, ModelFree):
        method = replace(method, steps=20)
    run = musbo.run("pointmass", algo=algo, budget=2, batch_size=100, episodes=2, method=method, out=tmp_path / "run")
    obs = np.ones((3, 4))
    loaded = musbo.load_policy(tmp_path / "run" / "policy.safetensors")
    np.testing.assert_array_equal(loaded(obs), run.policy(obs))
    assert (np.abs(loaded(obs)) <= 1).all()
    again = musbo.evaluate(tmp_path / "run")
    assert (len(again.episodes.returns), again.episodes.mean_return) == (2, run.final_return)


GOLDEN = Path(__file__).parents[1] / "golden"


def kept(old: Any, new: Any) -> bool:
    """Whether all that was said is still said, under the same names and with values of the same kind."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and kept(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and all(any(kept(one, other) for other in new) for one in old)
    return old is None or type(old) is type(new)


def test_what_a_run_leaves_for_other_programs_is_what_it_was(result):
    """`tests/golden/make_results.py` made the golden ones, of the same campaign."""
    old, new = (json.loads((folder / "summary.json").read_text()) for folder in (GOLDEN / "results-v1", result.folder))
    assert kept(old, new) and (old["task"], old["transitions"], old["finished"]) == ("pointmass", 100, True)
    (one,) = old["deployments"]
    assert (one["number"], one["batch"]["episodes"], one["batch"]["mean_length"]) == (1, 2, 50.0)
    assert not kept(old, {**new, "returns": None})
    lines = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (GOLDEN / "results-v1", result.folder)]
    old, new = ({row["stage"]: row for row in map(json.loads, each)} for each in lines)
    assert kept(old, new) and {"dynamics", "labeler", "start", "improve"} <= set(old)
    names = [pq.read_schema(folder / "metrics.parquet").names for folder in (GOLDEN / "results-v1", result.folder)]
    assert set(names[0]) <= set(names[1]) and {"deployment", "stage", "index", "error"} <= set(names[0])


def test_the_golden_policy():
    """`tests/golden/make_policy.py` made it; the actions by hand."""
    policy = musbo.load_policy(GOLDEN / "policy-v1.safetensors")
    x, y = (2 - 1) / 2, (0.5 + 1) / 0.5
    wanted = 3 + 2 * math.tanh(0.5 * math.tanh(x - y + 0.25) - 0.25 * math.tanh(x / 2 + 2 * y) + 0.125)
    at_mean = 3 + 2 * math.tanh(0.5 * math.tanh(0.25) + 0.125)
    np.testing.assert_allclose(policy(np.array([[2, 0.5], [1, -1]])), [[wanted], [at_mean]], rtol=1e-6)


def test_only_a_policy_is_loaded_as_one(result, tmp_path):
    serial.save(tmp_path / "other.safetensors", {"a": 1})
    with pytest.raises(musbo.UserError, match="not a policy"):
        musbo.load_policy(tmp_path / "other.safetensors")
    with pytest.raises(musbo.UserError, match="cannot read"):
        musbo.load_policy(tmp_path / "nothing.safetensors")


def test_evaluate_repeats_the_evaluation_of_the_run(result):
    again = musbo.evaluate(result.folder)
    assert (len(again.episodes.returns), again.episodes.mean_return) == (2, result.final_return)
    assert again.episodes.speed is None  # the point has no forward direction
    assert musbo.evaluate(result.folder, episodes=2, seed=9).episodes.mean_return != result.final_return
    with pytest.raises(musbo.UserError, match="seed must be at least 0"):
        musbo.evaluate(result.folder, seed=-1)


def test_a_task_object_runs_and_only_resumes_with_the_object(tmp_path):
    wanted = {"budget": 1, "batch_size": 100, "episodes": 2, "method": tiny.method(), "out": tmp_path / "run"}

    def give_up(news: News) -> None:
        if isinstance(news, Completed) and isinstance(news.what, Collected):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        musbo.run(MINE, observe=give_up, **wanted)
    with pytest.raises(musbo.UserError, match=r"musbo.resume\(folder, task=\.\.\.\), or name it with --task"):
        musbo.resume(tmp_path / "run")
    finished = musbo.resume(tmp_path / "run", task=MINE)
    assert finished.summary.settings.task == "<mine>"
    again = musbo.evaluate(tmp_path / "run", episodes=2, task="pointmass")
    assert again.episodes.mean_return == finished.final_return


def test_another_task_than_the_runs_is_refused(result):
    for visit in (musbo.evaluate, film):
        with pytest.raises(musbo.UserError, match="task pointmass is not what this run began with"):
            visit(result.folder, task="pendulum")


def test_what_is_odd_about_logs_is_said_and_kept(tmp_path):
    walk = np.cumsum(np.random.default_rng(0).normal(size=(21, 4)), axis=0)
    after = walk[1:].copy()
    after[6] += 0.5
    batch = musbo.make_batch(obs=walk[:-1], act=np.zeros((20, 2)) + 0.1, reward=np.zeros(20), next_obs=after,
                             terminated=np.zeros(20, bool), truncated=np.arange(20) % 10 == 9)  # fmt: skip
    said: list[str] = []
    watch = Lines(said.append)

    def until_collected(news: News) -> None:
        watch(news)
        if isinstance(news, Completed) and isinstance(news.what, Collected):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        musbo.run("pointmass", budget=1, data=[batch], out=tmp_path / "run", observe=until_collected)
    warnings = [line for line in said if line.startswith("  warning") and "episodes so far" not in line]
    assert "data[0]: next_obs differs from obs of the following row in row 6" in warnings[0]
    assert "act_0 is 0.1 in every row" in warnings[1] and len(warnings) == 3
    (brought,) = summary(tmp_path / "run").deployments
    assert len(brought.cautions) == 3


def test_a_batch_of_a_run_cannot_be_written_into(result):
    """It is a second name of what the run itself keeps."""
    for file in (result.folder / "data").iterdir():
        assert file.stat().st_mode & 0o222 == 0 and file.stat().st_nlink == 2


def test_a_task_of_ours_given_as_an_object_keeps_its_name(tmp_path):
    assert task_name(builtin.pointmass) == "pointmass"
    assert task_name(MINE) == "<mine>"
    assert task_name(replace(builtin.pointmass, episode_steps=7)) == "<pointmass>"


def test_a_batch_to_a_policy_without_any_simulator(tmp_path, batch):
    musbo.write_batch(tmp_path / "logs.parquet", batch)
    for number, data in enumerate((batch, tmp_path / "logs.parquet")):
        done = musbo.run(LOGS_ONLY, data=[data], budget=1, method=tiny.method(), out=tmp_path / f"run{number}")
        assert done.final_return is None and done.returns == (None,)
        assert done.policy(np.zeros(4)).shape == (2,)
    first, second = (musbo.load_policy(tmp_path / f"run{number}").policy for number in range(2))
    assert isinstance(first, Policy) and isinstance(second, Policy)
    assert (first.mlp.weights[0] == second.mlp.weights[0]).all()


def test_a_task_without_a_simulator_needs_all_its_data(tmp_path, batch):
    with pytest.raises(
        musbo.UserError, match="1 of 2 deployments would have to be collected here, but task logs has no simulator"
    ):
        musbo.run(LOGS_ONLY, data=[batch], budget=2, method=tiny.method(), out=tmp_path / "run")
    with pytest.raises(musbo.UserError, match="2 batches were given for a budget of 1"):
        musbo.run(LOGS_ONLY, data=[batch, batch], budget=1, method=tiny.method(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_default_folder_says_what_ran():
    assert default_folder(campaign("hopper", "bremen", seed=3)) == Path("runs/hopper-bremen-fast-s3")
    assert default_folder(campaign(MINE, preset="quick")) == Path("runs/mine-musbo-quick-s0")
    own = replace(campaign("hopper"), task="some/where/own.py:TASK")
    assert default_folder(own) == Path("runs/TASK-musbo-fast-s0")
    assert default_folder(own, "plant 2") == Path("runs/plant-2-musbo-fast-s0")  # the name that it gives itself


def test_every_public_name_is_there():
    for name in dir(musbo):
        assert getattr(musbo, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        musbo.nothing  # noqa: B018


def test_importing_the_package_imports_no_jax():
    code = "import sys, musbo; print('jax' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(Path(musbo.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "False"
