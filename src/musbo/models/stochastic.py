"""A stochastic dynamics ensemble: probabilistic networks that predict [s' - s, reward] and say how sure they are.

Where the task's termination is learned, a flag is one more output: above one half the episode ends.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from musbo.core.registry import stored
from musbo.data.scaling import Scaling
from musbo.models.dynamics import inputs
from musbo.models.probabilistic import Probabilistic
from musbo.tasks.history import follows, newest
from musbo.tasks.task import Task


@stored("networks/stochastic")
class Stochastic(eqx.Module):
    """All members judge; only the elites, best on held-out data, move the imagined world."""

    members: Probabilistic
    scaling: Scaling
    elites: Int[Array, " e"]


def predict(
    network: Probabilistic, scaling: Scaling, obs: Float[Array, " obs"], act: Float[Array, " act"]
) -> tuple[Float[Array, " out"], Float[Array, " out"]]:
    """Mean and standard deviation of [s' - s, reward, (flag)], in raw units."""
    mean, logvar = network(inputs(scaling, obs, act))
    flags = mean.shape[0] - scaling.target_mean.shape[0]  # a flag has no scale
    centre = jnp.concatenate([scaling.target_mean, jnp.zeros(flags)])
    width = jnp.concatenate([scaling.target_std, jnp.ones(flags)])
    return centre + width * mean, width * jnp.exp(0.5 * logvar)


def _each(
    members: Probabilistic, scaling: Scaling, obs: Float[Array, "n obs"], act: Float[Array, "n act"]
) -> tuple[Float[Array, "k n out"], Float[Array, "k n out"]]:
    one = jax.vmap(predict, in_axes=(None, None, 0, 0))
    return jax.lax.map(lambda p: one(p, scaling, obs, act), members)


def step(
    task: Task, model: Stochastic, obs: Float[Array, "n obs"], act: Float[Array, "n act"], key: PRNGKeyArray
) -> tuple[Float[Array, "n obs"], Float[Array, " n"], Bool[Array, " n"]]:
    """One imagined step: every row draws its elite, and the elite its next state and reward."""
    k_which, k_noise = jax.random.split(key)
    n = obs.shape[0]
    means, stds = _each(jax.tree.map(lambda leaf: leaf[model.elites], model.members), model.scaling, obs, act)
    which, rows = jax.random.randint(k_which, (n,), 0, model.elites.shape[0]), jnp.arange(n)
    mean, std = means[which, rows], stds[which, rows]
    drawn = mean + std * jax.random.normal(k_noise, mean.shape)
    return _moved(task, obs, act, drawn, mean)


def mean_step(
    task: Task, networks: Probabilistic, scaling: Scaling, obs: Float[Array, "n obs"], act: Float[Array, "n act"]
) -> tuple[Float[Array, "n obs"], Float[Array, " n"], Bool[Array, " n"]]:
    """One imagined step without chance: every row has a network of its own and takes its mean."""
    mean, _ = jax.vmap(predict, in_axes=(0, None, 0, 0))(networks, scaling, obs, act)
    return _moved(task, obs, act, mean, mean)


def _moved(
    task: Task,
    obs: Float[Array, "n obs"],
    act: Float[Array, "n act"],
    drawn: Float[Array, "n out"],
    mean: Float[Array, "n out"],
) -> tuple[Float[Array, "n obs"], Float[Array, " n"], Bool[Array, " n"]]:
    next_obs = jax.vmap(partial(follows, task))(obs, act, newest(task, obs) + drawn[:, : task.predicted])
    if task.terminated == "learned":
        ended = mean[:, -1] > 0.5
    elif task.terminated is None:
        ended = jnp.zeros(obs.shape[0], bool)
    else:
        ended = jax.vmap(task.terminated)(next_obs)
    return next_obs, drawn[:, task.predicted], ended


def largest_spread(model: Stochastic, obs: Float[Array, "n obs"], act: Float[Array, "n act"]) -> Float[Array, " n"]:
    """max over all members of || sigma(s, a) ||_2, the spread of next state and reward in raw units."""
    _, stds = _each(model.members, model.scaling, obs, act)
    return jnp.max(jnp.linalg.norm(stds[:, :, : model.scaling.target_std.shape[0]], axis=2), axis=0)
