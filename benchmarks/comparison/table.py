"""The comparison's table and figures, by `musbo report`, from the runs that are kept in records/.

    python benchmarks/comparison/table.py [STUDY ...]

The finished runs of every STUDY (../comparison/halfcheetah, ...) are put among the records first. Writes tables/,
figures/ and the tables of README.md; what has not been run is listed there.
"""

import argparse
import csv
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from musbo.cluster.progress import look
from musbo.cluster.study import cells, load

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]
from keeping import keep_finished  # noqa: E402  # pyright: ignore[reportMissingImports]

STUDIES = ["halfcheetah", "hopper", "halfcheetah-others", "hopper-others"]
TABLES = ["deployments.csv", "methods-*.csv", "returns-*.csv", "diagnostics-*.csv", "runs.csv"]
FIGURES = ["curves-*", "novelty-*", "trajectory-error-*"]


def rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.open()))


def course(row: dict[str, str], digits: int) -> str:
    """The means of the deployments, one after the other."""
    values = [value for name, value in row.items() if name.startswith("mean_") and value]
    return " ".join(f"{float(value):.{digits}f}" for value in values) or "-"


def told(tables: Path) -> list[str]:
    lines = []
    for file in sorted(tables.glob("methods-*.csv")):
        slug = file.stem.removeprefix("methods-")
        returns = {row["method"]: row for row in rows(tables / f"returns-{slug}.csv")}
        seen = {(row["diagnostic"], row["method"]): row for row in rows(tables / f"diagnostics-{slug}.csv")}
        lines += ["", f"### {slug}", "", f"![Return after each deployment](figures/curves-{slug}.svg)", ""]
        lines += ["| method | seeds | return after each deployment | novelty | model error | trajectory error | min |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for row in rows(file):
            name = row["method"]
            deviation = f" ± {float(row['deviation']):.0f}" if row["deviation"] else ""
            of = [course(seen.get((kind, name), {}), d) for kind, d in (("novelty", 3), ("dynamics error", 3))]
            path = course(seen.get(("trajectory error", name), {}), 2)
            minutes = f"{60 * float(row['hours']):.0f}"
            lines.append(
                f"| {name} | {row['seeds']} | {course(returns[name], 0)}{deviation} | "
                f"{' | '.join(of)} | {path} | {minutes} |"
            )
    return [*lines, "", *absent()]


def absent() -> list[str]:
    """What has not been run, by task and method."""
    every = [(HERE / "records" / name, cell) for name in STUDIES for cell in cells(load(str(HERE / f"{name}.toml")))]
    missing = [cell for folder, cell in every if look(folder, cell).state != "done"]
    if not missing:
        return ["All runs are there."]
    lines = [f"Missing, {len(missing)} of {len(every)} runs:", ""]
    for task, method in dict.fromkeys((cell.task, cell.method.name) for cell in missing):
        seeds = [str(cell.seed) for cell in missing if (cell.task, cell.method.name) == (task, method)]
        lines.append(f"- {task}, {method}: {', '.join(seeds)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="*", metavar="STUDY")
    for study in parser.parse_args().studies:
        keep_finished(study, HERE / "records" / study.name)
    kept = [HERE / "records" / name for name in STUDIES if (HERE / "records" / name).exists()]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "report"
        words = [sys.executable, "-m", "musbo", "report", *map(str, kept), "--out", str(out)]
        subprocess.run(words, check=True)
        for folder, wanted in (("tables", TABLES), ("figures", FIGURES)):
            shutil.rmtree(HERE / folder, ignore_errors=True)
            (HERE / folder).mkdir()
            for pattern in wanted:
                for file in sorted((out / folder).glob(pattern)):
                    shutil.copy(file, HERE / folder / file.name)
    between(HERE / "README.md", "comparison", told(HERE / "tables"))


if __name__ == "__main__":
    main()
