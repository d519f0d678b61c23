"""The figures of one run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from musbo.campaign.ledger import Row
from musbo.campaign.settings import slug
from musbo.campaign.summary import Deployment
from musbo.core.diagnostics import Curve, Diagnostic, Quantiles, quantiles
from musbo.reporting import curve, run_tables
from musbo.reporting.canvas import COLOURS, GREY, Figure, Look, by_deployment, canvas, keep, legend, look
from musbo.reporting.gather import Run
from musbo.reporting.insight import Doubts
from musbo.reporting.measures import diagnostics_of
from musbo.reporting.words import sentence


def returns(run: Run) -> Figure | None:
    """What the run of one seed is worth, after each deployment."""
    data = run_tables.rows(run.summary)
    if all(row.mean_return is None and row.batch_return is None for row in data):
        return None
    with canvas() as (drawing, axes):
        curve.plot_returns(axes, data, random_first=not run.summary.deployments[0].batch.source)
        curve.tidy(axes, data)
        return keep(drawing, "curve", "Return per episode: of the policy after each deployment, and of each batch.")


def imagined(run: Run) -> Figure | None:
    """What imagination promised against what came true."""
    data = run_tables.rows(run.summary)
    if all(row.imagined_per_step is None for row in data):
        return None
    with canvas() as (drawing, axes):
        curve.plot_imagined(axes, data)
        curve.tidy(axes, data)
        title = "Imagined and real reward per step of each policy, over the same number of steps."
        return keep(drawing, "imagined", title)


# What the method reports


def diagnostics(run: Run, metrics: Sequence[Row]) -> list[Figure]:
    """Every diagnostic that one number per deployment does not do justice to."""
    drawn: list[Figure | None] = []
    for shown in diagnostics_of([run]).values():
        if shown.series and isinstance(shown.value, Quantiles | float | int):
            drawn.append(over_training(shown, metrics) or bars(shown, run))
        elif isinstance(shown.value, Quantiles):
            drawn.append(bars(shown, run))
    for name, found in curves_of(run).items():
        ends = found[:1] if len(found) < 2 else [found[0], found[-1]]
        lines = [(f"deployment {each.deployment}", each.curve, look(i)) for i, each in enumerate(ends)]
        one = found[0].shown
        drawn.append(curve_lines(lines, f"curve-{slug(name)}", _caption(one)))
    return [figure for figure in drawn if figure]


def _caption(shown: Diagnostic, more: str = "") -> str:
    unit = f" ({shown.unit})" if shown.unit else ""
    return f"{sentence(shown.title + more + unit)} {sentence(shown.about)}"


def _label(title: str, unit: str) -> str:
    """Of an axis: what is too long for one line has its unit on a second."""
    return f"{title}\n({unit})" if unit else title


def over_training(shown: Diagnostic, metrics: Sequence[Row]) -> Figure | None:
    """A diagnostic through all reports of its stage, one deployment after the other."""
    rows = [(row, row.numbers.get(shown.name)) for row in metrics if row.stage == shown.series]
    if isinstance(shown.value, Quantiles):
        known = [(row.deployment, q.low, q.median, q.high) for row, v in rows if (q := _quantiles(v)) is not None]
    else:
        known = [(row.deployment, v, v, v) for row, v in rows if isinstance(v, float | int)]
    if not known:
        return None
    days, low, middle, high = np.array(known, float).T
    with canvas() as (drawing, axes):
        x = np.arange(1, len(days) + 1)
        several = isinstance(shown.value, Quantiles)
        if several:
            axes.fill_between(x, low, high, color=COLOURS[0], alpha=0.2, linewidth=0, label="10 to 90 %")
        axes.plot(x, middle, color=COLOURS[0], linewidth=1.4, label="median")
        starts = [0, *(np.flatnonzero(np.diff(days)) + 1)]
        for i in starts:
            axes.axvline(i + 1, color=GREY, linewidth=0.7, linestyle=":")
        axes.set_xticks([i + 1 for i in starts], [str(int(days[i])) for i in starts])
        axes.set_xlabel(f"stage {shown.series}: where each deployment begins")
        axes.set_ylabel(_label(shown.title, shown.unit))
        legend(axes, 1 + several)
        return keep(drawing, f"training-{slug(shown.name)}", _caption(shown, " over training"))


def _quantiles(values: Any) -> Quantiles | None:
    """What a row of metrics says; None where a number was lost (what is not finite is not written down)."""
    return quantiles(values) if isinstance(values, list) else None


def bars(shown: Diagnostic, run: Run) -> Figure | None:
    """Quantiles of every deployment."""
    known = [(item.number, each.value) for item in run.summary.deployments if (each := _of(item, shown.name))]
    found = [(d, value) for d, value in known if isinstance(value, Quantiles)]
    if not found:
        return None
    with canvas() as (drawing, axes):
        days = [d for d, _ in found]
        low, high = [value.low for _, value in found], [value.high for _, value in found]
        axes.vlines(days, low, high, color=COLOURS[1], linewidth=6, alpha=0.35, label="10 to 90 %")
        axes.plot(days, [value.median for _, value in found], "o", color=COLOURS[1], label="median")
        axes.set_ylabel(_label(shown.title, shown.unit))
        by_deployment(axes, run.group.budget)
        legend(axes, 2)
        return keep(drawing, f"quantiles-{slug(shown.name)}", _caption(shown, " of each deployment"))


def _of(item: Deployment, name: str) -> Diagnostic | None:
    return next((each for each in run_tables.diagnostics(item) if each.name == name), None)


@dataclass(frozen=True)
class Drawn:
    """A curve of one deployment."""

    deployment: int
    shown: Diagnostic
    curve: Curve


def curves_of(run: Run) -> dict[str, list[Drawn]]:
    """Every curve of a run by its name, deployment by deployment."""
    found: dict[str, list[Drawn]] = {}
    for item in run.summary.deployments:
        for shown in run_tables.diagnostics(item):
            if isinstance(shown.value, Curve):
                found.setdefault(shown.name, []).append(Drawn(item.number, shown, shown.value))
    return found


def curve_lines(lines: Sequence[tuple[str, Curve, Look]], name: str, title: str) -> Figure:
    """Name, points and look of each line."""
    with canvas() as (drawing, axes):
        from matplotlib.ticker import LogLocator

        for label, points, own in lines:
            axes.plot(points.x, points.y, marker="o", markersize=4, label=label, **own.line)
        if all(min((*points.x, *points.y)) > 0 for _, points, _ in lines):
            axes.set_xscale("log")
            axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):  # at 1, 2, 5, 10: more of them run into each other
                axis.set_minor_locator(LogLocator(subs=(2, 5), numticks=4))
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter("{x:g}")
        axes.set_xlabel(lines[0][1].x_title)
        axes.set_ylabel(lines[0][1].y_title)
        legend(axes, len(lines))
        return keep(drawing, name, title)


# Where its model is unsure


def uncertain_places(found: Doubts, task: str) -> Figure:
    """The states of the last batch on their two main directions."""
    with canvas() as (drawing, axes):
        rank = np.empty(len(found.doubt))
        rank[np.argsort(found.doubt)] = np.linspace(0, 1, len(rank))
        dots = axes.scatter(*found.plane.T, c=rank, s=7, cmap="plasma", linewidths=0, rasterized=True)
        ticks = np.linspace(0, 1, 5)
        scale = drawing.colorbar(dots, ax=axes, label="disagreement (units of the state)", ticks=ticks)
        scale.ax.set_yticklabels([f"{value:.4g}" for value in np.quantile(found.doubt, ticks)])
        scale.outline.set_visible(False)
        axes.set_xlabel("first principal component of the states")
        axes.set_ylabel("second principal component")
        axes.grid(visible=False)
        title = "Where: the states of the last batch, coloured by how far the models disagree about the next one; "
        title += "a quarter of them lies between two marks of the scale."
        return keep(drawing, f"uncertain-places-{task}", title)


def uncertain_times(found: Doubts, task: str) -> Figure:
    """Doubt along the episodes."""
    with canvas() as (drawing, axes):
        middle, low, high = found.by_step
        axes.fill_between(found.steps, low, high, color=COLOURS[1], alpha=0.2, linewidth=0, label="10 to 90 %")
        axes.plot(found.steps, middle, color=COLOURS[1], marker="o", markersize=3, label="median")
        axes.set_xlabel("step of the episode")
        axes.set_ylabel("disagreement (units of the state)")
        axes.set_ylim(0, 1.1 * high.max() or 1)
        legend(axes, 2)
        return keep(drawing, f"uncertain-times-{task}", "When: the same disagreement along the episodes of the batch.")
