"""Which of two policies did better in the newest batch, where both collected a part of it.

Batches do not say who collected an episode, but its actions do: under the policy that drew them they are far more
likely than under the other one. Models promise; this is what came true.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.data.dataset import Dataset, episodes, rows
from musbo.models.gaussian import GaussianPolicy, log_density

UNLIKELY = 1.0
"""Logged actions this much less likely than a policy's own, per dimension, were drawn by somebody else."""


@jax.jit
def _densities(
    policy: GaussianPolicy, obs: Float[Array, "n obs"], act: Float[Array, "n act"], key: PRNGKeyArray
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Log densities of the actions that were taken, and of the policy's own in the same states.

    Both by the action alone: of one on its bound nobody knows how far beyond it was meant.
    """
    x = policy.frame.see(obs)
    drawn = policy.frame.share(policy.draw(obs, key))
    return log_density(policy.network, x, policy.frame.share(act)), log_density(policy.network, x, drawn)


def came_true(
    data: Dataset, policies: tuple[GaussianPolicy, GaussianPolicy], key: PRNGKeyArray
) -> Float[Array, "2"] | None:
    """Mean return of each policy's episodes in the newest batch; None where one has none, or others collected it."""
    deployment = np.asarray(data.deployment)
    newest = rows(deployment == deployment.max())
    obs, act = data.obs[newest], data.act[newest]
    taken, own = (
        np.stack(each).astype(np.float64)
        for each in zip(*(_densities(policy, obs, act, key) for policy in policies), strict=True)
    )
    _, episode = np.unique(episodes(data)[newest], return_inverse=True)
    total = partial(np.bincount, episode)
    second = total(taken[1] - taken[0]) > 0
    returns, found = total(np.asarray(data.reward)[newest].astype(np.float64)), []
    for i, mine in enumerate((~second, second)):
        steps = mine[episode]
        if not mine.any() or taken[i][steps].mean() < own[i][steps].mean() - UNLIKELY * act.shape[1]:
            return None
        found.append(returns[mine].mean())
    return jnp.asarray(found, jnp.float32)
