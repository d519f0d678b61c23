"""Which policies did better in the batches that they shared. Models promise; this is what came true."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from musbo.core.registry import stored
from musbo.data.batch import UNKNOWN
from musbo.data.dataset import Dataset, episodes, rows
from musbo.learning.handover import Rating
from musbo.models.gaussian import GaussianPolicy


@stored("state/earned")
class Earned(eqx.Module):
    """What the policies of a batch earned in it."""

    mean: Float[Array, " count"]
    """Mean return of the episodes of each."""
    error: Float[Array, " count"]
    """Standard error of each, by the spread within all of them; 0 where nobody has two episodes."""


@stored("state/proven")
class Proven(eqx.Module):
    """The policy that earned the most in a batch so far."""

    policy: GaussianPolicy
    earned: Float[Array, ""]
    """Mean return of its episodes."""


def came_true(data: Dataset, count: int) -> Earned | None:
    """What policies 0, 1, ... earned in the newest batch; None where one of them has no episode.

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
    mine = [returns[whole & (owner == policy)] for policy in range(count)]
    if not all(one.size for one in mine):
        return None
    number = np.asarray([one.size for one in mine])
    squares = sum(float(np.sum((one - one.mean()) ** 2)) for one in mine)
    variance = squares / max(int(number.sum()) - count, 1)
    mean = np.asarray([one.mean() for one in mine])
    return Earned(jnp.asarray(mean, jnp.float32), jnp.asarray(np.sqrt(variance / number), jnp.float32))


def leader(earned: Earned, before: int) -> int:
    """Which of two policies earned more, 0 or 1; `before` where their difference is not beyond its standard error."""
    gain, error = float(earned.mean[1] - earned.mean[0]), float(jnp.sqrt(jnp.sum(earned.error**2)))
    return int(gain > 0) if abs(gain) > error else before


def proven(before: Proven | None, policies: Sequence[GaussianPolicy], earned: Earned, again: bool) -> Proven:
    """The best policy so far, `policies` being those of the newest batch.

    `again`: the best one before was in that batch too, so that what it earned there is what counts.
    """
    best = int(jnp.argmax(earned.mean))
    if before is None or again or float(earned.mean[best]) >= float(before.earned):
        return Proven(policies[best], earned.mean[best])
    return before


def agreed(before: Rating, now: Rating) -> bool:
    """Whether the members of M agree that a policy is better: their mean gain is larger than its spread over members.

    The new policy was optimised in these models and the other one was proven in the field, so doubt speaks against it.
    """
    gain = np.asarray(now.returns, np.float64) - np.asarray(before.returns, np.float64)
    return bool(gain.mean() > gain.std())
