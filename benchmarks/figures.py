"""The figure of every benchmark, drawn from its committed data.

    python benchmarks/figures.py [FOLDER ...]

Writes `figure.svg` into each folder. The one of `comparison` is also the figure of the README and of the site's front.
"""

import argparse
import csv
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

HERE = Path(__file__).parent
NAMES = {
    "musbo": "MUSBO",
    "bremen": "BREMEN",
    "me-trpo": "ME-TRPO",
    "mopo": "MOPO",
    "sac": "SAC",
    "bcq": "BCQ",
    "brac": "BRAC",
    "bc": "BC",
    "random": "random",
    "musbo-constant-noise": "constant noise",
}
COLOURS = {
    "musbo": "#c1121f",
    "bremen": "#1d6fb8",
    "me-trpo": "#2a9d5c",
    "mopo": "#8338ec",
    "sac": "#e07a00",
    "bcq": "#8c6d46",
    "brac": "#4d4d4d",
    "bc": "#6a994e",
    "random": "#9a9a9a",
    "musbo-constant-noise": "#e07a00",
}
OURS, PEERS = "#c1121f", "#7a8794"


def rows(path: str) -> list[dict[str, str]]:
    with (HERE / path).open() as file:
        return list(csv.DictReader(file))


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split()]


def canvas(columns: int = 1, width: float = 7.0, height: float = 3.4) -> tuple[Figure, list[Any]]:
    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", squeeze=False)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_axisbelow(True)
        axis.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    return figure, list(axes[0])


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights for the names at the ends of curves: in the same order, at least `gap` apart."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = list(heights)
    for before, after in zip(order, order[1:], strict=False):
        placed[after] = max(placed[after], placed[before] + gap)
    return placed


def comparison() -> Figure:
    """Return after each deployment, method beside method."""
    figure, axes = canvas(2, 10, 3.6)
    tasks = {
        "halfcheetah-5x50000": "halfcheetah: 5 deployments of 50,000 steps",
        "hopper-10x25000": "hopper: 10 deployments of 25,000 steps",
    }
    shown = ["musbo", "bremen", "me-trpo", "mopo", "sac", "bcq", "brac", "random"]
    for axis, (slug, title) in zip(axes, tasks.items(), strict=True):
        found = {row["method"]: row for row in rows(f"comparison/tables/returns-{slug}.csv")}
        curves = {
            name: [float(value) for key, value in found[name].items() if key.startswith("mean_") and value]
            for name in shown
            if name in found
        }
        top = max(max(curve) for curve in curves.values())
        ends = spread([curve[-1] for curve in curves.values()], 0.065 * top)
        for (name, curve), height in zip(curves.items(), ends, strict=True):
            width = 2.6 if name == "musbo" else 1.2 if name == "random" else 1.6
            steps = range(1, len(curve) + 1)
            axis.plot(steps, curve, color=COLOURS[name], linewidth=width, marker="o", markersize=2 * width)
            place = (len(curve) * 1.02, height)
            axis.annotate(NAMES[name], place, color=COLOURS[name], va="center", annotation_clip=False)
        axis.set_title(title, fontsize=10.5, loc="left")
        axis.set_xlabel("deployments used")
        axis.set_xticks(range(1, max(map(len, curves.values())) + 1))
    axes[0].set_ylabel("return of the policy")
    return figure


def fast_preset() -> Figure:
    """`fast` and three times its computation on the same seeds."""
    figure, (axis,) = canvas()
    runs = rows("fast-preset/three-times.csv")
    for i, method in enumerate(dict.fromkeys(row["method"] for row in runs)):
        curves = [numbers(row["returns"]) for row in runs if row["method"] == method]
        colour, text = ((OURS, "fast"), (PEERS, "three times the computation"))[i]
        for curve in curves:
            axis.plot(range(1, 6), curve, color=colour, linewidth=0.9, alpha=0.45)
        means = [statistics.mean(values) for values in zip(*curves, strict=True)]
        axis.plot(range(1, 6), means, color=colour, linewidth=2.6, marker="o", label=f"{text} (mean of {len(curves)})")
    axis.set(xlabel="deployments of 50,000 steps", ylabel="return on halfcheetah", xticks=range(1, 6))
    axis.legend(frameon=False, loc="lower right")
    return figure


def deployments() -> Figure:
    """Ten seeds of MUSBO on pendulum."""
    figure, (axis,) = canvas()
    found = rows("deployments/results.csv")
    seeds = sorted({int(row["seed"]) for row in found})
    curves = [
        [float(row["return"]) for row in found if int(row["seed"]) == seed and row["algo"] == "musbo"] for seed in seeds
    ]
    for curve in curves:
        axis.plot(range(1, len(curve) + 1), curve, color=OURS, linewidth=1, alpha=0.6, marker="o", markersize=3)
    axis.set(xlabel="deployments of 2,000 steps", ylabel="return on pendulum", xticks=range(1, 5))
    axis.axhline(-1200, color=PEERS, linestyle="--", linewidth=1)
    axis.annotate("random actions", (4, -1200), color=PEERS, ha="right", va="bottom")
    return figure


def methods() -> Figure:
    """Return after one random batch on halfcheetah."""
    figure, (axis,) = canvas()
    found = rows("methods/one-batch.csv")
    for i, name in enumerate(["musbo", "bremen", "mopo", "sac", "bc"]):
        values = [numbers(row["returns"])[-1] for row in found if row["algo"] == name]
        axis.plot([i] * len(values), values, "o", color=COLOURS[name], markersize=7, alpha=0.8)
    axis.set(
        xticks=range(5),
        xticklabels=["MUSBO", "BREMEN", "MOPO", "SAC", "BC"],
        ylabel="return on halfcheetah",
        xlim=(-0.5, 4.5),
    )
    return figure


def novelty() -> Figure:
    """Novelty of every batch on cheetah-run, and the paper's."""
    figure, (axis,) = canvas()
    paper = {"musbo": [0.995, 0.959, 0.945, 0.941], "bremen": [0.972, 0.903, 0.891, 0.858]}
    steps = range(2, 6)
    for name in ("musbo", "bremen", "musbo-constant-noise"):
        curves = [numbers(row["novelty"]) for row in rows("novelty/results.csv") if row["algo"] == name]
        for i, curve in enumerate(curves):
            label = f"{NAMES[name]}, {len(curves)} seeds" if i == 0 else None
            axis.plot(steps, curve, color=COLOURS[name], linewidth=1.6, marker="o", markersize=4, label=label)
        if name in paper:
            axis.plot(steps, paper[name], color=COLOURS[name], linestyle="--", label=f"{NAMES[name]}, paper")
    axis.set(xlabel="deployment", ylabel="novelty of its batch", xticks=steps)
    axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def agreement() -> Figure:
    """Returns of musbo's and d3rlpy's methods on the same logs, by seed."""
    figure, axes = canvas(2, 8.5)
    behaviour = {"pendulum": -426, "hopper": 218}
    for axis, (task, level) in zip(axes, behaviour.items(), strict=True):
        found = [row for row in rows("agreement/results.csv") if row["task"] == task]
        groups = list(dict.fromkeys((row["algo"], row["made_by"]) for row in found))
        for i, (algo, who) in enumerate(groups):
            runs = [numbers(row["returns"]) for row in found if (row["algo"], row["made_by"]) == (algo, who)]
            settled = [statistics.mean(run[len(run) // 2 :]) for run in runs]
            colour = OURS if who == "musbo" else PEERS
            axis.plot([i] * len(settled), settled, "o", color=colour, alpha=0.7)
        axis.axhline(level, color="#555555", linestyle="--", linewidth=1)
        axis.text(0.99, level, "mean of the logs", transform=axis.get_yaxis_transform(), ha="right", va="bottom")
        names = [f"{algo.upper().replace('BRAC-', 'BRAC ')}\n{who}" for algo, who in groups]
        axis.set_xticks(range(len(groups)), names, fontsize=8)
        axis.set_title(task, fontsize=10.5, loc="left")
    axes[0].set_ylabel("return")
    return figure


def speed() -> Figure:
    """How many times as fast as the peer, and the share of the machine's limit."""
    figure, axes = canvas(2, 9)
    works = json.loads((HERE / "speed" / "results.json").read_text())
    beside = [work for work in works if work["ratio"]]
    axes[0].barh([work["work"] for work in beside], [work["ratio"] for work in beside], color=OURS)
    axes[0].axvline(1, color="#555555", linestyle="--", linewidth=1)
    axes[0].set_xlabel("times as fast as the peer")
    axes[1].barh([work["work"] for work in works], [100 * work["limit_fraction"] for work in works], color=PEERS)
    axes[1].set(xlabel="% of the limit of the machine's matrix products", xlim=(0, 100))
    for axis in axes:
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    return figure


def collection() -> Figure:
    """Speed of collection relative to bare stepping, every repeat."""
    figure, (axis,) = canvas(height=2.6)
    found = json.loads((HERE / "collection" / "results.json").read_text())["results"]
    for i, row in enumerate(found):
        pairs = zip(row["bare_steps_per_second"], row["collected_steps_per_second"], strict=True)
        axis.plot([whole / bare for bare, whole in pairs], [i] * row["repeats"], "o", color=OURS, alpha=0.7)
        axis.plot([row["ratio_median"]], [i], "|", color="#222222", markersize=24)
    axis.axvline(0.8, color="#555555", linestyle="--", linewidth=1)
    axis.set_yticks(range(len(found)), [row["task"] for row in found])
    axis.set(xlabel="speed of collection / speed of bare stepping", xlim=(0.5, 1.02), ylim=(-0.6, len(found) - 0.4))
    return figure


def model_reward() -> Figure:
    """Correlation of the model reward with the simulator's own."""
    figure, (axis,) = canvas()
    found = json.loads((HERE / "model-reward" / "results.json").read_text())["results"]
    tasks = list(dict.fromkeys(row["task"] for row in found))
    for shift, behaviour, colour in ((-0.19, "uniform", OURS), (0.19, "smooth", PEERS)):
        values = [row["correlation"] for row in found if row["behaviour"] == behaviour]
        axis.bar([i + shift for i in range(len(tasks))], values, 0.36, color=colour, label=f"{behaviour} actions")
    axis.set_xticks(range(len(tasks)), tasks, fontsize=9)
    axis.set(ylabel="correlation per step", ylim=(0, 1))
    axis.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "agreement": agreement,
    "collection": collection,
    "comparison": comparison,
    "deployments": deployments,
    "fast-preset": fast_preset,
    "methods": methods,
    "model-reward": model_reward,
    "novelty": novelty,
    "speed": speed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=", ".join(FIGURES))
    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "musbo", "svg.fonttype": "path"})
    for name in parser.parse_args().folders or FIGURES:
        figure, target = FIGURES[name](), HERE / name / "figure.svg"
        figure.savefig(target, metadata={"Date": None})
        plt.close(figure)
        text = target.read_text()  # matplotlib leaves blanks at the ends of lines
        target.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


if __name__ == "__main__":
    main()
