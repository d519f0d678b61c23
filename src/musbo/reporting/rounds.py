"""The rounds of a campaign in the field as a table, for the terminal and for the page."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from musbo.campaign.rounds import Round, read_rounds
from musbo.reporting.gather import Run
from musbo.reporting.section import Section
from musbo.reporting.sheets import Columns, sheet
from musbo.reporting.words import number

COLUMNS: Columns[Round] = {
    "round": lambda row: str(row.number),
    "state": lambda row: row.state,
    "candidates": lambda row: str(row.candidates or "-"),
    "verdict": lambda row: (row.verdict or "-").partition(":")[0],
    "bundle": lambda row: row.bundles[-1][:12] if row.bundles else "-",
    "transitions": lambda row: f"{row.transitions:,}" if row.transitions else "-",
    "imagined per step": lambda row: number(row.promised),
    "real per step": lambda row: number(row.real),
}
WORDS = ("state", "verdict", "bundle")
"""Columns of words."""


def moment(time: float) -> str:
    """Seconds since 1970 (UTC) as a date."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")


def remarks(every: Sequence[Round]) -> Iterator[str]:
    """What was called back or lost, and why: one sentence each."""
    for row in every:
        for back in row.withdrawals:
            why = f": {back.reason}" if back.reason else ""
            yield f"round {row.number} was withdrawn on {moment(back.time)}, and nothing was spent{why}"
        if row.state == "abandoned":
            yield f"round {row.number} was abandoned as spent: {row.reason}"


def rounds(run: Run) -> Iterator[Section]:
    """Of a campaign in the field."""
    if found := read_rounds(run.folder):
        section = Section("Rounds")
        section.notes = [(each[:1].upper() + each[1:] + ".", "") for each in remarks(found)]
        section.sheets = [sheet("rounds", "Every round", found, COLUMNS)]
        yield section
