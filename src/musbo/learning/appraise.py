"""What all members of M together say of a policy: its mean, rolled out for a whole episode under each of them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from musbo.data.dataset import Dataset, rows
from musbo.learning.handover import Rating
from musbo.learning.imagine import Starts, draw_starts, survive
from musbo.learning.window import Ordinary, distance, goes_on, measure_ordinary, moved, said_by
from musbo.models.dynamics import Dynamics
from musbo.models.frame import AnyPolicy
from musbo.models.mlp import count
from musbo.tasks.history import newest
from musbo.tasks.task import Task


@partial(jax.jit, static_argnames=("task", "rollouts", "steps"))
def appraise(
    task: Task,
    rollouts: int,
    steps: int,
    policy: AnyPolicy,
    model: Dynamics,
    ordinary: Ordinary,
    unknown: Float[Array, ""],
    starts: Starts,
    key: PRNGKeyArray,
) -> Rating:
    """The rating from the same start states at every call with the same key.

    A trajectory that leaves all that is known goes on at the reward of an unknown step, `unknown`.
    """
    start = draw_starts(starts, rollouts, key)
    n = count(model.members)
    reach = model.scaling.reach(start)
    width, silent = jnp.ones(task.predicted), jnp.zeros((1, task.predicted))

    def under(index: Int[Array, ""]) -> tuple[Array, ...]:
        def one_step(carry: tuple, t: Int[Array, ""]) -> tuple:
            obs, alive, lost = carry
            act = policy(obs)
            said = said_by(task, model, index, obs, act)
            next_obs, reward = moved(task, model.scaling, obs, act, said)
            ended = goes_on(task, width, jnp.ones(()), said, newest(task, next_obs), silent) < 0.5
            next_obs, reward, live, terminated = survive(reach, obs, alive, next_obs, reward, ended)
            lost = lost | (alive & ~live)
            reward = jnp.where(lost, unknown, reward)
            return (next_obs, live & ~terminated, lost), (obs, act, reward, live)

        first = start, jnp.ones(rollouts, bool), jnp.zeros(rollouts, bool)
        (_, _, lost), (obs, act, reward, live) = jax.lax.scan(one_step, first, jnp.arange(steps))
        some, done = (x[::10].reshape(-1, x.shape[2]) for x in (obs, act))
        counted = live[::10].reshape(-1).astype(jnp.float32)
        other = (index + 1) % n
        apart = distance(
            ordinary.columns, said_by(task, model, index, some, done), said_by(task, model, other, some, done)
        )
        path = jnp.sum(counted * apart / ordinary.heldout) / jnp.maximum(jnp.sum(counted), 1.0)
        length = jnp.mean(jnp.sum(live, axis=0, dtype=jnp.float32))
        return jnp.mean(jnp.sum(reward, axis=0)), length, jnp.mean(lost.astype(jnp.float32)), path

    returns, lengths, cut, path = jax.lax.map(under, jnp.arange(n))
    return Rating(returns, jnp.mean(lengths), jnp.mean(cut), jnp.mean(path))


LEVEL_ROWS = 5000  # held-out rows that d95 is measured on, at most


def ordinary(task: Task, M: Dynamics, data: Dataset) -> Ordinary:
    """What disagreement is ordinary on held-out data."""
    heldout = rows(np.asarray(data.heldout))
    heldout = heldout[:: -(-len(heldout) // LEVEL_ROWS)]
    return measure_ordinary(task, M, data.obs[heldout], data.act[heldout])
