"""Makes the golden files that other packages write: `python -m tests.golden.make_sets`.

`sets-v1/logs.hdf5` by h5py as D4RL does, and `sets-v1/minari/` by Minari through `musbo.data.to_minari`. What they say
is in `tests/data/test_golden_logs.py`. They are never made again: newer versions have to read them.
"""

import os
from pathlib import Path

import h5py
import numpy as np

import musbo

PLACE = Path(__file__).parent / "sets-v1"
NAME = "golden/mill-v0"


def main() -> None:
    if PLACE.exists():
        raise SystemExit(f"{PLACE} is there: a golden file is never made again")
    PLACE.mkdir()
    obs = np.array([[0, 1], [0.5, -1], [1, 0.25], [-2, 3], [4, -8]], np.float32)
    arrays = {
        "observations": obs,
        "actions": np.array([[0.5], [-1], [0.25], [1], [0]], np.float32),
        "rewards": np.array([1, -0.5, 0.125, 2, -4], np.float32),
        "next_observations": np.array([[0.5, -1], [1, 0.25], [1.5, 0.75], [4, -8], [16, 32]], np.float32),
        "terminals": np.array([False, False, True, False, False]),
        "timeouts": np.array([False, False, False, False, True]),
    }
    with h5py.File(PLACE / "logs.hdf5", "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, compression="gzip", shuffle=True)
        file["metadata/algorithm"] = "SAC"  # beside the numbers, as in the files of D4RL
    os.environ["MINARI_DATASETS_PATH"] = str(PLACE / "minari")
    names = ("obs", "act", "reward", "next_obs", "terminated", "truncated")
    batch = musbo.make_batch(**dict(zip(names, arrays.values(), strict=True)), by=[0, 0, -1, -2, -3])
    task = musbo.Task("mill", 2, 1, (-1.0,), (1.0,), 3, reward="learned")
    musbo.data.to_minari(batch, NAME, task)


if __name__ == "__main__":
    main()
