"""A policy that sees the past, from a simulator into the field and back, with every kind of method."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import musbo
from musbo.campaign.summary import read_status
from musbo.core.errors import UserError
from musbo.field.runtime import Runtime
from musbo.reporting.insight import doubts
from musbo.tasks.builtin import pointmass
from tests.stories import tiny

TASK = replace(pointmass, name="sluggish", history=2)
SEES = 4 + 2 * (4 + 2)
SMALL: dict[str, dict[str, Any]] = {
    "sac": {"steps": 20},
    "bcq": {"steps": 20},
    "mopo": {
        "steps": 20, "dynamics.epochs": 2, "dynamics.hidden": (16,), "dynamics.members": 2, "elites": 1,
        "decay": (0.0, 0.0), "branches": 50, "refresh": 20,
    },
    "uvg": {"steps": 20, "dynamics.epochs": 2, "dynamics.hidden": (16,), "dynamics.members": 2, "updates": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history") / "run"
    musbo.run(TASK, preset="quick", budget=2, batch_size=100, episodes=2, method=tiny.method(), out=folder)
    return folder


def test_a_run_collects_what_is_there_and_learns_from_the_past(run: Path):
    batch = musbo.read_batch(run / "data" / "deployment-2.parquet")
    assert batch.obs.shape == (100, 4) and musbo.load_policy(run).obs_size == SEES
    now = read_status(run)
    assert now.creation.task.history == 2 and now.evaluated[2].agreement is not None
    found = doubts(run)
    assert found is not None and found.typical.shape == (4,)


def test_out_to_the_field_and_back(run: Path, tmp_path: Path):
    """The runtime does what the policy does on the past that it assembled; the recording is data again."""
    made, policy = musbo.export(run), musbo.load_policy(run)
    random = np.random.default_rng(0)
    with Runtime(made.folder, fallback=[0, 0], record=tmp_path / "r.musbo", limits=None, explore=True, seed=0) as there:
        for _ in range(2):
            obs = past = random.uniform(-0.3, 0.3, 4).astype(np.float32)
            seen = np.concatenate([obs, obs, [0, 0], obs, [0, 0]])
            for _ in range(30):
                act = there.act(obs)
                assert act is not None and there.reason == ""
                mean = there._mind.policy(seen[None].astype(np.float32))[0]
                np.testing.assert_allclose(mean, policy(seen), atol=1e-5)
                past, obs = obs, (obs + random.normal(0, 0.02, 4)).astype(np.float32)
                seen = np.concatenate([obs, past, act, seen[4:10]])
            there.end(obs)
    result = musbo.run(
        TASK,
        preset="quick",
        budget=1,
        episodes=2,
        method=tiny.method(),
        data=[tmp_path / "r.musbo"],
        out=tmp_path / "b",
    )
    assert result.policy.obs_size == SEES and result.final_return is not None


def test_another_history_is_another_task(run: Path, tmp_path: Path):
    shutil.copytree(run, tmp_path / "run")
    with pytest.raises(UserError, match="is not what this run began with"):
        musbo.resume(tmp_path / "run", task=replace(TASK, history=3))


@pytest.mark.parametrize("algo", SMALL)
def test_every_method_sees_the_past(tmp_path: Path, algo: str):
    """Two deployments, so that what collects the second one was learned; the bundle acts as the policy does."""
    result = musbo.run(
        TASK,
        algo=algo,
        preset="quick",
        budget=2,
        batch_size=100,
        episodes=1,
        settings=SMALL[algo],
        out=tmp_path / "run",
    )
    made, obs = musbo.export(tmp_path / "run"), np.array([0.1, -0.1, 0.0, 0.0], np.float32)
    there = Runtime(made.folder, fallback=[0, 0])
    act = there.act(obs)
    assert act is not None
    np.testing.assert_allclose(act, result.policy(np.concatenate([obs, obs, [0, 0], obs, [0, 0]])), atol=1e-4)
