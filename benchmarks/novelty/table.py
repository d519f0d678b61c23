"""The novelty of every batch on cheetah-run beside the paper's published numbers.

    python benchmarks/novelty/table.py STUDY

STUDY is one of `musbo study novelty-fast` (or `novelty-paper`), finished or not. Writes results.csv and the table of
README.md; runs that are not in the study stay as they were in results.csv.
"""

import argparse
import csv
import statistics
import sys
from pathlib import Path

from musbo.report.gather import gather

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]

METHODS = ["musbo", "bremen", "musbo-constant-noise"]
SEEDS = [200, 201, 202]
PAPER = {"musbo": [0.995, 0.959, 0.945, 0.941], "bremen": [0.972, 0.903, 0.891, 0.858]}
"""Its table of novelty: deployments 2 to 5."""


def told(rows: dict[tuple[str, int], list[str]]) -> list[str]:
    lines = ["| method | seed | 2 | 3 | 4 | 5 |", "|---|---|---|---|---|---|"]
    for name in METHODS:
        if name in PAPER:
            lines.append(f"| {name} | *paper* | " + " | ".join(f"*{value:.3f}*" for value in PAPER[name]) + " |")
        mine = [[float(value) for value in rows[name, seed]] for seed in SEEDS if (name, seed) in rows]
        for seed in SEEDS:
            if (name, seed) in rows:
                lines.append(f"| {name} | {seed} | " + " | ".join(rows[name, seed]) + " |")
        if len(mine) > 1:
            means = (statistics.mean(values) for values in zip(*mine, strict=True))
            lines.append(f"| {name} | mean | " + " | ".join(f"**{value:.3f}**" for value in means) + " |")
    missing = [f"{name} {seed}" for name in METHODS for seed in SEEDS if (name, seed) not in rows]
    return [*lines, "", f"Missing: {', '.join(missing)}."] if missing else lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    file, rows = HERE / "results.csv", {}
    if file.exists():
        rows = {(row["algo"], int(row["seed"])): row["novelty"].split() for row in csv.DictReader(file.open())}
    for run in gather([parser.parse_args().study]).runs:
        if run.finished:
            batches = [item["batch"] for item in run.summary["per_deployment"][1:]]
            rows[run.method, run.seed] = [f"{batch['novelty']:.3f}" for batch in batches]
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["algo", "seed", "novelty"])
        writer.writerows([name, seed, " ".join(values)] for (name, seed), values in sorted(rows.items()))
    between(HERE / "README.md", "novelty", told(rows))


if __name__ == "__main__":
    main()
