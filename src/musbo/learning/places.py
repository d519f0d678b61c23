"""Where imagination begins: initial states of D_all, any of them, and held-out ones for checks."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from musbo.data.dataset import Dataset
from musbo.learning.imagine import Imagine, Starts, reset_states
from musbo.tasks.task import Task

FEW = 10_000  # initial and held-out states to start from, at most: more of them would tell nothing new


def from_beginnings(settings: Imagine, data: Dataset) -> bool:
    """Whether checks start where episodes do: some of these must have been held out."""
    return settings.starts == "reset" or int((np.asarray(data.heldout) & np.asarray(data.initial)).sum()) >= 5


def places(settings: Imagine, task: Task, data: Dataset, key: PRNGKeyArray) -> tuple[Starts, Starts, Starts]:
    """Start states: initial ones, any, and held-out ones for checks; arrays of one size, so nothing recompiles."""
    live, heldout, initial = np.asarray(data.live), np.asarray(data.heldout), np.asarray(data.initial)
    obs = np.asarray(data.obs)
    few = min(len(obs), FEW)
    all_of_them = len(obs) if settings.starts in ("any", "mixed") else few

    def pack(states: np.ndarray, chosen: np.ndarray, room: int) -> Starts:
        chosen = np.flatnonzero(chosen)
        if len(chosen) > room:
            chosen = chosen[np.linspace(0, len(chosen) - 1, room).astype(int)]
        packed = np.zeros((room, states.shape[1]), np.float32)
        np.take(states, chosen, axis=0, out=packed[: len(chosen)])
        return Starts(jnp.asarray(packed), jnp.asarray(len(chosen)))

    train = live & ~heldout
    begins = train & initial if (train & initial).any() else live & initial
    begins = begins if begins.any() else train  # logs may hold no episode's beginning
    if settings.starts == "reset":
        unseen = pack(np.asarray(reset_states(task, 1000, key)), np.ones(1000), few)
    else:
        unseen = pack(obs, heldout & initial if from_beginnings(settings, data) else heldout, few)
    return pack(obs, begins, few), pack(obs, train, all_of_them), unseen
