"""The dynamics ensemble M (theta): N deterministic networks that predict the next state (section 3.1 of the paper).

Input is the standardised [s, a]; output is the standardised difference s' - s, so that the prediction is s plus the
output in raw units. Where the policy sees the past, only the newest observation is predicted: the rest is known. Where
the task's reward is learned, it is one more regression output; where its termination is learned, one more logit.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from musbo.core.registry import stored
from musbo.data.scaling import Scaling
from musbo.models.mlp import MLP, affine_outputs, init_mlp, rescale_inputs
from musbo.tasks.history import follows, newest
from musbo.tasks.task import Task


@stored("networks/dynamics")
class Dynamics(eqx.Module):
    """M: `members` has a leading axis of N; the scaling is part of the model and travels with it."""

    members: MLP
    scaling: Scaling


def target_size(task: Task) -> int:
    """Regression outputs: the difference of states, and the reward where it is learned."""
    return task.predicted + (task.reward == "learned")


@partial(jax.jit, static_argnames=("task", "hidden", "activation", "n"))
def init_members(key: PRNGKeyArray, task: Task, hidden: tuple[int, ...], activation: str, n: int) -> MLP:
    sizes = (task.obs_size + task.act_size, *hidden, target_size(task) + (task.terminated == "learned"))
    return jax.vmap(lambda k: init_mlp(k, sizes, activation))(jax.random.split(key, n))


def inputs(scaling: Scaling, obs: Float[Array, " obs"], act: Float[Array, " act"]) -> Float[Array, " in"]:
    """The standardised [s, a] that every network of M and P reads."""
    return jnp.concatenate([(obs - scaling.obs_mean) / scaling.obs_std, (act - scaling.act_mean) / scaling.act_std])


def predict(
    network: MLP, scaling: Scaling, obs: Float[Array, " obs"], act: Float[Array, " act"]
) -> Float[Array, " out"]:
    """What one member says, in standard units: the change of the state, the reward and the logit where learned."""
    return network(inputs(scaling, obs, act))


def outcome(
    task: Task,
    scaling: Scaling,
    obs: Float[Array, " obs"],
    act: Float[Array, " act"],
    said: Float[Array, " out"],
) -> tuple[Float[Array, " obs"], Float[Array, ""]]:
    """Next state and reward out of what a member predicts."""
    target = scaling.target_mean + scaling.target_std * said[: target_size(task)]
    next_obs = follows(task, obs, act, newest(task, obs) + target[: task.predicted])
    return next_obs, target[-1] if task.reward == "learned" else task.reward(obs, act, next_obs)


def step(
    task: Task, network: MLP, scaling: Scaling, obs: Float[Array, " obs"], act: Float[Array, " act"]
) -> tuple[Float[Array, " obs"], Float[Array, ""], Bool[Array, ""]]:
    """One imagined step with one member: next state, reward, terminated."""
    out = predict(network, scaling, obs, act)
    next_obs, reward = outcome(task, scaling, obs, act, out)
    if task.terminated == "learned":
        terminated = out[-1] > 0  # a probability of one half
    elif task.terminated is None:
        terminated = jnp.zeros((), bool)
    else:
        terminated = task.terminated(next_obs)
    return next_obs, reward, terminated


def stacked_inputs(scaling: Scaling) -> tuple[Float[Array, " in"], Float[Array, " in"]]:
    return jnp.concatenate([scaling.obs_mean, scaling.act_mean]), jnp.concatenate([scaling.obs_std, scaling.act_std])


@jax.jit
def rescale(members: MLP, old: Scaling, new: Scaling) -> MLP:
    """First and last layers re-expressed so that raw predictions are the same under the new scaling."""
    (mean_old, std_old), (mean_new, std_new) = stacked_inputs(old), stacked_inputs(new)
    scale = old.target_std / new.target_std
    shift = (old.target_mean - new.target_mean) / new.target_std
    logits = members.biases[-1].shape[-1] - scale.shape[0]  # a termination logit has no scale
    scale = jnp.concatenate([scale, jnp.ones(logits)])
    shift = jnp.concatenate([shift, jnp.zeros(logits)])
    return jax.vmap(
        lambda m: affine_outputs(rescale_inputs(m, (mean_old, mean_new), (std_old, std_new)), scale, shift)
    )(members)
