"""A part of the page."""

import re
from dataclasses import dataclass, field

from musbo.reporting.canvas import Figure
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
    pictures: list[str] = field(default_factory=list)
    """Pictures as data URIs."""
    code: list[tuple[str, str]] = field(default_factory=list)
    """What it is, and the text."""

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
