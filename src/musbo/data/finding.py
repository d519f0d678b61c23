"""A finding: something in a log that is wrong or odd, where it is, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from musbo.core.errors import UserError

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""The gravest first. Data with an error are refused whole, a warning is for a person to accept, a note to know."""
SHOWN = 5
"""Episodes that a finding names."""


@dataclass(frozen=True)
class Finding:
    """One kind of fault in one log."""

    kind: str
    """Its name, as in docs/doctor.md."""
    level: Level
    what: str
    """What is the matter, with its place and numbers."""
    do: str = ""
    """What to do next."""
    columns: tuple[str, ...] = ()
    """By the names of the log."""
    row: int | None = None
    """The first row of the log that shows it, if a row does."""
    rows: int = 0
    """How many rows show it."""
    episodes: tuple[int, ...] = ()
    """The first few episodes that show it, by their numbers."""
    machines: tuple[str, ...] = ()
    source: str = ""
    """The log."""

    @property
    def text(self) -> str:
        return f"{self.what}: {self.do}" if self.do else self.what


class Refused(UserError):
    """A log that cannot be read as transitions, with the finding that says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.source}: {finding.text}.")
        self.finding = finding


def in_order(found: list[Finding]) -> list[Finding]:
    """The gravest first, else as they came."""
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def said_rows(rows: np.ndarray) -> str:
    """Rows in words: how many, and the first."""
    if len(rows) == 1:
        return f"row {rows[0]}"
    return f"{len(rows):,} rows, first in row {rows[0]}"


def first_few(values: np.ndarray) -> tuple[int, ...]:
    """Different whole numbers, the first of them as they come."""
    _, first = np.unique(values, return_index=True)
    return tuple(int(each) for each in values[np.sort(first)[:SHOWN]])
