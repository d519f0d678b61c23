"""Batches as the policy of a task with history sees them, and back: see `tasks/history.py`."""

from dataclasses import replace

import numpy as np

from musbo.data.batch import Batch
from musbo.tasks.task import Task


def stacked_batch(task: Task, batch: Batch) -> Batch:
    """Every observation with the past that the policy sees beside it; where rows are missing the past begins anew."""
    if not task.history:
        return batch
    row = np.arange(len(batch))
    begins = np.ones(len(batch), bool)
    begins[1:] = (batch.episode[1:] != batch.episode[:-1]) | (batch.step[1:] != batch.step[:-1] + 1)
    first = np.maximum.accumulate(np.where(begins, row, 0))
    parts = [batch.obs]
    for back in range(1, task.history + 1):
        then = np.maximum(row - back, first)
        known = (row - back >= first)[:, None]
        parts += [batch.obs[then], np.where(known, batch.act[then], task.centre)]
    obs = np.concatenate(parts, axis=1)
    kept = obs[:, task.obs_size : -(task.obs_size + task.act_size)]
    return replace(batch, obs=obs, next_obs=np.concatenate([batch.next_obs, batch.obs, batch.act, kept], axis=1))


def raw_batch(task: Task, batch: Batch) -> Batch:
    """The observations without their past."""
    return replace(batch, obs=batch.obs[:, : task.obs_size], next_obs=batch.next_obs[:, : task.obs_size])
