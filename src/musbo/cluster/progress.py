"""How far the cells of a study are, read from their ledgers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from musbo.campaign.places import LEDGER
from musbo.campaign.summary import summary
from musbo.cluster.study import Cell
from musbo.core.errors import UserError

State = Literal["waiting", "running", "done", "failed", "unfinished"]


@dataclass(frozen=True)
class Progress:
    """One cell: what is done of it. `seconds` is what its finished deployments took."""

    state: State
    evaluated: int = 0
    """Deployments whose policy was measured."""
    last_return: float | None = None
    seconds: float = 0.0
    reason: str = ""
    """Why it failed."""


def look(out: Path, cell: Cell) -> Progress:
    folder = out / cell.folder
    if not (folder / LEDGER).exists():
        return Progress("waiting")
    try:
        found = summary(folder)
    except UserError:  # a damaged ledger is the affair of its own run, which says so when it is begun
        return Progress("unfinished")
    state: State = "done" if found.finished else "unfinished"
    return Progress(state, len(found.returns), found.final_return, found.seconds)


def seconds_left(seen: dict[Cell, Progress]) -> float | None:
    """From the pace of the deployments so far: of the same row where there are some, else of all."""

    def pace(some: list[tuple[Cell, Progress]]) -> float | None:
        spent = sum(progress.seconds for _, progress in some)
        done = sum(progress.evaluated for _, progress in some)
        return spent / done if done else None

    overall = pace(list(seen.items()))
    if overall is None:
        return None
    left = 0.0
    for cell, progress in seen.items():
        if progress.state not in ("done", "failed"):
            own = pace([(other, p) for other, p in seen.items() if other.row == cell.row])
            left += (own or overall) * (cell.budget - progress.evaluated)
    return left / max(1, sum(progress.state == "running" for progress in seen.values()))
