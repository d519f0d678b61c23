"""The figure of the bench: every score, the methods over all tasks, and ours against each other one."""

from typing import Any

import numpy as np

from benchmarks.generality.score import HIGHEST
from benchmarks.generality.table import Results, improvement, overall
from musbo.reporting.canvas import CARD, GREY, GRID, INK, Figure, canvas, keep, look
from musbo.reporting.statistics import Interval

NAME = "scores"
MISSING = -0.05  # where the crosses of missing scores stand


def draw(results: Results) -> Figure:
    tasks, methods = results.tasks, results.methods
    with canvas((11.0, 1.6 + 0.42 * max(len(tasks), len(methods)))) as (drawing, _):
        drawing.clear()
        grid = drawing.subplots(1, 3, width_ratios=(2.2, 1, 1))
        for axes, names, title in (
            (grid[0], tasks, "score of the last deployment"),
            (grid[1], methods, "IQM of the scores"),
            (grid[2], methods, f"P({methods[0]} better)"),
        ):
            _prepare(axes, names, title)
        _scores(grid[0], results)
        for i, method in enumerate(methods):
            _mark(grid[1], i, overall(results, method))
            if i:
                against = improvement(results, method)
                _mark(grid[2], i, None if against is None else against[0])
        grid[2].axvline(0.5, color=GREY, linestyle=":", linewidth=1.2)
        grid[1].set_xlim(0.0, HIGHEST)
        grid[2].set_xlim(0.0, 1.0)
        handles, labels = grid[0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=len(methods), frameon=False)
        title = "Scores by task and method (mean and seeds; x: missing), their IQM, the chance that ours is better."
        return keep(drawing, NAME, title)


def _prepare(axes: Any, names: list[str], title: str) -> None:
    """One line per name, from top to bottom."""
    axes.set_facecolor(CARD)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(title)


def _scores(axes: Any, results: Results) -> None:
    aside = np.linspace(-0.3, 0.3, len(results.methods))
    axes.axvline(1.0, color=GREY, linestyle=":", linewidth=1.2)
    axes.set_xlim(2 * MISSING, HIGHEST + 0.05)
    for i, method in enumerate(results.methods):
        own, color = results.scored(method), look(i).color
        places = np.asarray([results.tasks.index(task) + aside[i] for task in own])
        for y, values in zip(places, own.values(), strict=True):
            axes.plot(values, [y] * len(values), ".", color=color, markersize=4, alpha=0.6)
        absent = [results.tasks.index(task) + aside[i] for task in results.tasks if task not in own]
        axes.plot([MISSING] * len(absent), absent, "x", color=color, markersize=4)
        axes.plot([values.mean() for values in own.values()], places, "D", color=color, markersize=4, label=method)


def _mark(axes: Any, y: int, found: Interval | None) -> None:
    if found is None:
        axes.annotate("missing", (0.03, y), xycoords=("axes fraction", "data"), va="center", color=GREY)
        return
    axes.plot([found.low, found.high], [y, y], color=look(y).color, linewidth=7, alpha=0.3)
    axes.plot([found.value], [y], "|", color=INK, markersize=13, markeredgewidth=2)
