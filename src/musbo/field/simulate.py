"""Collection and evaluation in a simulator: one deployment, or whole episodes of a policy to measure it.

Lanes are worked in groups, each with a fixed quota, so that short episodes are not over-sampled and a batch has exactly
the size that was asked for. A group is a function of (seed, group) alone: a collection that was killed goes on with the
next group. Inside a group the lanes form two crews; the actor computes the actions of one while the other steps.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Float64, Int, Int32, PRNGKeyArray, UInt32

from musbo.core.errors import UserError
from musbo.data.batch import Batch, concatenate
from musbo.field.worlds import World, make_world
from musbo.tasks.task import Task

LANES = 50  # per group
COLLECT, EVALUATE = 0, 1  # purposes: the same seed means different episodes for each


@runtime_checkable
class Actor(Protocol):
    """What can go into the field: a pytree with pure methods that are batched over lanes.

    With `needs_oracle` it also has tentative(obs, key) -> act and act_oracle(obs, tentative, next_obs, key) ->
    (act, zeta).
    """

    @property
    def needs_oracle(self) -> bool: ...

    def act(
        self,
        obs: Float[Array, "b obs"],
        key: PRNGKeyArray,
        previous_obs: Float[Array, "b obs"],
        previous_act: Float[Array, "b act"],
        has_previous: Bool[Array, " b"],
    ) -> tuple[Float[Array, "b act"], Float[Array, " b"]]:
        """The executed action, inside the bounds, and its exploration scale zeta."""
        ...


@dataclass(frozen=True, eq=False)
class Shard:
    """The transitions of one group of lanes, with the exploration scale zeta of every action."""

    batch: Batch
    zeta: Float32[np.ndarray, " n"]
    extra_steps: int  # steps that an oracle took in a copy of the simulator


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Whole episodes of a deterministic policy in the simulator."""

    returns: Float64[np.ndarray, " e"]  # the simulator's own
    model_rewards: Float64[np.ndarray, " n"]  # of every step under the task's model reward; nan where that is learned
    lengths: Int[np.ndarray, " e"]
    speeds: Float64[np.ndarray, " e"]  # mean forward speed; nan where the task has none
    steps: int
    batch: Batch  # the episodes themselves; they never reach training

    @property
    def model_returns(self) -> Float64[np.ndarray, " e"]:
        return np.add.reduceat(self.model_rewards, self.batch.starts())

    def early(self, steps: int, own: bool = False) -> tuple[float, float]:
        """Mean return and length of the first steps of every episode, under the reward that imagination has.

        Where that is learned (`own`, or a task without a model reward) it is the simulator's own.
        """
        known = not own and np.isfinite(self.model_rewards).all()
        rewards = self.model_rewards if known else self.batch.reward.astype(np.float64)
        lengths = np.minimum(self.lengths, steps)
        sums = [rewards[start : start + n].sum() for start, n in zip(self.batch.starts(), lengths, strict=True)]
        return float(np.mean(sums)), float(lengths.mean())


def groups(size: int, lanes: int, episode_steps: int) -> list[list[int]]:
    """Quotas of the lanes, group by group: in all `size`, at most `lanes` per group, nearly equal.

    A quota has room for one full episode where the size allows, because a lane that is always cut early would never
    show how an episode ends.
    """
    if size < 1:
        raise UserError(f"A batch needs at least one transition, not {size}.")
    if lanes < 1:
        raise UserError(f"Collection needs at least one lane, not {lanes}.")
    count = max(1, size // episode_steps)
    quotas = [size // count + (lane < size % count) for lane in range(count)]
    return [quotas[first : first + lanes] for first in range(0, count, lanes)]


def collect(
    task: Task, actor: Actor, size: int, seed: int, lanes: int = LANES, first_group: int = 0
) -> Iterator[Shard]:
    """The shards of one deployment, from `first_group` on; all shards together have exactly `size` transitions."""
    plan = groups(size, lanes, task.episode_steps)
    width = len(plan[0])
    world: World | None = None
    for group in range(first_group, len(plan)):
        world = world or make_world(task, width)
        key = jax.random.fold_in(jax.random.key(seed), group)
        mind = (_Oracle if actor.needs_oracle else _Explorer)(task, world, actor, key)
        seeds = lane_seeds(seed, COLLECT, group, len(plan[group]))
        batch, zeta = _drive(task, world, mind, seeds, plan[group], width, once=False)
        yield Shard(batch, zeta, mind.extra_steps)


def first_episodes(task: Task, batch: Batch, lanes: int = LANES) -> Bool[np.ndarray, " e"]:
    """Which episodes of a collected batch were the first of their lane.

    The quota has room for these, so they say what an episode brings. Of the others some are cut by the quota, and
    without those that are cut the short ones would be too many.
    """
    quotas = [quota for group in groups(len(batch), lanes, task.episode_steps) for quota in group]
    return np.isin(batch.starts(), np.cumsum([0, *quotas[:-1]]))


def alone(task: Task, size: int, lanes: int = LANES) -> float:
    """The share of a deployment's transitions whose lane is the only one of its crew."""
    plan = groups(size, lanes, task.episode_steps)
    width = _crew_width(len(plan[0]), make_world(task, 1))
    crews = [quotas[first : first + width] for quotas in plan for first in range(0, len(quotas), width)]
    return sum(crew[0] for crew in crews if len(crew) == 1) / size


def rollouts(task: Task, policy: Callable[[Any], Any], episodes: int, seed: int, steps: int | None = None) -> Batch:
    """Whole episodes of a deterministic policy, or their first `steps` steps."""
    if episodes < 1:
        raise UserError(f"An evaluation needs at least one episode, not {episodes}.")
    width = min(episodes, LANES)
    limit = min(steps or task.episode_steps, task.episode_steps)
    world = make_world(task, width)
    mind = _Steady(task, policy)
    batches = []
    for group, first in enumerate(range(0, episodes, width)):
        count = min(width, episodes - first)
        seeds = lane_seeds(seed, EVALUATE, group, count)
        batches.append(_drive(task, world, mind, seeds, [limit] * count, width, once=True)[0])
    return concatenate(batches)


def evaluate(task: Task, policy: Callable[[Any], Any], episodes: int, seed: int) -> Evaluation:
    """Returns of a deterministic policy over whole episodes; a function of (task, policy, seed)."""
    batch = rollouts(task, policy, episodes, seed)
    model_rewards, speeds = np.full(len(batch), np.nan), np.full(episodes, np.nan)
    if callable(task.reward):
        model_rewards = np.asarray(_model_reward(task, batch.obs, batch.act, batch.next_obs), np.float64)
    if task.speed is not None:
        speed = batch.next_obs[:, task.speed].astype(np.float64)
        speeds = np.add.reduceat(speed, batch.starts()) / batch.lengths()
    return Evaluation(batch.returns(), model_rewards, batch.lengths(), speeds, len(batch), batch)


@partial(jax.jit, static_argnames="task")
def _model_reward(
    task: Task, obs: Float[Array, "n obs"], act: Float[Array, "n act"], next_obs: Float[Array, "n obs"]
) -> Float[Array, " n"]:
    assert callable(task.reward)
    return jax.vmap(task.reward)(obs, act, next_obs)


def lane_seeds(seed: int, purpose: int, group: int, count: int) -> list[int]:
    """One seed per lane, unrelated between seeds, purposes, groups and lanes."""
    return [int(np.random.SeedSequence([seed, purpose, group, lane]).generate_state(1)[0]) for lane in range(count)]


@dataclass
class _Crew:
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


class _Explorer:
    """The actor with its exploration noise."""

    def __init__(self, task: Task, world: World, actor: Actor, key: PRNGKeyArray) -> None:
        self.extra_steps = 0
        self._arrays, self._static = _split(actor)
        # As numbers, because a compiled function takes as long to accept one typed key as all its other arguments.
        self._keys = list(jax.random.key_data(jax.random.split(key, world.crews)))

    def ask(self, crew: _Crew, t: int) -> Any:
        key = self._keys[crew.number]
        return _act(self._static, self._arrays, key, t, crew.obs, crew.last_obs, crew.last_act, crew.has_last)

    def answer(self, crew: _Crew, t: int, asked: Any) -> tuple[Any, Any]:
        return asked


class _Oracle:
    """The actor may try its tentative action in a copy of the simulator before it acts."""

    def __init__(self, task: Task, world: World, actor: Actor, key: PRNGKeyArray) -> None:
        self.extra_steps = 0
        self._task, self._world = task, world
        self._arrays, self._static = _split(actor)
        self._keys = [list(pair) for pair in jax.random.key_data(jax.random.split(key, (world.crews, 2)))]

    def ask(self, crew: _Crew, t: int) -> Any:
        return _tentative(self._static, self._arrays, self._keys[crew.number][0], t, crew.obs)

    def answer(self, crew: _Crew, t: int, asked: Any) -> tuple[Any, Any]:
        tried = np.clip(np.asarray(asked), self._task.low, self._task.high)
        next_obs = crew.obs.copy()
        next_obs[crew.rows] = self._world.peek(crew.lanes, tried[crew.rows])
        self.extra_steps += len(crew.rows)
        return _act_oracle(self._static, self._arrays, self._keys[crew.number][1], t, crew.obs, asked, next_obs)


class _Steady:
    """A deterministic policy."""

    def __init__(self, task: Task, policy: Callable[[Any], Any]) -> None:
        self.extra_steps = 0
        self._task, self._policy = task, compiled(policy)

    def ask(self, crew: _Crew, t: int) -> Any:
        return self._policy(crew.obs)

    def answer(self, crew: _Crew, t: int, asked: Any) -> tuple[Any, Any]:
        act = np.clip(np.asarray(asked, np.float32), self._task.low, self._task.high)
        return act, np.zeros(len(act), np.float32)


_Mind = _Explorer | _Oracle | _Steady


def compiled(policy: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A policy that is a module is compiled, anything else (numpy, already compiled) is called as it is."""
    if not isinstance(policy, eqx.Module):
        return policy
    arrays, static = _split(policy)
    return partial(_call, static, arrays)


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
    zeta: Float32[np.ndarray, " b"]


def _together(moments: list[_Moment]) -> tuple[Batch, Float32[np.ndarray, " n"]]:
    """All transitions and their zeta, lane after lane, so that the rows of an episode are adjacent."""
    lanes, *columns = (np.concatenate(column) for column in zip(*moments, strict=True))
    order = np.argsort(lanes, kind="stable")  # the moments of a lane are in the order of time
    obs, act, reward, next_obs, terminated, truncated, step, zeta = (column[order] for column in columns)
    episode = (np.cumsum(step == 0) - 1).astype(np.int32)
    return Batch(obs, act, reward, next_obs, terminated, truncated, episode, step), zeta


def _drive(
    task: Task,
    world: World,
    mind: _Mind,
    seeds: Sequence[int],
    quotas: Sequence[int],
    lanes: int,
    once: bool,
) -> tuple[Batch, Float32[np.ndarray, " n"]]:
    """Run every lane until its quota is used up, or, with `once`, until its first episode ends."""
    quota = np.asarray(quotas)
    moments = []
    crews = _make_crews(task, world, world.begin(seeds), lanes)
    for crew in crews:
        crew.asked = mind.ask(crew, 0)
    for t in range(int(quota.max())):
        for crew in crews:
            if len(crew.rows):
                act, zeta = mind.answer(crew, t, crew.asked)
                moments.append(_step_crew(task, world, crew, quota, t, np.asarray(act), np.asarray(zeta), once))
                if len(crew.rows):
                    crew.asked = mind.ask(crew, t + 1)
    return _together(moments)


def _step_crew(
    task: Task,
    world: World,
    crew: _Crew,
    quota: Int[np.ndarray, " b"],
    t: int,
    act: Float32[np.ndarray, "w act"],
    zeta: Float32[np.ndarray, " w"],
    once: bool,
) -> _Moment:
    rows, lanes = crew.rows, crew.lanes
    chosen = act[rows]
    if not np.isfinite(chosen).all():
        raise UserError(
            f"The actor returned an action that is not a number at step {t} on {task.name}; train it again."
        )
    step = crew.steps[rows]
    # A copy of the actions, because some simulators write into them.
    next_obs, reward, terminated, truncated = world.step(lanes, chosen.copy())
    crew.steps[rows] += 1
    used_up = quota[lanes] == t + 1
    over = terminated | truncated | (step + 1 == task.episode_steps) | used_up
    moment = _Moment(lanes, crew.obs[rows], chosen, reward, next_obs, terminated, over & ~terminated, step, zeta[rows])

    leaves = over if once else used_up
    crew.last_obs, crew.last_act = crew.obs, act
    crew.obs = crew.obs.copy()
    crew.obs[rows] = next_obs
    crew.has_last = np.zeros_like(crew.has_last)
    crew.has_last[rows] = ~over
    again = over & ~leaves
    if again.any():
        crew.obs[rows[again]] = world.reset(lanes[again])
        crew.steps[rows[again]] = 0
    if leaves.any():
        crew.rows = rows[~leaves]
        crew.idle = np.setdiff1d(np.arange(len(crew.obs)), crew.rows)
    if len(crew.idle) and len(crew.rows):
        crew.obs[crew.idle] = crew.obs[np.resize(crew.rows, len(crew.idle))]
    return moment


def _crew_width(lanes: int, world: World) -> int:
    return -(-lanes // world.crews)


def _make_crews(task: Task, world: World, obs: Float32[np.ndarray, "b obs"], lanes: int) -> list[_Crew]:
    width = _crew_width(lanes, world)
    crews = []
    for number, first in enumerate(range(0, len(obs), width)):
        rows = np.arange(min(width, len(obs) - first))
        start = np.resize(obs[first : first + width], (width, task.obs_size))
        idle = np.zeros((width, task.act_size), np.float32)
        no = np.zeros(width, bool)
        spare = np.arange(len(rows), width)
        crews.append(_Crew(number, first, start, start, idle, no, np.zeros(width, np.int32), rows, spare))
    return crews
