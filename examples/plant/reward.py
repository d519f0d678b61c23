"""What the plant is paid for: the cost of the benchmark, from what the plant shows."""

from jax import Array

FATIGUE, CONSUMPTION = 4, 5


def reward(obs: Array, act: Array, next_obs: Array) -> Array:
    return -(3 * next_obs[FATIGUE] + next_obs[CONSUMPTION])
