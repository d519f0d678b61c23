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
  musbo check monday.musbo --campaign campaigns/line-3 --page page.html   what `musbo ingest` would find
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
        "--campaign",
        type=Path,
        metavar="CAMPAIGN",
        help="a campaign that waits for them: its task, plan, batches, bundles",
    )
    _common.add_trust(parser)
    parser.add_argument(
        "--bundle", metavar="ID", help="with --campaign: the bundle that made data which do not name it"
    )
    parser.add_argument(
        "--earlier",
        nargs="+",
        default=[],
        metavar="FILE",
        help="logs of earlier deployments: drift and copies are found",
    )
    parser.add_argument("--planned", type=int, metavar="N", help="transitions that were planned")
    parser.add_argument(
        "--lag", type=int, default=0, metavar="ROWS", help="rows from an action to its effect (default 0)"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the findings as an HTML page with pictures")
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    """2 where a run would refuse them."""
    from musbo.core.plain import plain

    every, seen, refused = (_alone if arguments.campaign is None else _for_campaign)(arguments)
    if arguments.page is not None:
        from musbo.reporting.checkup import write_page

        write_page(arguments.page, every, seen, refused, arguments.task or arguments.campaign)
    found = [*refused, *(finding for each in seen for finding in each.findings)]
    after, text = _next(found, arguments)
    if arguments.json:
        said = [{"source": finding.source, "findings": plain([finding])} for finding in refused]
        logs = [*plain(seen), *said]
        _common.print_json({"logs": logs, "next_step": after, "next": text} if arguments.campaign else logs)
    else:
        for each in seen:
            _show(each)
        _show_findings(refused)
        if all(finding.level == "note" for finding in found):
            print("nothing wrong was found" + (f" for task {arguments.task}" if arguments.task else ""))
        if arguments.page is not None:
            print(f"the findings as a page: {arguments.page}")
        print(f"next: {text}")
    return 2 if any(finding.level == "error" for finding in found) else 0


def _alone(arguments: argparse.Namespace) -> "tuple[Sequence[Logs], Sequence[Preview], Sequence[Finding]]":
    """The logs, what is said about each, and why others cannot be read."""
    from musbo.data.doctor.examine import Expected
    from musbo.data.files import read_batch
    from musbo.data.preview import previews
    from musbo.field.find import find_task

    task = None if arguments.task is None else find_task(arguments.task)
    every, refused = _read(arguments.files, arguments.mapping)
    earlier = (read_batch(place, arguments.mapping) for place in arguments.earlier)
    return every, previews(every, task, earlier, Expected(arguments.planned, arguments.lag)), refused


def _for_campaign(arguments: argparse.Namespace) -> "tuple[Sequence[Logs], Sequence[Preview], Sequence[Finding]]":
    """The same where a campaign says what is expected."""
    from musbo.campaign.field_campaign import Campaign
    from musbo.core.errors import UserError

    if arguments.earlier or arguments.planned is not None:
        raise UserError("a campaign knows its earlier batches and its plan: leave --earlier and --planned out.")
    campaign = Campaign(arguments.campaign, task=arguments.task, trust_task=arguments.trust_task)
    found = campaign.check(arguments.files, mapping=arguments.mapping, bundle=arguments.bundle)
    return found.logs, found.seen, found.refused


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


def _next(found: "Sequence[Finding]", arguments: argparse.Namespace) -> tuple[str, str]:
    """What comes after these findings: a verb, and a sentence with the command."""
    import shlex

    levels, files = {finding.level for finding in found}, list(arguments.files)
    mapping = [] if arguments.mapping is None else ["--mapping", arguments.mapping]
    correct = "correct what is wrong, and check again"
    if arguments.campaign is None:
        if "error" in levels:
            return "check", correct
        if arguments.task is None:
            return "check", "give --task to check them against a task"
        words = ["musbo", "new", arguments.task, "--data", *files, *mapping]
        return "new", f"a campaign can begin with them: `{shlex.join(map(str, words))}`"
    from musbo.campaign.rounds import what_next
    from musbo.campaign.summary import read_status

    after = what_next(read_status(arguments.campaign), arguments.campaign)
    if after.verb != "ingest":
        return after.verb, after.text
    if "error" in levels:
        return "check", f"{correct}; the round stays open"
    bundle = [] if arguments.bundle is None else ["--bundle", arguments.bundle]
    warned, trusted = "warning" in levels, ["--trust-task"] * arguments.trust_task
    words = ["musbo", "ingest", arguments.campaign, *files, *mapping, *bundle, *["--accept"] * warned, *trusted]
    look = "look at the warnings; then " * warned
    return "ingest", f"{look}bring them home: `{shlex.join(map(str, words))}`"
