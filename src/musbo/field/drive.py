"""How the lanes of one group step through a simulator.

The lanes form two crews; the actor computes the actions of one while the other steps. A mind is how a crew's next
actions are found: an actor that explores, one that may try its action first, or a deterministic policy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int, Int8, Int32, PRNGKeyArray, UInt32

from musbo.core.errors import UserError
from musbo.data.batch import Batch, rows_of
from musbo.data.checks import LARGEST
from musbo.field.remembering import Remembering
from musbo.field.worlds import LaneFailed, World
from musbo.models.actor import Actor, chosen_by, for_lanes
from musbo.tasks.task import Task


@dataclass
class Crew:
    """Some lanes that step together. The arrays have one width for every crew and group, so nothing is recompiled.

    An array that was handed to the actor is never written to again: the actor may still be reading it.
    """

    number: int
    first: int  # its first lane
    obs: Float32[np.ndarray, "w obs"]
    last_obs: Float32[np.ndarray, "w obs"]
    last_act: Float32[np.ndarray, "w act"]
    has_last: Bool[np.ndarray, " w"]
    steps: Int32[np.ndarray, " w"]  # into the current episode
    rows: Int[np.ndarray, " b"]  # which of its rows still run
    idle: Int[np.ndarray, " i"]  # the others: they repeat rows that run, so that a mean over all rows is one over lanes
    asked: Any = None

    @property
    def lanes(self) -> Int[np.ndarray, " b"]:
        return self.rows + self.first


# --- minds: how a crew's next actions are found. ask() starts the work, answer() waits for it ---


class Explorer:
    """The actor with its exploration noise."""

    def __init__(self, world: World | Remembering, actor: Actor, key: PRNGKeyArray, first: int = 0) -> None:
        self.extra_steps = 0
        self._actor, self._first = actor, first  # `first`: the number that the actor knows the first lane by
        self._split: dict[int, tuple[list[Any], Any]] = {}  # the actor of every crew
        # As numbers, because a compiled function takes as long to accept one typed key as all its other arguments.
        self._keys = list(jax.random.key_data(jax.random.split(key, world.crews)))

    def ask(self, crew: Crew, t: int) -> Any:
        if crew.number not in self._split:
            self._split[crew.number] = _split(
                for_lanes(self._actor, self._first + crew.first + np.arange(len(crew.obs)))
            )
        arrays, static = self._split[crew.number]
        key = self._keys[crew.number]
        return _act(static, arrays, key, t, crew.obs, crew.last_obs, crew.last_act, crew.has_last)

    def answer(self, crew: Crew, t: int, asked: Any) -> tuple[Any, Any]:
        return asked

    def by(self, lanes: Int[np.ndarray, " n"]) -> Int8[np.ndarray, " n"]:
        return chosen_by(self._actor, self._first + lanes)


class Oracle:
    """The actor may try its tentative action in a copy of the simulator before it acts."""

    def __init__(self, task: Task, world: World | Remembering, actor: Actor, key: PRNGKeyArray) -> None:
        self.extra_steps = 0
        self._task, self._world = task, world
        self._actor, (self._arrays, self._static) = actor, _split(actor)
        self._keys = [list(pair) for pair in jax.random.key_data(jax.random.split(key, (world.crews, 2)))]

    def ask(self, crew: Crew, t: int) -> Any:
        return _tentative(self._static, self._arrays, self._keys[crew.number][0], t, crew.obs)

    def answer(self, crew: Crew, t: int, asked: Any) -> tuple[Any, Any]:
        tried = np.clip(np.asarray(asked), self._task.low, self._task.high)
        next_obs = crew.obs.copy()
        next_obs[crew.rows] = self._world.peek(crew.lanes, tried[crew.rows])
        self.extra_steps += len(crew.rows)
        return _act_oracle(self._static, self._arrays, self._keys[crew.number][1], t, crew.obs, asked, next_obs)

    def by(self, lanes: Int[np.ndarray, " n"]) -> Int8[np.ndarray, " n"]:
        return chosen_by(self._actor, lanes)


class Steady:
    """A deterministic policy."""

    def __init__(self, task: Task, policy: Callable[[Any], Any]) -> None:
        self.extra_steps = 0
        self._task, self._policy = task, compiled(policy)

    def ask(self, crew: Crew, t: int) -> Any:
        return self._policy(crew.obs)

    def answer(self, crew: Crew, t: int, asked: Any) -> tuple[Any, Any]:
        act = np.clip(np.asarray(asked, np.float32), self._task.low, self._task.high)
        return act, np.zeros(len(act), np.float32)

    def by(self, lanes: Int[np.ndarray, " n"]) -> Int8[np.ndarray, " n"]:
        return np.zeros(len(lanes), np.int8)


Mind = Explorer | Oracle | Steady


def compiled(policy: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A policy that is a module is compiled, anything else (numpy, already compiled) is called as it is."""
    if not isinstance(policy, eqx.Module):
        return policy
    arrays, static = _split(policy)
    return partial(_call, static, arrays)


def exploring(actor: Actor) -> Callable[..., tuple[Any, Any]]:
    """(key data, t, obs, previous obs, previous act, has previous) -> (act, signal), compiled."""
    arrays, static = _split(actor)
    return partial(_act, static, arrays)


# Compiled once per kind of actor. The split into arrays and a hashable rest keeps a call to some microseconds.


def _split(tree: Any) -> tuple[list[Any], Any]:
    arrays, rest = eqx.partition(tree, eqx.is_array)
    leaves, form = jax.tree.flatten(arrays)
    rest_leaves, rest_form = jax.tree.flatten(rest)
    return leaves, (form, tuple(rest_leaves), rest_form)


def _join(static: Any, arrays: list[Any]) -> Any:
    form, rest_leaves, rest_form = static
    return eqx.combine(jax.tree.unflatten(form, arrays), jax.tree.unflatten(rest_form, rest_leaves))


def _at(key: UInt32[Array, " k"], t: Int[Array, ""]) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.wrap_key_data(key), t)


@partial(jax.jit, static_argnums=0)
def _act(static, arrays, key, t, obs, last_obs, last_act, has_last):
    return _join(static, arrays).act(obs, _at(key, t), last_obs, last_act, has_last)


@partial(jax.jit, static_argnums=0)
def _tentative(static, arrays, key, t, obs):
    return _join(static, arrays).tentative(obs, _at(key, t))


@partial(jax.jit, static_argnums=0)
def _act_oracle(static, arrays, key, t, obs, tentative, next_obs):
    return _join(static, arrays).act_oracle(obs, tentative, next_obs, _at(key, t))


@partial(jax.jit, static_argnums=0)
def _call(static, arrays, obs):
    return _join(static, arrays)(jnp.asarray(obs))


# --- the drive ---


class _Moment(NamedTuple):
    """One step of some lanes. Moments are put together only at the end: that leaves the time to the simulators."""

    lanes: Int[np.ndarray, " b"]
    obs: Float32[np.ndarray, "b obs"]
    act: Float32[np.ndarray, "b act"]
    reward: Float32[np.ndarray, " b"]
    next_obs: Float32[np.ndarray, "b obs"]
    terminated: Bool[np.ndarray, " b"]
    truncated: Bool[np.ndarray, " b"]
    step: Int32[np.ndarray, " b"]
    signal: Float32[np.ndarray, " b"]


def _together(moments: list[_Moment], mind: Mind) -> tuple[Batch, Float32[np.ndarray, " n"]]:
    """All transitions and their signal, lane after lane, so that the rows of an episode are adjacent."""
    lanes, *columns = (np.concatenate(column) for column in zip(*moments, strict=True))
    order = np.argsort(lanes, kind="stable")  # the moments of a lane are in the order of time
    obs, act, reward, next_obs, terminated, truncated, step, signal = (column[order] for column in columns)
    episode = (np.cumsum(step == 0) - 1).astype(np.int32)
    by = mind.by(lanes[order])  # a lane has one policy throughout
    return Batch(obs, act, reward, next_obs, terminated, truncated, episode, step, by), signal


class Fault(Exception):
    """A simulator failed while it was driven; what was finished before is kept."""

    def __init__(self, text: str, batch: Batch | None, signal: Float32[np.ndarray, " n"]) -> None:
        super().__init__(text)
        self.batch = batch
        """The episodes that were over; None where there is none."""
        self.signal = signal


def drive(
    task: Task,
    world: World | Remembering,
    mind: Mind,
    seeds: Sequence[int],
    quotas: Sequence[int],
    lanes: int,
    once: bool,
) -> tuple[Batch, Float32[np.ndarray, " n"]]:
    """Run every lane until its quota is used up, or, with `once`, until its first episode ends."""
    quota = np.asarray(quotas)
    moments: list[_Moment] = []
    crews: list[Crew] = []
    try:
        begun = world.begin(seeds)
        _require_numbers(task, np.arange(len(begun)), begun)
        crews = _make_crews(task, world, begun, lanes)
        for crew in crews:
            crew.asked = mind.ask(crew, 0)
        for t in range(int(quota.max())):
            for crew in crews:
                if len(crew.rows):
                    act, signal = mind.answer(crew, t, crew.asked)
                    _step_crew(task, world, crew, quota, t, np.asarray(act), np.asarray(signal), once, moments)
                    if len(crew.rows):
                        crew.asked = mind.ask(crew, t + 1)
    except LaneFailed as failure:
        step = next((int(crew.steps[failure.lane - crew.first]) for crew in crews if failure.lane in crew.lanes), 0)
        text = f"the simulator of task {task.name} failed in step {step + 1} of an episode: {failure}"
        raise Fault(text, *_finished(moments, mind)) from failure
    return _together(moments, mind)


def _finished(moments: list[_Moment], mind: Mind) -> tuple[Batch | None, Float32[np.ndarray, " n"]]:
    """The episodes among the moments that are over."""
    if not moments:
        return None, np.zeros(0, np.float32)
    batch, signal = _together(moments, mind)
    last = batch.terminated | batch.truncated
    whole = np.isin(batch.episode, batch.episode[last])
    kept = rows_of(batch, whole)
    return (kept, signal[whole]) if len(kept) else (None, signal[:0])


def _require_numbers(
    task: Task,
    lanes: Int[np.ndarray, " b"],
    obs: Float32[np.ndarray, "b obs"],
    reward: Float32[np.ndarray, " b"] | None = None,
) -> None:
    """Refuse what nothing can be learned from, and what would spoil all that is computed from it."""
    columns = obs if reward is None else np.column_stack([obs, reward])
    wrong = ~(np.abs(columns) <= LARGEST)  # not so where it is no number
    if wrong.any():
        row, column = (int(found[0]) for found in np.nonzero(wrong))
        name = "the reward" if column == obs.shape[1] else task.obs_labels[column]
        raise LaneFailed(int(lanes[row]), f"{name} is {columns[row, column]:g}")


def _step_crew(
    task: Task,
    world: World | Remembering,
    crew: Crew,
    quota: Int[np.ndarray, " b"],
    t: int,
    act: Float32[np.ndarray, "w act"],
    signal: Float32[np.ndarray, " w"],
    once: bool,
    moments: list[_Moment],
) -> None:
    rows, lanes = crew.rows, crew.lanes
    chosen = act[rows]
    if not np.isfinite(chosen).all():
        raise UserError(
            f"The actor returned an action that is not a number at step {t} on {task.name}; train it again."
        )
    step = crew.steps[rows]
    # A copy of the actions, because some simulators write into them.
    next_obs, reward, terminated, truncated = world.step(lanes, chosen.copy())
    _require_numbers(task, lanes, next_obs, reward)
    crew.steps[rows] += 1
    used_up = quota[lanes] == t + 1
    over = terminated | truncated | (step + 1 == task.episode_steps) | used_up
    moments.append(
        _Moment(lanes, crew.obs[rows], chosen, reward, next_obs, terminated, over & ~terminated, step, signal[rows])
    )

    leaves = over if once else used_up
    crew.last_obs, crew.last_act = crew.obs, act
    crew.obs = crew.obs.copy()
    crew.obs[rows] = next_obs
    crew.has_last = np.zeros_like(crew.has_last)
    crew.has_last[rows] = ~over
    again = over & ~leaves
    if again.any():
        begun = world.reset(lanes[again])
        _require_numbers(task, lanes[again], begun)
        crew.obs[rows[again]] = begun
        crew.steps[rows[again]] = 0
    if leaves.any():
        crew.rows = rows[~leaves]
        crew.idle = np.setdiff1d(np.arange(len(crew.obs)), crew.rows)
    if len(crew.idle) and len(crew.rows):
        crew.obs[crew.idle] = crew.obs[np.resize(crew.rows, len(crew.idle))]


def crew_width(lanes: int, world: World | Remembering) -> int:
    return -(-lanes // world.crews)


def _make_crews(task: Task, world: World | Remembering, obs: Float32[np.ndarray, "b obs"], lanes: int) -> list[Crew]:
    width = crew_width(lanes, world)
    crews = []
    for number, first in enumerate(range(0, len(obs), width)):
        rows = np.arange(min(width, len(obs) - first))
        start = np.resize(obs[first : first + width], (width, task.obs_size))
        idle = np.zeros((width, task.act_size), np.float32)
        no = np.zeros(width, bool)
        spare = np.arange(len(rows), width)
        crews.append(Crew(number, first, start, start, idle, no, np.zeros(width, np.int32), rows, spare))
    return crews
