"""Worlds that are solved by hand, for what judges policies there."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from musbo.data.batch import Batch, make_batch
from musbo.data.dataset import Dataset, assemble
from musbo.models.frame import Frame, frame_of
from musbo.tasks.task import Task


def place(obs: Array, act: Array, next_obs: Array) -> Array:
    return obs[0]


def far(next_obs: Array) -> Array:
    return next_obs[0] > 0.5


chain = Task("chain", 1, 1, (-1.0,), (1.0,), 60, place, obs_names=("place",), act_names=("aim",))
"""The next state is the action, and a step earns where it begins. Whoever always aims at c earns s0 + c + c + ..."""
ending = replace(chain, terminated=far)
"""The same, and beyond 0.5 an episode ends."""


class Aim(eqx.Module):
    """Always the same action."""

    frame: Frame
    at: Float[Array, ""]

    def __call__(self, obs: Float[Array, "b obs"]) -> Float[Array, "b act"]:
        return jnp.broadcast_to(self.at, (obs.shape[0], 1))


def aim(at: float) -> Aim:
    return Aim(frame_of(chain), jnp.asarray(at, jnp.float32))


def walked(task: Task, episodes: int, steps: int, seed: int = 0) -> Batch:
    """Uniformly random actions."""
    random, rows = np.random.default_rng(seed), []
    for episode in range(episodes):
        obs = random.uniform(-1, 1)
        for step in range(steps):
            act = random.uniform(-1, 1)
            ended = task.terminated is not None and act > 0.5
            rows.append((obs, act, obs, act, ended, not ended and step == steps - 1, episode, step))
            obs = act
            if ended:
                break
    obs, act, reward, after, terminated, truncated, number, step = (np.array(each) for each in zip(*rows, strict=True))
    return make_batch(
        obs=obs[:, None], act=act[:, None], reward=reward, next_obs=after[:, None],
        terminated=terminated, truncated=truncated, episode=number, step=step,
    )  # fmt: skip


def dataset(*batches: Batch) -> Dataset:
    return assemble(batches, sum(map(len, batches)) + 7, seed=0)
