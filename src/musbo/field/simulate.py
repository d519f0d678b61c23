"""Collection and evaluation in a simulator: one deployment, or whole episodes of a policy to measure it.

Lanes are worked in groups, each with a fixed quota, so that short episodes are not over-sampled and a batch has exactly
the size that was asked for. A group is a function of (seed, group) alone: a collection that was killed goes on with the
next group. How the lanes of a group step is in `drive`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float32, Float64, Int

from musbo.core.errors import UserError
from musbo.data.batch import Batch, concatenate
from musbo.data.checks import LARGEST, SHOWN
from musbo.data.history import raw_batch
from musbo.data.rewards import model_rewards as model_rewards
from musbo.field.drive import Explorer, Fault, Oracle, Steady, crew_width, drive
from musbo.field.remembering import remembering
from musbo.field.worlds import make_world, most_lanes
from musbo.models.actor import Actor
from musbo.tasks.history import stacked
from musbo.tasks.task import Task


class Purpose(IntEnum):
    """What random numbers are for: the same seed means different episodes for each."""

    COLLECT = 0
    EVALUATE = 1


@dataclass(frozen=True, eq=False)
class Shard:
    """The transitions of one group of lanes, with the actor's signal at every step."""

    batch: Batch
    signal: Float32[np.ndarray, " n"]
    extra_steps: int  # steps that an oracle took in a copy of the simulator
    alone: int  # transitions whose lane was the only one of its crew


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
    task: Task, actor: Actor, size: int, seed: int, lanes: int | None = None, first_group: int = 0
) -> Iterator[Shard]:
    """The shards of one deployment, from `first_group` on; all shards together have exactly `size` transitions.

    Where the simulator fails, the last shard has the episodes that were over, and then `Fault` is raised.
    """
    plan = groups(size, most_lanes(task) if lanes is None else lanes, task.episode_steps)
    width = len(plan[0])
    if first_group >= len(plan):
        return
    seen = stacked(task)
    with closing(remembering(task, make_world(task, width))) as world:
        for group in range(first_group, len(plan)):
            key = jax.random.fold_in(jax.random.key(seed), group)
            # Of a single lane, every group is the next of many for whoever shares lanes out.
            first = group if width == 1 else 0
            mind = Oracle(seen, world, actor, key) if actor.needs_oracle else Explorer(world, actor, key, first)
            seeds = lane_seeds(seed, Purpose.COLLECT, group, len(plan[group]))
            try:
                batch, signal = drive(seen, world, mind, seeds, plan[group], width, once=False)
            except Fault as fault:
                if fault.batch is not None:
                    yield Shard(raw_batch(task, fault.batch), fault.signal, mind.extra_steps, 0)
                raise
            yield Shard(raw_batch(task, batch), signal, mind.extra_steps, _alone(plan[group], crew_width(width, world)))


def first_episodes(task: Task, batch: Batch, lanes: int | None = None) -> Bool[np.ndarray, " e"]:
    """Which episodes of a collected batch were the first of their lane.

    The quota has room for these, so they say what an episode brings. Of the others some are cut by the quota, and
    without those that are cut the short ones would be too many.
    """
    plan = groups(len(batch), most_lanes(task) if lanes is None else lanes, task.episode_steps)
    quotas = [quota for group in plan for quota in group]
    return np.isin(batch.starts(), np.cumsum([0, *quotas[:-1]]))


def _alone(quotas: Sequence[int], width: int) -> int:
    """The transitions of a group whose lane is the only one of its crew."""
    crews = [quotas[first : first + width] for first in range(0, len(quotas), width)]
    return sum(crew[0] for crew in crews if len(crew) == 1)


def rollouts(task: Task, policy: Callable[[Any], Any], episodes: int, seed: int, steps: int | None = None) -> Batch:
    """Whole episodes of a deterministic policy, or their first `steps` steps."""
    if episodes < 1:
        raise UserError(f"An evaluation needs at least one episode, not {episodes}.")
    width = min(episodes, most_lanes(task))
    limit = min(steps or task.episode_steps, task.episode_steps)
    mind = Steady(task, policy)
    batches = []
    with closing(remembering(task, make_world(task, width))) as world:
        for group, first in enumerate(range(0, episodes, width)):
            count = min(width, episodes - first)
            seeds = lane_seeds(seed, Purpose.EVALUATE, group, count)
            try:
                batches.append(drive(stacked(task), world, mind, seeds, [limit] * count, width, once=True)[0])
            except Fault as fault:
                raise UserError(f"The policy cannot be measured: {fault}.") from fault
    return raw_batch(task, concatenate(batches))


def evaluate(task: Task, policy: Callable[[Any], Any], episodes: int, seed: int) -> Evaluation:
    """Returns of a deterministic policy over whole episodes; a function of (task, policy, seed)."""
    batch = rollouts(task, policy, episodes, seed)
    rewards, speeds = np.full(len(batch), np.nan), np.full(episodes, np.nan)
    if callable(task.reward):
        rewards = model_rewards(task, batch)
    if task.speed is not None:
        speed = batch.next_obs[:, task.speed].astype(np.float64)
        speeds = np.add.reduceat(speed, batch.starts()) / batch.lengths()
    return Evaluation(batch.returns(), rewards, batch.lengths(), speeds, len(batch), batch)


def require_rewards(task: Task, batch: Batch) -> None:
    """Refuse a model reward that is not a finite number on real transitions: networks trained on it would not be."""
    if not callable(task.reward):
        return
    rewards = model_rewards(task, batch)
    wrong = np.flatnonzero(~(np.abs(rewards) <= LARGEST))
    if len(wrong):
        row = int(wrong[0])
        obs = ", ".join(f"{x:g}" for x in batch.obs[row, :SHOWN])
        raise UserError(
            f"the reward function of task {task.name} gives {rewards[row]:g} in {len(wrong)} of {len(batch)} "
            f"transitions, first for the observation ({obs}{', ...' if batch.obs.shape[1] > SHOWN else ''}): correct "
            "it, then go on."
        )


def lane_seeds(seed: int, purpose: Purpose, group: int, count: int) -> list[int]:
    """One seed per lane, unrelated between seeds, purposes, groups and lanes."""
    return [int(np.random.SeedSequence([seed, purpose, group, lane]).generate_state(1)[0]) for lane in range(count)]
