"""Logs that were written by an older version's rules say the same as they did: a CSV with its mapping, and an npz."""

import json
from pathlib import Path

import numpy as np
import pytest

import musbo

GOLDEN = Path(__file__).parents[1] / "golden" / "logs-v1"
NAMES = {
    "obs": "observations", "act": "actions", "reward": "rewards", "next_obs": "next_observations",
    "terminated": "terminals", "truncated": "timeouts", "episode": "episodes",
}  # fmt: skip


@pytest.mark.parametrize(("file", "mapping"), [("plant.csv", "mapping.toml"), ("logs.npz", None)])
def test_golden_logs(file: str, mapping: str | None):
    said = json.loads((GOLDEN / "said.json").read_text())
    logs = musbo.data.read_logs(GOLDEN / file, None if mapping is None else GOLDEN / mapping)
    for ours, name in NAMES.items():
        values = getattr(logs.batch, ours)
        np.testing.assert_allclose(values, np.array(said[name]), rtol=1e-6, atol=1e-7, err_msg=ours)
    assert logs.machines == (("mill-0", "mill-1") if mapping else ())
    if logs.resampled is not None:
        assert (logs.resampled.steps, logs.resampled.conflicts, logs.gaps) == (24, 0, 0)
