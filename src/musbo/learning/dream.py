"""Imagined transitions for an actor-critic: lanes that live on in M from one filling of the replay to the next.

A lane restarts where its episode ends, where it leaves the range of the data, and where the members of M disagree too
much. The better the models, the longer the lanes. Every transition carries its trust U (learning/window.py).
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from musbo.learning.imagine import Starts
from musbo.learning.replay import Replay, Transitions
from musbo.learning.window import Ordinary, WindowSettings, beginnings, lived
from musbo.models.dynamics import Dynamics
from musbo.models.frame import Frame
from musbo.models.mlp import MLP
from musbo.tasks.task import Task


@partial(jax.jit, static_argnames=("task", "window"))
def dream(
    task: Task,
    window: WindowSettings,
    actor: MLP,
    frame: Frame,
    paid: tuple[Float[Array, ""], Float[Array, ""]],
    model: Dynamics,
    ordinary: Ordinary,
    initial: Starts,
    anywhere: Starts,
    lanes: Float[Array, "b obs"],
    replay: Replay,
    slot: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Replay, Float[Array, "b obs"], Float[Array, " 2"]]:
    """Fill one slot of the replay with new transitions.

    `paid` holds the reward of an unknown step, which is subtracted, and the unit of rewards. Also returns the states of
    the lanes, and the shares of steps that are in the range of the data and that end an episode.
    """
    k_fresh, k_instead, k_begin, k_window = jax.random.split(key, 4)
    unknown, unit = paid
    b = lanes.shape[0]
    again = jax.random.uniform(k_fresh, (b,)) < window.fresh
    lanes = jnp.where(again[:, None], beginnings(window, initial, anywhere, (b,), k_begin), lanes)
    instead = beginnings(window, initial, anywhere, (window.steps or 1, b), k_instead)
    quiet = replace(ordinary, lanes=jnp.zeros(()))
    seen, last = lived(task, window, actor, frame, model, quiet, lanes, instead, k_window)

    def flat(x: Array) -> Array:
        return x.reshape(-1, *x.shape[2:])

    rows = Transitions(
        frame.see(flat(seen.obs)),
        flat(seen.share),
        (flat(seen.reward) - unknown) / unit,
        frame.see(flat(seen.next_obs)),
        (flat(seen.on) > 0.5).astype(jnp.float32),
        flat(seen.trust),
    )
    live = flat(seen.trust) > 0.0
    shares = jnp.stack([jnp.mean(live.astype(jnp.float32)), jnp.mean(1 - rows.goes_on)])
    return replay.put(slot, rows, live), last, shares
