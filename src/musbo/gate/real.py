"""What was really earned per episode: of the whole episodes that the policy had to itself, as far as there are any."""

import numpy as np
from jaxtyping import Bool, Float, Int, Int8

from musbo.data.batch import Batch
from musbo.data.dataset import Dataset, episodes, rows
from musbo.tasks.task import Task


def telling(
    task: Task, terminated: Bool[np.ndarray, " n"], by: Int8[np.ndarray, " n"], number: Int[np.ndarray, " n"]
) -> Bool[np.ndarray, " e"]:
    """The episodes that tell what one of the policy brings; `number` is that of each row's episode, in order.

    Whole are those that ended by themselves or lasted as long as an episode does. In others a second policy, with which
    it shares the batch, had the word.
    """
    _, first, length = np.unique(number, return_index=True, return_counts=True)
    whole = terminated[first + length - 1] | (length == task.episode_steps)
    alone = np.maximum.reduceat(by, first) <= 0
    return next(found for found in (whole & alone, alone, np.ones_like(whole)) if found.any())


def tells(task: Task, batch: Batch) -> Bool[np.ndarray, " e"]:
    """The same of a batch."""
    return telling(task, batch.terminated, batch.by, np.repeat(np.arange(len(batch.starts())), batch.lengths()))


def per_episode(steps: int, mean_return: float, mean_length: float, terminations: int | None) -> float:
    """The return of an episode of full length, where nothing but the clock ends one."""
    return mean_return * steps / mean_length if terminations == 0 else mean_return


def real_return(task: Task, data: Dataset, batch: int) -> float:
    """What an episode of a batch brought on average; batches count from 1."""
    chosen = rows(np.asarray(data.deployment) == batch)
    reward, terminated, by = (np.asarray(x)[chosen] for x in (data.reward, data.terminated, data.by))
    number = episodes(data)[chosen]
    number = number - number[0]
    told = telling(task, terminated, by, number)
    returns: Float[np.ndarray, " e"] = np.bincount(number, reward.astype(np.float64))[told]
    length = np.bincount(number)[told]
    return per_episode(task.episode_steps, float(returns.mean()), float(length.mean()), int(terminated.sum()))


def newest_batch(data: Dataset) -> int:
    return int(np.asarray(data.deployment).max())
