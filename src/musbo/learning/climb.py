"""One update of value gradients: the actor climbs the return of a window, V follows the returns.

    actor     max  G_0 - alpha log pi,    differentiated through the window (learning/window.py)
    critics   V_i(s_t) -> G_t,  i = 1, 2, with slow copies, of which the smaller is believed

alpha keeps the entropy at its target. Values are counted in a unit of their own, so that networks see numbers near 1.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.learning.fit import ADAM, adam
from musbo.learning.imagine import Starts
from musbo.learning.window import Ordinary, WindowSettings, beginnings, lived, returns, values
from musbo.models.dynamics import Dynamics
from musbo.models.frame import Frame
from musbo.models.mlp import MLP, affine_outputs, init_mlp, rescale_inputs
from musbo.tasks.task import Task

FIRST_ALPHA = 0.01  # in units of value


@stored("settings/climb")
@dataclass(frozen=True)
class ClimbSettings:
    """Networks and optimisation of actor and critics."""

    actor: tuple[int, ...] = (128, 128)
    """Hidden layers of the actor."""
    critic: tuple[int, ...] = (128, 128)
    """Hidden layers of each critic."""
    actor_rate: float = 2e-3
    """Adam's step size of the actor, at first; it falls to a tenth within a deployment."""
    critic_rate: float = 1e-3
    """Adam's step size of the critics."""
    alpha_rate: float = 2e-2
    """Adam's step size of log alpha."""
    largest: float = 1.0
    """Largest norm of the actor's gradient, in units of value."""
    sweeps: int = 4
    """Steps of the critics per window, each on its part of it."""
    tau: float = 0.02
    """How far the slow copies follow at every step of the critics."""
    entropy: float = 1.0
    """The entropy that alpha aims at, as a multiple of -dim(a)."""

    def __post_init__(self) -> None:
        if not self.actor or not self.critic or min(*self.actor, *self.critic, self.sweeps) < 1:
            raise UserError("actor, critic and sweeps must be positive sizes.")
        if not min(self.actor_rate, self.critic_rate, self.alpha_rate, self.largest) > 0 or not 0 < self.tau <= 1:
            raise UserError("step sizes and the largest gradient must be above 0, and tau in (0, 1].")


@stored("networks/climber")
class Climber(eqx.Module):
    """Actor, temperature and critics, their slow copies and the optimiser's moments."""

    actor: MLP
    log_alpha: Float[Array, ""]
    critics: MLP
    slow: MLP
    actor_moments: Any
    alpha_moments: Any
    critic_moments: Any


@stored("networks/worth")
class Worth(eqx.Module):
    """What rewards and values are counted in."""

    gamma: Float[Array, ""]
    unknown: Float[Array, ""]
    """r_0: what a step pays of which nothing is known."""
    unit: Float[Array, ""]
    """What V = 1 means."""


def fresh(actor: MLP, log_alpha: Array, critics: MLP, slow: MLP) -> Climber:
    """These networks with a new optimiser."""
    moments = ADAM.init(actor), ADAM.init(log_alpha), ADAM.init(critics)  # type: ignore[arg-type]
    return Climber(actor, log_alpha, critics, slow, *moments)


@partial(jax.jit, static_argnames=("settings", "obs", "act"))
def begin(settings: ClimbSettings, obs: int, act: int, key: PRNGKeyArray) -> Climber:
    k_actor, k_critics = jax.random.split(key)
    actor = init_mlp(k_actor, (obs, *settings.actor, 2 * act), "silu", last_gain=0.01)
    sizes = (obs, *settings.critic, 1)
    critics = jax.vmap(lambda k: init_mlp(k, sizes, "silu", last_gain=0.1))(jax.random.split(k_critics, 2))
    return fresh(actor, jnp.asarray(math.log(FIRST_ALPHA), jnp.float32), critics, critics)


@jax.jit
def carry_over(climber: Climber, frames: tuple[Frame, Frame], worths: tuple[Worth, Worth]) -> Climber:
    """The same functions of raw states under another normaliser, values in another unit and from another zero."""
    old, new = frames
    normalise = partial(
        rescale_inputs,
        mean=(old.normaliser.mean, new.normaliser.mean),
        std=(old.normaliser.std, new.normaliser.std),
    )
    before, now = worths
    scale = (before.unit / now.unit)[None]
    shift = ((before.unknown - now.unknown) / (1 - now.gamma) / now.unit)[None]

    def critic(mlp: MLP) -> MLP:
        return affine_outputs(normalise(mlp), scale, shift)

    alpha = climber.log_alpha + jnp.log(scale[0])
    return fresh(normalise(climber.actor), alpha, jax.vmap(critic)(climber.critics), jax.vmap(critic)(climber.slow))


class Numbers(NamedTuple):
    """What one window is worth knowing by."""

    value: Float[Array, ""]
    explained: Float[Array, ""]
    """Of the returns, by the critics."""
    reward: Float[Array, ""]
    trust: Float[Array, ""]
    U: Float[Array, " 3"]
    disagreement: Float[Array, " 3"]
    ended: Float[Array, ""]
    lost: Float[Array, ""]
    """Share of steps that left what is known."""
    gradient: Float[Array, ""]
    entropy: Float[Array, ""]
    alpha: Float[Array, ""]


@partial(jax.jit, static_argnames=("task", "settings", "window"))
def climb(
    task: Task,
    settings: ClimbSettings,
    window: WindowSettings,
    climber: Climber,
    frame: Frame,
    worth: Worth,
    model: Dynamics,
    ordinary: Ordinary,
    initial: Starts,
    anywhere: Starts,
    lanes: Float[Array, "b obs"],
    rate: Float[Array, ""],
    index: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Climber, Float[Array, "b obs"], Ordinary, Numbers]:
    """One window; `rate` scales the actor's step. Also numbers of it."""
    k_fresh, k_instead, k_begin, k_window = jax.random.split(jax.random.fold_in(key, index), 4)
    b = lanes.shape[0]
    again = jax.random.uniform(k_fresh, (b,)) < window.fresh
    lanes = jnp.where(again[:, None], beginnings(window, initial, anywhere, (b,), k_begin), lanes)
    instead = beginnings(window, initial, anywhere, (window.steps or 1, b), k_instead)

    def believed(obs: Float[Array, "t b obs"]) -> Float[Array, "t b"]:
        flat = frame.see(obs.reshape(-1, obs.shape[-1]))
        return worth.unit * jnp.min(values(climber.slow, flat), axis=0).reshape(obs.shape[:-1])

    def height(actor: MLP) -> tuple[Array, tuple]:
        seen, last = lived(task, window, actor, frame, model, ordinary, lanes, instead, k_window)
        # A state after a termination has no value of its own; what matters is what was lost by ending there.
        G = returns(
            worth.gamma, window.lam, seen.reward - worth.unknown, seen.on, seen.trust, seen.cut, believed(seen.next_obs)
        )
        alpha = jnp.exp(jax.lax.stop_gradient(climber.log_alpha))
        return jnp.mean(alpha * seen.logp) - jnp.mean(G[0]) / worth.unit, (seen, last, G)

    gradient, (seen, last, G) = jax.grad(height, has_aux=True)(climber.actor)
    size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    usable = jnp.isfinite(size)
    gradient = jax.tree.map(
        lambda g: jnp.where(usable, g * jnp.minimum(1.0, settings.largest / jnp.maximum(size, 1e-12)), 0.0), gradient
    )
    updates, actor_moments = adam(gradient, climber.actor_moments)
    actor = jax.tree.map(lambda p, u: p - settings.actor_rate * rate * u, climber.actor, updates)
    surplus = -jnp.mean(seen.logp) + settings.entropy * task.act_size  # entropy above its target
    update, alpha_moments = adam(surplus, climber.alpha_moments)
    log_alpha = jnp.clip(climber.log_alpha - settings.alpha_rate * rate * update, -12.0, 3.0)

    # In parts that are spread over the window, each a step of the critics.
    steps = seen.reward.shape[0]
    t = steps // settings.sweeps * settings.sweeps
    x = frame.see(seen.obs[:t].reshape(-1, task.obs_size))
    x = x.reshape(-1, settings.sweeps, b, task.obs_size).swapaxes(0, 1).reshape(settings.sweeps, -1, task.obs_size)
    wanted = (G[:t] / worth.unit).reshape(-1, settings.sweeps, b).swapaxes(0, 1).reshape(settings.sweeps, -1)

    def follow(carry: tuple, part: tuple) -> tuple:
        critics, slow, moments = carry

        def loss(networks: MLP) -> Array:
            return jnp.mean((values(networks, part[0]) - part[1][None]) ** 2)

        error, slope = jax.value_and_grad(loss)(critics)
        updates, moments = adam(slope, moments)
        critics = jax.tree.map(lambda p, u: p - settings.critic_rate * u, critics, updates)
        slow = jax.tree.map(lambda s, q: (1 - settings.tau) * s + settings.tau * q, slow, critics)
        return (critics, slow, moments), error

    before = climber.critics, climber.slow, climber.critic_moments
    (critics, slow, critic_moments), errors = jax.lax.scan(follow, before, (x, wanted))
    error = jnp.mean(errors)
    spread = jnp.var(wanted)
    numbers = Numbers(
        value=jnp.mean(G[0]),
        explained=1 - error / jnp.maximum(spread, 1e-12),
        reward=jnp.mean(seen.reward),
        trust=jnp.mean(seen.trust),
        U=jnp.quantile(seen.trust, jnp.asarray([0.1, 0.5, 0.9])),
        disagreement=jnp.quantile(seen.apart / ordinary.level, jnp.asarray([0.1, 0.5, 0.9])),
        ended=jnp.mean(1 - seen.on),
        lost=jnp.mean((seen.cut & (seen.on > 0.5)).astype(jnp.float32)),
        gradient=size,
        entropy=-jnp.mean(seen.logp),
        alpha=jnp.exp(log_alpha),
    )
    new = Climber(actor, log_alpha, critics, slow, actor_moments, alpha_moments, critic_moments)
    high = jnp.quantile(seen.apart, 0.9)
    lately = jnp.where(index == 0, high, ordinary.lanes + 0.1 * (high - ordinary.lanes))
    return new, last, replace(ordinary, lanes=lately), numbers
