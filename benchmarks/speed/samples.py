"""The samples of a TRPO step: the same numbers on both sides, made with NumPy alone, which both have."""

import numpy as np


def draw(samples: int, obs: int, act: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States, the noise of the actions in deviations, and advantages of mean 0 and deviation 1.

    Some of an advantage can be learned and most of it is noise, so that the first try of a line search is good.
    """
    random = np.random.default_rng(0)
    states, noise = (random.standard_normal((samples, width), np.float32) for width in (obs, act))
    worth = noise[:, 0] * states[:, 0] + 0.5 * noise[:, 1] + 2 * random.standard_normal(samples, np.float32)
    return states, noise, (worth - worth.mean()) / worth.std()
