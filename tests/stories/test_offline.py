"""Pure offline: a batch that a user has becomes a policy, and no simulator is asked for."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import musbo
from musbo.campaign.folders import STORE, open_settings, read_status
from musbo.campaign.settings import task_in
from musbo.campaign.store import Store
from musbo.cli import main
from musbo.core import serial
from musbo.data.dataset import split
from musbo.data.files import batch_from_bytes
from musbo.field.find import find_task
from musbo.models import dynamics
from musbo.models.mlp import member
from musbo.tasks.builtin import pointmass
from tests.stories import tiny

# As a user would write it: the reward and the end of an episode are learned from the logs.
TASK = """
import musbo

CART = musbo.Task(
    name="cart", obs_size=4, act_size=2, act_low=(-1.0, -1.0), act_high=(1.0, 1.0), episode_steps=20,
    reward="learned", terminated="learned",
)
"""


def logs(seed: int = 0) -> pa.Table:
    """A table as any program might have written it: flat columns, no episode numbers."""
    rng = np.random.default_rng(seed)
    assert isinstance(pointmass.simulator, musbo.BuiltIn)
    step = pointmass.simulator.step
    rows: dict[str, list] = {}
    for episode in range(5):
        state = np.concatenate([rng.uniform(-1, 1, 2), np.zeros(2)]).astype(np.float32)
        for t in range(20):
            act = rng.uniform(-1, 1, 2).astype(np.float32)
            after, reward = (np.asarray(part) for part in step(jnp.asarray(state), jnp.asarray(act)))
            row = {f"obs_{i}": x for i, x in enumerate(state)} | {f"act_{i}": x for i, x in enumerate(act)}
            row |= {f"next_obs_{i}": x for i, x in enumerate(after)} | {"reward": float(reward)}
            row |= {"terminated": t == 19 and episode == 0, "truncated": t == 19 and episode > 0}
            for name, value in row.items():
                rows.setdefault(name, []).append(value)
            state = after
    return pa.table(rows)


def replayed(folder: Path, steps: int) -> float:
    """Squared error of the first member, in units of the batch, along the actions of the one held-out episode."""
    status, store = read_status(folder), Store(folder / STORE)
    state = serial.decode(store.get(status.trained[1].state))
    batch = batch_from_bytes(store.get(status.collected[1].artefact))
    (episode,) = set(batch.episode[split(batch, 0, 1)])
    rows = np.flatnonzero(batch.episode == episode)[:steps]
    task, M = find_task(task_in(folder, open_settings(folder).task)), state.dynamics
    obs, errors = jnp.asarray(batch.obs[rows[0]]), []
    for row in rows:
        obs, _, _ = dynamics.step(task, member(M.members, jnp.asarray(0)), M.scaling, obs, jnp.asarray(batch.act[row]))
        errors.append((np.asarray(obs) - batch.next_obs[row]) / batch.obs.astype(float).std(0))
    return float(np.mean(np.square(errors)))


def test_a_batch_becomes_a_policy(tmp_path, capsys):
    (tmp_path / "own.py").write_text(TASK)
    pq.write_table(logs(), tmp_path / "logs.parquet")
    words = ["run", f"{tmp_path}/own.py:CART", "--data", str(tmp_path / "logs.parquet"), "--budget", "1"]
    assert main([*words, "--preset", "quick", *tiny.METHOD, "--out", str(tmp_path / "run"), "--json"]) == 0
    out, progress = capsys.readouterr()
    result = json.loads(out)
    assert (result["transitions"], result["returns"], result["final_return"]) == (100, [None], None)
    assert "not evaluated: task cart has no simulator" in progress
    assert musbo.load_policy(tmp_path / "run")(np.zeros(4)).shape == (2,)
    assert (tmp_path / "run" / "curve.svg").is_file()
    assert main(["status", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    found = {each["name"]: each for each in result["deployments"][0]["training"]["findings"]["diagnostics"]}
    assert found["learned_reward_apart"]["value"] > 0 and "learned_reward_correlation" in found
    assert found["learned_ends_seen"]["value"] in (None, 0, 1) and 0 <= found["learned_ends_early"]["value"] <= 1
    judged = result["deployments"][0]["evaluation"]["agreement"]
    assert judged["trajectory_error"] == pytest.approx(
        replayed(tmp_path / "run", int(judged["imagined_steps"])), rel=1e-3
    )
    assert judged["real_steps"] == 20 and judged["energy_distance"] > 0
    assert main(["report", str(tmp_path / "run"), "--trust-task"]) == 0
    text = (tmp_path / "run" / "report" / "index.html").read_text()
    assert "1 deployment of 100 transitions, data for 1 brought" in text and "-1x100" in text
    assert "No pictures: " in text and "has no simulator" in text and 'id="figure-trajectory-error-' in text
    capsys.readouterr()
    pq.write_table(logs(seed=1), tmp_path / "logs.parquet")
    assert main([*words, "--preset", "quick", *tiny.METHOD, "--seed", "1", "--out", str(tmp_path / "other")]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run"), str(tmp_path / "other"), "--out", str(tmp_path / "both")]) == 2
    error = capsys.readouterr().err
    assert "the batches brought (" in error and "so the runs cannot be averaged" in error
    for command in ("evaluate", "play"):
        assert main([command, str(tmp_path / "run"), "--trust-task"]) == 2
        assert "has no simulator" in capsys.readouterr().err
