"""One run from the command line, and everything that can be asked of it afterwards."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from musbo.campaign.folders import open_settings
from musbo.campaign.measure import evaluation_seed
from musbo.campaign.results import final_policy
from musbo.cli import main
from musbo.core import serial
from musbo.data.files import read_batch
from musbo.field.find import find_task
from musbo.field.simulate import rollouts
from tests.stories import tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stories") / "run"


@pytest.fixture
def finished(run: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The run, made by the first test that needs it."""
    if not run.exists():
        assert main(["run", "pointmass", *tiny.FLAGS, "--out", str(run)]) == 0
        capsys.readouterr()
    return run


def test_run_json_prints_one_object_and_nothing_else(run, capsys):
    assert main(["run", "pointmass", "--json", *tiny.FLAGS, "--out", str(run), "--seed", "0"]) == 0
    out, progress = capsys.readouterr()
    result = json.loads(out)
    assert out.count("\n") == 1
    expected = "task algorithm preset seed budget batch_size deployed transitions returns final_return policy_sha256"
    assert set(expected.split()) <= set(result)
    assert (result["task"], result["algorithm"], result["preset"], result["seed"]) == ("pointmass", "musbo", "quick", 0)
    assert (result["budget"], result["deployed"], result["transitions"]) == (2, 2, 200)
    assert len(result["returns"]) == 2 and result["final_return"] == result["returns"][-1] < 0
    assert serial.sha256((run / "policy.safetensors").read_bytes()) == result["policy_sha256"]
    assert {"musbo", "python", "jax"} <= set(result["versions"])
    assert re.fullmatch(r"0\.\d+\.\d+ \(source [0-9a-f]{12}\)", result["versions"]["musbo"])
    # Off a terminal: one line per stage and per deployment.
    for word in ("deployment 1 of 2", "collected", "dynamics", "labeler", "start", "improve", "trained", "return"):
        assert word in progress
    assert "\x1b" not in progress
    assert "the coefficient is inert (range" in progress  # tiny models agree with each other


def test_at_a_terminal_a_run_ends_with_its_page(finished, capsys, monkeypatch):
    """And elsewhere with the command that writes it: scripts do not wait for figures."""
    assert main(["resume", str(finished)]) == 0
    assert "a page about it: musbo report" in capsys.readouterr().out
    assert not (finished / "report").exists()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["resume", str(finished)]) == 0
    page = finished / "report" / "index.html"
    assert f"a page about it: {page}" in capsys.readouterr().out and page.is_file()
    shutil.rmtree(page.parent)


def test_what_lies_in_the_folder(finished):
    names = {path.name for path in finished.iterdir()}
    assert {"settings.json", "summary.json", "metrics.parquet", "metrics.jsonl", "policy.safetensors"} <= names
    assert {"curve.svg", "curve.png", "data"} <= names
    assert {path.name for path in (finished / "data").iterdir()} == {"deployment-1.parquet", "deployment-2.parquet"}


def test_diagnostics_of_every_deployment(finished):
    """Novelty against all pairs of the batches that lie there; the others are there and are numbers."""
    first, second = (read_batch(finished / "data" / f"deployment-{d}.parquet").obs.astype(float) for d in (1, 2))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second)]
    found = json.loads((finished / "summary.json").read_text())["deployments"]
    assert found[0]["batch"]["novelty"] is None
    assert found[1]["batch"]["novelty"] == pytest.approx(np.mean(1 - unit[1] @ unit[0].T), abs=1e-6)
    for item in found:
        agreement, stretch = item["evaluation"]["agreement"], item["evaluation"]["stretch"]
        assert agreement["energy_distance"] >= 0 and agreement["trajectory_error"] > 0
        # Models of so few rows may run away.
        assert 0 < agreement["imagined_steps"] <= agreement["real_steps"] == 50
        # Too few beginnings were held out to rate the policy in training: its courses in the evaluation stand for that.
        assert item["training"]["forecast"]["horizon"] is None and np.isfinite(agreement["imagined_return"])
        model_return = item["evaluation"]["episodes"]["model_return"]
        assert (stretch["total"], stretch["steps"]) == (pytest.approx(model_return), 50)
        found = {each["name"]: each["value"] for each in item["training"]["findings"]["diagnostics"]}
        assert -1 <= found["rank_correlation"] <= 1
        assert len(found["reliability"]["x"]) == len(found["reliability"]["y"]) == 10


def test_imagined_and_real_reward_are_of_the_same_steps(tmp_path):
    """Of 10 imagined steps from the task's beginnings, and the first 10 of the two episodes of the evaluation."""
    words = ["run", "pointmass", "--preset", "quick", *tiny.FLAGS, "--imagine.starts", "reset"]
    assert main([*words, "--out", str(tmp_path / "run"), "--json"]) == 0
    item = json.loads((tmp_path / "run" / "summary.json").read_text())["deployments"][-1]
    stretch = item["evaluation"]["stretch"]
    assert item["training"]["forecast"]["horizon"] == 10 and stretch["steps"] == 10
    settings, policy = open_settings(tmp_path / "run"), final_policy(tmp_path / "run")[0]
    episodes = rollouts(find_task("pointmass"), policy, 2, evaluation_seed(settings))
    rewards = episodes.reward.reshape(2, 50)[:, :10].sum(1)
    assert stretch["total"] == pytest.approx(rewards.mean(), rel=1e-5)


def test_resume_of_a_finished_run_shows_its_tables(finished, capsys):
    assert main(["resume", str(finished)]) == 0
    out, progress = capsys.readouterr()
    assert "batch return" in out and "U at" in out and "zeta at" in out
    assert "finished already" in progress


def test_status(finished, capsys):
    assert main(["status", str(finished)]) == 0
    out = capsys.readouterr().out
    assert "finished: 200 transitions in 2 deployments" in out
    assert "musbo resume" not in out
    assert main(["status", str(finished), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["now"], found["next_step"]) == ("finished", "done")
    assert (found["budget"], found["deployed"], found["transitions"]) == (2, 2, 200)


def test_evaluate_repeats_what_the_run_measured(finished, capsys):
    returns = json.loads((finished / "summary.json").read_text())["returns"]
    for d, wanted in enumerate(returns, start=1):
        words = ["evaluate", str(finished), "--episodes", "2", "--deployment", str(d), "--json"]
        assert main(words) == 0
        assert json.loads(capsys.readouterr().out)["mean_return"] == wanted
    assert main(["evaluate", str(finished), "--episodes", "3", "--seed", "4"]) == 0
    assert "over 3 episodes" in capsys.readouterr().out


def test_play_writes_a_picture(finished, tmp_path, capsys):
    assert main(["play", str(finished), "--out", str(tmp_path / "film.gif"), "--steps", "5"]) == 0
    assert "6 frames" in capsys.readouterr().out
    assert (tmp_path / "film.gif").read_bytes()[:4] == b"GIF8"
    assert main(["play", str(finished), "--steps", "2"]) == 0
    assert (finished / "play.gif").is_file()


def test_lists(capsys):
    assert main(["tasks"]) == 0
    assert "pendulum" in capsys.readouterr().out
    assert main(["algos"]) == 0
    out = capsys.readouterr().out
    assert "musbo-collection" in out and "paper" in out


def test_help_of_run_says_what_was_derived_and_the_values_here(capsys):
    assert main(["run", "hopper", "--preset", "fast", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--imagine.horizon 1000: whole episodes" in out and len(out.splitlines()) <= 100
    assert "(disagreement) alpha auto" in out and "--help-all says what each does" in " ".join(out.split())


def test_help_of_run_shows_every_setting_with_its_symbol(capsys):
    assert main(["run", "hopper", "--algo", "me-trpo", "--preset", "paper", "--help-all"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for flag in ("--updates", "--dynamics.members", "--trpo.delta", "--imagine.horizon", "--explore.sigma", "--label"):
        assert flag in out
    for symbol in ("L: TRPO updates per deployment", "H: imagined steps", "B: transitions per deployment"):
        assert symbol in out
    assert "(default: 6000)" in out  # L of the paper on hopper
    assert "--label.alpha" not in out.partition("settings of me-trpo")[2]  # this method has no coefficient
