"""A simulator whose observations come with the past that the policy of a task with history sees."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int

from musbo.field.worlds import Outcome, World
from musbo.tasks.task import Task


class Remembering:
    """The world of a task with history; what is seen is `stacked`, see `tasks/history.py`."""

    def __init__(self, task: Task, world: World) -> None:
        self.crews = world.crews
        self._task, self._world = task, world

    def begin(self, seeds: Sequence[int]) -> Float32[np.ndarray, "b seen"]:
        self._seen = self._begun(self._world.begin(seeds))
        return self._seen.copy()

    def reset(self, lanes: Int[np.ndarray, " b"]) -> Float32[np.ndarray, "b seen"]:
        self._seen[lanes] = self._begun(self._world.reset(lanes))
        return self._seen[lanes]

    def step(self, lanes: Int[np.ndarray, " b"], act: Float32[np.ndarray, "b act"]) -> Outcome:
        kept = act.copy()  # some simulators write into their actions
        outcome = self._world.step(lanes, act)
        self._seen[lanes] = self._after(lanes, kept, outcome.next_obs)
        return outcome._replace(next_obs=self._seen[lanes])

    def peek(self, lanes: Int[np.ndarray, " b"], act: Float32[np.ndarray, "b act"]) -> Float32[np.ndarray, "b seen"]:
        kept = act.copy()
        return self._after(lanes, kept, self._world.peek(lanes, act))

    def close(self) -> None:
        self._world.close()

    def _begun(self, obs: Float32[np.ndarray, "b obs"]) -> Float32[np.ndarray, "b seen"]:
        middle = np.broadcast_to(self._task.centre, (len(obs), self._task.act_size))
        return np.concatenate([obs, *self._task.history * (obs, middle)], axis=1)

    def _after(
        self, lanes: Int[np.ndarray, " b"], act: Float32[np.ndarray, "b act"], next_obs: Float32[np.ndarray, "b obs"]
    ) -> Float32[np.ndarray, "b seen"]:
        seen, size = self._seen[lanes], self._task.obs_size
        kept = seen[:, size : -(size + self._task.act_size)]
        return np.concatenate([next_obs, seen[:, :size], act, kept], axis=1)


def remembering(task: Task, world: World) -> World | Remembering:
    """The world as the policy of this task sees it."""
    return Remembering(task, world) if task.history else world
