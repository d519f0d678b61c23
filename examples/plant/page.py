"""The page of the showcase: what was promised of every round, what came true, and what the last policy is worth."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from musbo import __version__
from musbo.core.durable import write_whole
from musbo.reporting.canvas import CARD, COLOURS, GREY, INK, Figure, canvas, keep, legend
from musbo.reporting.page import template
from musbo.reporting.section import Section
from musbo.reporting.sheets import Sheet

STILL, CONSTANT, RANDOM = "standing still", "best constant action", "random actions"


def write(out: Path, results: Mapping[str, Any], names: Sequence[str]) -> Path:
    """One file, without anything from elsewhere."""
    text = template().render(
        title="Five rounds on an industrial plant",
        subtitle="Three processes that share files and a pipe: a trainer without a simulator, a controller with numpy "
        "alone, and a plant, the Industrial Benchmark",
        sections=sections(results, names),
        version=__version__,
        files=False,
    )
    write_whole(out, text.encode())
    return out


def sections(results: Mapping[str, Any], names: Sequence[str]) -> list[Section]:
    seeds, references = results["seeds"], results["references"]
    return [
        Section(
            "Verdict",
            verdict(results),
            facts=[fact(f"last policy of seed {each['seed']}", each["rounds"][-1]) for each in seeds]
            + [fact(name, said) for name, said in references.items()],
        ),
        Section(
            "The course of every round",
            "Round 1 is the site's own controller with bounded noise. In rounds 2 and on the bundle explores, which "
            "costs reward and pays in data. The last policy does not explore; it is measured over episodes with "
            "disturbances that no training saw.",
            figures=[course(seeds, references), promises(seeds)],
            sheets=[table(seeds)],
        ),
        Section(
            "What the last policy does",
            "One episode from the start, beside the site's own controller.",
            figures=steering(seeds[0], names),
        ),
        Section("How it was made", how(results), figures=[processes()], code=[("Command", results["command"])]),
    ]


def better(seeds: Sequence[Mapping[str, Any]], reference: Mapping[str, float]) -> list[bool]:
    """Whether the last policy of each seed is better by more than two standard errors of the difference."""
    last = [each["rounds"][-1] for each in seeds]
    return [one["reward"] - reference["reward"] > 2 * float(np.hypot(one["error"], reference["error"])) for one in last]


def verdict(results: Mapping[str, Any]) -> str:
    """In words. It says so where a seed does not make it."""
    seeds, found = results["seeds"], results["references"]
    said = []
    for name in (STILL, CONSTANT):
        wins = better(seeds, found[name])
        lost = ", ".join(str(each["seed"]) for each, won in zip(seeds, wins, strict=True) if not won)
        share = f"on all {len(wins)} seeds" if all(wins) else f"on {sum(wins)} of {len(wins)} seeds (not on {lost})"
        said.append(f"{name} {share}")
    rounds = [one for each in seeds for one in each["rounds"] if one["promised"] is not None]
    over = float(np.mean([one["promised"] - one["reward"] for one in rounds]))
    way = "more" if over > 0 else "less"
    tried = [one for one in rounds if one["name"] != "last"]
    worse = sum(one["reward"] < found[STILL]["reward"] for one in tried)
    rounds, steps = len(seeds[0]["rounds"]) - 1, seeds[0]["rounds"][0]["steps"]
    return (
        f"After {rounds} rounds of {steps:,} steps the last policy is better than {' and than '.join(said)}, by more "
        f"than two standard errors. On the way there, {worse} of {len(tried)} rounds with a policy earned less than "
        f"standing still. On average the models promised {abs(over):.0f} per step {way} than came true."
    )


def how(results: Mapping[str, Any]) -> str:
    """The method, and what it ran on."""
    method, versions = results["method"], results["versions"]
    best = results["references"][CONSTANT]
    settings = " ".join(f"--{key} {value}" for key, value in method["settings"].items()) or "the settings of the preset"
    return (
        f"Method {method['algo']}, preset {method['preset']}, {settings}. The best constant action, {best['action']}, "
        f"is that of {best['tried']:,} on a grid. Trainer: {versions['trainer']}. Site: {versions['site']}. Machine: "
        f"{versions['machine']}."
    )


def fact(name: str, said: Mapping[str, float]) -> tuple[str, str]:
    return f"{name} (± {said['error']:.1f})", f"{said['reward']:.1f}"


def label(name: str) -> str:
    return {"logs": "1", "last": "last"}.get(name, name.removeprefix("round-"))


def table(seeds: Sequence[Mapping[str, Any]]) -> Sheet:
    heads = ["round"]
    for each in seeds:
        heads += [f"seed {each['seed']}: promised", "real", "by the fallback"]
    cells = []
    for same in zip(*(each["rounds"] for each in seeds), strict=True):
        line = [label(same[0]["name"])]
        for one in same:
            line.append("" if one["promised"] is None else f"{one['promised']:.1f}")
            line += [f"{one['reward']:.1f} ± {one['error']:.1f}", f"{100 * one['fallbacks'] / one['steps']:.1f} %"]
        cells.append(tuple(line))
    note = (
        "Reward per step. ± is the standard error of the mean over episodes. Promised is what the models imagined of "
        "the policy before it was exported. The fallback is the site's own controller."
    )
    return Sheet("rounds", "Every round", note, (), tuple(heads), tuple(cells))


def course(seeds: Sequence[Mapping[str, Any]], references: Mapping[str, Any]) -> Figure:
    with canvas() as (drawing, axes):
        labels = [label(one["name"]) for one in seeds[0]["rounds"]]
        for i, each in enumerate(seeds):
            real, error = (np.array([one[key] for one in each["rounds"]]) for key in ("reward", "error"))
            axes.errorbar(range(len(real)), real, error, marker="o", color=COLOURS[i], label=f"seed {each['seed']}")
        for name, style in ((STILL, "--"), (CONSTANT, ":")):
            axes.axhline(references[name]["reward"], color=INK, linestyle=style, linewidth=1.2, label=name)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_xlabel("round")
        axes.set_ylabel("real reward per step")
        legend(axes, len(seeds) + 2)
        return keep(
            drawing, "course", "Real reward per step of every round, of the last policy, and what it has to beat."
        )


def promises(seeds: Sequence[Mapping[str, Any]]) -> Figure:
    with canvas() as (drawing, axes):
        ends = []
        for i, each in enumerate(seeds):
            known = [one for one in each["rounds"] if one["promised"] is not None]
            x, y = [one["promised"] for one in known], [one["reward"] for one in known]
            axes.plot(x, y, "o", color=COLOURS[i], label=f"seed {each['seed']}")
            for one in known:
                axes.annotate(label(one["name"]), (one["promised"], one["reward"]), (5, 3), textcoords="offset points",
                              color=GREY, fontsize=8)  # fmt: skip
            ends += x + y
        both = min(ends), max(ends)
        axes.plot(both, both, color=GREY, linewidth=1, linestyle="--")
        axes.set_xlabel("promised reward per step")
        axes.set_ylabel("real reward per step")
        legend(axes, len(seeds))
        return keep(
            drawing,
            "promises",
            "Promised against real, a point for each round. Below the dashed line a promise was not kept.",
        )


def steering(seed: Mapping[str, Any], names: Sequence[str]) -> list[Figure]:
    """The observations of one episode: what the plant showed before and after the campaign."""
    before, after = (np.array(seed["rounds"][i]["shown"]) for i in (0, -1))
    found = []
    for i, name in enumerate(names):
        if np.ptp(np.concatenate([before[:, i], after[:, i]])) == 0:
            continue  # the setpoint is given
        with canvas((5.2, 2.6)) as (drawing, axes):
            axes.plot(before[:, i], color=GREY, label="the site's own controller")
            axes.plot(after[:, i], color=COLOURS[0], label=f"last policy of seed {seed['seed']}")
            axes.set_xlabel("step")
            axes.set_ylabel(name)
            drawing.legend(loc="outside lower center", ncols=2, frameon=False)
            found.append(keep(drawing, f"steering-{i}", f"{name} over an episode"))
    return found


def processes() -> Figure:
    """Who knows what, and what goes between them."""
    boxes = (("trainer", "musbo, no simulator"), ("controller", "Python and numpy"), ("plant", "hidden state, delays"))
    style = {"boxstyle": "round,pad=0.7", "facecolor": CARD, "edgecolor": INK}
    with canvas((5.2, 1.7)) as (drawing, axes):
        axes.set_axis_off()
        axes.set_xlim(0, 10)
        axes.set_ylim(0, 3)
        for i, (name, about) in enumerate(boxes):
            axes.text(1.1 + 3.9 * i, 1.7, name, ha="center", va="center", weight="bold", bbox=style)
            axes.text(1.1 + 3.9 * i, 0.6, about, ha="center", va="center", fontsize=7, color=GREY)
        for left, there, back, by in (
            (2.2, "bundle", "recording", "files"),
            (6.1, "actions", "observations", "a pipe"),
        ):
            for y, begin, end, said in ((1.9, left, left + 1.7, there), (1.5, left + 1.7, left, back)):
                axes.annotate("", (end, y), (begin, y), arrowprops={"arrowstyle": "->", "color": INK})
                axes.text(left + 0.85, y + (0.15 if y > 1.6 else -0.4), said, ha="center", fontsize=7)
            axes.text(left + 0.85, 2.6, by, ha="center", fontsize=8, color=GREY)
        return keep(drawing, "processes", "Trainer and controller exchange files; controller and plant talk by a pipe.")
