"""What `fast` is worth beside three times its operations: the finished runs of three-times.toml.

    python benchmarks/fast-preset/three_times.py STUDY

STUDY is the directory of the study. Its runs go into three-times.csv, beside those that are there already and that it
lacks, so that the seeds may be run at different times; the result goes into README.md, between its marks.
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

from musbo.reporting import statistics
from musbo.reporting.gather import gather

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]

SEEDS = range(74, 79)
SINGLE, TRIPLE = "musbo", "musbo-three-times"


def ratio(x: statistics.Tasks, y: statistics.Tasks) -> np.ndarray:
    return statistics.mean(x) / statistics.mean(y)


def told(found: dict[tuple[str, int], list[float]]) -> list[str]:
    """The table, and what the seeds that have both say."""
    lines = ["| seed | `fast`, per deployment | three times, per deployment |", "|---|---|---|"]
    for seed in SEEDS:
        each = [" ".join(f"{value:.0f}" for value in found.get((name, seed), [])) or "-" for name in (SINGLE, TRIPLE)]
        lines.append(f"| {seed} | {each[0]} | {each[1]} |")
    both = [seed for seed in SEEDS if (SINGLE, seed) in found and (TRIPLE, seed) in found]
    if len(both) < 2:
        return lines
    single, triple = (np.array([[found[name, seed][-1]] for seed in both]) for name in (SINGLE, TRIPLE))
    part = statistics.interval(ratio, single, triple, seed=0)
    apart = statistics.paired_difference(single, triple, seed=0)
    means = [f"{some.mean():.0f} ± {some.std(ddof=1):.0f}" for some in (single, triple)]
    return [
        *lines,
        "",
        f"On the {len(both)} seeds that have both, the final return is {means[0]} with `fast`, {means[1]} with three",
        f"times the operations (mean ± deviation between seeds): {part.value:.0%} of it, with a 95 % interval of",
        f"{part.low:.0%} to {part.high:.0%}. The difference, seed by seed, is {apart.value:+.0f} ({apart.low:+.0f} to "
        f"{apart.high:+.0f}).",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    file = HERE / "three-times.csv"
    found: dict[tuple[str, int], list[float]] = {}
    if file.exists():
        with file.open() as stream:
            for row in csv.DictReader(stream):
                found[row["method"], int(row["seed"])] = [float(value) for value in row["returns"].split()]
    for run in gather([parser.parse_args().study]).runs:
        if run.finished:
            found[run.method, run.seed] = [value for value in run.summary.returns if value is not None]
    with file.open("w", newline="") as stream:
        out = csv.writer(stream, lineterminator="\n")
        out.writerow(["method", "seed", "returns"])
        for (method, seed), returns in sorted(found.items()):
            out.writerow([method, seed, " ".join(f"{value:.1f}" for value in returns)])
    between(HERE / "README.md", "three times", told(found))


if __name__ == "__main__":
    main()
