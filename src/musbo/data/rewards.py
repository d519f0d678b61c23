"""The model reward of logged transitions: what the task's formula gives for them."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float, Float64

from musbo.core.errors import UserError
from musbo.data.batch import Batch
from musbo.data.chunks import in_chunks
from musbo.tasks.task import Reward, Task


def model_rewards(task: Task, batch: Batch) -> Float64[np.ndarray, " n"]:
    """The model reward of every transition."""
    assert callable(task.reward)
    columns = batch.obs, batch.act, batch.next_obs
    return in_chunks(partial(_model_reward, task.reward), columns).astype(np.float64)


@partial(jax.jit, static_argnums=0)
def _model_reward(
    reward: Reward, obs: Float[Array, "n obs"], act: Float[Array, "n act"], next_obs: Float[Array, "n obs"]
) -> Float[Array, " n"]:
    return jax.vmap(reward)(obs, act, next_obs).reshape(-1)


def has_rewards(batch: Batch) -> bool:
    """Whether rewards were logged: a log without them is read with a reward that is no number in every row."""
    return not len(batch) or not np.all(np.isnan(batch.reward))


def rewarded(batch: Batch, task: Task, source: str) -> Batch:
    """The batch with rewards: those of the log, or those of the task's formula where the log has none."""
    if has_rewards(batch):
        return batch
    if not callable(task.reward):
        raise UserError(
            f"{source} has no rewards, and task {task.name} learns its reward from them: name the column as reward in "
            "the mapping, or give the task a reward function."
        )
    if batch.obs.shape[1] != task.obs_size or batch.act.shape[1] != task.act_size:
        return batch  # which has findings of its own
    return replace(batch, reward=model_rewards(task, batch).astype(np.float32))
