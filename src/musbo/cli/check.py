"""`musbo check`: what would be read from logs, what is wrong with it, and whether a task can use it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from musbo.cli import _common

if TYPE_CHECKING:
    from musbo.data.finding import Finding
    from musbo.data.logs import Logs
    from musbo.data.preview import Preview

ORDER = 38
HELP = "Show what would be read from logs, and what is wrong with it; run nothing."
EXAMPLES = """
  musbo check logs.csv --mapping mapping.toml                          rows, episodes, ranges, findings
  musbo check logs.csv --mapping mapping.toml --task my_task.py:TASK   also against the task
  musbo check june.csv --earlier may.csv --page june.html              also drift, as a page with pictures
  musbo check monday.parquet tuesday.parquet --json
  musbo check monday.musbo --campaign campaigns/line-3                 as `musbo ingest` would, and nothing changes
"""
SHOWN = 20
"""Ignored columns that are named."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="logs: .csv, .parquet, .npz, .hdf5, .musbo or minari:NAME"
    )
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="TOML that says what the columns mean")
    parser.add_argument("--task", metavar="TASK", help="the task that they are for: its bounds and sizes are checked")
    parser.add_argument(
        "--earlier",
        nargs="+",
        default=[],
        metavar="FILE",
        help="logs of earlier deployments: drift and copies are found",
    )
    parser.add_argument("--campaign", type=Path, metavar="DIR", help="the campaign that they would come home to")
    _common.add_trust(parser)
    parser.add_argument("--planned", type=int, metavar="N", help="transitions that were planned")
    parser.add_argument(
        "--lag", type=int, default=0, metavar="ROWS", help="rows from an action to its effect (default 0)"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the findings as an HTML page with pictures")
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    """2 where a run would refuse them."""
    from musbo.core.plain import plain
    from musbo.data.doctor.examine import Expected
    from musbo.data.files import read_batch
    from musbo.data.preview import previews
    from musbo.field.find import find_task

    every, refused = _read(arguments.files, arguments.mapping)
    if arguments.campaign is not None:
        seen = _in_campaign(every, arguments)
    else:
        task = None if arguments.task is None else find_task(arguments.task)
        earlier = [read_batch(place, arguments.mapping) for place in arguments.earlier]
        seen = previews(every, task, earlier, Expected(arguments.planned, arguments.lag))
    if arguments.page is not None:
        from musbo.reporting.checkup import write_page

        write_page(arguments.page, every, seen, refused, arguments.task)
    if arguments.json:
        said = [{"source": finding.source, "findings": plain([finding])} for finding in refused]
        _common.print_json([*plain(seen), *said])
    else:
        for each in seen:
            _show(each)
        _show_findings(refused)
        _close(seen, refused, arguments)
    found = [finding for each in seen for finding in each.findings]
    return 2 if refused or any(finding.level == "error" for finding in found) else 0


def _in_campaign(every: "list[Logs]", arguments: argparse.Namespace) -> "list[Preview]":
    """As the campaign would read them."""
    from musbo.campaign.field_campaign import Campaign

    campaign = Campaign(arguments.campaign, task=arguments.task, trust_task=arguments.trust_task)
    return campaign.check([logs.source for logs in every], mapping=arguments.mapping) if every else []


def _read(files: Sequence[str], mapping: Path | None) -> "tuple[list[Logs], list[Finding]]":
    """The logs, and why others cannot be read as such."""
    from musbo.data.files import read_logs
    from musbo.data.finding import Refused

    every, refused = [], []
    for place in files:
        try:
            every.append(read_logs(place, mapping))
        except Refused as error:
            refused.append(error.finding)
    return every, refused


def _show(seen: "Preview") -> None:
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
    _show_findings(seen.findings)


def _show_findings(found: "Sequence[Finding]") -> None:
    for finding in found:
        print(f"{finding.level}: {finding.text}")


def _close(seen: "list[Preview]", refused: "list[Finding]", arguments: argparse.Namespace) -> None:
    found = [*refused, *(finding for each in seen for finding in each.findings)]
    if all(finding.level == "note" for finding in found):
        print("nothing wrong was found" + (f" for task {arguments.task}" if arguments.task else ""))
    if arguments.task is None and arguments.campaign is None:
        print("give --task to check them against a task")
    if arguments.page is not None:
        print(f"the findings as a page: {arguments.page}")
