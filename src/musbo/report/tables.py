"""A run as a table: one row per deployment."""

import math
from collections.abc import Callable
from typing import Any

from rich import box
from rich.table import Table

from musbo.report.words import decimals, duration, imagined_per_step, number, quantiles, real_per_step, with_spread

Row = dict[str, Any]


def rows(summary: dict[str, Any]) -> list[Row]:
    """The numbers of every deployment, from the summary of a run."""
    return [
        _row(item["deployment"], item["batch"], item["trained"], item["evaluated"])
        for item in summary["per_deployment"]
    ]


def _row(d: int, batch: dict[str, Any], trained: dict[str, Any], evaluated: dict[str, Any]) -> Row:
    return {
        "deployment": d,
        "transitions": batch["size"],
        "batch_return": batch["batch_return"],
        "zeta": batch.get("zeta"),
        "zeta_at_cap": batch.get("zeta_at_cap"),
        "extra_steps": batch.get("extra_steps"),
        "novelty": batch.get("novelty"),
        "model_error": trained.get("dynamics_error"),
        "U": trained.get("U"),
        "penalty": trained.get("penalty"),
        "imagined": imagined_per_step(trained, evaluated),
        "real": real_per_step(evaluated),
        "return": evaluated.get("return"),
        "spread": evaluated.get("spread"),
        "model_return": evaluated.get("model_return"),
        "length": evaluated.get("length"),
        "speed": evaluated.get("speed"),
        "energy_distance": evaluated.get("energy_distance"),
        "trajectory_mse": evaluated.get("trajectory_mse"),
        "rank_correlation": trained.get("rank_correlation"),
        "seconds": sum(part.get("seconds") or 0.0 for part in (batch, trained, evaluated)),
    }


def flat(row: Row) -> Row:
    """Quantiles as columns of their own."""
    found: Row = {}
    for name, value in row.items():
        if name in ("U", "zeta", "disagreement", "penalty"):
            found |= {f"{name}_{p}": value[i] if value else None for i, p in enumerate((10, 50, 90))}
        else:
            found[name] = value
    return found


def _return(row: Row) -> str:
    return with_spread(row["return"], row["spread"])


def model_return(own: float | None, model: float | None) -> str:
    """Nothing where the model's reward is the task's own: there float32 alone makes a difference."""
    return "-" if own is None or model is None or math.isclose(own, model, rel_tol=1e-4) else number(model)


def oracle_steps(row: Row) -> str:
    return f"{row['extra_steps']:,}" if row["extra_steps"] else "-"


NUMBER = {"no.": lambda row: str(row["deployment"])}
OUTCOME: dict[str, Callable[[Row], str]] = NUMBER | {
    "transitions": lambda row: f"{row['transitions']:,}",
    "batch return": lambda row: number(row["batch_return"]),
    "return": _return,
    "model\nreturn": lambda row: model_return(row["return"], row["model_return"]),
    "length": lambda row: "-" if row["length"] is None else f"{row['length']:.0f}",
    "time": lambda row: duration(row["seconds"]),
}
INSIDE: dict[str, Callable[[Row], str]] = NUMBER | {
    "model\nerror": lambda row: number(row["model_error"]),
    "U at\n10/50/90 %": lambda row: quantiles(row["U"]),
    "penalty at\n10/50/90 %": lambda row: quantiles(row["penalty"]),
    "zeta at\n10/50/90 %": lambda row: quantiles(row["zeta"]),
    "zeta\nat cap": lambda row: "-" if row["zeta_at_cap"] is None else f"{row['zeta_at_cap']:.0%}",
    "imagined\n/ step": lambda row: number(row["imagined"]),
    "real\n/ step": lambda row: number(row["real"]),
}
FORESIGHT: dict[str, Callable[[Row], str]] = NUMBER | {
    "speed": lambda row: number(row["speed"]),
    "oracle\nsteps": oracle_steps,
    "novelty": lambda row: decimals(row["novelty"]),
    "energy\ndistance": lambda row: number(row["energy_distance"]),
    "trajectory\nerror": lambda row: number(row["trajectory_mse"]),
    "doubt with\nerror": lambda row: number(row["rank_correlation"]),
}
TABLES = {"deployments": OUTCOME, "inside training": INSIDE, "data and foresight": FORESIGHT}


def tables(summary: dict[str, Any]) -> list[Table]:
    """What came out, and what went on inside: several tables, so that each fits a narrow terminal."""
    data = rows(summary)
    drawn = [_table(title, columns, data) for title, columns in TABLES.items()]
    return [table for table in drawn if len(table.columns) > 1]


def _table(title: str, columns: dict[str, Callable[[Row], str]], data: list[Row]) -> Table:
    style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0)}
    drawn = Table(title=title, title_justify="left", title_style="bold", **style)
    # Only the columns that have something to say.
    shown = {head: cells for head, cell in columns.items() if set(cells := [cell(row) for row in data]) - {"-"}}
    for head in shown:
        drawn.add_column(head, justify="right", no_wrap=True)
    for cells in zip(*shown.values(), strict=True):
        drawn.add_row(*cells)
    return drawn
