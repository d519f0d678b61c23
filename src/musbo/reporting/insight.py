"""Where a policy is uncertain: what the model of a run thinks of the states that it met last."""

from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from musbo.campaign.places import STORE
from musbo.campaign.settings import task_like
from musbo.campaign.store import Store
from musbo.campaign.summary import read_status
from musbo.core import serial
from musbo.data.files import batch_from_bytes
from musbo.data.history import stacked_batch

ROWS, PARTS = 2000, 20


@dataclass(frozen=True, eq=False)
class Doubts:
    """A sample of the last batch: how unsure the model is of each step, and where and when that is."""

    deployment: int
    doubt: Float[np.ndarray, " n"]
    plane: Float[np.ndarray, "n 2"]
    """The standardised states on their two main directions."""
    steps: Int[np.ndarray, " p"]
    """Moments of the episode, and median, 10 % and 90 % of the doubt around each."""
    by_step: Float[np.ndarray, "3 p"]
    typical: Float[np.ndarray, " obs"]
    """Mean of each observation, in deviations from the batch's mean, over the most doubtful tenth."""


def doubts(folder: Path) -> Doubts | None:
    """None where the method keeps no model, or nothing is trained yet."""
    status = read_status(folder)
    if not status.trained:
        return None
    last, store = max(status.trained), Store(folder / STORE)
    batch = batch_from_bytes(store.get(status.collected[last].artefact))
    state = serial.decode(store.get(status.trained[last].state))
    rows = np.unique(np.linspace(0, len(batch) - 1, min(ROWS, len(batch))).astype(int))
    model = status.creation.settings.method.foresight(state)
    if model is None:
        return None
    seen = stacked_batch(task_like(status.creation.settings.task, status.creation.task), batch).obs
    doubt = np.asarray(model.doubt(jnp.asarray(seen[rows]), jnp.asarray(batch.act[rows])), np.float64)
    known = np.isfinite(doubt)
    rows, doubt = rows[known], doubt[known]
    if len(rows) < 2:
        return None
    obs = batch.obs[rows].astype(np.float64)
    deviation = obs.std(0)
    obs = (obs - obs.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    starts = np.zeros(len(batch), int)
    starts[batch.starts()] = batch.starts()
    step = (np.arange(len(batch)) - np.maximum.accumulate(starts))[rows] + 1
    groups = [group for group in np.array_split(np.argsort(step, kind="stable"), PARTS) if len(group)]
    return Doubts(
        deployment=last,
        doubt=doubt,
        plane=_plane(obs),
        steps=np.array([int(np.median(step[group])) for group in groups]),
        by_step=np.array([np.quantile(doubt[group], [0.5, 0.1, 0.9]) for group in groups]).T,
        typical=obs[doubt >= np.quantile(doubt, 0.9)].mean(0),
    )


def _plane(obs: Float[np.ndarray, "n obs"]) -> Float[np.ndarray, "n 2"]:
    """The two directions of greatest variance."""
    _, _, directions = np.linalg.svd(obs, full_matrices=False)
    plane = obs @ directions[:2].T
    return plane if plane.shape[1] == 2 else np.column_stack([plane, np.zeros(len(plane))])
