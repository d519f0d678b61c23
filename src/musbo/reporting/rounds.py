"""The rounds of a campaign in the field as a table, for the terminal and for the page."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from musbo.campaign.history import compared
from musbo.campaign.rounds import Round, read_rounds
from musbo.gate.score import Scored
from musbo.reporting.gather import Run
from musbo.reporting.section import Section
from musbo.reporting.sheets import Columns, sheet
from musbo.reporting.words import number, signed

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
FORECASTS: Columns[Round] = {
    "round": lambda row: str(row.number),
    "verdict": lambda row: (row.verdict or "-").partition(":")[0],
    "gain, forecast": lambda row: signed(row.forecast.gain) if row.forecast else "-",
    "90 % range": lambda row: within(row.forecast) if row.forecast else "-",
    "gain, came true": lambda row: signed(row.forecast.truth) if row.forecast else "-",
    "CRPS": lambda row: number(row.forecast.crps) if row.forecast else "-",
}
"""Of the rounds that the gate was asked about."""
WORDS = ("state", "verdict", "bundle")
"""Columns of words."""


def within(said: Scored) -> str:
    """The range of a forecast, and whether the truth lay in it."""
    text = f"{signed(said.low)} to {signed(said.high)}"
    return text if said.covered is None else f"{text}, {'covered' if said.covered else 'missed'}"


def moment(time: float) -> str:
    """Seconds since 1970 (UTC) as a date."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")


def remarks(every: Sequence[Round]) -> Iterator[str]:
    """What was forecast, and what was called back or lost, and why: one sentence each."""
    for row in every:
        if row.forecast:
            yield f"round {row.number}: {compared(row.forecast)}"
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
        if said := [each for each in found if each.forecast]:
            section.sheets.append(sheet("forecasts", "What the gate said", said, FORECASTS))
        yield section
