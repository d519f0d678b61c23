"""The novelty of every batch on cheetah-run beside the paper's published numbers.

    python benchmarks/novelty/table.py STUDY

STUDY is one of `musbo study novelty-fast`, finished or not. Writes results.csv and the tables of README.md.
"""

import argparse
import csv
import sys
from pathlib import Path

from musbo.campaign.summary import Deployment, Summary
from musbo.core.diagnostics import Quantiles
from musbo.reporting.gather import gather

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]

METHODS = ["musbo", "bremen", "musbo-constant-noise"]
SEEDS = [200, 201, 202]
PAPER = {"musbo": [0.995, 0.959, 0.945, 0.941], "bremen": [0.972, 0.903, 0.891, 0.858]}
"""Its table of novelty: deployments 2 to 5."""
Rows = dict[tuple[str, int], dict[str, list[str]]]


def course(values: list[float | None], digits: int) -> list[str]:
    return ["-" if value is None else f"{value:.{digits}f}" for value in values]


def of_batch(item: Deployment, name: str) -> float | None:
    """A diagnostic of the batch; of quantiles, the median."""
    value = next((each.value for each in item.batch.findings.diagnostics if each.name == name), None)
    if isinstance(value, Quantiles):
        return value.median
    return value if isinstance(value, float) else None


def row(summary: Summary) -> dict[str, list[str]]:
    """Novelty and noise from the second batch on: the first is random for all."""
    later = summary.deployments[1:]
    return {
        "novelty": course([item.batch.novelty for item in later], 3),
        "zeta": course([of_batch(item, "zeta") for item in later], 2),
        "at_cap": course([of_batch(item, "zeta_at_cap") for item in later], 2),
        "returns": course(list(summary.returns), 0),
    }


def told(rows: Rows) -> list[str]:
    lines = ["| method | seed | 2 | 3 | 4 | 5 | return after each deployment |", "|---|---|---|---|---|---|---|"]
    for name in METHODS:
        if name in PAPER:
            lines.append(f"| {name} | *paper* | " + " | ".join(f"*{value:.3f}*" for value in PAPER[name]) + " | |")
        for seed in SEEDS:
            if (name, seed) in rows:
                of = rows[name, seed]
                lines.append(f"| {name} | {seed} | {' | '.join(of['novelty'])} | {' '.join(of['returns'])} |")
    missing = [f"{name} {seed}" for name in METHODS for seed in SEEDS if (name, seed) not in rows]
    return [*lines, "", f"Not run yet: {', '.join(missing)}."] if missing else lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    runs = gather([parser.parse_args().study]).runs
    rows: Rows = {(run.method, run.seed): row(run.summary) for run in runs if run.finished}
    with (HERE / "results.csv").open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["algo", "seed", "novelty", "zeta_median", "zeta_at_cap", "returns"])
        for (name, seed), of in sorted(rows.items()):
            writer.writerow([name, seed, *(" ".join(values) for values in of.values())])
    between(HERE / "README.md", "novelty", told(rows))


if __name__ == "__main__":
    main()
