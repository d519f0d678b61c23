"""A run as a table: one row per deployment."""

from collections.abc import Callable
from typing import Any

from rich import box
from rich.table import Table

from musbo.report.words import duration, imagined_per_step, number, quantiles, real_per_step

Row = dict[str, Any]


def rows(summary: dict[str, Any]) -> list[Row]:
    """The numbers of every deployment, from the summary of a run."""
    return [_row(item["deployment"], item["batch"], item["trained"], item["evaluated"]) for item in summary["per_deployment"]]


def _row(d: int, batch: dict[str, Any], trained: dict[str, Any], evaluated: dict[str, Any]) -> Row:
    return {
        "deployment": d,
        "transitions": batch["size"],
        "batch_return": batch["batch_return"],
        "zeta": batch.get("zeta"),
        "zeta_at_cap": batch.get("zeta_at_cap"),
        "extra_steps": batch.get("extra_steps"),
        "model_error": trained.get("dynamics_error"),
        "U": trained.get("U"),
        "imagined": imagined_per_step(trained),
        "real": real_per_step(evaluated),
        "return": evaluated.get("return"),
        "spread": evaluated.get("spread"),
        "length": evaluated.get("length"),
        "speed": evaluated.get("speed"),
        "seconds": sum(part.get("seconds") or 0.0 for part in (batch, trained, evaluated)),
    }


def _return(row: Row) -> str:
    return "-" if row["return"] is None else f"{number(row['return'])} ± {number(row['spread'])}"


def _zeta(row: Row) -> str:
    return "-" if row["zeta"] is None else f"{quantiles(row['zeta'])} ({row['zeta_at_cap']:.0%} at cap)"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "deployment": lambda row: str(row["deployment"]),
    "transitions": lambda row: f"{row['transitions']:,}",
    "batch return": lambda row: number(row["batch_return"]),
    "zeta 10/50/90 %": _zeta,
    "oracle steps": lambda row: f"{row['extra_steps']:,}" if row["extra_steps"] else "-",
    "model error": lambda row: number(row["model_error"]),
    "U 10/50/90 %": lambda row: quantiles(row["U"]),
    "imagined/step": lambda row: number(row["imagined"]),
    "real/step": lambda row: number(row["real"]),
    "return": _return,
    "length": lambda row: number(row["length"]),
    "speed": lambda row: number(row["speed"]),
    "time": lambda row: duration(row["seconds"]),
}


def table(summary: dict[str, Any]) -> Table:
    """Only the columns that have something to say."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    data = rows(summary)
    shown = {head: cells for head, cell in COLUMNS.items() if set(cells := [cell(row) for row in data]) - {"-"}}
    for head in shown:
        drawn.add_column(head, justify="right", no_wrap=False)
    for cells in zip(*shown.values(), strict=True):
        drawn.add_row(*cells)
    return drawn
