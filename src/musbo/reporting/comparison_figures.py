"""The figures of a comparison of methods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from musbo.campaign.settings import slug
from musbo.core.diagnostics import Diagnostic
from musbo.reporting import compare, measures
from musbo.reporting.canvas import GREY, GRID, INK, Figure, by_deployment, canvas, far_apart, keep, legend, look
from musbo.reporting.gather import Group, Material, Run
from musbo.reporting.measures import Measure
from musbo.reporting.overall import Overall
from musbo.reporting.run_figures import curve_lines, curves_of
from musbo.reporting.words import sentence


def bands(axes: Any, values: Mapping[str, np.ndarray], order: Mapping[str, int]) -> int:
    """Mean, interval and every seed of each method; returns how many methods had something to draw."""
    found = {method: band for method, each in values.items() if (band := measures.band(each)) is not None}
    aside = [0.0] if len(found) == 1 else np.linspace(-0.2, 0.2, len(found))
    for (method, each), shift in zip(found.items(), aside, strict=True):
        own, x = look(order[method]), each.deployments
        several, alone = len(each.seeds) > 1, len(x) == 1
        if alone:  # there is no line to follow: side by side, for else they would hide each other
            x = x + shift
        if several and alone:
            axes.vlines(x, each.low, each.high, color=own.color, linewidth=7, alpha=0.25)
            axes.plot(np.repeat(x, len(each.seeds)), each.seeds[:, 0], ".", color=own.color, markersize=5, alpha=0.7)
        elif several:
            for seed in each.seeds:
                axes.plot(x, seed, color=own.color, linewidth=0.7, alpha=0.45)
            axes.fill_between(x, each.low, each.high, color=own.color, alpha=0.16, linewidth=0)
        marker = "D" if alone else "o"
        axes.plot(x, each.value, marker=marker, markersize=4, linewidth=2, label=method, **own.line)
    return len(found)


def _what_the_band_is(runs: Iterable[Sequence[Run]]) -> str:
    """Methods of one seed have a line and no band."""
    counts = [len(each) for each in runs]
    if max(counts) < 2:
        return ""
    which = "" if min(counts) > 1 else ", where there are several"
    return f"mean over seeds{which}, its 95 % bootstrap interval, and every seed as a thin line or a dot"


def curves(material: Material, group: Group) -> Figure | None:
    """Return per deployment."""
    scored = compare.finals(material, group)
    with canvas() as (drawing, axes):
        drawn = bands(axes, {method: measures.returns(runs) for method, runs in scored.items()}, material.order)
        if not drawn:
            return None
        level = compare.random_level(material, group)
        if level is not None:
            axes.axhline(level, color=GREY, linestyle=":", linewidth=1.2)
            axes.annotate("random actions", (1, level), (-2, 3), xycoords=("axes fraction", "data"),
                          textcoords="offset points", ha="right", color=GREY)  # fmt: skip
        axes.set_ylabel("return per episode")
        by_deployment(axes, group.budget)
        legend(axes, drawn)
        shown = _what_the_band_is(scored.values())
        return keep(drawing, f"curves-{group.slug}", f"Return on {group.title}{f': {shown}' if shown else ''}.")


def final_returns(material: Material, group: Group) -> Figure | None:
    """Every seed's last return, method by method."""
    scored = compare.finals(material, group)
    if len(scored) < 2:
        return None
    with canvas((5.2, 1.2 + 0.32 * len(scored))) as (drawing, axes):
        for i, row in enumerate(compare.method_rows(material, group)):
            values = compare.final_returns(scored[row.method])
            _interval(axes, i, row.iqm_low, row.iqm_high, look(material.order[row.method]).color, 7.0, 0.3)
            axes.plot(values, [i] * len(values), "o", color=look(material.order[row.method]).color, markersize=5,
                      alpha=0.85)  # fmt: skip
            axes.plot([row.mean], [i], "|", color=INK, markersize=15, markeredgewidth=2)
        _names(axes, list(scored))
        axes.set_xlabel("final return")
        title = f"Final return on {group.title}: seeds, their mean and, of two or more, the 95 % interval of their IQM."
        return keep(drawing, f"final-{group.slug}", title)


def _interval(axes: Any, y: int, low: float | None, high: float | None, color: str, width: float, alpha: float) -> None:
    if low is not None:
        axes.plot([low, high], [y, y], color=color, linewidth=width, alpha=alpha)


def _names(axes: Any, methods: list[str]) -> None:
    """One line per method, from top to bottom."""
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=GRID, linewidth=0.8)


def diagnostics(material: Material, group: Group) -> list[Figure]:
    """One small figure for each thing that is measured besides return. Of one run, quantiles have figures of their
    own."""
    runs = {method: material.comparable(group, method) for method in material.methods(group)}
    every = [run for each in runs.values() for run in each]
    found = [_diagnostic(material, group, runs, each) for each in measures.measures(every, not material.alone)]
    return [figure for figure in found if figure]


def _diagnostic(material: Material, group: Group, runs: Mapping[str, Sequence[Run]], measure: Measure) -> Figure | None:
    with canvas() as (drawing, axes):
        drawn = bands(axes, {m: measures.values(each, measure) for m, each in runs.items()}, material.order)
        if not drawn:
            return None
        axes.set_ylabel(measure.title)
        if measure.wide and far_apart([line.get_ydata() for line in axes.lines]):
            axes.set_yscale("log")
        by_deployment(axes, group.budget)
        legend(axes, drawn)
        unit = f" ({measure.unit})" if measure.unit else ""
        parts = [f"{measure.title} on {group.title}{unit}", measure.about, _what_the_band_is(runs.values())]
        title = " ".join(sentence(part) for part in parts if part)
        return keep(drawing, f"{slug(measure.name).replace('_', '-')}-{group.slug}", title)


def method_curves(material: Material, group: Group) -> list[Figure]:
    """Every curve that methods report: of the first run of each, after its last deployment."""
    first = {method: curves_of(material.comparable(group, method)[0]) for method in material.methods(group)}
    shown: dict[str, Diagnostic] = {}
    for found in first.values():
        for name, each in found.items():
            shown.setdefault(name, each[-1].shown)
    drawn = []
    for name, one in shown.items():
        lines = [
            (method, found[name][-1].curve, look(material.order[method]))
            for method, found in first.items()
            if name in found
        ]
        unit = f" ({one.unit})" if one.unit else ""
        title = f"{sentence(f'{one.title} on {group.title}{unit}')} {sentence(one.about)} "
        title += "After the last deployment of the first run of each method."
        drawn.append(curve_lines(lines, f"curve-{slug(name)}-{group.slug}", title))
    return drawn


def profiles(found: Overall, order: Mapping[str, int]) -> Figure:
    enough = {row.method for row in found.rows if row.fewest > 1}  # for an interval
    with canvas() as (drawing, axes):
        for method, profile in found.profiles.items():
            own = look(order[method])
            if method in enough:
                axes.fill_between(profile.tau, profile.low, profile.high, color=own.color, alpha=0.16, linewidth=0)
            axes.plot(profile.tau, profile.share, linewidth=2, label=method, **own.line)
        axes.set_xlabel("normalised score")
        axes.set_ylabel("share of runs above it")
        axes.set_ylim(-0.02, 1.02)
        legend(axes, len(found.profiles))
        return keep(drawing, "profiles", "Performance profiles over all tasks: 0 is random actions, 1 the best mean.")


def aggregate(found: Overall, order: Mapping[str, int]) -> Figure:
    with canvas((5.2, 1.2 + 0.36 * len(found.rows))) as (drawing, axes):
        for i, row in enumerate(found.rows):
            _interval(axes, i, row.iqm_low, row.iqm_high, look(order[row.method]).color, 9.0, 0.35)
            axes.plot([row.iqm], [i], "|", color=INK, markersize=15, markeredgewidth=2)
        _names(axes, [row.method for row in found.rows])
        axes.set_xlabel("interquartile mean of normalised scores")
        title = "Interquartile mean over all tasks; with two seeds of each or more, its 95 % bootstrap interval."
        return keep(drawing, "aggregate", title)
