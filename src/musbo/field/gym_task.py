"""A Task out of a registered Gymnasium environment: sizes, bounds and episode length are read, not typed."""

from typing import Any, Literal

import numpy as np

from musbo.core.errors import UserError
from musbo.field.worlds import gym_spec, import_gymnasium, make_gym
from musbo.tasks.task import Gym, Reward, Task, Terminated


def gym_task(
    id: str,
    reward: Reward | Literal["learned"] = "learned",
    terminated: Terminated | Literal["learned"] | None = "learned",
    *,
    name: str | None = None,
    episode_steps: int | None = None,
    speed: int | None = None,
    **kwargs: Any,
) -> Task:
    """The task of a Gymnasium environment.

    `reward(obs, act, next_obs)` and `terminated(next_obs)` are written for one example with jax.numpy; "learned" fits
    them from the data, and `terminated=None` says that episodes end by their time limit only. Further keyword
    arguments go to the environment.
    """
    spaces = import_gymnasium().spaces
    episode_steps = episode_steps or gym_spec(id).max_episode_steps
    if episode_steps is None:
        raise UserError(f"{id} is registered without max_episode_steps; pass episode_steps to gym_task.")
    try:
        hash(tuple(kwargs.values()))
    except TypeError as error:
        raise UserError(f"The arguments of {id} must be hashable, so write tuples in place of lists.") from error
    env = make_gym(id, **kwargs)
    see, do = env.observation_space, env.action_space
    env.close()
    if not isinstance(see, spaces.Box) or len(see.shape) != 1 or see.dtype.kind != "f":
        raise UserError(
            f"The observations of {id} are {see}; musbo takes one flat vector of floats (a one-dimensional Box), "
            "so wrap the environment with gymnasium.wrappers.FlattenObservation."
        )
    if not isinstance(do, spaces.Box) or len(do.shape) != 1 or do.dtype.kind != "f":
        raise UserError(
            f"The actions of {id} are {do}; musbo takes one flat vector of floats with finite bounds "
            "(a one-dimensional Box), not discrete or nested actions."
        )
    if not (np.isfinite(do.low).all() and np.isfinite(do.high).all()):
        raise UserError(
            f"The actions of {id} are unbounded; musbo needs finite bounds, "
            "so wrap the environment with gymnasium.wrappers.RescaleAction or ClipAction."
        )
    return Task(
        name=name or id,
        obs_size=see.shape[0],
        act_size=do.shape[0],
        act_low=tuple(do.low.tolist()),
        act_high=tuple(do.high.tolist()),
        episode_steps=episode_steps,
        reward=reward,
        terminated=terminated,
        simulator=Gym(id, tuple(sorted(kwargs.items()))),
        speed=speed,
    )
