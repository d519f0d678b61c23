"""Probe transitions: what a task's reward and termination give for them shows, later, whether they are still the same.

Some are made up and cover the ranges that the task declares. Once there are data, rows of them are probes as well,
chosen so that they cover the range of every number in a batch.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Int

from musbo.data.batch import Batch
from musbo.tasks.task import Task

Transitions: TypeAlias = tuple[Float32[np.ndarray, "n obs"], Float32[np.ndarray, "n act"], Float32[np.ndarray, "n obs"]]
"""Observations, actions, next observations."""
MADE_UP, ROOT = 257, 3
"""A prime, and a primitive root of it: its powers put the values of each number into an order of their own."""
UNKNOWN = 3.0
"""Of a number whose range nobody declares: from minus this to this."""
PARTS = 64
"""Of the range of a number in a batch, each of which gives a probe."""
EVENLY = 256
"""Probes from the beginning to the end of a batch."""
MOST = 3000
"""Probes of a batch."""


def covering(task: Task) -> Transitions:
    """Transitions that need not be possible, in which every number goes evenly from end to end of its range."""
    low = np.asarray(task.obs_low or (-UNKNOWN,) * task.obs_size)
    high = np.asarray(task.obs_high or (UNKNOWN,) * task.obs_size)
    lows, highs = np.concatenate([low, task.low, low]), np.concatenate([high, task.high, high])
    order = np.array([pow(ROOT, i, MADE_UP) for i in range(len(lows))])
    share = (np.arange(MADE_UP)[:, None] * order % MADE_UP) / (MADE_UP - 1)
    numbers = (lows + (highs - lows) * share).astype(np.float32)
    first, last = task.obs_size, task.obs_size + task.act_size
    return numbers[:, :first], np.clip(numbers[:, first:last], task.low, task.high), numbers[:, last:]


def covering_rows(batch: Batch) -> Int[np.ndarray, " m"]:
    """Rows that between them cover the range of every number in a batch, with its ends, and its whole length."""
    n = len(batch)
    found = [np.linspace(0, n - 1, min(n, EVENLY)).astype(int)]
    for column in (*batch.obs.T, *batch.act.T, *batch.next_obs.T):
        values = column.astype(np.float64)
        low, high = values.min(), values.max()
        if low < high:
            first = np.full(PARTS, -1)
            first[((values - low) / (high - low) * (PARTS - 1)).astype(int)[::-1]] = np.arange(n)[::-1]
            found += [first[first >= 0], np.array([values.argmin(), values.argmax()])]
    rows = np.unique(np.concatenate(found))
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST)).astype(int)]


def transitions_of(batch: Batch, rows: Sequence[int] | Int[np.ndarray, " m"]) -> Transitions:
    """Some transitions of a batch."""
    chosen = np.asarray(rows, int)
    return batch.obs[chosen], batch.act[chosen], batch.next_obs[chosen]
