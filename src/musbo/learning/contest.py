"""Which of the policies that shared the newest batch did better in it. Models promise; this is what came true."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from musbo.data.batch import UNKNOWN
from musbo.data.dataset import Dataset, episodes, rows


def came_true(data: Dataset, count: int) -> Float[Array, " count"] | None:
    """Mean return of the episodes of policies 0, 1, ... in the newest batch; None where one of them has none.

    An episode belongs to whoever chose most of its rows. One whose beginning is missing counts for nobody.
    """
    deployment = np.asarray(data.deployment)
    newest = rows(deployment == deployment.max())
    _, first, episode = np.unique(episodes(data)[newest], return_index=True, return_inverse=True)
    by = np.asarray(data.by)[newest].astype(np.int64) - UNKNOWN
    kinds = max(count - UNKNOWN, int(by.max()) + 1)
    chosen = np.bincount(episode * kinds + by, minlength=len(first) * kinds).reshape(len(first), kinds)
    owner = np.argmax(chosen, axis=1) + UNKNOWN
    whole = np.asarray(data.initial)[newest][first]
    returns = np.bincount(episode, np.asarray(data.reward)[newest].astype(np.float64))
    mine = [whole & (owner == policy) for policy in range(count)]
    if not all(one.any() for one in mine):
        return None
    return jnp.asarray([returns[one].mean() for one in mine], jnp.float32)
