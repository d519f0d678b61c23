"""The returns of a few runs as data, and as a table of README.md (one-batch) or docs/log/methods.md (the others).

    python benchmarks/methods/returns.py NAME STUDY ...

NAME is the name of the CSV file and of the table's marks. Runs that are there already and not in these studies stay.
"""

import argparse
import csv
import sys
from pathlib import Path

from musbo.reporting.gather import gather

HERE = Path(__file__).parent
LOG = HERE.parents[1] / "docs" / "log" / "methods.md"
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]

COLUMNS = ["algo", "deployments", "batch", "steps", "seed", "minutes", "cores", "returns"]
SHOWN = 8
"""Returns that the table has of a run, spread evenly and with the last; the file has all."""


def told(rows: list[dict[str, str]]) -> list[str]:
    lines = ["| method | budget | gradient steps in each | seed | returns | |", "|---|---|---|---|---|---|"]
    for row in rows:
        returns = [f"{float(value):.0f}" for value in row["returns"].split()]
        stride = -(-len(returns) // SHOWN)
        some = returns[::-1][::stride][::-1]
        which = f"every {stride}th" if stride > 1 else ""
        budget = f"{row['deployments']} x {int(row['batch']):,}"
        lines.append(f"| {row['algo']} | {budget} | {row['steps']} | {row['seed']} | {' '.join(some)} | {which} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("studies", type=Path, nargs="+", metavar="STUDY")
    asked = parser.parse_args()
    file = HERE / f"{asked.name}.csv"
    rows = list(csv.DictReader(file.open())) if file.exists() else []
    found = {tuple(row[name] for name in ("algo", "deployments", "batch", "seed")): row for row in rows}
    for run in gather(asked.studies).runs:
        if run.finished:
            key = run.method, str(run.group.budget), str(run.group.batch_size), str(run.seed)
            steps = str(getattr(run.settings.method, "steps", ""))
            minutes, cores = f"{run.summary.seconds / 60:.1f}", run.summary.versions["cores"]
            returns = " ".join(f"{value:.1f}" for value in run.summary.returns)
            values = (*key[:3], steps, key[3], minutes, cores, returns)
            found[key] = dict(zip(COLUMNS, values, strict=True))
    rows = [found[key] for key in sorted(found, key=lambda key: (key[0], int(key[1]), int(key[3])))]
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    page = HERE / "README.md" if asked.name == "one-batch" else LOG
    between(page, asked.name, told(rows))


if __name__ == "__main__":
    main()
