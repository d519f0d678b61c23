"""What is kept of earlier batches to compare logs with. They are read one at a time: all may not fit in memory."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from musbo.data.batch import Batch
from musbo.data.doctor.repeats import episode_digests

SAMPLE = 20_000
"""Observations of each that are compared."""


@dataclass(frozen=True, eq=False)
class Earlier:
    """All batches before these logs."""

    obs: tuple[Float32[np.ndarray, "_ _"], ...]
    """Some observations of each."""
    episodes: dict[bytes, str]
    """What to call each episode, by its digest."""


def summary_of(batches: Iterable[Batch]) -> Earlier:
    obs: list[np.ndarray] = []
    episodes: dict[bytes, str] = {}
    for i, batch in enumerate(batches):
        obs.append(batch.obs[:: max(1, len(batch) // SAMPLE)].copy())
        for digest, number, _ in episode_digests(batch):
            episodes.setdefault(digest, f"episode {number} of earlier batch {i + 1}")
    return Earlier(tuple(obs), episodes)
