"""What all figures of a report share. Each is drawn once and kept as SVG and PNG; colours have roles, so that a page
can give the SVG the colours of its own theme."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from musbo.core.errors import UserError

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


@dataclass(frozen=True)
class Look:
    """Colour and line of a method."""

    color: str
    linestyle: str

    @property
    def line(self) -> dict[str, str]:
        """As arguments of matplotlib."""
        return {"color": self.color, "linestyle": self.linestyle}


def look(index: int) -> Look:
    """That of the n-th method."""
    return Look(COLOURS[index % len(COLOURS)], STYLES[index // len(COLOURS) % len(STYLES)])


@contextmanager
def canvas(size: tuple[float, float] = SIZE) -> Iterator[tuple[Any, Any]]:
    """An empty drawing and its axes."""
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
    """A drawing that is complete."""
    from matplotlib import rc_context

    images = []
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):  # ids differ between the figures of a page
        for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            image = io.BytesIO()
            drawing.savefig(image, format=suffix, dpi=150, metadata=metadata)
            images.append(image.getvalue())
    return Figure(name, title, *images)


def legend(axes: Any, n: int) -> None:
    """Below the axes, where there is more than one thing to tell apart."""
    if n > 1:
        handles, labels = axes.get_legend_handles_labels()
        columns = max(1, min(3, 56 // (max(map(len, labels)) + 6)))
        width, height = SIZE
        axes.figure.set_size_inches(width, height + 0.2 * ((n - 1) // columns))  # names take nothing from the axes
        axes.figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def by_deployment(axes: Any, budget: int) -> None:
    """The axis of deployments, with whole numbers."""
    axes.set_xlabel("deployment")
    step = max(1, budget // 10)
    axes.set_xticks(range(step, budget + 1, step))
    axes.set_xlim(0.7, budget + 0.3)


def far_apart(values: Sequence[Any]) -> bool:
    """Numbers of very different size, all positive, are read on a logarithmic axis."""
    drawn = np.concatenate([np.asarray(each, float).ravel() for each in values])
    return bool((drawn > 0).all() and drawn.max() > 20 * drawn.min())
