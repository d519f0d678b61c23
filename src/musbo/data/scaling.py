"""Scaling: the means and standard deviations by which networks see their inputs and targets.

Models work on standardised numbers, (x - mean) / std, and predict the standardised change s' - s. The statistics are
measured on the training rows of D_all and travel with the model that was fitted under them.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Float64

from musbo.core.errors import UserError
from musbo.data.dataset import Dataset, rows

CONSTANT = 1e-6
"""A column whose spread is below this part of its size is constant: float32 cannot tell such a spread from rounding."""


class Scaling(eqx.Module):
    """Statistics of the inputs [s, a] and of the target s' - s (with the reward as last column where it is learned)."""

    obs_mean: Float32[Array, " obs"]
    obs_std: Float32[Array, " obs"]
    act_mean: Float32[Array, " act"]
    act_std: Float32[Array, " act"]
    target_mean: Float32[Array, " target"]
    target_std: Float32[Array, " target"]


class Normaliser(eqx.Module):
    """Statistics of the observations alone, for networks that see nothing else."""

    mean: Float32[Array, " obs"]
    std: Float32[Array, " obs"]

    def __call__(self, obs: Float[Array, " obs"]) -> Float[Array, " obs"]:
        return (obs - self.mean) / self.std


def measure(data: Dataset, learn_reward: bool) -> Scaling:
    """Scaling of the training rows of D_all."""
    chosen = rows(data.training)
    if not len(chosen):
        raise UserError("There are no training rows to measure: collect or ingest a batch first.")
    # Sums over many rows lose digits in float32.
    obs = np.asarray(data.obs)[chosen].astype(np.float64)
    act = np.asarray(data.act)[chosen].astype(np.float64)
    next_obs = np.asarray(data.next_obs)[chosen].astype(np.float64)
    target = next_obs - obs
    # A difference inherits the rounding of what it was taken from, so its spread is compared with that size.
    target_size = np.maximum(_size(obs), _size(next_obs))
    if learn_reward:
        reward = np.asarray(data.reward)[chosen].astype(np.float64)[:, None]
        target = np.concatenate([target, reward], axis=1)
        target_size = np.concatenate([target_size, _size(reward)])
    obs_mean, obs_std = _moments(obs, _size(obs))
    act_mean, act_std = _moments(act, _size(act))
    target_mean, target_std = _moments(target, target_size)
    return Scaling(obs_mean, obs_std, act_mean, act_std, target_mean, target_std)


def _size(values: Float64[np.ndarray, "n column"]) -> Float64[np.ndarray, " column"]:
    return np.max(np.abs(values), axis=0)


def _moments(
    values: Float64[np.ndarray, "n column"], size: Float64[np.ndarray, " column"]
) -> tuple[Float32[Array, " column"], Float32[Array, " column"]]:
    std = np.std(values, axis=0)
    # The floor keeps 1 / std finite in float32. A constant column is centred and otherwise left alone.
    std = np.where(std <= np.maximum(CONSTANT * size, np.finfo(np.float32).tiny), 1.0, std)
    return jnp.asarray(np.mean(values, axis=0), jnp.float32), jnp.asarray(std, jnp.float32)
