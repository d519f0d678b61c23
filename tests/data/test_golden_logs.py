"""Logs that were written by an older version's rules say the same as they did: of each kind of file one.

`tests/golden/make_logs.py` made the CSV with its mapping and the npz, `tests/golden/make_sets.py` the HDF5 file and the
dataset of Minari.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import musbo

GOLDEN = Path(__file__).parents[1] / "golden" / "logs-v1"
SETS = Path(__file__).parents[1] / "golden" / "sets-v1"
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


SAID = {
    "obs": [[0, 1], [0.5, -1], [1, 0.25], [-2, 3], [4, -8]],
    "act": [[0.5], [-1], [0.25], [1], [0]],
    "reward": [1, -0.5, 0.125, 2, -4],
    "next_obs": [[0.5, -1], [1, 0.25], [1.5, 0.75], [4, -8], [16, 32]],
    "terminated": [False, False, True, False, False],
    "truncated": [False, False, False, False, True],
    "episode": [0, 0, 0, 1, 1],
    "step": [0, 1, 2, 0, 1],
}


def test_the_golden_hdf5():
    """As D4RL's files are: nobody says who chose the actions."""
    read = musbo.read_batch(SETS / "logs.hdf5")
    assert {name: np.asarray(values).tolist() for name, values in asdict(read).items()} == {**SAID, "by": [-4] * 5}


@pytest.mark.filterwarnings("ignore")
def test_the_golden_dataset_of_minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(SETS / "minari", tmp_path / "minari")  # Minari may write there
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    read = musbo.read_batch("minari:golden/mill-v0")
    wanted = {**SAID, "by": [0, 0, -1, -2, -3]}
    assert {name: np.asarray(values).tolist() for name, values in asdict(read).items()} == wanted
