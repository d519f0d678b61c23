"""Numbers that every deployment may have, over the seeds of a method: general ones, and the diagnostics of methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from musbo.campaign.summary import Deployment
from musbo.core.diagnostics import Curve, Diagnostic, Quantiles
from musbo.reporting import statistics, words
from musbo.reporting.gather import Run
from musbo.reporting.run_tables import diagnostics

SEED = 0
"""Of the bootstrap: the same runs give the same page."""


@dataclass(frozen=True)
class Measure:
    """A number that every deployment of a run may have."""

    name: str
    title: str
    about: str
    """In a sentence."""
    of: Callable[[Deployment], float | None]
    unit: str = ""
    text: Callable[[float | None], str] = words.number
    wide: bool = False
    """Its values may be of very different size: then a logarithmic axis is better."""


def _energy_distance(item: Deployment) -> float | None:
    agreement = item.evaluation.agreement if item.evaluation else None
    return agreement.energy_distance if agreement else None


def _trajectory_error(item: Deployment) -> float | None:
    agreement = item.evaluation.agreement if item.evaluation else None
    return agreement.trajectory_error if agreement else None


def _imagined_minus_real(item: Deployment) -> float | None:
    imagined, real = item.imagined_per_step, item.real_per_step
    return None if imagined is None or real is None else imagined - real


NOVELTY = Measure(
    "novelty", "novelty", "Mean cosine distance of a batch from all before it.",
    lambda item: item.batch.novelty, text=words.decimals,
)  # fmt: skip
ENERGY_DISTANCE = Measure(
    "energy_distance", "energy distance", "Between imagined and real trajectories.", _energy_distance,
    "units of the first batch", wide=True,
)  # fmt: skip
TRAJECTORY_ERROR = Measure(
    "trajectory_error", "trajectory error", "Squared error of imagined against real trajectories.", _trajectory_error,
    "squared, in units of the first batch", wide=True,
)  # fmt: skip
IMAGINED_MINUS_REAL = Measure(
    "imagined_minus_real", "imagined minus real", "Reward per step over the horizon of imagination.",
    _imagined_minus_real,
)  # fmt: skip
GENERAL = (NOVELTY, ENERGY_DISTANCE, TRAJECTORY_ERROR, IMAGINED_MINUS_REAL)
"""What can be measured of any method."""


def diagnostics_of(runs: Sequence[Run]) -> dict[str, Diagnostic]:
    """Every diagnostic that has a value somewhere, as it is where it first has one."""
    every = (each for run in runs for item in run.summary.deployments for each in diagnostics(item))
    found: dict[str, Diagnostic] = {}
    for each in every:
        if each.value is not None:
            found.setdefault(each.name, each)
    return found


def measures(runs: Sequence[Run], medians: bool = True) -> list[Measure]:
    """The general ones, and every diagnostic with a number in these runs; of quantiles, the median if asked for."""
    kinds = (Quantiles, float, int) if medians else (float, int)
    own = [each for each in diagnostics_of(runs).values() if isinstance(each.value, kinds)]
    taken = {measure.name for measure in GENERAL}
    return [*GENERAL, *(_measure(each, f"own_{each.name}" if each.name in taken else each.name) for each in own)]


def _measure(shown: Diagnostic, name: str) -> Measure:
    def of(item: Deployment) -> float | None:
        found = next((each.value for each in diagnostics(item) if each.name == shown.name), None)
        if isinstance(found, Quantiles):
            return found.median
        return None if isinstance(found, Curve) else found

    return Measure(
        name,
        f"{shown.title} (median)" if isinstance(shown.value, Quantiles) else shown.title,
        shown.about,
        of,
        shown.unit,
        words.percent if shown.percent else words.number,
        wide=bool(shown.unit),
    )


def values(runs: Sequence[Run], measure: Measure) -> np.ndarray:
    """[runs, deployments] of one measure; nan where a run has none."""
    each = [[measure.of(item) for item in run.summary.deployments] for run in runs]
    return np.array([[np.nan if value is None else value for value in row] for row in each], float)


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
    return np.array([[np.nan if r is None else r for r in run.summary.returns] for run in runs], float)


def band(numbers: np.ndarray) -> Band | None:
    """Of [runs, deployments]; deployments that lack a number in some run are left out."""
    known = np.isfinite(numbers).all(0) if len(numbers) else np.zeros(0, bool)
    if not known.any():
        return None
    days, seeds = np.flatnonzero(known) + 1, numbers[:, known]
    each = [statistics.interval(statistics.mean, column[:, None], seed=SEED) for column in seeds.T]
    value, low, high = np.array([(i.value, i.low, i.high) for i in each]).T
    return Band(days, value, low, high, seeds)


@dataclass(frozen=True)
class Average:
    """Over the seeds that have a number."""

    mean: float | None
    deviation: float | None


def averages(numbers: np.ndarray) -> tuple[Average, ...]:
    """Of [runs, deployments], after every deployment."""
    known = [column[np.isfinite(column)] for column in numbers.T]
    return tuple(
        Average(
            float(column.mean()) if len(column) else None, float(column.std(ddof=1)) if len(column) > 1 else None
        )
        for column in known
    )  # fmt: skip
