"""Worlds: simulators with many lanes, all behind the same verbs begin, reset, step, peek and close.

A lane is one copy of the simulator. Built-in tasks step all lanes in one compiled call; Gymnasium and dm_control step
one after the other. Time limits are not the world's business: whoever drives it cuts the episodes. What a lane does is
a function of the seed it began with and the actions it was given, nothing else.
"""

import copy
import importlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Key

from musbo.core.errors import UserError
from musbo.field.spaces import action_bounds, observed_parts, reader, size_of, writer
from musbo.tasks import modules
from musbo.tasks.task import BuiltIn, DmControl, Factory, Gym, Single, Task

INSTALL = "install the simulators with: pip install 'musbo[sim]'"


class LaneFailed(Exception):
    """A simulator failed, or returned what is no observation or reward; `lane` is the one that did."""

    def __init__(self, lane: int, text: str) -> None:
        super().__init__(text)
        self.lane = lane


@contextmanager
def _watched(lane: list[int]) -> Iterator[None]:
    """What a simulator raises, with the lane that `lane` holds at that moment."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # it is a user's program: anything may come
        raise LaneFailed(lane[0], f"it raised {type(error).__name__}: {error}".rstrip(": .")) from error


class Outcome(NamedTuple):
    """What a step of some lanes brought."""

    next_obs: Float32[np.ndarray, "b obs"]
    reward: Float32[np.ndarray, " b"]
    terminated: Bool[np.ndarray, " b"]
    truncated: Bool[np.ndarray, " b"]


# --- built-in tasks: all lanes in one compiled call ---


class BuiltInWorld:
    """A built-in task; lanes are numbered from 0, and `begin` decides how many are in use."""

    crews = 1  # a step takes microseconds: there is nothing to hide the actor's work behind

    def __init__(self, task: Task, simulator: BuiltIn, lanes: int) -> None:
        self._task, self._simulator, self._lanes = task, simulator, lanes

    def begin(self, seeds: Sequence[int]) -> Float32[np.ndarray, "b obs"]:
        padded = np.zeros(self._lanes, np.uint32)
        padded[: len(seeds)] = seeds
        self._keys = jax.vmap(jax.random.key)(padded)
        self._episode = np.zeros(self._lanes, np.int32)
        self._state, obs = _begin(self._simulator, self._keys, self._episode)
        return np.asarray(obs)[: len(seeds)]

    def reset(self, lanes: Int[np.ndarray, " b"]) -> Float32[np.ndarray, "b obs"]:
        chosen = np.zeros(self._lanes, bool)
        chosen[lanes] = True
        self._episode = self._episode + chosen
        fresh, obs = _begin(self._simulator, self._keys, self._episode)
        self._state = _choose(chosen, fresh, self._state)
        return np.asarray(obs)[lanes]

    def step(self, lanes: Int[np.ndarray, " b"], act: Float32[np.ndarray, "b act"]) -> Outcome:
        self._state, *rows = _advance(self._task, self._simulator, self._state, self._pad(lanes, act))
        obs, reward, terminated = (np.asarray(row)[lanes] for row in rows)
        return Outcome(obs, reward, terminated, np.zeros(len(lanes), bool))

    def peek(self, lanes: Int[np.ndarray, " b"], act: Float32[np.ndarray, "b act"]) -> Float32[np.ndarray, "b obs"]:
        """The next observations if these actions were taken; the world stays where it is."""
        _, obs, _, _ = _advance(self._task, self._simulator, self._state, self._pad(lanes, act))
        return np.asarray(obs)[lanes]

    def close(self) -> None:
        """There is nothing to close."""

    def _pad(self, lanes: Int[np.ndarray, " b"], act: Float32[np.ndarray, "b act"]) -> Float32[np.ndarray, "c act"]:
        # Lanes that are not stepped still take part in the call, so that its shape is always the same.
        padded = np.zeros((self._lanes, self._task.act_size), np.float32)
        padded[lanes] = act
        return padded


@partial(jax.jit, static_argnames="simulator")
def _begin(
    simulator: BuiltIn, keys: Key[Array, " b"], episode: Int[Array, " b"]
) -> tuple[Float[Array, "b state"], Float[Array, "b obs"]]:
    state = jax.vmap(simulator.reset)(jax.vmap(jax.random.fold_in)(keys, episode))
    return state, jax.vmap(simulator.observe)(state)


@jax.jit
def _choose(
    chosen: Bool[Array, " b"], fresh: Float[Array, "b state"], state: Float[Array, "b state"]
) -> Float[Array, "b state"]:
    return jnp.where(chosen[:, None], fresh, state)


@partial(jax.jit, static_argnames=("task", "simulator"))
def _advance(
    task: Task, simulator: BuiltIn, state: Float[Array, "b state"], act: Float[Array, "b act"]
) -> tuple[Float[Array, "b state"], Float[Array, "b obs"], Float[Array, " b"], Bool[Array, " b"]]:
    state, reward = jax.vmap(simulator.step)(state, act)
    obs = jax.vmap(simulator.observe)(state)
    over = task.terminated
    return state, obs, reward, jax.vmap(over)(obs) if callable(over) else jnp.zeros(len(act), bool)


# --- Gymnasium and dm_control: lane by lane ---


class GymLane:
    """A Gymnasium environment. One that is named is made without the wrappers that count and check."""

    def __init__(self, task: Task, env: Any, ours: bool = True) -> None:
        self.env = env
        self._ours = ours  # made here, and so closed here
        self.mujoco: Any = mujoco_of(env)
        self.saved: Any = None
        parts, bounds = observed_parts(env.observation_space, task.name), action_bounds(env.action_space, task.name)
        self._read, self._write = reader(parts), writer(env.action_space)
        if (size_of(parts), len(bounds.low)) != (task.obs_size, task.act_size):
            raise UserError(
                f"Task {task.name!r} says {task.obs_size} observations and {task.act_size} actions, but its "
                f"environment has {size_of(parts)} and {len(bounds.low)}; correct the sizes in the task."
            )

    def reset(self, seed: int | None) -> np.ndarray:
        return self._read(self.env.reset(seed=seed)[0])

    def step(self, act: Float32[np.ndarray, " act"]) -> tuple[np.ndarray, Any, bool, bool]:
        obs, reward, terminated, truncated, _ = self.env.step(self._write(act))
        return self._read(obs), reward, terminated, truncated

    def peek(self, act: Float32[np.ndarray, " act"]) -> np.ndarray:
        if self.mujoco is None or self.env.unwrapped is not self.env:  # wrappers have a state of their own
            raise UserError(
                "The oracle tries actions in a copy of the simulator, which works with built-in tasks and with Mujoco "
                f"without wrappers, not with {self.env}; use the disagreement or lagged reading."
            )
        with _kept(self):
            return self._read(self.env.step(self._write(act))[0])

    def close(self) -> None:
        if self._ours:
            self.env.close()


def mujoco_of(env: Any) -> Any:
    """Mujoco's model and data of a Gymnasium environment; None where it has none."""
    inner = env.unwrapped
    return (inner.model, inner.data) if hasattr(inner, "model") and hasattr(inner, "data") else None


class DmControlLane:
    """A task of the dm_control suite; the observations are flattened in the suite's own order."""

    def __init__(self, task: Task, domain: str, name: str) -> None:
        suite = import_suite()
        # Our own generator, because re-seeding it is the one public way to make a suite's episode reproducible.
        self._random = np.random.RandomState(0)
        self.saved: Any = None
        if (domain, name) not in suite.ALL_TASKS:
            raise UserError(f"Task {task.name!r}: dm_control's suite has no {domain}/{name}; see suite.ALL_TASKS.")
        with quiet_mujoco():
            self._env = suite.load(domain, name, task_kwargs={"random": self._random, "time_limit": float("inf")})
        self.mujoco: Any = (self._env.physics.model.ptr, self._env.physics.data.ptr)
        obs_size = sum(int(np.prod(spec.shape)) for spec in self._env.observation_spec().values())
        act_size = int(np.prod(self._env.action_spec().shape))
        if (obs_size, act_size) != (task.obs_size, task.act_size):
            raise UserError(
                f"Task {task.name!r} says {task.obs_size} observations and {task.act_size} actions, "
                f"but {domain}/{name} has {obs_size} and {act_size}; correct the sizes in the task."
            )

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None:
            self._random.seed(seed)
        return _flat(self._env.reset().observation)

    def step(self, act: Float32[np.ndarray, " act"]) -> tuple[np.ndarray, Any, bool, bool]:
        now = self._env.step(act)
        # dm_control's discount tells a true end (0) from a time limit (1).
        return _flat(now.observation), now.reward, bool(now.last() and now.discount == 0), now.last()

    def peek(self, act: Float32[np.ndarray, " act"]) -> np.ndarray:
        env, physics = self._env, self._env.physics
        # Not env.step, which counts the step.
        with _kept(self):
            env.task.before_step(act, physics)
            physics.step(round(env.control_timestep() / physics.timestep()))
            return _flat(env.task.get_observation(physics))

    def close(self) -> None:
        self._env.close()


@contextmanager
def _kept(lane: GymLane | DmControlLane) -> Iterator[None]:
    """Put all of Mujoco's data back afterwards: derived quantities too, because some rewards read them."""
    mujoco = importlib.import_module("mujoco")
    model, data = lane.mujoco
    if lane.saved is None:
        lane.saved = mujoco.MjData(model)
    mujoco.mj_copyData(lane.saved, model, data)
    try:
        yield
    finally:
        mujoco.mj_copyData(data, model, lane.saved)


def _flat(observation: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in observation.values()])


class LaneWorld:
    """Simulators that step one lane at a time."""

    crews = 2  # they run in Python on one core; the other core can compute the next actions of half of the lanes

    def __init__(self, task: Task, lanes: Sequence[GymLane | DmControlLane]) -> None:
        self._obs_size, self.lanes = task.obs_size, lanes

    def begin(self, seeds: Sequence[int]) -> Float32[np.ndarray, "b obs"]:
        obs = np.empty((len(seeds), self._obs_size), np.float32)
        with _watched(now := [0]):
            for now[0], seed in enumerate(seeds):
                obs[now[0]] = self.lanes[now[0]].reset(seed)
        return obs

    def reset(self, lanes: Int[np.ndarray, " b"]) -> Float32[np.ndarray, "b obs"]:
        obs = np.empty((len(lanes), self._obs_size), np.float32)
        with _watched(now := [0]):
            for row, now[0] in enumerate(lanes.tolist()):
                obs[row] = self.lanes[now[0]].reset(None)
        return obs

    def step(self, lanes: Int[np.ndarray, " b"], act: Float32[np.ndarray, "b act"]) -> Outcome:
        b = len(lanes)
        outcome = Outcome(
            np.empty((b, self._obs_size), np.float32), np.empty(b, np.float32), np.empty(b, bool), np.empty(b, bool)
        )
        next_obs, reward, terminated, truncated = outcome
        with _watched(now := [0]):
            for row, now[0] in enumerate(lanes.tolist()):
                next_obs[row], reward[row], terminated[row], truncated[row] = self.lanes[now[0]].step(act[row])
        return outcome

    def peek(self, lanes: Int[np.ndarray, " b"], act: Float32[np.ndarray, "b act"]) -> Float32[np.ndarray, "b obs"]:
        obs = np.empty((len(lanes), self._obs_size), np.float32)
        with _watched(now := [0]):
            for row, now[0] in enumerate(lanes.tolist()):
                obs[row] = self.lanes[now[0]].peek(act[row])
        return obs

    def close(self) -> None:
        for lane in self.lanes:
            try:
                lane.close()
            except Exception as error:  # what the lane did is done, and must not be lost for that
                warnings.warn(f"closing a simulator failed: {type(error).__name__}: {error}", stacklevel=2)


World = BuiltInWorld | LaneWorld
LANES = 50  # side by side, at most


def most_lanes(task: Task) -> int:
    """How many lanes a world of this task may have."""
    return 1 if isinstance(task.simulator, Single) else LANES


def make_world(task: Task, lanes: int, pictures: bool = False) -> World:
    """The task's simulator with room for so many lanes; `pictures` when it will be asked to draw."""
    match task.simulator:
        case BuiltIn():
            return BuiltInWorld(task, task.simulator, lanes)
        case Gym(id, kwargs):
            return LaneWorld(task, [GymLane(task, _named(id, dict(kwargs), pictures)) for _ in range(lanes)])
        case Factory(make):
            envs = [make_environment(make) for _ in range(lanes)]
            bodies = [env.unwrapped for env in envs]
            if any(one is other for one, other in itertools.combinations(bodies, 2)):
                raise UserError(
                    f"The function of task {task.name!r} returns the same environment again, so that lanes would "
                    "disturb each other: make a new one at every call."
                )
            return LaneWorld(task, [GymLane(task, env) for env in envs])
        case Single(env):
            assert lanes == 1, most_lanes(task)
            return LaneWorld(task, [GymLane(task, env, ours=False)])
        case DmControl(domain, name):
            return LaneWorld(task, [DmControlLane(task, domain, name) for _ in range(lanes)])
        case None:
            raise UserError(f"Task {task.name!r} has no simulator; bring batches from the field with --data.")


MODES = "render_modes"
"""Gymnasium's name for the ways in which an environment can be drawn."""


def _named(id: str, kwargs: dict[str, Any], pictures: bool) -> Any:
    env = make_gym(id, **kwargs)
    draws = "rgb_array" in env.metadata.get(MODES, ())
    return make_gym(id, **kwargs, render_mode="rgb_array") if pictures and draws and mujoco_of(env) is None else env


# --- the packages, imported when they are first needed ---


def import_gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise UserError(f"Gymnasium is not installed; {INSTALL}") from error
    return gymnasium


def import_suite() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a display, which nobody needs here
            from dm_control import suite
    except ImportError as error:
        raise UserError(f"dm_control cannot be imported ({error}); {INSTALL}") from error
    return suite


def gym_spec(id: str) -> Any:
    """The registered description of an environment."""
    gymnasium = import_gymnasium()
    try:
        module, colon, rest = id.rpartition(":")
        if colon:
            modules.load(module, f"{id} is registered by a module of that name")
        return copy.deepcopy(gymnasium.spec(rest))
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise UserError(f"Gymnasium has no environment {id!r}: {error}") from error


def make_gym(id: str, **kwargs: Any) -> Any:
    """A bare environment: no time limit, no order check."""
    gymnasium = import_gymnasium()
    spec = gym_spec(id)
    spec.order_enforce = False
    try:
        with quiet_mujoco():
            return gymnasium.make(spec, max_episode_steps=-1, disable_env_checker=True, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        hint = f"; {INSTALL}" if "mujoco" in str(error).lower() else ""
        raise UserError(f"{id} needs a package that is not installed: {str(error).rstrip('.')}{hint}.") from error
    except TypeError as error:
        raise UserError(f"{id} cannot be made with the arguments {kwargs}: {error}") from error


def make_environment(make: Callable[[], Any]) -> Any:
    """What a function of the user's makes, if it is a Gymnasium environment."""
    gymnasium = import_gymnasium()
    try:
        with quiet_mujoco():
            env = make()
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # it is a user's program: anything may come
        raise UserError(f"Making the environment failed: {type(error).__name__}: {error}.") from error
    if not isinstance(env, gymnasium.Env):
        raise UserError(
            f"The function that makes the environment returned a {type(env).__name__}, not a gymnasium.Env: return "
            "one, or wrap what you have in a class that is one."
        )
    return env


@contextmanager
def quiet_mujoco() -> Iterator[None]:
    """Drop one deprecation notice, which Mujoco would print and log for every lane; pass every other warning on."""
    try:
        mujoco = importlib.import_module("mujoco")
    except ImportError:  # an environment without Mujoco has nothing to be quiet about
        yield
        return
    before = mujoco.get_mju_user_warning()
    notices: list[str] = []
    mujoco.set_mju_user_warning(notices.append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
    for notice in notices:
        if "settotalmass" not in notice:
            warnings.warn(f"Mujoco: {notice}", stacklevel=3)


def no_simulator(task: Task) -> str | None:
    """Why a policy cannot be evaluated here, in a sentence; None where it can."""
    if task.simulator is None:
        return f"task {task.name} has no simulator"
    try:
        make_world(task, 1).close()
    except UserError as error:
        return str(error)
    return None
