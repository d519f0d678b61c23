"""Pictures of what the doctor found: the column around the place, the time between rows, what an action explains."""

from collections.abc import Iterator

import numpy as np

from musbo.data.doctor.lag import explained
from musbo.data.finding import Finding
from musbo.data.logs import Logs
from musbo.reporting.canvas import COLOURS, GREY, Figure, canvas, keep

AROUND = 150
"""Rows on either side of a place."""
POINTS = 1000
"""Points of a line that is drawn of a whole log."""
WHOLE = {"jump of unit", "drift", "machine differs", "quantised", "dead"}
"""Kinds that are seen in a whole log and not at one place."""
OVERVIEW = 6
"""Observations whose course is shown where nothing in particular is."""


def figure_of(logs: Logs, finding: Finding, name: str) -> Figure | None:
    """None where there is nothing to draw."""
    if not len(logs.batch):
        return None
    if finding.kind == "lag":
        return _lag(logs, name)
    if finding.kind in ("missing steps", "late steps", "another interval"):
        return _intervals(logs, finding, name)
    values = _values(logs, finding.columns[0]) if finding.columns else None
    if values is None or not np.any(np.isfinite(values)):
        return None
    if finding.kind in ("action at bounds", "saturated"):
        return _histogram(finding, values, name)
    return _course(logs, finding, values, name)


def overview(logs: Logs, name: str) -> Iterator[Figure]:
    """The course of the first observations over the whole log."""
    shown = min(OVERVIEW, logs.batch.obs.shape[1]) if len(logs.batch) else 0
    for i in range(shown):
        values, label = logs.batch.obs[:, i], logs.origin.name("obs", i)
        with canvas((5.2, 2.4)) as (drawing, axes):
            _line(axes, np.arange(len(values)), values)
            axes.set_xlabel("transition")
            axes.set_ylabel(_plain(label))
            yield keep(drawing, f"{name}-{i}", f"{label} over the whole log.")


def _values(logs: Logs, column: str) -> np.ndarray | None:
    """A column of the batch by the name that the log has for it."""
    for block in ("obs", "act", "next_obs"):
        for i, values in enumerate(getattr(logs.batch, block).T):
            if logs.origin.name(block, i) == column:
                return values
    return logs.batch.reward if column == logs.origin.reward else None


def _course(logs: Logs, finding: Finding, values: np.ndarray, name: str) -> Figure:
    rows = logs.origin.rows(np.arange(len(values)))
    place = int(np.argmax(rows == finding.row)) if finding.row is not None else None
    column = finding.columns[0]
    with canvas() as (drawing, axes):
        if place is None or finding.kind in WHOLE:
            _line(axes, np.arange(len(values)), values)
            where = "over the whole log"
        else:
            part = slice(max(0, place - AROUND), place + AROUND)
            axes.plot(
                np.arange(len(values))[part], values[part], color=COLOURS[0], linewidth=1.2, marker=".", markersize=2
            )
            where = f"around row {finding.row}"
        if place is not None:
            axes.axvline(place, color=COLOURS[6], linewidth=1)
        axes.set_xlabel("transition")
        axes.set_ylabel(_plain(column))
        return keep(drawing, name, f"{finding.kind}: {column} {where}.")


def _line(axes, x: np.ndarray, values: np.ndarray) -> None:  # noqa: ANN001
    """A line, or the smallest and largest of every part where there are too many points."""
    if len(x) <= POINTS:
        axes.plot(x, values, color=COLOURS[0], linewidth=1)
        return
    edges = np.linspace(0, len(x), POINTS // 2 + 1).astype(int)
    low, high = np.minimum.reduceat(values, edges[:-1]), np.maximum.reduceat(values, edges[:-1])
    axes.fill_between(x[edges[:-1]], low, high, color=COLOURS[0], linewidth=0.6)


def _histogram(finding: Finding, values: np.ndarray, name: str) -> Figure:
    column = finding.columns[0]
    with canvas() as (drawing, axes):
        axes.hist(values[np.isfinite(values)], bins=60, color=COLOURS[0])
        axes.set_xlabel(_plain(column))
        axes.set_ylabel("rows")
        return keep(drawing, name, f"{finding.kind}: how often {column} has each value.")


def _intervals(logs: Logs, finding: Finding, name: str) -> Figure | None:
    if logs.time is None or logs.until is None:
        return None
    took = (logs.until - logs.time)[np.isfinite(logs.until)]
    with canvas() as (drawing, axes):
        axes.hist(took, bins=60, color=COLOURS[0])
        axes.axvline(float(np.median(took)), color=COLOURS[6], linewidth=1)
        axes.set_yscale("log")
        axes.set_xlabel("time to the next row")
        axes.set_ylabel("rows")
        return keep(drawing, name, f"{finding.kind}: the time between two rows; the line is the median.")


def _lag(logs: Logs, name: str) -> Figure | None:
    parts = explained(logs)
    if parts is None:
        return None
    with canvas() as (drawing, axes):
        colours = [COLOURS[6] if i == int(np.argmax(parts)) else GREY for i in range(len(parts))]
        axes.bar(np.arange(len(parts)), parts, color=colours)
        axes.set_xlabel("rows before the change")
        axes.set_ylabel("explained part of the variance")
        return keep(drawing, name, "lag: how much of a change of state the action of each earlier row explains.")


def _plain(text: str) -> str:
    """Not as mathematics."""
    return text.replace("$", r"\$")
