"""Short imagined branches from logged states, for actor-critics (MBPO, MOPO)."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from musbo.learning.imagine import Rollout, Starts, draw_starts, path, survive
from musbo.learning.label import Penalty
from musbo.learning.replay import Replay, Transitions
from musbo.models.frame import Frame
from musbo.models.gaussian import GaussianPolicy, sample
from musbo.models.mlp import MLP
from musbo.models.stochastic import Stochastic, mean_step, step
from musbo.tasks.task import Task


def branch(
    task: Task,
    horizon: int,
    actor: MLP,
    frame: Frame,
    model: Stochastic,
    start: Float[Array, "b obs"],
    key: PRNGKeyArray,
) -> Rollout:
    """Samples of the actor in the stochastic model, `horizon` steps or until they terminate."""

    reach = model.scaling.reach(start)

    def one_step(carry: tuple, k: PRNGKeyArray) -> tuple:
        obs, alive = carry
        k_act, k_step = jax.random.split(k)
        act = frame.action(sample(actor, frame.see(obs), k_act)[0])
        next_obs, reward, live, terminated = survive(reach, obs, alive, *step(task, model, obs, act, k_step))
        return (next_obs, live & ~terminated), (obs, act, act, reward, terminated, live)

    (last_obs, _), columns = jax.lax.scan(
        one_step, (start, jnp.ones(start.shape[0], bool)), jax.random.split(key, horizon)
    )
    return Rollout(*columns, weight=jnp.ones_like(columns[3]), last_obs=last_obs)


@partial(jax.jit, static_argnames=("task", "steps"))
def foresee(
    task: Task,
    steps: int,
    policy: GaussianPolicy,
    model: Stochastic,
    start: Float[Array, "b obs"],
    actions: Float[Array, "b t act"] | None = None,
) -> tuple[Float[Array, "b t obs"], Int[Array, " b"], Float[Array, " b"]]:
    """The policy's mean, or the actions given, in the means of the elites, dealt out in turn to the trajectories."""
    dealt = model.elites[jnp.arange(start.shape[0]) % model.elites.shape[0]]
    networks = jax.tree.map(lambda leaf: leaf[dealt], model.members)
    return path(
        policy, lambda s, a: mean_step(task, networks, model.scaling, s, a), model.scaling, start, steps, actions
    )


@partial(jax.jit, static_argnames=("task", "horizon", "branches", "penalty"))
def refill(
    task: Task,
    horizon: int,
    branches: int,
    penalty: Penalty,
    actor: MLP,
    frame: Frame,
    model: Stochastic,
    starts: Starts,
    replay: Replay,
    slot: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Replay, Float[Array, "3"]]:
    """One slot with new branches, their rewards lowered by the penalty; also its quantiles at 10, 50 and 90 %."""
    k_start, k_branch, k_label = jax.random.split(key, 3)
    rollout = branch(task, horizon, actor, frame, model, draw_starts(starts, branches, k_start), k_branch)
    rollout, doubt = penalty(rollout, model, k_label)

    def flat(x: Array) -> Array:
        return x.reshape(-1, *x.shape[2:])

    rows = Transitions(
        frame.see(flat(rollout.obs)),
        frame.share(flat(rollout.executed)),
        flat(rollout.reward),
        frame.see(flat(jnp.concatenate([rollout.obs[1:], rollout.last_obs[None]]))),
        1.0 - flat(rollout.terminated).astype(jnp.float32),
    )
    live = flat(rollout.live)
    paid = jnp.nanquantile(jnp.where(live, flat(doubt), jnp.nan), jnp.asarray([0.1, 0.5, 0.9]))
    return replay.put(slot, rows, live), paid
