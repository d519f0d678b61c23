"""The tables of README.md and of docs/log/speed.md, from whatever has been measured."""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOG = HERE.parents[1] / "docs" / "log" / "speed.md"
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]

NOTHING = "not measured yet"


def write_tables(folder: Path) -> None:
    """From the data files in `folder`: into README.md and the log, or, for another folder, all into its README.md."""
    found = works(_read(folder / "results.json"), _read(folder / "environment.json"))
    more = f"{growth(_read(folder / 'growth.json'))}\n\n{start(_read(folder / 'start.json'))}"
    if folder.resolve() == HERE.resolve():
        between(HERE / "README.md", "results", [found])
        between(LOG, "growth", [more])
    else:
        (folder / "README.md").write_text(f"{found}\n\n{more}\n")


def works(rows: list[dict[str, Any]] | None, environment: dict[str, Any] | None) -> str:
    if not rows or not environment:
        return f"Works: {NOTHING}."
    lines = [
        f"Measured on {environment['processor']}, {environment['cores']} cores; "
        f"matrix products 1024 x 1024 x 1024: {_square(rows)} GFLOP/s in the slowest and the fastest run.",
        "",
        "| work | ours | peer | time of the peer | ratio | target | limit | share of the limit | target | reached |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        wanted = row["wanted"]
        cells = [
            row["work"],
            _seconds(row["ours_s"]),
            row["peer"] or "",
            _seconds(row["peer_s"]) if row["peer_s"] else "",
            f"{row['ratio']:.2f}" if row["ratio"] else "",
            f"{wanted['ratio']:g}" if "ratio" in wanted else "",
            _seconds(row["limit_s"]),
            f"{row['limit_fraction']:.0%}",
            f"{wanted['limit_fraction']:.0%}" if "limit_fraction" in wanted else "",
            "yes" if row["reached"] else "no",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _square(rows: list[dict[str, Any]]) -> str:
    rates = [run["square_gflops"] for row in rows for run in row["runs"]]
    return f"{min(rates):.0f} and {max(rates):.0f}"


def growth(found: dict[str, Any] | None) -> str:
    if not found:
        return f"Growth: {NOTHING}."
    lines = [
        "| transitions in D_all | data | epoch | TRPO update | peak memory |",
        "|---|---|---|---|---|",
    ]
    for row in found["sizes"]:
        peak = max(row["peak_mb"].values())
        lines.append(
            f"| {row['transitions']:,} | {row['data_mb']:.0f} MB | {_seconds(row['epoch_s'])} "
            f"| {_seconds(row['update_s'])} | {peak:.0f} MB |"
        )
    lines += ["", "| deployments | transitions | prepare | epoch | TRPO update |", "|---|---|---|---|---|"]
    for row in found["deployments"]:
        lines.append(
            f"| {row['deployments']} | {row['transitions']:,} | {_seconds(row['prepare_s'])} "
            f"| {_seconds(row['epoch_s'])} | {_seconds(row['update_s'])} |"
        )
    said = found["summary"]
    lines += [
        "",
        f"- Time of an epoch: exponent {said['epoch_exponent']:.3f} in the size of D_all (target: 0.95 to 1.05), "
        f"{said['deployments_exponent']:.3f} in the number of deployments.",
        f"- Peak memory: {said['memory_slope']:.2f} times the data (target: at most 3) plus "
        f"{said['memory_constant_mb']:.0f} MB.",
        f"- TRPO update: exponent {said['update_exponent']:.3f} in the size of D_all (target: no dependence); "
        f"the slowest took {said['update_spread']:.2f} times as long as the fastest.",
    ]
    return "\n".join(lines)


def start(found: dict[str, Any] | None) -> str:
    if not found:
        return f"Start: {NOTHING}."
    help_, first = found["help"], found["first_update"]
    return "\n".join(
        [
            "| start | seconds | beside | ratio | target |",
            "|---|---|---|---|---|",
            f"| `musbo --help` | {help_['musbo_s']:.3f} | `import numpy`: {help_['numpy_s']:.3f} "
            f"| {help_['ratio']:.2f} | at most 5 |",
            f"| first update, second run | {first['second_s']:.1f} | first run: {first['first_s']:.1f} "
            f"| {first['ratio']:.2f} | at most 0.5 |",
        ]
    )


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None
