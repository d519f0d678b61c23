"""The learning curve of a run: return per deployment, and what imagination promised against what came true."""

import io
from pathlib import Path
from typing import Any

from musbo.campaign.summary import Summary
from musbo.core.durable import write_whole
from musbo.core.errors import UserError
from musbo.reporting.run_tables import Row, rows

BLUE, ORANGE, GREY, INK = "#2468a2", "#c8602a", "#8a8f96", "#30353b"


def draw(summary: Summary, folder: Path) -> list[Path]:
    """Write `curve.svg` and `curve.png` to `folder`."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "no learning curve was drawn, because matplotlib is missing: pip install 'musbo[report]'."
        ) from error
    data = rows(summary)
    paths = []
    # Text stays text in the SVG, and equal runs give equal files.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "musbo", "font.size": 9.5}):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        plot_returns(left, data, random_first=not summary.deployments[0].batch.source)
        plot_imagined(right, data)
        for axes in (left, right):
            tidy(axes, data)
        own = summary.settings
        title = f"{own.algo} on {summary.task_name}, {own.preset}, seed {own.seed}"
        left.set_title(title, loc="left", color=INK, fontweight="bold", fontsize=10.5)
        for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            image = io.BytesIO()
            figure.savefig(image, format=suffix, dpi=150, metadata=metadata)
            paths.append(folder / f"curve.{suffix}")
            write_whole(paths[-1], image.getvalue())
    return paths


def tidy(axes: Any, data: list[Row]) -> None:
    axes.set_xlabel("deployment", color=INK)
    axes.set_xticks([row.deployment for row in data] if len(data) <= 20 else range(0, len(data) + 1, 5))
    axes.set_xlim(0.6, len(data) + 0.4)
    axes.margins(y=0.08)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(colors=INK)
    axes.grid(axis="y", color="#e6e8ea", linewidth=0.8)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:  # below the axes, where it hides nothing
        axes.legend(frameon=False, labelcolor=INK, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)


def plot_returns(axes: Any, data: list[Row], random_first: bool) -> None:
    axes.set_ylabel("return per episode", color=INK)
    if random_first and data[0].batch_return is not None:
        level = data[0].batch_return
        axes.axhline(level, color=GREY, linestyle=":", linewidth=1.2)
        axes.annotate(
            "random actions", (1, level), (-2, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
            ha="right", va="bottom", color=GREY,
        )  # fmt: skip
    known = [row for row in data if row.batch_return is not None]
    days, batch = [row.deployment for row in known], [row.batch_return for row in known]
    axes.plot(days, batch, color=ORANGE, marker="s", markersize=4, linestyle="--", linewidth=1.2, label="batch")
    scored = [(row.deployment, row.mean_return, row.deviation) for row in data if row.mean_return is not None]
    if scored:
        days, mean = [d for d, _, _ in scored], [value for _, value, _ in scored]
        axes.plot(days, mean, color=BLUE, marker="o", linewidth=2, label="policy trained on it, mean ± deviation")
        deviation = [value or 0.0 for _, _, value in scored]  # one episode has none
        low, high = ([m + sign * s for m, s in zip(mean, deviation, strict=True)] for sign in (-1, 1))
        if len(days) > 1:
            axes.fill_between(days, low, high, color=BLUE, alpha=0.15, linewidth=0)
        else:
            axes.errorbar(days, mean, yerr=deviation[0], color=BLUE, capsize=4)


def plot_imagined(axes: Any, data: list[Row]) -> None:
    axes.set_ylabel("reward per step", color=INK)
    axes.set_title("imagined against real", loc="left", color=INK, fontsize=10)
    imagined = {row.deployment: row.imagined_per_step for row in data if row.imagined_per_step is not None}
    real = {row.deployment: row.real_per_step for row in data if row.real_per_step is not None}
    for values, colour, marker, label in ((imagined, ORANGE, "^", "imagined"), (real, BLUE, "o", "real")):
        if values:
            axes.plot(list(values), list(values.values()), color=colour, marker=marker, linewidth=1.6, label=label)
