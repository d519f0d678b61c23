"""Models of the gate's own: refits on resampled episodes, in which no policy was optimised.

A policy is rated too well by the models that it was optimised in. These are new networks, and each of them sees whole
episodes drawn with replacement: how far their ratings lie apart also tells how much hangs on single episodes.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.registry import stored
from musbo.data.dataset import Dataset, episodes, rows
from musbo.data.scaling import measure
from musbo.learning import fit
from musbo.learning.appraise import ordinary
from musbo.learning.fit import FitSettings
from musbo.learning.objectives import SquaredError, begin_dynamics, dynamics_rows, steadied
from musbo.learning.window import Ordinary
from musbo.models.dynamics import Dynamics
from musbo.tasks.task import Task

REFIT = FitSettings(
    members=5, hidden=(128, 128, 128), activation="silu", learning_rate=3e-3, batch=256, epochs=200, max_steps=5000,
    patience=1000, judged_by="trimmed", decay="cosine", weights="fresh", bootstrap=True, l2=0.0,
)  # fmt: skip
HUBER, NOISE = 0.1, 0.02  # as uvg fits its models (docs/methods/uvg.md)


@stored("gate/judges")
class Judges(eqx.Module):
    """The refits, what is ordinary for them, and what a step pays of which nothing is known."""

    dynamics: Dynamics
    ordinary: Ordinary
    unknown: Float[Array, ""]


def refit(task: Task, data: Dataset, key: PRNGKeyArray, settings: FitSettings = REFIT) -> Judges:
    """Fit them on D_all."""
    k_new, k_noise, k_fit = jax.random.split(key, 3)
    scaling = measure(data, learn_reward=task.reward == "learned", predicted=task.predicted)
    of = episodes(data)
    found = dynamics_rows(task, data, scaling)
    found = steadied(task, replace(found, resampled=of[found.train]), scaling, NOISE, k_noise)
    fitted = begin_dynamics(task, settings, None, scaling, k_new)
    for reached, _ in fit.epochs(settings, SquaredError(task.terminated == "learned", HUBER), found, fitted, k_fit):
        fitted = reached
    M = Dynamics(fitted.best, scaling)
    return Judges(M, ordinary(task, M, data), jnp.asarray(unknown_reward(task, data), jnp.float32))


def unknown_reward(task: Task, data: Dataset) -> float:
    """The mean of what was logged; where episodes can end early at most 0, so that to end is never better."""
    mean = float(np.asarray(data.reward)[rows(data.training)].astype(np.float64).mean())
    return mean if task.terminated is None else min(0.0, mean)
