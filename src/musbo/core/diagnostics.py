"""Numbers that describe themselves, so that a display can show them without knowing what they are.

A part of a method (a label, an explorer, an optimiser) reports `Findings`: diagnostics with a name, a title, a unit and
a sentence, and cautions for the person who reads them. Tables, the live display, the page and TensorBoard show what
there is; none of them has a list of names.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from musbo.core.registry import stored


class Stage(NamedTuple):
    """A stage of one training."""

    name: str
    """What its metrics carry."""
    doing: str
    """What is going on, for the live display: `fitting the dynamics M`."""


@stored("diagnostic/quantiles")
@dataclass(frozen=True)
class Quantiles:
    """The 10, 50 and 90 % quantiles of something."""

    low: float
    median: float
    high: float

    @property
    def range(self) -> float:
        """From 10 to 90 %."""
        return self.high - self.low


@stored("diagnostic/curve")
@dataclass(frozen=True)
class Curve:
    """Points of one thing against another."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    x_title: str
    y_title: str


@stored("diagnostic")
@dataclass(frozen=True)
class Diagnostic:
    """A named number about a batch or a training, with its title and description for tables and reports."""

    name: str
    """A short key: the name of columns in files, and of a series in the metrics of training."""
    value: int | float | Quantiles | Curve | None
    """None where there is no finite number."""
    title: str
    """What it is called in figures and in the live display."""
    about: str
    """One sentence, for a reader who has not seen it before."""
    unit: str = ""
    column: str = ""
    """The head of its column in tables, with a line break where it may be folded; empty: it has no column."""
    percent: bool = False
    """A share that is shown as 12 %."""
    series: str = ""
    """The stage of training whose metrics have this under `name`, step by step; empty: there is no such series."""


@stored("caution")
@dataclass(frozen=True)
class Caution:
    """A warning: one sentence that says what looks wrong and what to try."""

    kind: str
    """Cautions of one kind differ in their numbers only."""
    text: str


@stored("findings")
@dataclass(frozen=True)
class Findings:
    """The diagnostics and warnings of one part of a method."""

    diagnostics: tuple[Diagnostic, ...] = ()
    cautions: tuple[Caution, ...] = ()

    def __add__(self, other: "Findings") -> "Findings":
        return Findings(self.diagnostics + other.diagnostics, self.cautions + other.cautions)


NOTHING = Findings()
NEARLY_CONSTANT = 0.05
"""A 10 to 90 % range below this (of a coefficient), or below this share of the value (of a price or a doubt)."""


def finite(value: float | None) -> float | None:
    """`value`, or None where it is no finite number: files hold no others."""
    return float(value) if value is not None and math.isfinite(value) else None


def quantiles(values: Sequence[float | None] | None) -> Quantiles | None:
    """Three numbers as quantiles; None where one of them is missing or not finite."""
    if values is None or len(values) != 3:
        return None
    low, median, high = (finite(value) for value in values)
    return None if low is None or median is None or high is None else Quantiles(low, median, high)


def curve(x: Iterable[float], y: Iterable[float], x_title: str, y_title: str) -> Curve | None:
    """A curve; None where a point is not finite or there is none."""
    xs, ys = tuple(map(float, x)), tuple(map(float, y))
    return Curve(xs, ys, x_title, y_title) if xs and all(map(math.isfinite, (*xs, *ys))) else None
