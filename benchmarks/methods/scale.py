"""Every method once at scale: return per deployment, time and operations, from runs of halfcheetah, 5 x 50,000, `fast`.

    python benchmarks/methods/scale.py STUDY ...

The studies are those of ../comparison; of each method the run with the lowest seed is taken. Runs that are not there
stay as they were in scale.csv, so that the methods may be run at different times; docs/log/methods.md has the table.
"""

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

from musbo.algorithms.recipes import ALGORITHMS
from musbo.reporting.gather import gather

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]

COLUMNS = ["algo", "seed", "returns", "minutes", "cores", "tera_operations"]


def told(rows: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| method | seed | return after each deployment | time | cores | operations in all |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows.values():
        returns = " ".join(f"{float(value):.0f}" for value in row["returns"].split())
        whole = f"{row['minutes']} min | {row['cores']} | {row['tera_operations']} x 10^12"
        lines.append(f"| {row['algo']} | {row['seed']} | {returns} | {whole} |")
    missing = [name for name in ALGORITHMS if name not in rows]
    return [*lines, "", f"Missing: {', '.join(missing)}."] if missing else lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="+", metavar="STUDY")
    file, rows = HERE / "scale.csv", {}
    if file.exists():
        rows = {row["algo"]: row for row in csv.DictReader(file.open())}
    counted = {row["algo"]: row for row in csv.DictReader((HERE / "operations-halfcheetah-fast.csv").open())}
    found = [run for run in gather(parser.parse_args().studies).runs if run.finished and run.method in ALGORITHMS]
    found = [run for run in found if (run.task, run.group.budget, run.group.batch_size) == ("halfcheetah", 5, 50_000)]
    for run in sorted(found, key=lambda run: -run.seed):
        rows[run.method] = {
            "algo": run.method, "seed": run.seed, "returns": " ".join(f"{r:.1f}" for r in run.summary.returns),
            "minutes": f"{run.summary.seconds / 60:.1f}", "cores": run.summary.versions["cores"],
            "tera_operations": f"{5 * float(counted[run.method]['tera_operations']):.1f}",
        }  # fmt: skip
    rows = {name: rows[name] for name in ALGORITHMS if name in rows}
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())
    between(HERE.parents[1] / "docs" / "log" / "methods.md", "scale", told(rows))


if __name__ == "__main__":
    main()
