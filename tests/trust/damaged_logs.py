"""Logs that are damaged in a random way: read as some logs, since they carry no digest, or refused in one sentence.

    python -m tests.trust.damaged_logs WHOLE PLACE SEED FLIPS MANGLES NAME ...

reads damaged copies of the files of these names in WHOLE, in a process of its own, so that its memory is that of the
readers, and so that one that dies is noticed.
"""

import collections
import json
import random
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from musbo.core.errors import UserError
from musbo.data.files import read_logs
from musbo.data.mapping import read_mapping
from musbo.data.readers.choose import open_table
from musbo.data.skeleton import skeleton
from tests.trust.damage import flip, mangle, peak

MAPPING = """
obs = ["x", { column = "y", scale = 2.0 }]
act = ["u"]
reward = "r"
episode = "run"
time = "t"
gap = 100.0
"""


def make(folder: Path) -> None:
    """The same logs in every format, and a mapping for them."""
    rng = np.random.default_rng(0)
    n = 600
    columns = {
        "run": np.arange(n) // 50,
        "t": np.arange(n) % 50 * 0.5,
        "x": rng.normal(size=n),
        "y": rng.normal(size=n),
    }
    columns |= {"u": rng.uniform(-1, 1, n), "r": rng.normal(size=n)}
    (folder / "mapping.toml").write_text(MAPPING)
    lines = [
        ",".join(columns),
        *(",".join(f"{value:.6g}" for value in row) for row in zip(*columns.values(), strict=True)),
    ]
    (folder / "logs.csv").write_text("\n".join(lines))
    pq.write_table(pa.table(columns), folder / "logs.parquet")
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    np.savez_compressed(folder / "logs.npz", allow_pickle=False, **arrays)
    with h5py.File(folder / "logs.hdf5", "w") as file:
        for name, column in arrays.items():
            file.create_dataset(f"{name}", data=column, compression="gzip" if name in "xy" else None)


def outcome(path: Path, mapping: Path) -> str:
    try:
        if path.suffix == ".toml":
            return "read" if read_mapping(path) else "nothing"
        logs = read_logs(path, mapping)
        skeleton(open_table(path))
        return "read" if len(logs) <= logs.rows else "MORE"
    except UserError as error:
        return "refused" if str(error).strip() else "EMPTY"
    except Exception as error:
        return f"TRACEBACK {type(error).__name__}: {error}"


def main(whole: str, place: str, seed: str, flips: str, mangles: str, *names: str) -> None:
    """A line of JSON for every file and kind of damage."""
    mapping = Path(whole) / "mapping.toml"
    for name in names:
        data = (Path(whole) / name).read_bytes()
        assert outcome(Path(whole) / name, mapping) == "read"
        for hurt, count in ((flip, int(flips)), (mangle, int(mangles))):
            found: collections.Counter[str] = collections.Counter()
            slowest = 0.0
            for number in range(count):
                path = Path(place) / name
                path.write_bytes(hurt(data, random.Random(f"{name} {seed} {number}")))
                began = time.monotonic()
                found[outcome(path, mapping)] += 1
                slowest = max(slowest, time.monotonic() - began)
            row = {"name": name, "hurt": hurt.__name__, "found": found, "slowest": slowest, "peak": peak()}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
