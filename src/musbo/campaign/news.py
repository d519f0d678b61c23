"""What a running campaign tells whoever watches it. Observers show it; nothing else depends on them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from musbo.algorithms.method import Metrics
from musbo.campaign.events import Collected, Evaluated, Trained
from musbo.campaign.summary import Summary
from musbo.core.diagnostics import Caution


@dataclass(frozen=True)
class Began:
    """A process took the campaign up."""

    deployment: int
    summary: Summary
    resumed: bool
    cautions: tuple[Caution, ...] = ()


@dataclass(frozen=True)
class Collecting:
    """Transitions of a batch so far."""

    deployment: int
    done: int
    of: int


@dataclass(frozen=True)
class Training:
    """A report of the training under way."""

    deployment: int
    metrics: Metrics


@dataclass(frozen=True)
class Completed:
    """A step is complete and written down."""

    deployment: int
    what: Collected | Trained | Evaluated


@dataclass(frozen=True)
class Ended:
    """The campaign is finished."""

    summary: Summary


@dataclass(frozen=True)
class Stopping:
    """Ctrl-C was heard; the step under way ends first."""


@dataclass(frozen=True)
class Left:
    """The campaign is stopped; everything is written down."""

    deployment: int


News: TypeAlias = Began | Collecting | Training | Completed | Ended | Stopping | Left
Observer: TypeAlias = Callable[[News], None]


def unobserved(news: News) -> None:
    """Nobody watches."""
