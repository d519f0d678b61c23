"""What the runs of a study say about its methods: rows of numbers, one per method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from musbo.report import statistics
from musbo.report.gather import Group, Material, Run
from musbo.report.tables import rows as deployments
from musbo.report.words import batch_warnings, imagined_per_step, real_per_step, trained_warnings

SEED = 0  # of the bootstrap: the same runs give the same page
DIAGNOSTICS = {
    "novelty": ("batch", "novelty", "mean cosine distance of a batch from all before it"),
    "dynamics_error": (
        "trained",
        "model error",
        "squared, held-out, over all that it predicts, in units of its data",
    ),
    "energy_distance": (
        "evaluated",
        "energy distance",
        "between imagined and real courses, in units of the first batch",
    ),
    "trajectory_mse": ("evaluated", "trajectory error", "squared, imagined against real courses, same units"),
    "rank_correlation": ("trained", "doubt with error", "rank correlation of disagreement and error, held-out"),
    "imagined_minus_real": ("", "imagined minus real", "reward per step over the horizon of imagination"),
}
"""The step that wrote it, its name, and what it is."""


@dataclass(frozen=True)
class Band:
    """A number per deployment: the mean over seeds with its interval, and every seed by itself."""

    deployments: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: np.ndarray


def returns(runs: Sequence[Run]) -> np.ndarray:
    """[runs, deployments]. A deployment that could not be evaluated (no simulator) has no return."""
    return np.array([[np.nan if r is None else r for r in run.summary["returns"]] for run in runs], float)


def band(values: np.ndarray) -> Band | None:
    """Of [runs, deployments]; deployments that lack a number in some run are left out."""
    known = np.isfinite(values).all(0) if len(values) else np.zeros(0, bool)
    if not known.any():
        return None
    days, seeds = np.flatnonzero(known) + 1, values[:, known]
    each = [statistics.interval(statistics.mean, column[:, None], seed=SEED) for column in seeds.T]
    value, low, high = np.array([(i.value, i.low, i.high) for i in each]).T
    return Band(days, value, low, high, seeds)


def diagnostic(runs: Sequence[Run], name: str) -> np.ndarray:
    """[runs, deployments] of one diagnostic; nan where a method has none."""
    step, _, _ = DIAGNOSTICS[name]
    found = []
    for run in runs:
        row = []
        for item in run.summary["per_deployment"]:
            if step:
                value = item[step].get(name)
            else:
                imagined, real = imagined_per_step(item["trained"], item["evaluated"]), real_per_step(item["evaluated"])
                value = None if imagined is None or real is None else imagined - real
            row.append(np.nan if value is None else value)
        found.append(row)
    return np.array(found, float)


def random_level(material: Material, group: Group) -> float | None:
    """The mean return of the first batches, where these were random."""
    first = [run.summary["per_deployment"][0]["batch"] for run in material.runs if run.group == group]
    known = [batch["batch_return"] for batch in first if not batch.get("source") and batch["batch_return"] is not None]
    return float(np.mean(known)) if known else None


def finals(material: Material, group: Group) -> dict[str, list[Run]]:
    """The methods that have finished runs with a final return, and these runs."""
    found = {method: material.finished(group, method) for method in material.methods(group)}
    scored = {m: [run for run in runs if run.summary["final_return"] is not None] for m, runs in found.items()}
    return {method: runs for method, runs in scored.items() if runs}


def unscored(material: Material, group: Group) -> list[Run]:
    """Finished runs without a final return: there was no simulator, or the return was no number."""
    every = [run for method in material.methods(group) for run in material.finished(group, method)]
    return [run for run in every if run.summary["final_return"] is None]


def method_rows(material: Material, group: Group) -> list[dict[str, Any]]:
    """One row per method with finished runs. The first method is what the others are compared with."""
    scored = finals(material, group)
    if not scored:
        return []
    final = {m: np.array([run.summary["final_return"] for run in runs]) for m, runs in scored.items()}
    low, best = random_level(material, group), max(values.mean() for values in final.values())
    half_way = None if low is None or best <= low else (low + best) / 2
    goal = material.scores.get(group.task, half_way)
    reference = next(iter(scored))
    rows = []
    for method, runs in scored.items():
        values, curves = final[method], returns(runs)
        whole = bool(np.isfinite(curves).all())
        iqm = statistics.interval(statistics.interquartile_mean, values[:, None], seed=SEED)
        row: dict[str, Any] = {
            "task": group.task, "deployments": group.deployments, "batch": group.batch, "method": method,
            "preset": runs[0].settings.preset, "episodes": runs[0].settings.episodes,
            "runs": len(runs), "asked": material.asked(group, method), "seeds": " ".join(str(run.seed) for run in runs),
            "mean": float(values.mean()), "deviation": float(values.std(ddof=1)) if len(values) > 1 else None,
            "iqm": iqm.value, **_ends("iqm", iqm, len(runs)), "model_return": _model_return(runs),
            "area": float(statistics.area_under_curve(curves).mean()) if whole else None,
            "goal": goal, "reached": None, "needed": None,
            "difference": None, "difference_low": None, "difference_high": None, "pairs": 0, "better": None,
            "extra_steps": round(np.mean([extra_steps(run) for run in runs])),
            "hours": float(np.mean([run.summary["seconds"] for run in runs])) / 3600,
        }  # fmt: skip
        if whole and goal is not None:
            there = statistics.reach(curves, goal)
            row |= {"reached": there.reached, "needed": there.median}
        if method != reference:
            row |= _against(scored[reference], runs)
        rows.append(row)
    return rows


def extra_steps(run: Run) -> int:
    """What an oracle tried in the simulator beside the batches."""
    return sum(item["batch"].get("extra_steps") or 0 for item in run.summary["per_deployment"])


def _model_return(runs: Sequence[Run]) -> float | None:
    """Of the last policies, under the reward that imagination uses; none where that is learned."""
    each = [run.summary["per_deployment"][-1]["evaluated"].get("model_return") for run in runs]
    return float(np.mean(each)) if None not in each else None


def _against(reference: Sequence[Run], runs: Sequence[Run]) -> dict[str, Any]:
    """Method minus reference over the seeds of both, and how often a run of the method is the better one.

    One run beats another or does not: that is no chance, and needs two of each at least.
    """
    theirs = {run.seed: run.summary["final_return"] for run in reference}
    pairs = [(run.summary["final_return"], theirs[run.seed]) for run in runs if run.seed in theirs]
    own = np.array([run.summary["final_return"] for run in runs])
    better = statistics.probability_of_improvement(own[:, None], np.array(list(theirs.values()))[:, None])
    found: dict[str, Any] = {"pairs": len(pairs), "better": float(better) if min(len(own), len(theirs)) > 1 else None}
    if pairs:
        x, y = np.array(pairs).T
        apart = statistics.paired_difference(x[:, None], y[:, None], seed=SEED)
        found |= {"difference": apart.value, **_ends("difference", apart, len(pairs))}
    return found


def _ends(name: str, found: statistics.Interval, runs: int) -> dict[str, float | None]:
    """The ends of an interval, as two columns. From one run it would be a point, and says nothing."""
    low, high = (found.low, found.high) if runs > 1 else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


@dataclass(frozen=True)
class Overall:
    """All tasks together, on the line where random actions are 0 and the best method's mean is 1."""

    rows: list[dict[str, Any]]
    profiles: dict[str, statistics.Profile]
    unfinished: list[Group]
    """No run is finished there, or none has a return."""
    no_line: list[Group]
    """No method is above random actions there, or the first batch was not random."""
    partly: list[str]
    """The methods that have finished runs on some of the others and not on all."""


def overall(material: Material) -> Overall | None:
    """None with one task and budget, or one method: then there is nothing to put together."""
    if len(material.groups) < 2 or len(material.order) < 2:
        return None
    scores: dict[str, list[np.ndarray]] = {}
    count, unfinished, no_line = 0, [], []
    for group in material.groups:
        low = random_level(material, group)
        scored = {m: np.array([r.summary["final_return"] for r in runs]) for m, runs in finals(material, group).items()}
        best = max((float(values.mean()) for values in scored.values()), default=-np.inf)
        if not scored:
            unfinished.append(group)
        elif low is None or best <= low:
            no_line.append(group)
        else:
            count += 1
            for method, values in scored.items():
                scores.setdefault(method, []).append(statistics.normalise(values, low, best))
    partly = [method for method, each in scores.items() if len(each) < count]
    scores = {method: each for method, each in scores.items() if len(each) == count}
    if count < 2 or len(scores) < 2:
        return Overall([], {}, unfinished, no_line, partly)
    reference = next(iter(scores))
    every = np.concatenate([values for each in scores.values() for values in each])
    tau = np.linspace(min(0.0, every.min()), max(1.0, every.max()), 101)
    rows, profiles = [], {}
    for method, each in scores.items():
        iqm = statistics.interval(statistics.interquartile_mean, each, seed=SEED)
        fewest = min(map(len, each))
        row: dict[str, Any] = {
            "method": method, "tasks": len(each), "runs": sum(map(len, each)), "fewest": fewest,
            "mean": float(statistics.mean(each)), "iqm": iqm.value, **_ends("iqm", iqm, fewest),
            "better": None, "better_low": None, "better_high": None,
        }  # fmt: skip
        if method != reference:
            p = statistics.interval(statistics.probability_of_improvement, each, scores[reference], seed=SEED)
            row |= {"better": p.value, **_ends("better", p, min(fewest, *map(len, scores[reference])))}
        rows.append(row)
        profiles[method] = statistics.performance_profile(each, tau, seed=SEED)
    return Overall(rows, profiles, unfinished, no_line, partly)


def run_rows(material: Material) -> list[dict[str, Any]]:
    """Every run with everything of every deployment: the data behind the page."""
    return [place(run) | {"finished": run.finished} | row for run in material.runs for row in deployments(run.summary)]


def warning_rows(material: Material) -> list[dict[str, Any]]:
    """Every warning that the deployments deserve, method by method and seed by seed."""
    return [
        place(run) | {"deployment": item["deployment"], "kind": kind, "warning": text}
        for group in material.groups
        for method in material.methods(group)
        for run in material.of(group, method)
        for item in run.summary["per_deployment"]
        for kind, text in (batch_warnings(item["batch"]) | trained_warnings(item["trained"])).items()
    ]


def place(run: Run) -> dict[str, Any]:
    budget = f"{run.group.deployments} x {run.group.batch:,}"
    return {"task": run.task, "budget": budget, "method": run.method, "seed": run.seed}
