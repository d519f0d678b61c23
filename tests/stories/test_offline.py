"""Pure offline: a batch that a user has becomes a policy, and no simulator is asked for."""

import json

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import musbo
from musbo.cli import main
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


def logs() -> pa.Table:
    """A table as any program might have written it: flat columns, no episode numbers."""
    rng = np.random.default_rng(0)
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


def test_a_batch_becomes_a_policy(tmp_path, capsys):
    (tmp_path / "own.py").write_text(TASK)
    pq.write_table(logs(), tmp_path / "logs.parquet")
    words = ["run", f"{tmp_path}/own.py:CART", "--data", str(tmp_path / "logs.parquet"), "--deployments", "1"]
    assert main([*words, "--preset", "quick", *tiny.METHOD, "--out", str(tmp_path / "run"), "--json"]) == 0
    out, progress = capsys.readouterr()
    result = json.loads(out)
    assert (result["transitions"], result["returns"], result["final_return"]) == (100, [None], None)
    assert "not evaluated: task cart has no simulator" in progress
    assert musbo.load_policy(tmp_path / "run")(np.zeros(4)).shape == (2,)
    assert (tmp_path / "run" / "curve.svg").is_file()
    assert main(["status", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    for command in ("evaluate", "play"):
        assert main([command, str(tmp_path / "run")]) == 2
        assert "has no simulator" in capsys.readouterr().err
