"""What the runs of a study say about its methods: rows of numbers, one per method."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from musbo.algorithms import recipes
from musbo.reporting import statistics
from musbo.reporting.advice import Standing, advise
from musbo.reporting.gather import Group, Material, Run
from musbo.reporting.measures import SEED, returns
from musbo.reporting.run_tables import Row
from musbo.reporting.run_tables import rows as deployments


def random_level(material: Material, group: Group) -> float | None:
    """The mean return of the first batches, where these were random."""
    first = [run.summary.deployments[0].batch for run in material.runs if run.group == group]
    known = [batch.mean_return for batch in first if not batch.source and batch.mean_return is not None]
    return float(np.mean(known)) if known else None


def finals(material: Material, group: Group) -> dict[str, list[Run]]:
    """The methods that have finished runs with a final return, and these runs."""
    found = {method: material.finished(group, method) for method in material.methods(group)}
    scored = {m: [run for run in runs if run.summary.final_return is not None] for m, runs in found.items()}
    return {method: runs for method, runs in scored.items() if runs}


def final_returns(runs: Sequence[Run]) -> np.ndarray:
    """Of runs that have one."""
    return np.array([run.summary.final_return for run in runs], float)


def unscored(material: Material, group: Group) -> list[Run]:
    """Finished runs without a final return: there was no simulator, or the return was no number."""
    every = [run for method in material.methods(group) for run in material.finished(group, method)]
    return [run for run in every if run.summary.final_return is None]


@dataclass(frozen=True)
class MethodRow:
    """A method on one task and budget, over the seeds that are finished."""

    task: str
    budget: int
    batch_size: int
    method: str
    preset: str
    episodes: int
    runs: int
    asked: int
    """How many runs there would be, if none were missing."""
    seeds: str
    mean: float
    """Of the final returns."""
    deviation: float | None
    iqm: float
    """Interquartile mean of the final returns, with its interval."""
    iqm_low: float | None
    iqm_high: float | None
    model_return: float | None
    area: float | None
    """Mean return over all deployments."""
    goal: float | None
    """The return whose reaching is counted in deployments."""
    reached: int | None = None
    needed: float | None = None
    difference: float | None = None
    """To the first method, over the seeds of both, with its interval."""
    difference_low: float | None = None
    difference_high: float | None = None
    pairs: int = 0
    better: float | None = None
    """The chance that a run beats one of the first method."""
    extra_steps: int = 0
    hours: float = 0.0


def method_rows(material: Material, group: Group) -> list[MethodRow]:
    """One row per method with finished runs. The first method is what the others are compared with."""
    scored = finals(material, group)
    if not scored:
        return []
    final = {method: final_returns(runs) for method, runs in scored.items()}
    low, best = random_level(material, group), max(each.mean() for each in final.values())
    half_way = None if low is None or best <= low else (low + best) / 2
    goal = material.scores.get(group.task, half_way)
    reference = next(iter(scored))
    rows = []
    for method, runs in scored.items():
        own, curves = final[method], returns(runs)
        whole = bool(np.isfinite(curves).all())
        iqm = statistics.interval(statistics.interquartile_mean, own[:, None], seed=SEED)
        iqm_low, iqm_high = _ends(iqm, len(runs))
        row = MethodRow(
            group.task,
            group.budget,
            group.batch_size,
            method,
            runs[0].settings.preset,
            runs[0].settings.episodes,
            runs=len(runs),
            asked=material.asked(group, method),
            seeds=" ".join(str(run.seed) for run in runs),
            mean=float(own.mean()),
            deviation=float(own.std(ddof=1)) if len(own) > 1 else None,
            iqm=iqm.value,
            iqm_low=iqm_low,
            iqm_high=iqm_high,
            model_return=_model_return(runs),
            area=float(statistics.area_under_curve(curves).mean()) if whole else None,
            goal=goal,
            extra_steps=round(np.mean([extra_steps(run) for run in runs])),
            hours=float(np.mean([run.summary.seconds for run in runs])) / 3600,
        )
        if whole and goal is not None:
            there = statistics.reach(curves, goal)
            row = replace(row, reached=there.reached, needed=there.median)
        rows.append(row if method == reference else _against(row, scored[reference], runs))
    return rows


def extra_steps(run: Run) -> int:
    """What an oracle tried in the simulator beside the batches."""
    return sum(item.batch.extra_steps for item in run.summary.deployments)


def _model_return(runs: Sequence[Run]) -> float | None:
    """Of the last policies, under the reward that imagination uses; None where that is learned."""
    last = [run.summary.deployments[-1].evaluation for run in runs]
    each = [found.episodes.model_return if found and found.episodes else None for found in last]
    return float(np.mean([value for value in each if value is not None])) if None not in each else None


def _against(row: MethodRow, reference: Sequence[Run], runs: Sequence[Run]) -> MethodRow:
    """Method minus reference over the seeds of both, and how often a run of the method is the better one.

    One run beats another or does not: that is no chance, and needs two of each at least.
    """
    theirs = {run.seed: run.summary.final_return for run in reference}
    pairs = [(run.summary.final_return, theirs[run.seed]) for run in runs if run.seed in theirs]
    own, other = final_returns(runs), final_returns(reference)
    better = statistics.probability_of_improvement(own[:, None], other[:, None])
    row = replace(row, pairs=len(pairs), better=float(better) if min(len(own), len(other)) > 1 else None)
    if not pairs:
        return row
    x, y = np.array(pairs, float).T
    apart = statistics.paired_difference(x[:, None], y[:, None], seed=SEED)
    low, high = _ends(apart, len(pairs))
    return replace(row, difference=apart.value, difference_low=low, difference_high=high)


def _ends(found: statistics.Interval, runs: int) -> tuple[float | None, float | None]:
    """The ends of an interval. From one run it would be a point, and says nothing."""
    return (found.low, found.high) if runs > 1 else (None, None)


@dataclass(frozen=True)
class Place:
    """Which run a row is about."""

    task: str
    budget: int
    batch_size: int
    method: str
    seed: int


def place(run: Run) -> Place:
    return Place(run.task, run.group.budget, run.group.batch_size, run.method, run.seed)


@dataclass(frozen=True)
class RunRow:
    """One deployment of one run: the data behind the page."""

    place: Place
    finished: bool
    deployment: Row


def run_rows(material: Material) -> list[RunRow]:
    return [RunRow(place(run), run.finished, row) for run in material.runs for row in deployments(run.summary)]


@dataclass(frozen=True)
class AdviceRow:
    """A piece of advice about one run."""

    place: Place
    kind: str
    advice: str
    deployments: str


def advice_rows(material: Material) -> list[AdviceRow]:
    """All advice about single runs, method by method and seed by seed."""
    return [
        AdviceRow(place(run), each.kind, each.text, " ".join(map(str, each.deployments)))
        for group in material.groups
        for method in material.methods(group)
        for run in material.of(group, method)
        for each in advise(run.summary)
    ]


def standings(material: Material, group: Group) -> list[Standing]:
    """The methods of a comparison beside the first one."""
    algo = {run.method: run.settings.algo for run in material.runs if run.group == group}
    floors = {name for name, recipe in recipes.ALGORITHMS.items() if recipe.floor}
    rows = method_rows(material, group)
    return [Standing(row.method, row.mean, algo[row.method] in floors, row.difference_low) for row in rows]
