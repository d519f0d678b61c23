"""All tasks of a study together, on the line where random actions are 0 and the best method's mean is 1."""

from dataclasses import dataclass, replace

import numpy as np

from musbo.reporting import compare, statistics
from musbo.reporting.gather import Group, Material
from musbo.reporting.measures import SEED


@dataclass(frozen=True)
class OverallRow:
    """A method over all tasks."""

    method: str
    tasks: int
    runs: int
    fewest: int
    """Runs on the task that has the fewest."""
    mean: float
    iqm: float
    iqm_low: float | None
    iqm_high: float | None
    better: float | None = None
    """The chance that a run beats one of the first method, with its interval."""
    better_low: float | None = None
    better_high: float | None = None


@dataclass(frozen=True)
class Overall:
    """The methods that have finished runs on all tasks, and what was left out."""

    rows: list[OverallRow]
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
        low = compare.random_level(material, group)
        scored = {m: compare.final_returns(runs) for m, runs in compare.finals(material, group).items()}
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
        row = _row(method, each)
        rows.append(row if method == reference else _against(row, each, scores[reference]))
        profiles[method] = statistics.performance_profile(each, tau, seed=SEED)
    return Overall(rows, profiles, unfinished, no_line, partly)


def _row(method: str, each: list[np.ndarray]) -> OverallRow:
    iqm = statistics.interval(statistics.interquartile_mean, each, seed=SEED)
    fewest = min(map(len, each))
    low, high = (iqm.low, iqm.high) if fewest > 1 else (None, None)
    mean = float(statistics.mean(each))
    return OverallRow(method, len(each), sum(map(len, each)), fewest, mean, iqm.value, low, high)


def _against(row: OverallRow, each: list[np.ndarray], reference: list[np.ndarray]) -> OverallRow:
    found = statistics.interval(statistics.probability_of_improvement, each, reference, seed=SEED)
    enough = min(row.fewest, *map(len, reference)) > 1
    low, high = (found.low, found.high) if enough else (None, None)
    return replace(row, better=found.value, better_low=low, better_high=high)
