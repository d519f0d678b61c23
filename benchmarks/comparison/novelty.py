"""Novelty of every batch of the runs of a study, from the batches themselves.

    python benchmarks/comparison/novelty.py STUDY... > novelty.csv

A run records the novelty of its batches while it collects them. Here it is computed again from the stored data, so that
runs from before it was recorded have it too.
"""

import csv
import sys
from pathlib import Path

import numpy as np

from musbo.data.files import read_batch
from musbo.learning.foresight import novelty
from musbo.report.gather import gather


def main() -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["task", "method", "seed", "deployment", "novelty"])
    for run in gather(map(Path, sys.argv[1:])).runs:
        earlier: list[np.ndarray] = []
        for item in run.summary["per_deployment"]:
            batch = read_batch(run.folder / "data" / f"deployment-{item['deployment']}.parquet")
            if earlier:
                value = novelty(batch.obs, np.concatenate(earlier))
                writer.writerow([run.task, run.method, run.seed, item["deployment"], f"{value:.6f}"])
            earlier.append(batch.obs)


if __name__ == "__main__":
    main()
