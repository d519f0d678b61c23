"""Imagined trajectories: the policy acts in the dynamics ensemble M (lines 7 and 8 of the paper's training function).

Time comes first: arrays are [t b ...]. A step counts only while its trajectory is alive: what follows a termination is
masked out by `live` and never padded into a loss, or a new trajectory begins there.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from musbo.core.cores import side_by_side
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.scaling import Reach, Scaling
from musbo.models.dynamics import Dynamics, step
from musbo.models.frame import AnyPolicy
from musbo.models.mlp import MLP, count, member
from musbo.models.policy import Policy
from musbo.tasks.task import Task


@stored("settings/imagine")
@dataclass(frozen=True)
class Imagine:
    """Imagined trajectories per TRPO update."""

    rollouts: int = 200
    """Trajectories per update (200 x 250 or 50 x 1000: 50,000 imagined steps (BREMEN))."""
    horizon: int = 250
    """H: imagined steps per trajectory (paper: 250 or 1000, table 2)."""
    starts: Literal["initial", "any", "mixed", "reset"] = "initial"
    """Start states: initial ones of D_all, any of D_all, half of each, or the task's own reset distribution."""
    member: Literal["per_step", "per_trajectory", "per_outer"] = "per_step"
    """Which member of M moves the world: one draw per step, per trajectory, or per 25 updates (pseudo-code)."""
    restart: bool = False
    """Where a trajectory ends inside the horizon, a new one begins in its row; off: the rest of the row is empty."""

    def __post_init__(self) -> None:
        if self.rollouts < 1 or self.horizon < 1:
            raise UserError(
                f"imagination needs at least 1 rollout and a horizon H of at least 1, "
                f"not {self.rollouts} x {self.horizon}."
            )


OUTER = 25  # updates per outer training iteration of the paper's pseudo-code (BREMEN's scripts)


class Rollout(eqx.Module):
    """One batch of imagined trajectories. `weight` is U; `live` says which steps exist.

    A row may hold several trajectories, one after the other: one has ended with a step that terminates, or before a
    step that does not exist.
    """

    obs: Float[Array, "t b obs"]
    act: Float[Array, "t b act"]  # as sampled: the density is that of the unclipped action
    executed: Float[Array, "t b act"]  # clipped: what entered the model and the reward
    reward: Float[Array, "t b"]
    terminated: Bool[Array, "t b"]
    live: Bool[Array, "t b"]
    weight: Float[Array, "t b"]
    last_obs: Float[Array, "b obs"]
    trust: Float[Array, "t b"] | None = None  # what a step and all that follows it count; None: wholly


def clock(rollout: Rollout) -> Int[Array, "t1 b"]:
    """Number of steps since its trajectory began, for every state of a rollout including the last one."""
    ended = rollout.terminated | ~rollout.live
    row = jnp.arange(ended.shape[0] + 1)[:, None]
    begun = jnp.concatenate([jnp.zeros((1, ended.shape[1]), jnp.int32), jnp.where(ended, row[1:], 0)])
    return row - jax.lax.cummax(begun, axis=0)


def trajectory_count(rollout: Rollout) -> Int[Array, ""]:
    """Number of trajectories in a rollout: one per row, and those that were restarted."""
    anew = rollout.live[1:] & (clock(rollout)[1:-1] == 0)
    return rollout.live.shape[1] + jnp.sum(anew, dtype=jnp.int32)


class Starts(eqx.Module):
    """Where imagination may begin: rows of observations, of which the first n count."""

    obs: Float[Array, "c obs"]
    n: Int[Array, ""]


def draw_starts(starts: Starts, b: int, key: PRNGKeyArray) -> Float[Array, "b obs"]:
    return starts.obs[jax.random.randint(key, (b,), 0, starts.n)]


def start_states(
    settings: Imagine, task: Task, initial: Starts, anywhere: Starts, b: int, key: PRNGKeyArray
) -> Float[Array, "b obs"]:
    k_initial, k_any = jax.random.split(key)
    if settings.starts == "initial":
        return draw_starts(initial, b, k_initial)
    if settings.starts == "any":
        return draw_starts(anywhere, b, k_any)
    if settings.starts == "mixed":
        half = b // 2
        return jnp.concatenate([draw_starts(initial, b - half, k_initial), draw_starts(anywhere, half, k_any)])
    return reset_states(task, b, k_initial)


def require_reset(task: Task) -> Callable[[PRNGKeyArray], Array]:
    if task.initial is None:
        raise UserError(f"task {task.name!r} has no reset distribution: choose starts initial, any or mixed.")
    return task.initial


def reset_states(task: Task, b: int, key: PRNGKeyArray) -> Float[Array, "b obs"]:
    """From the task's own reset distribution."""
    return jax.vmap(require_reset(task))(jax.random.split(key, b))


Move = Callable[[Float[Array, "b obs"], Float[Array, "b act"]], tuple[Array, Array, Array]]


def path(
    policy: Callable[[Array], Array],
    move: Move,
    scaling: Scaling,
    start: Float[Array, "b obs"],
    steps: int,
    actions: Float[Array, "b t act"] | None,
) -> tuple[Float[Array, "b t obs"], Int[Array, " b"], Float[Array, " b"]]:
    """The states that a deterministic policy is imagined to pass through, how many there are, and their reward in all.

    With `actions`, these are taken instead, whatever is seen: an open-loop replay.
    """

    reach = scaling.reach(start)

    def one_step(carry: tuple, given: Array | None) -> tuple:
        obs, alive = carry
        act = policy(obs) if given is None else given
        next_obs, reward, live, terminated = survive(reach, obs, alive, *move(obs, act))
        return (next_obs, live & ~terminated), (next_obs, live, reward)

    given = None if actions is None else actions.swapaxes(0, 1)
    _, (states, live, reward) = jax.lax.scan(one_step, (start, jnp.ones(start.shape[0], bool)), given, length=steps)
    return states.swapaxes(0, 1), jnp.sum(live, axis=0, dtype=jnp.int32), jnp.sum(reward, axis=0)


@partial(jax.jit, static_argnames=("task", "steps"))
def foresee(
    task: Task,
    steps: int,
    policy: AnyPolicy,
    model: Dynamics,
    start: Float[Array, "b obs"],
    actions: Float[Array, "b t act"] | None = None,
) -> tuple[Float[Array, "b t obs"], Int[Array, " b"], Float[Array, " b"]]:
    """The policy's mean, or the actions given, in M, with its members dealt out in turn to the trajectories."""
    dealt = jnp.arange(start.shape[0]) % count(model.members)
    networks = jax.tree.map(lambda leaf: leaf[dealt], model.members)

    def move(s: Array, a: Array) -> tuple[Array, Array, Array]:
        return jax.vmap(partial(_step, task, model.scaling))(networks, s, a)

    return path(policy, move, model.scaling, start, steps, actions)


def _step(task: Task, scaling: Scaling, network: MLP, obs: Array, act: Array) -> tuple[Array, Array, Array]:
    return step(task, network, scaling, obs, act)


def survive(
    reach: Reach,
    obs: Float[Array, "b obs"],
    alive: Bool[Array, " b"],
    next_obs: Float[Array, "b obs"],
    reward: Float[Array, " b"],
    terminated: Bool[Array, " b"],
) -> tuple[Float[Array, "b obs"], Float[Array, " b"], Bool[Array, " b"], Bool[Array, " b"]]:
    """What of an imagined step counts: next state, reward, whether the step exists, whether it ends its trajectory."""
    # What a model says far beyond all that it was fitted on is not a state: the trajectory is cut before that step.
    # One that runs away would otherwise own the advantages of its batch, and then the baseline.
    live = alive & reach.holds(next_obs) & jnp.isfinite(reward)
    return jnp.where(live[:, None], next_obs, obs), jnp.where(live, reward, 0.0), live, live & terminated


@partial(jax.jit, static_argnames=("settings", "shape", "n"))
def draw(
    settings: Imagine,
    shape: tuple[int, int],
    n: int,
    update: Int[Array, ""],
    key: PRNGKeyArray,
    outer_key: PRNGKeyArray,
) -> tuple[Int[Array, " t"], Float[Array, "t b act"]]:
    """What chance decides about [b, act] trajectories: the member of n at every step, and the noise of the policy."""
    k_noise, k_member = jax.random.split(key)
    if settings.member == "per_step":
        which = jax.random.randint(k_member, (settings.horizon,), 0, n)
    else:
        which = jnp.full(settings.horizon, jax.random.randint(jax.random.fold_in(outer_key, update // OUTER), (), 0, n))
    return which, jax.random.normal(k_noise, (settings.horizon, *shape))


def trajectories(
    task: Task,
    settings: Imagine,
    policy: Policy,
    model: Dynamics,
    start: Float[Array, "b obs"],
    which: Int[Array, " t"],
    noise: Float[Array, "t b act"],
    again: Float[Array, "t b obs"] | None = None,
) -> Rollout:
    """The policy in M from `start`, with everything drawn beforehand.

    Where a trajectory ends with step t, or before it, a new one begins in `again[t]`; without these, none does.
    """
    b, n = start.shape[0], count(model.members)
    networks = [member(model.members, i) for i in range(n)]  # taken apart once, not at every step

    def move(index: Int[Array, ""], obs: Float[Array, "b obs"], act: Float[Array, "b act"]) -> tuple:
        if settings.member == "per_trajectory":
            # Start states are drawn at random, so dealing members out in turn is an even random draw.
            groups = jax.tree.map(lambda x: x.reshape(-1, n, *x.shape[1:]).swapaxes(0, 1), (obs, act))
            each = jax.vmap(lambda net, s, a: step(task, net, model.scaling, s, a), in_axes=(None, 0, 0))
            moved = jax.vmap(each)(model.members, *groups)
            return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(b, *x.shape[2:]), moved)
        branches = [
            lambda s, a, network=network: jax.vmap(lambda x, y: step(task, network, model.scaling, x, y))(s, a)
            for network in networks
        ]
        return jax.lax.switch(index, branches, obs, act)  # one forward pass, not n

    def one_step(carry: tuple, xs: tuple) -> tuple:
        obs, alive, reach = carry
        index, eps, anew = xs
        act = jax.vmap(policy.mean)(obs) + jnp.exp(policy.log_sigma)[None] * eps
        executed = policy.clip(act)
        next_obs, reward, live, terminated = survive(reach, obs, alive, *move(index, obs, executed))
        goes_on = live & ~terminated
        if anew is not None:
            begun = (anew, jnp.ones(b, bool), model.scaling.reach(anew))
            after = jax.tree.map(lambda new, old: _where(goes_on, old, new), begun, (next_obs, goes_on, reach))
        else:
            after = (next_obs, goes_on, reach)
        return after, (obs, act, executed, reward, terminated, live)

    first = (start, jnp.ones(b, bool), model.scaling.reach(start))
    (last_obs, _, _), (obs, act, executed, reward, terminated, live) = jax.lax.scan(
        one_step, first, (which, noise, again)
    )
    return Rollout(obs, act, executed, reward, terminated, live, jnp.ones_like(reward), last_obs)


def _where(chosen: Bool[Array, " b"], yes: Array, no: Array) -> Array:
    """Row by row."""
    return jnp.where(chosen if yes.ndim == 1 else chosen[:, None], yes, no)


_trajectories = jax.jit(trajectories, static_argnames=("task", "settings"))


@jax.jit
def _join(parts: list[Rollout]) -> Rollout:
    def whole(name: str) -> Any:
        each = [getattr(part, name) for part in parts]
        return None if each[0] is None else jnp.concatenate(each, axis=0 if name == "last_obs" else 1)

    return Rollout(**{each.name: whole(each.name) for each in fields(Rollout)})


def imagine(
    task: Task,
    settings: Imagine,
    policy: Policy,
    model: Dynamics,
    start: Float[Array, "b obs"],
    update: Int[Array, ""],
    key: PRNGKeyArray,
    outer_key: PRNGKeyArray,
    again: Float[Array, "t b obs"] | None = None,
) -> Rollout:
    """Roll the policy out in M from `start`; `outer_key` is the same for all updates of a deployment.

    What ends begins anew in `again`, where that is given.

    In two halves, side by side: a step of a few hundred trajectories is too small to be split by XLA. Always two, so
    that shapes, which decide on rounding, do not follow the number of cores.
    """
    b, n = start.shape[0], count(model.members)
    unit = n if settings.member == "per_trajectory" else 1
    if b % unit:
        raise UserError(f"member per_trajectory needs rollouts ({b}) to be a multiple of the {n} dynamics members.")
    which, noise = draw(settings, (b, task.act_size), n, update, key, outer_key)
    half = b // unit // 2 * unit

    def part(rows: slice) -> Rollout:
        anew = None if again is None else again[:, rows]
        return jax.block_until_ready(
            _trajectories(task, settings, policy, model, start[rows], which, noise[:, rows], anew)
        )

    return _join(side_by_side(part, [slice(half), slice(half, b)] if half else [slice(b)]))
