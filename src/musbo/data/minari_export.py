"""Batches as datasets of Minari, written by Minari itself: `pip install 'musbo[minari]'` brings it.

Minari stores the observations of an episode once, one more than actions. Who chose an action is the info `by`.
"""

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from musbo.core.errors import UserError
from musbo.data.batch import UNKNOWN, Batch
from musbo.data.checks import plain_findings
from musbo.data.logs import Logs
from musbo.data.rewards import has_rewards
from musbo.tasks.task import Task

NAME = re.compile(r"(\w[\w-]*/)*\w[\w-]*-v\d+")
"""Letters, digits, _ and -, in parts between slashes, and a version."""


def to_minari(data: Batch | Logs, name: str, task: Task | None = None) -> Any:
    """A new dataset `name`, such as "mill/monday-v0", on this machine, of the same transitions; it is returned.

    `task` gives the bounds of its actions. `from_minari` reads it back. A batch in which a next observation is not the
    observation of the following row cannot be stored so, and is refused.
    """
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
        from minari.serialization import deserialize_space
    except ImportError as error:
        raise UserError("Minari's datasets need the package minari: pip install 'musbo[minari]'.") from error
    if not NAME.fullmatch(name):  # Minari makes a folder of it before it looks
        raise UserError(f"{name!r} is no name of a dataset of Minari: write one such as mill/monday-v0.")
    batch = data.batch if isinstance(data, Logs) else data
    _require_whole(batch, name)
    low, high = (None, None) if task is None else (task.act_low, task.act_high)
    seen, done = _box(batch.obs.shape[1], None, None), _box(batch.act.shape[1], low, high)
    buffers = []
    for start, length in zip(batch.starts().tolist(), batch.lengths().tolist(), strict=True):
        rows = slice(start, start + length)
        values: dict[str, Any] = {
            "observations": np.concatenate([batch.obs[rows], batch.next_obs[start + length - 1 : start + length]]),
            "actions": batch.act[rows],
            "rewards": batch.reward[rows],
            "terminations": batch.terminated[rows],
            "truncations": batch.truncated[rows],
            # As many as observations: the first info is that of the reset.
            "infos": {"by": np.append(np.int8(UNKNOWN), batch.by[rows])},
        }
        buffers.append(EpisodeBuffer(id=len(buffers), **values))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about authors and code that are not named
            return minari.create_dataset_from_buffers(
                name, buffers, observation_space=deserialize_space(seen), action_space=deserialize_space(done)
            )
    except (ValueError, OSError) as error:
        said = " ".join(str(error)[:200].split())
        raise UserError(f"Minari does not make a dataset {name!r} ({said}): choose another name.") from error


def _require_whole(batch: Batch, name: str) -> None:
    known = batch if has_rewards(batch) else replace(batch, reward=np.zeros(len(batch), np.float32))
    wrong = [
        each for each in plain_findings(known) if each.level == "error" or each.kind == "next state does not match"
    ]
    if wrong:
        raise UserError(
            f"{wrong[0].what}, and a dataset of Minari cannot hold that: {wrong[0].do}; {name} is not made."
        )


def _box(size: int, low: tuple[float, ...] | None, high: tuple[float, ...] | None) -> dict[str, Any]:
    """A space of Gymnasium as Minari writes it down."""
    ends = {"low": list(low or (-np.inf,) * size), "high": list(high or (np.inf,) * size)}
    return {"type": "Box", "dtype": "float32", "shape": [size], **ends}
