"""How long does a campaign take, from start to its last table, and how much memory?

    python benchmarks/fast-preset/minutes.py OUT [--seed 10]

Runs `musbo run halfcheetah --preset fast --budget 5 --batch-size 50000` on all cores, in the new folder OUT/campaign,
measures the rate of matrix products before and after it, and adds what it found to minutes.json here. Nothing else
should be running.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
WIDTH = 1024


def matrix_rate() -> float:
    """GFLOP/s of float32 products in NumPy, the best of ten."""
    a = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32)
    times = []
    for _ in range(10):
        began = time.perf_counter()
        np.matmul(a, a)
        times.append(time.perf_counter() - began)
    return 2 * WIDTH**3 / min(times) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=10)
    options = parser.parse_args()
    out = options.out / "campaign"
    words = ["run", "halfcheetah", "--preset", "fast", "--budget", "5", "--batch-size", "50000", "--seed", options.seed]
    rates = [matrix_rate()]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "musbo", *map(str, words), "--out", str(out)], check=True)
    seconds = time.perf_counter() - began
    unit = 1 if sys.platform == "darwin" else 1024  # Linux counts in KiB, macOS in bytes
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    rates.append(matrix_rate())
    summary = json.loads((out / "summary.json").read_text())
    found = {
        "seed": options.seed,
        "cores": len(os.sched_getaffinity(0)),
        "matrix_gflops": [round(rate) for rate in rates],
        "seconds": round(seconds, 1),
        "peak_mb": round(peak / 1e6),
        "returns": [round(value, 1) for value in summary["returns"]],
        "versions": summary["versions"],
    }
    file = HERE / "minutes.json"
    every = [*json.loads(file.read_text()), found]
    file.write_text("[\n" + ",\n".join(map(json.dumps, every)) + "\n]\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
