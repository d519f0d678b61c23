"""`musbo check`: what would be read from logs, and whether a task can use it."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from musbo.cli import _common

if TYPE_CHECKING:
    from musbo.data.preview import Preview

ORDER = 38
HELP = "Show what would be read from logs, and what is wrong with it; run nothing."
EXAMPLES = """
  musbo check logs.csv --mapping mapping.toml                          rows, episodes, ranges
  musbo check logs.csv --mapping mapping.toml --task my_task.py:TASK   also against the task
  musbo check monday.parquet tuesday.parquet --json
"""
SHOWN = 20
"""Ignored columns that are named."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="logs: .csv, .parquet, .npz, .hdf5, .musbo or minari:NAME"
    )
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="TOML that says what the columns mean")
    parser.add_argument("--task", metavar="TASK", help="the task that they are for: its bounds and sizes are checked")
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    """2 where a run would refuse them."""
    from musbo.core.plain import plain
    from musbo.data.files import read_logs
    from musbo.data.preview import preview
    from musbo.field.find import find_task

    task = None if arguments.task is None else find_task(arguments.task)
    seen = [preview(read_logs(place, arguments.mapping), task) for place in arguments.files]
    if arguments.json:
        _common.print_json(plain(seen))
    else:
        for each in seen:
            _show(each, arguments.task)
    return 2 if any(finding.severity == "error" for each in seen for finding in each.findings) else 0


def _show(seen: "Preview", task: str | None) -> None:
    from rich.table import Table

    console = _common.console()
    print(seen.said)
    ends = f"{seen.terminated:,} of them terminated"
    print(f"episodes of {seen.shortest:,} to {seen.longest:,} transitions, {ends}; reward {seen.reward}")
    table = Table(box=None, pad_edge=False)
    for name in ("role", "column", "smallest", "mean", "largest", "bounds"):
        table.add_column(name, justify="left" if name in ("role", "column", "bounds") else "right")
    for row in seen.ranges:
        bounds = "" if row.low is None else f"{row.low:g} to {row.high:g}"
        table.add_row(row.role, row.column, f"{row.smallest:.5g}", f"{row.mean:.5g}", f"{row.largest:.5g}", bounds)
    console.print(table, markup=False)
    if seen.ignored:
        more = f" and {len(seen.ignored) - SHOWN} more" if len(seen.ignored) > SHOWN else ""
        print(f"not used: {', '.join(seen.ignored[:SHOWN])}{more}")
    for finding in seen.findings:
        print(f"{finding.severity}: {finding.text}")
    if task is None:
        print("give --task to check them against a task")
    elif not seen.findings:
        print(f"nothing wrong was found for task {task}")
