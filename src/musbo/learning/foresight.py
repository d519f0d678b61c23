"""What can be said about models and data besides return (section 4 and the appendix of the paper).

Novelty of a batch, distance between imagined and real trajectories, and whether doubt goes with error. NumPy alone:
these look at what has happened and train nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int

from musbo.core.errors import UserError

ROWS = 65_536
"""Observations whose directions are computed at a time."""


def novelty(batch: Float[np.ndarray, "n obs"], earlier: Iterable[Float[np.ndarray, "_ obs"]]) -> float:
    """Mean cosine distance between the observations of a batch and all those of earlier ones, over all pairs.

    The mean of u . v over all pairs is the product of the mean unit vectors, so this takes O(n + m) steps.
    """
    return float(1.0 - _mean_direction([batch]) @ _mean_direction(earlier))


def _mean_direction(parts: Iterable[Float[np.ndarray, "_ obs"]]) -> Float64[np.ndarray, " obs"]:
    total, count = np.zeros(1), 0
    for obs in parts:
        for first in range(0, len(obs), ROWS):
            few = obs[first : first + ROWS].astype(np.float64)
            length = np.linalg.norm(few, axis=1, keepdims=True)
            total = total + np.sum(few / np.where(length > 0, length, 1.0), axis=0)  # the zero vector points nowhere
            count += len(few)
    if not count:
        raise UserError("novelty needs a batch and at least one observation before it.")
    return total / count


def energy_distance(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"]) -> float:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| between two samples, Euclidean, over all pairs; 0 for equal samples."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    return float(2 * _mean_distance(x, y) - _mean_distance(x, x) - _mean_distance(y, y))


def _mean_distance(x: Float64[np.ndarray, "n d"], y: Float64[np.ndarray, "m d"]) -> float:
    # Row by row: all pairs at once would need n x m x d numbers.
    return float(np.mean([np.linalg.norm(y - row, axis=1).mean() for row in x]))


class Apart(NamedTuple):
    """How far imagined trajectories are from real ones."""

    energy_distance: float
    trajectory_error: float | None
    """Mean squared error; None where no pair has a step."""
    imagined_steps: float
    real_steps: float


def trajectories_apart(
    start: Float[np.ndarray, "b obs"],
    imagined: Float[np.ndarray, "b t obs"],
    real: Float[np.ndarray, "b t obs"],
    imagined_steps: Int[np.ndarray, " b"],
    real_steps: Int[np.ndarray, " b"],
    mean: Float[np.ndarray, " obs"],
    std: Float[np.ndarray, " obs"],
) -> Apart:
    """Energy distance and mean squared error between imagined and real trajectories from the same start states.

    In units of `std`. The squared error of a pair is taken as far as the shorter of the two reaches; None where no pair
    has a step. For the energy distance a sample is a whole trajectory, and one that has ended stays where it ended, or
    at its start: if all were cut to the shortest, a single early fall would make any model look perfect.
    """
    x, y, first = ((part.astype(np.float64) - mean) / std for part in (imagined, real, start))
    b, t, _ = x.shape
    for part, steps in ((x, imagined_steps), (y, real_steps)):
        for i, n in enumerate(steps):
            part[i, n:] = part[i, n - 1] if n else first[i]
    both = np.arange(t) < np.minimum(imagined_steps, real_steps)[:, None]
    return Apart(
        energy_distance(x.reshape(b, -1), y.reshape(b, -1)),
        float(np.mean((x - y)[both] ** 2)) if both.any() else None,
        float(imagined_steps.mean()),
        float(real_steps.mean()),
    )


def rank_correlation(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Spearman's: the correlation of ranks, equal values sharing theirs; nan where one of the two never changes."""
    a, b = (_ranks(part) for part in (x, y))
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size > 0 else float("nan")


def _ranks(x: Float[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    _, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[where]


def reliability(
    doubt: Float[np.ndarray, " n"], error: Float[np.ndarray, " n"], bins: int = 10
) -> list[tuple[float, float]]:
    """Mean doubt and mean error in groups of equal size, from the least doubtful tenth to the most."""
    if not 1 <= bins <= len(doubt):
        raise UserError(f"{len(doubt)} values cannot be put into {bins} groups.")
    order = np.argsort(doubt, kind="stable")
    return [(float(doubt[group].mean()), float(error[group].mean())) for group in np.array_split(order, bins)]
