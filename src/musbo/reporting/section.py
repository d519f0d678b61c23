"""A part of the page."""

import re
from dataclasses import dataclass, field

from musbo.reporting.canvas import Figure
from musbo.reporting.film import Film
from musbo.reporting.sheets import Sheet


@dataclass
class Section:
    """What stands under one heading; whatever is empty is left out."""

    title: str
    words: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    """A sentence, and what it is about."""
    figures: list[Figure] = field(default_factory=list)
    sheets: list[Sheet] = field(default_factory=list)
    film: Film | None = None
    code: list[tuple[str, str]] = field(default_factory=list)
    """What it is, and the text."""
    terms: dict[str, str] = field(default_factory=dict)
    """Words and what they mean."""

    @property
    def texts(self) -> list[str]:
        """All that is read in it, but for numbers."""
        heads = [head for table in self.sheets for head in (*table.heads, table.note)]
        names = [name for name, _ in self.facts] + [part for note in self.notes for part in note]
        return [self.words, *names, *(figure.title for figure in self.figures), *heads]

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
