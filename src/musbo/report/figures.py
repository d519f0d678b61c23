"""The figures of a report. Each is drawn once and kept as SVG and PNG; colours have roles, so that a page can give the
SVG the colours of its own theme."""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from musbo.core.errors import UserError
from musbo.report import compare, curve, tables
from musbo.report.gather import Group, Material, Run
from musbo.report.insight import Doubts

INK, GREY, GRID, CARD = "#30353b", "#8a8f96", "#e6e8ea", "#fefefe"
COLOURS = ("#2f7ebc", "#d9702b", "#3a9c5f", "#b4499b", "#94801a", "#6a6fe0", "#c84b4b", "#2aa0a0")
STYLES = ("-", "--", ":")
ROLES = {INK: "var(--ink)", GREY: "var(--grey)", GRID: "var(--grid)", CARD: "var(--card)"}
"""What the colours of a figure are in the page."""
SIZE = (5.2, 3.6)


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    """What one sees, in a sentence: the caption, and what a screen reader says."""
    svg: bytes
    png: bytes


def look(index: int) -> dict[str, Any]:
    """Colour and line of the n-th method."""
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": STYLES[index // len(COLOURS) % len(STYLES)]}


@contextmanager
def canvas(size: tuple[float, float] = SIZE) -> Iterator[tuple[Any, Any]]:
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Drawing
    except ImportError as error:
        raise UserError("a report needs matplotlib and jinja2: pip install 'musbo[report]'.") from error
    ink = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    # Text stays text in the SVG, and equal runs give equal files.
    with rc_context({"svg.fonttype": "none", "font.size": 10.0, "axes.edgecolor": GREY, **ink}):
        figure = Drawing(figsize=size, layout="constrained", facecolor=CARD)
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.set_facecolor(CARD)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        yield figure, axes


def keep(drawing: Any, name: str, title: str) -> Figure:
    from matplotlib import rc_context

    images = []
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):  # ids differ between the figures of a page
        for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            image = io.BytesIO()
            drawing.savefig(image, format=suffix, dpi=150, metadata=metadata)
            images.append(image.getvalue())
    return Figure(name, title, *images)


def _legend(axes: Any, n: int) -> None:
    if n > 1:
        handles, labels = axes.get_legend_handles_labels()
        columns = max(1, min(3, 56 // (max(map(len, labels)) + 6)))
        width, height = SIZE
        axes.figure.set_size_inches(width, height + 0.2 * ((n - 1) // columns))  # names take nothing from the axes
        axes.figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def _whole_numbers(axes: Any, deployments: int) -> None:
    axes.set_xlabel("deployment")
    step = max(1, deployments // 10)
    axes.set_xticks(range(step, deployments + 1, step))
    axes.set_xlim(0.7, deployments + 0.3)


def bands(axes: Any, values: dict[str, np.ndarray], order: dict[str, int]) -> int:
    """Mean, interval and every seed of each method; returns how many methods had something to draw."""
    found = {method: band for method, each in values.items() if (band := compare.band(each)) is not None}
    aside = [0.0] if len(found) == 1 else np.linspace(-0.2, 0.2, len(found))
    for (method, each), shift in zip(found.items(), aside, strict=True):
        style, x = look(order[method]), each.deployments
        colour, several, alone = style["color"], len(each.seeds) > 1, len(x) == 1
        if alone:  # there is no line to follow: side by side, for else they would hide each other
            x = x + shift
        if several and alone:
            axes.vlines(x, each.low, each.high, color=colour, linewidth=7, alpha=0.25)
            axes.plot(np.repeat(x, len(each.seeds)), each.seeds[:, 0], ".", color=colour, markersize=5, alpha=0.7)
        elif several:
            for seed in each.seeds:
                axes.plot(x, seed, color=colour, linewidth=0.7, alpha=0.45)
            axes.fill_between(x, each.low, each.high, color=colour, alpha=0.16, linewidth=0)
        marker = "D" if alone else "o"
        axes.plot(x, each.value, marker=marker, markersize=4, linewidth=2, label=method, **style)
    return len(found)


def curves(material: Material, group: Group) -> Figure | None:
    """Return per deployment."""
    scored = compare.finals(material, group)
    with canvas() as (drawing, axes):
        drawn = bands(axes, {method: compare.returns(runs) for method, runs in scored.items()}, material.order)
        if not drawn:
            return None
        level = compare.random_level(material, group)
        if level is not None:
            axes.axhline(level, color=GREY, linestyle=":", linewidth=1.2)
            axes.annotate("random actions", (1, level), (-2, 3), xycoords=("axes fraction", "data"),
                          textcoords="offset points", ha="right", color=GREY)  # fmt: skip
        axes.set_ylabel("return per episode")
        _whole_numbers(axes, group.deployments)
        _legend(axes, drawn)
        title = f"Return on {group.title}{_what_the_band_is(scored.values())}."
        return keep(drawing, f"curves-{group.slug}", title)


def _what_the_band_is(runs: Iterable[Sequence[Run]]) -> str:
    """Methods of one seed have a line and no band."""
    counts = [len(each) for each in runs]
    if max(counts) < 2:
        return ""
    which = "" if min(counts) > 1 else ", where there are several"
    return f": mean over seeds{which}, its 95 % bootstrap interval, and every seed as a thin line or a dot"


def final_returns(material: Material, group: Group) -> Figure | None:
    """Every seed's last return, method by method."""
    scored = compare.finals(material, group)
    if len(scored) < 2:
        return None
    with canvas((5.2, 1.2 + 0.32 * len(scored))) as (drawing, axes):
        for i, row in enumerate(compare.method_rows(material, group)):
            values = [run.summary["final_return"] for run in scored[row["method"]]]
            colour = look(material.order[row["method"]])["color"]
            if row["iqm_low"] is not None:
                axes.plot([row["iqm_low"], row["iqm_high"]], [i, i], color=colour, linewidth=7, alpha=0.3)
            axes.plot(values, [i] * len(values), "o", color=colour, markersize=5, alpha=0.85)
            axes.plot([row["mean"]], [i], "|", color=INK, markersize=15, markeredgewidth=2)
        axes.set_yticks(range(len(scored)), list(scored))
        axes.set_ylim(len(scored) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.set_xlabel("final return")
        title = f"Final return on {group.title}: seeds, their mean and, of two or more, the 95 % interval of their IQM."
        return keep(drawing, f"final-{group.slug}", title)


def diagnostics(material: Material, group: Group) -> list[Figure]:
    """One small figure for each thing that is measured besides return."""
    found = []
    for name, (_, label, meaning) in compare.DIAGNOSTICS.items():
        runs = {m: material.comparable(group, m) for m in material.methods(group)}
        values = {method: compare.diagnostic(each, name) for method, each in runs.items()}
        with canvas() as (drawing, axes):
            drawn = bands(axes, values, material.order)
            if not drawn:
                continue
            axes.set_ylabel(label)
            if name in ("energy_distance", "trajectory_mse", "dynamics_error") and _wide(axes):
                axes.set_yscale("log")
            _whole_numbers(axes, group.deployments)
            _legend(axes, drawn)
            title = f"{label.capitalize()} on {group.title} ({meaning}){_what_the_band_is(runs.values())}."
            found.append(keep(drawing, f"{name.replace('_', '-')}-{group.slug}", title))
    return found


def _wide(axes: Any) -> bool:
    """Numbers of very different size, all positive, are read on a logarithmic axis."""
    drawn = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    return bool((drawn > 0).all() and drawn.max() > 20 * drawn.min())


def profiles(found: compare.Overall, order: dict[str, int]) -> Figure:
    enough = {row["method"]: row["fewest"] > 1 for row in found.rows}  # for an interval
    with canvas() as (drawing, axes):
        for method, profile in found.profiles.items():
            style = look(order[method])
            if enough[method]:
                axes.fill_between(profile.tau, profile.low, profile.high, color=style["color"], alpha=0.16, linewidth=0)
            axes.plot(profile.tau, profile.share, linewidth=2, label=method, **style)
        axes.set_xlabel("normalised score")
        axes.set_ylabel("share of runs above it")
        axes.set_ylim(-0.02, 1.02)
        _legend(axes, len(found.profiles))
        return keep(drawing, "profiles", "Performance profiles over all tasks: 0 is random actions, 1 the best mean.")


def aggregate(found: compare.Overall, order: dict[str, int]) -> Figure:
    with canvas((5.2, 1.2 + 0.36 * len(found.rows))) as (drawing, axes):
        for i, row in enumerate(found.rows):
            colour = look(order[row["method"]])["color"]
            if row["iqm_low"] is not None:
                axes.plot([row["iqm_low"], row["iqm_high"]], [i, i], color=colour, linewidth=9, alpha=0.35)
            axes.plot([row["iqm"]], [i], "|", color=INK, markersize=15, markeredgewidth=2)
        axes.set_yticks(range(len(found.rows)), [row["method"] for row in found.rows])
        axes.set_ylim(len(found.rows) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.set_xlabel("interquartile mean of normalised scores")
        return keep(
            drawing,
            "aggregate",
            "Interquartile mean over all tasks; with two seeds of each or more, its 95 % bootstrap interval.",
        )


# One run


def one_curve(run: Run) -> Figure | None:
    """What the run of one seed is worth, after each deployment."""
    data = tables.rows(run.summary)
    if all(row["return"] is None and row["batch_return"] is None for row in data):
        return None
    with canvas() as (drawing, axes):
        curve.plot_returns(axes, data, random_first=not run.summary["per_deployment"][0]["batch"].get("source"))
        curve.tidy(axes, data)
        return keep(drawing, "curve", "Return per episode: of the policy after each deployment, and of each batch.")


def promised(run: Run) -> Figure | None:
    """What imagination promised against what came true."""
    data = tables.rows(run.summary)
    if all(row["imagined"] is None for row in data):
        return None
    with canvas() as (drawing, axes):
        curve.plot_imagined(axes, data)
        curve.tidy(axes, data)
        return keep(
            drawing,
            "imagined",
            "Reward per step that imagination promised of each policy, and the real one over as many steps.",
        )


def _known(row: dict[str, Any], name: str) -> bool:
    """A list of numbers, none of which was lost on the way (what is not finite is not written down)."""
    return bool(row.get(name)) and None not in row[name]


def quantiles_over_training(metrics: Sequence[dict[str, Any]]) -> Figure | None:
    """U through all updates of all deployments, one after the other."""
    rows = [row for row in metrics if row["stage"] == "improve" and _known(row, "U")]
    if not rows:
        return None
    with canvas() as (drawing, axes):
        U = np.array([row["U"] for row in rows], float)
        x = np.arange(1, len(U) + 1)
        axes.fill_between(x, U[:, 0], U[:, 2], color=COLOURS[0], alpha=0.2, linewidth=0, label="10 to 90 %")
        axes.plot(x, U[:, 1], color=COLOURS[0], linewidth=1.4, label="median")
        starts = [i for i, row in enumerate(rows) if i == 0 or row["deployment"] != rows[i - 1]["deployment"]]
        for i in starts:
            axes.axvline(i + 1, color=GREY, linewidth=0.7, linestyle=":")
        axes.set_xticks([i + 1 for i in starts], [str(rows[i]["deployment"]) for i in starts])
        axes.set_xlabel("updates, with the number of each deployment at its first")
        axes.set_ylabel("U")
        _legend(axes, 2)
        return keep(drawing, "coefficient", "The uncertainty coefficient U of imagined steps over all updates.")


def exploration(run: Run) -> Figure | None:
    """zeta of the batches that sought."""
    items = [item for item in run.summary["per_deployment"] if _known(item["batch"], "zeta")]
    if not items:
        return None
    with canvas() as (drawing, axes):
        days = [item["deployment"] for item in items]
        low, middle, high = np.array([item["batch"]["zeta"] for item in items], float).T
        axes.vlines(days, low, high, color=COLOURS[1], linewidth=6, alpha=0.35, label="10 to 90 %")
        axes.plot(days, middle, "o", color=COLOURS[1], label="median")
        axes.set_ylabel("zeta")
        _whole_numbers(axes, run.group.deployments)
        _legend(axes, 2)
        return keep(drawing, "exploration", "The exploration scale zeta inside each batch.")


def reliability(run: Run) -> Figure | None:
    """Does doubt go with error? In ten groups of held-out steps, for the first and the last deployment."""
    items = _with_reliability(run)
    shown = items[:1] if len(items) < 2 else [items[0], items[-1]]
    lines = [(f"deployment {item['deployment']}", item["trained"], look(i)) for i, item in enumerate(shown)]
    return _reliability(lines, "reliability", "Disagreement against error on held-out steps, in ten equal groups.")


def reliabilities(material: Material, group: Group) -> Figure | None:
    """The same of every method: of its first run, after the last deployment."""
    first = {method: _with_reliability(material.comparable(group, method)[0]) for method in material.methods(group)}
    lines = [(method, items[-1]["trained"], look(material.order[method])) for method, items in first.items() if items]
    title = f"Disagreement against error on {group.title}: held-out steps in ten equal groups, "
    title += "after the last deployment of the first run of each method."
    return _reliability(lines, f"reliability-{group.slug}", title)


def _with_reliability(run: Run) -> list[dict[str, Any]]:
    parts = ("reliability_doubt", "reliability_error")
    return [item for item in run.summary["per_deployment"] if all(_known(item["trained"], part) for part in parts)]


def _reliability(lines: Sequence[tuple[str, dict[str, Any], dict[str, Any]]], name: str, title: str) -> Figure | None:
    """Name, numbers and look of each line."""
    if not lines:
        return None
    with canvas() as (drawing, axes):
        from matplotlib.ticker import LogLocator

        for label, trained, style in lines:
            doubt, error = trained["reliability_doubt"], trained["reliability_error"]
            axes.plot(doubt, error, marker="o", markersize=4, label=label, **style)
        if all(min(trained[f"reliability_{part}"]) > 0 for _, trained, _ in lines for part in ("doubt", "error")):
            axes.set_xscale("log")
            axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):  # at 1, 2, 5, 10: more of them run into each other
                axis.set_minor_locator(LogLocator(subs=(2, 5), numticks=4))
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter("{x:g}")
        axes.set_xlabel("disagreement of the labeler")
        axes.set_ylabel("error of its members' mean")
        _legend(axes, len(lines))
        return keep(drawing, name, title)


def uncertain_places(found: Doubts, task: str) -> Figure:
    """The states of the last batch on their two main directions."""
    with canvas() as (drawing, axes):
        rank = np.empty(len(found.doubt))
        rank[np.argsort(found.doubt)] = np.linspace(0, 1, len(rank))
        dots = axes.scatter(*found.plane.T, c=rank, s=7, cmap="plasma", linewidths=0, rasterized=True)
        ticks = np.linspace(0, 1, 5)
        scale = drawing.colorbar(dots, ax=axes, label="doubt, in units of the state", ticks=ticks)
        scale.ax.set_yticklabels([f"{value:.4g}" for value in np.quantile(found.doubt, ticks)])
        scale.outline.set_visible(False)
        axes.set_xlabel("first main direction of the states")
        axes.set_ylabel("second")
        axes.grid(visible=False)
        title = "Where: the states of the last batch, coloured by how unsure the model is of the next one, "
        title += "a quarter of them between two marks."
        return keep(drawing, f"uncertain-places-{task}", title)


def uncertain_times(found: Doubts, task: str) -> Figure:
    with canvas() as (drawing, axes):
        middle, low, high = found.by_step
        axes.fill_between(found.steps, low, high, color=COLOURS[1], alpha=0.2, linewidth=0, label="10 to 90 %")
        axes.plot(found.steps, middle, color=COLOURS[1], marker="o", markersize=3, label="median")
        axes.set_xlabel("step of the episode")
        axes.set_ylabel("doubt, in units of the state")
        axes.set_ylim(0, 1.1 * high.max() or 1)
        _legend(axes, 2)
        return keep(drawing, f"uncertain-times-{task}", "When: the same doubt along the episodes of the batch.")
