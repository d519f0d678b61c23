"""A Task out of an environment: sizes, bounds, names and episode length are read, not typed."""

import difflib
from typing import Any, Literal, NamedTuple

import numpy as np

from musbo.core.errors import UserError
from musbo.field.spaces import Bounds, action_bounds, observation_names, observed_parts, part_names, size_of
from musbo.field.worlds import gym_spec, import_gymnasium, import_suite, make_environment, make_gym, quiet_mujoco
from musbo.tasks.find import DM_CONTROL
from musbo.tasks.task import DmControl, Factory, Gym, Reward, Simulator, Single, Task, Terminated


def task_from(
    source: Any,
    reward: Reward | Literal["learned"] = "learned",
    terminated: Terminated | Literal["learned"] | None = "learned",
    *,
    name: str | None = None,
    episode_steps: int | None = None,
    speed: int | None = None,
    obs_names: tuple[str, ...] = (),
    obs_units: tuple[str, ...] = (),
    act_names: tuple[str, ...] = (),
    act_units: tuple[str, ...] = (),
    **kwargs: Any,
) -> Task:
    """The task of an environment.

    `source` is one of
    - the id of a registered Gymnasium environment, "Hopper-v5"; further keyword arguments go to it;
    - a task of the dm_control suite, "dm_control:walker-walk";
    - a function without arguments that makes a new Gymnasium environment at every call, wrapped as you like;
    - a Gymnasium environment, wrapped or not. There is one of it, so episodes are run one after the other; with a
      function in its place, many run side by side, which is faster.

    `reward(obs, act, next_obs)` and `terminated(next_obs)` are written for one example with jax.numpy; "learned" fits
    them from the data, and `terminated=None` says that episodes end by their time limit only. Observations in a Dict
    or a Tuple become one vector, in the order of the space, and keep their names (`obs_names` overrides them).
    """
    found = _read(source, kwargs)
    steps = episode_steps or found.steps
    if steps is None:
        raise UserError(f"{found.name} does not say how long an episode may last: pass episode_steps to task_from.")
    return Task(
        name=name or found.name,
        obs_size=found.obs_size,
        act_size=len(found.bounds.low),
        act_low=found.bounds.low,
        act_high=found.bounds.high,
        episode_steps=steps,
        reward=reward,
        terminated=None if terminated == "learned" and not found.ends else terminated,
        simulator=found.simulator,
        speed=speed,
        obs_names=tuple(obs_names) or found.obs_names,
        obs_units=tuple(obs_units),
        act_names=tuple(act_names),
        act_units=tuple(act_units),
    )


def gym_task(id: str, *args: Any, **kwargs: Any) -> Task:
    """The name of `task_from` in version 0.1."""
    return task_from(id, *args, **kwargs)


class _Found(NamedTuple):
    """What an environment says of itself."""

    name: str
    simulator: Simulator
    obs_size: int
    obs_names: tuple[str, ...]
    bounds: Bounds
    steps: int | None
    """How long an episode may last."""
    ends: bool = True
    """Whether an episode may end before that, as far as it can be known."""


def _read(source: Any, kwargs: dict[str, Any]) -> _Found:
    if isinstance(source, str) and not source.startswith(DM_CONTROL):
        return _registered(source, kwargs)
    if kwargs:
        given = f"arguments ({', '.join(kwargs)}) go to an environment that is named by its Gymnasium id"
        raise UserError(f"{given}: for others, make the environment with them, and give it to task_from.")
    return _suite_task(source) if isinstance(source, str) else _made(source)


def _registered(id: str, kwargs: dict[str, Any]) -> _Found:
    try:
        hash(tuple(kwargs.values()))
    except TypeError as error:
        raise UserError(f"The arguments of {id} must be hashable, so write tuples in place of lists.") from error
    steps = gym_spec(id).max_episode_steps
    env = make_gym(id, **kwargs)
    try:
        return _found(id, Gym(id, tuple(sorted(kwargs.items()))), env, steps)
    finally:
        env.close()


def _found(name: str, simulator: Simulator, env: Any, steps: int | None) -> _Found:
    parts = observed_parts(env.observation_space, name)
    bounds = action_bounds(env.action_space, name)
    return _Found(name, simulator, size_of(parts), observation_names(parts), bounds, steps)


# Environments that are objects, and functions that make them


def _made(source: Any) -> _Found:
    gymnasium = import_gymnasium()
    kind = type(source).__name__
    if isinstance(source, gymnasium.Env):
        return _found(_name_of(source), Single(source), source, _time_limit(source))
    if isinstance(source, gymnasium.vector.VectorEnv):
        raise UserError(f"{kind} is many environments in one: give one of them, musbo makes as many as it needs.")
    if hasattr(source, "observation_spec") and hasattr(source, "action_spec"):
        raise UserError(
            f"{kind} is a dm_env environment, which cannot be seeded from outside: name a task of the suite, such as "
            f"'{DM_CONTROL}walker-walk', or wrap yours as a gymnasium.Env."
        )
    if callable(source):
        env = make_environment(source)
        try:
            return _found(_name_of(env), Factory(source), env, _time_limit(env))
        finally:
            env.close()
    raise UserError(
        f"task_from takes the id of a Gymnasium environment, a name such as '{DM_CONTROL}walker-walk', an environment, "
        f"or a function that makes one, not a {kind}."
    )


def _name_of(env: Any) -> str:
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else type(env.unwrapped).__name__


def _time_limit(env: Any) -> int | None:
    """Of a wrapper, or of what it was registered with."""
    wrappers = import_gymnasium().wrappers
    inner = env
    while inner is not inner.unwrapped:
        if isinstance(inner, wrappers.TimeLimit):
            return inner._max_episode_steps
        inner = inner.env
    return env.spec.max_episode_steps if env.spec is not None else None


# The suite of dm_control


def _suite_task(name: str) -> _Found:
    suite = import_suite()
    every = {f"{DM_CONTROL}{domain}-{task}": (domain, task) for domain, task in suite.ALL_TASKS}
    if name not in every:
        close = difflib.get_close_matches(name, every, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join([*every][:3])} and others."
        raise UserError(f"The suite of dm_control has no {name!r}: {hint}")
    domain, task = every[name]
    with quiet_mujoco():
        env = suite.load(domain, task)
    shapes = {part: tuple(spec.shape) for part, spec in env.observation_spec().items()}
    names = tuple(each for part, shape in shapes.items() for each in part_names(part, shape))
    act, limit = env.action_spec(), env._step_limit
    bounds = Bounds(*(tuple(np.broadcast_to(bound, act.shape).tolist()) for bound in (act.minimum, act.maximum)))
    inherited = next(cls for cls in type(env.task).__mro__ if "get_termination" in vars(cls))
    # The base class of all tasks never ends an episode.
    ends = inherited.__module__ != "dm_control.rl.control"
    env.close()
    steps = int(limit) if np.isfinite(limit) else None
    return _Found(name, DmControl(domain, task), len(names), names, bounds, steps, ends)
