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
    """One row per method: returns after each deployment, task beside task."""
    slugs = [file.stem.removeprefix("methods-") for file in sorted(tables.glob("methods-*.csv"))]
    methods = {slug: {row["method"]: row for row in rows(tables / f"methods-{slug}.csv")} for slug in slugs}
    returns = {slug: {row["method"]: row for row in rows(tables / f"returns-{slug}.csv")} for slug in slugs}
    head = " | ".join(f"{slug.partition('-')[0]}: seeds | return after each deployment" for slug in slugs)
    lines = [f"| method | {head} |", "|---" * (1 + 2 * len(slugs)) + "|"]
    for name in dict.fromkeys(name for slug in slugs for name in methods[slug]):
        cells = [name]
        for slug in slugs:
            row = methods[slug].get(name)
            deviation = f" ± {float(row['deviation']):.0f}" if row and row["deviation"] else ""
            cells += [row["seeds"], course(returns[slug][name], 0) + deviation] if row else ["", "not run"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", *absent()]


def absent() -> list[str]:
    """How many of the planned runs have not been made, and which."""
    every = [(HERE / "records" / name, cell) for name in STUDIES for cell in cells(load(str(HERE / f"{name}.toml")))]
    missing = [cell for folder, cell in every if look(folder, cell).state != "done"]
    if not missing:
        return ["All planned runs have been made."]
    groups: dict[tuple[str, str], list[str]] = {}
    for cell in missing:
        groups.setdefault((cell.task, str(cell.seed)), []).append(cell.method.name)
    listed = "; ".join(f"{task} seed {seed}: {', '.join(names)}" for (task, seed), names in groups.items())
    return [f"Not run yet, {len(missing)} of {len(every)}: {listed}."]


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
