"""The figure of the README and of the site's front page: return after each deployment, method beside method.

    python benchmarks/comparison/front.py

Reads tables/, writes docs/assets/front.svg.
"""

import csv
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / "docs" / "assets" / "front.svg"
TASKS = {
    "halfcheetah-5x50000": "halfcheetah: 5 deployments of 50,000 steps",
    "hopper-10x25000": "hopper: 10 deployments of 25,000 steps",
}
STYLES = {
    "musbo": ("MUSBO", "#c1121f", 2.6),
    "bremen": ("BREMEN", "#1d6fb8", 1.6),
    "me-trpo": ("ME-TRPO", "#2a9d5c", 1.6),
    "mopo": ("MOPO", "#8338ec", 1.6),
    "sac": ("SAC", "#e07a00", 1.6),
    "bcq": ("BCQ", "#8c6d46", 1.6),
    "brac": ("BRAC", "#4d4d4d", 1.6),
    "random": ("random", "#9a9a9a", 1.2),
}


def returns(slug: str) -> dict[str, list[float]]:
    """Mean return after each deployment, by method."""
    with (HERE / "tables" / f"returns-{slug}.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    means = {name: [float(v) for key, v in row.items() if key.startswith("mean_") and v] for name, row in rows.items()}
    return {name: means[name] for name in STYLES if name in means}


def spread(heights: list[float], gap: float) -> list[float]:
    """Heights for the names at the ends of the curves: in the same order, at least `gap` apart."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = list(heights)
    for before, after in zip(order, order[1:], strict=False):
        placed[after] = max(placed[after], placed[before] + gap)
    return placed


def main() -> None:
    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "front", "svg.fonttype": "path"})
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for axis, (slug, title) in zip(axes, TASKS.items(), strict=True):
        curves = returns(slug)
        top = max(max(curve) for curve in curves.values())
        names = spread([curve[-1] for curve in curves.values()], 0.065 * top)
        for (name, curve), height in zip(curves.items(), names, strict=True):
            text, colour, width = STYLES[name]
            steps = range(1, len(curve) + 1)
            axis.plot(steps, curve, color=colour, linewidth=width, marker="o", markersize=2 * width)
            axis.annotate(text, (len(curve) * 1.02, height), color=colour, va="center", annotation_clip=False)
        axis.set_title(title, fontsize=10.5, loc="left")
        axis.set_xlabel("deployments used")
        axis.set_xticks(range(1, max(map(len, curves.values())) + 1))
        axis.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("return of the policy")
    TARGET.parent.mkdir(exist_ok=True)
    figure.savefig(TARGET, metadata={"Date": None})
    text = TARGET.read_text()  # matplotlib leaves blanks at the ends of lines
    TARGET.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


if __name__ == "__main__":
    main()
