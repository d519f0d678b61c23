"""Tasks whose policy sees the past: plants with delays do not show in one observation what was done to them.

With `history = n` the policy sees, newest first,

    [o_t, o_{t-1}, a_{t-1}, o_{t-2}, a_{t-2}, ..., o_{t-n}, a_{t-n}]

where an action is the one that was executed. Before an episode's first step there is nothing: there the first
observation stands, and the middle of the range of every action. `stacked` turns a task into the one that a learner
knows, where this vector is the observation. Batches, recordings and simulators hold observations as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.tasks.task import Task


@dataclass(frozen=True)
class _Newest:
    """A reward or a termination, of the newest observations in place of all that the policy sees."""

    function: Callable[..., Any]
    obs_size: int

    def __call__(self, *rows: Array) -> Any:
        """(obs, act, next_obs), or (next_obs) alone."""
        return self.function(*(row[: self.obs_size] if i % 2 == 0 else row for i, row in enumerate(rows)))


@dataclass(frozen=True)
class _Begun:
    """The reset distribution of what the policy sees."""

    initial: Callable[[PRNGKeyArray], Array]
    centre: tuple[float, ...]
    history: int

    def __call__(self, key: PRNGKeyArray) -> Array:
        first = self.initial(key)
        return jnp.concatenate([first, *self.history * (first, jnp.asarray(self.centre, first.dtype))])


def stacked(task: Task) -> Task:
    """The task as a learner knows it; one without history is that itself."""
    n = task.history
    if not n:
        return task
    before = [f"{i} step{'s' * (i > 1)} before" for i in range(1, n + 1)]

    def each(obs: tuple[Any, ...], act: tuple[Any, ...]) -> tuple[Any, ...]:
        return obs + n * (obs + act) if obs and act else ()

    obs_names, act_names = (
        own or tuple(f"{what} {i}" for i in range(size))
        for own, what, size in (
            (task.obs_names, "observation", task.obs_size),
            (task.act_names, "action", task.act_size),
        )
    )
    return replace(
        task,
        obs_size=task.obs_size + n * (task.obs_size + task.act_size),
        reward=_Newest(task.reward, task.obs_size) if callable(task.reward) else task.reward,
        terminated=_Newest(task.terminated, task.obs_size) if callable(task.terminated) else task.terminated,
        initial=_Begun(task.initial, tuple(task.centre.tolist()), n) if task.initial is not None else None,
        obs_names=obs_names + tuple(f"{name}, {when}" for when in before for name in (*obs_names, *act_names)),
        obs_units=each(task.obs_units or ("",) * task.obs_size, task.act_units or ("",) * task.act_size),
        obs_low=each(task.obs_low, task.act_low),
        obs_high=each(task.obs_high, task.act_high),
        history=0,
        newest=task.obs_size,
    )


def newest(task: Task, obs: Float[Array, "*n obs"]) -> Float[Array, "*n new"]:
    """The newest observation of what is seen. Without history it is untouched, so that gradients keep their bits."""
    return obs if task.newest is None else obs[..., : task.newest]


def follows(
    task: Task, obs: Float[Array, " obs"], act: Float[Array, " act"], new: Float[Array, " new"]
) -> Float[Array, " obs"]:
    """What is seen after what was seen, the action that was executed and the newest observation: nothing is guessed."""
    if task.newest is None:
        return new
    return jnp.concatenate([new, obs[: task.newest], act, obs[task.newest : -(task.newest + task.act_size)]])
