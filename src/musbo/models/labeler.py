"""The uncertainty labeler P (phi): K probabilistic networks whose disagreement says where the data give no support.

Each network predicts the standardised difference s' - s. P judges what M imagines; the two are different networks of
different kinds on purpose.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.registry import stored
from musbo.data.scaling import Scaling
from musbo.models.dynamics import inputs, stacked_inputs
from musbo.models.mlp import affine_outputs, rescale_inputs
from musbo.models.probabilistic import Probabilistic, init_probabilistic
from musbo.tasks.task import Task


@stored("networks/levels")
class Levels(eqx.Module):
    """What is ordinary on held-out data: the yardsticks of `alpha = auto` and of the relative zeta."""

    pair_p90: Float[Array, ""]  # 90th percentile of the L1 disagreement of one random pair of members
    spread_p95: Float[Array, ""]  # 95th percentile of the largest L1 disagreement of two members
    error_p95: Float[Array, ""]  # 95th percentile of the largest member's L1 error
    pair_mean: Float[Array, ""]  # mean disagreement of a random pair


@stored("networks/labeler")
class Labeler(eqx.Module):
    """P: `members` has a leading axis of K."""

    members: Probabilistic
    scaling: Scaling
    levels: Levels


def init_members(key: PRNGKeyArray, task: Task, hidden: tuple[int, ...], activation: str, n: int) -> Probabilistic:
    return init_probabilistic(key, (task.obs_size + task.act_size, *hidden, task.predicted), activation, n)


def predicted(members: Probabilistic) -> int:
    """How many observations P predicts: all, or the newest ones of what the policy sees."""
    return members.max_logvar.shape[-1]


def state_targets(scaling: Scaling, size: int) -> tuple[Float[Array, " new"], Float[Array, " new"]]:
    """Mean and deviation of s' - s alone: P never predicts a reward."""
    return scaling.target_mean[:size], scaling.target_std[:size]


def predict(
    network: Probabilistic, scaling: Scaling, obs: Float[Array, " obs"], act: Float[Array, " act"]
) -> tuple[Float[Array, " new"], Float[Array, " new"]]:
    """Mean next state and its standard deviation, both in raw state units."""
    mean, logvar = network(inputs(scaling, obs, act))
    size = predicted(network)
    target_mean, target_std = state_targets(scaling, size)
    return obs[:size] + target_mean + target_std * mean, target_std * jnp.exp(0.5 * logvar)


def member_means(
    members: Probabilistic, scaling: Scaling, obs: Float[Array, "n obs"], act: Float[Array, "n act"]
) -> Float[Array, "k n new"]:
    """Mean next states of every member, member by member."""
    each = jax.vmap(lambda p, s, a: predict(p, scaling, s, a)[0], in_axes=(None, 0, 0))
    return jax.lax.map(lambda p: each(p, obs, act), members)


def pair_distances(predictions: Float[Array, "k n new"]) -> Float[Array, "pairs n"]:
    """L1 distance between the predictions of every pair a < b."""
    k = predictions.shape[0]
    return jnp.stack(
        [jnp.sum(jnp.abs(predictions[a] - predictions[b]), axis=1) for a in range(k) for b in range(a + 1, k)]
    )


@jax.jit
def doubt(judge: Labeler, obs: Float[Array, "n obs"], act: Float[Array, "n act"]) -> Float[Array, " n"]:
    """How unsure P is of each step: the largest distance between the predictions of two members."""
    return jnp.max(pair_distances(member_means(judge.members, judge.scaling, obs, act)), axis=0)


@jax.jit
def rescale(members: Probabilistic, old: Scaling, new: Scaling) -> Probabilistic:
    """The same predictive distribution of s' under the new scaling; log-variances shift by 2 ln(old std / new std)."""
    (mean_old, std_old), (mean_new, std_new) = stacked_inputs(old), stacked_inputs(new)
    size = predicted(members)
    (target_old, deviation_old), (target_new, deviation_new) = state_targets(old, size), state_targets(new, size)
    ratio = deviation_old / deviation_new
    log_shift = 2 * jnp.log(ratio)
    scale = jnp.concatenate([ratio, jnp.ones_like(ratio)])
    shift = jnp.concatenate([(target_old - target_new) / deviation_new, log_shift])

    def one(p: Probabilistic) -> Probabilistic:
        mlp = affine_outputs(rescale_inputs(p.mlp, (mean_old, mean_new), (std_old, std_new)), scale, shift)
        return Probabilistic(mlp, p.max_logvar + log_shift, p.min_logvar + log_shift)

    return jax.vmap(one)(members)
