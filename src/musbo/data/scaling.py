"""Scaling: the means and standard deviations by which networks see their inputs and targets.

Models work on standardised numbers, (x - mean) / std, and predict the standardised change s' - s. The statistics are
measured on the training rows of D_all and travel with the model that was fitted under them.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Float64

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.dataset import Dataset, rows

CONSTANT = 1e-6
"""A column whose spread is below this part of its size is constant: float32 cannot tell such a spread from rounding."""


@stored("data/scaling")
class Scaling(eqx.Module):
    """Statistics of the inputs [s, a] and of the target s' - s (with the reward as last column where it is learned)."""

    obs_mean: Float32[Array, " obs"]
    obs_std: Float32[Array, " obs"]
    act_mean: Float32[Array, " act"]
    act_std: Float32[Array, " act"]
    target_mean: Float32[Array, " target"]
    target_std: Float32[Array, " target"]
    obs_low: Float32[Array, " obs"]
    obs_high: Float32[Array, " obs"]

    def reach(self, start: Float[Array, "b obs"]) -> "Reach":
        """The range of states that imagination may visit: the observed range, widened by its width on either side.

        Where a trajectory starts counts as observed: it may be a state that a task can be reset to.
        """
        low, high = jnp.minimum(self.obs_low[None], start), jnp.maximum(self.obs_high[None], start)
        margin = high - low + self.obs_std[None]  # a constant column has a width of 0
        return Reach(low - margin, high + margin)


class Reach(eqx.Module):
    """The states that an imagined trajectory may visit, one box for each trajectory."""

    low: Float[Array, "b obs"]
    high: Float[Array, "b obs"]

    def holds(self, obs: Float[Array, "b obs"]) -> Bool[Array, " b"]:
        return jnp.all((obs >= self.low) & (obs <= self.high) & jnp.isfinite(obs), axis=1)


@stored("data/normaliser")
class Normaliser(eqx.Module):
    """Statistics of the observations alone, for networks that see nothing else."""

    mean: Float32[Array, " obs"]
    std: Float32[Array, " obs"]


def observed(obs: Float32[np.ndarray, "n obs"]) -> Normaliser:
    """Statistics of all observations of a batch."""
    each = [_moments(column, _size(column)) for column in (obs[:, j].astype(np.float64) for j in range(obs.shape[1]))]
    return Normaliser(*(jnp.asarray(np.stack(part)) for part in zip(*each, strict=True)))


def measure(data: Dataset, learn_reward: bool, predicted: int | None = None) -> Scaling:
    """Scaling of the training rows of D_all; models predict the first `predicted` observations, or all."""
    chosen = rows(data.training)
    if not len(chosen):
        raise UserError("There are no training rows to measure: collect a batch first, or bring one with --data.")
    obs, act, next_obs = (np.asarray(array) for array in (data.obs, data.act, data.next_obs))

    def column(array: np.ndarray, j: int) -> Float64[np.ndarray, " n"]:
        return array[chosen, j].astype(np.float64)  # sums over many rows lose digits in float32

    def change(j: int) -> tuple[Float32[np.ndarray, ""], Float32[np.ndarray, ""]]:
        before, after = column(obs, j), column(next_obs, j)
        # A difference inherits the rounding of what it was taken from, so its spread is compared with that size.
        return _moments(after - before, max(_size(before), _size(after)))

    # Column by column: in float64, all at once would be larger than D_all itself.
    seen = [_moments(each, _size(each)) for each in (column(obs, j) for j in range(obs.shape[1]))]
    done = [_moments(each, _size(each)) for each in (column(act, j) for j in range(act.shape[1]))]
    target = [change(j) for j in range(obs.shape[1] if predicted is None else predicted)]
    if learn_reward:
        reward = column(np.asarray(data.reward)[:, None], 0)
        target.append(_moments(reward, _size(reward)))
    ends = [_ends(obs[chosen, j], next_obs[chosen, j]) for j in range(obs.shape[1])]
    parts = (seen, done, target, ends)
    return Scaling(*(jnp.asarray(np.stack(each)) for part in parts for each in zip(*part, strict=True)))


def _ends(before: np.ndarray, after: np.ndarray) -> tuple[np.float32, np.float32]:
    """Smallest and largest of a column. The states in which episodes end are next states only."""
    return np.minimum(before.min(), after.min()), np.maximum(before.max(), after.max())


def _size(values: Float64[np.ndarray, " n"]) -> float:
    return float(np.max(np.abs(values)))


def _moments(values: Float64[np.ndarray, " n"], size: float) -> tuple[Float32[np.ndarray, ""], Float32[np.ndarray, ""]]:
    """Mean and standard deviation of a column."""
    std = np.std(values)
    # The floor keeps 1 / std finite in float32. A constant column is centred and otherwise left alone.
    if std <= max(CONSTANT * size, np.finfo(np.float32).tiny):
        std = 1.0
    return np.asarray(np.mean(values), np.float32), np.asarray(std, np.float32)
