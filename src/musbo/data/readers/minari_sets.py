"""Datasets of Minari, read by Minari itself: `pip install 'musbo[minari]'` brings it.

An episode of Minari has one observation more than actions, so that every transition has its successor.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from musbo.core.errors import UserError
from musbo.data.readers.table import Stored, Table, of_arrays

MOST = 250_000_000
"""Numbers of a dataset: 1 GB, and as much again for the observations that follow."""


def open_minari(dataset: Any, source: str) -> Table:
    """A dataset, or the name of one that Minari has on this machine; its columns are called as in D4RL's files.

    A dictionary of observations becomes one vector, its parts in the order of the space.
    """
    dataset = _found(dataset)
    width = sum(_sizes(space, name, source) for space, name in _spaces(dataset))
    if dataset.total_steps * width > MOST:
        raise UserError(f"{source} has {dataset.total_steps:,} steps of {width} numbers: filter or split it first.")
    episodes = list(dataset.iterate_episodes())
    if not episodes:
        raise UserError(f"{source} has no episode.")
    steps = [len(episode.rewards) for episode in episodes]
    seen = [_vectors(episode.observations, dataset.observation_space) for episode in episodes]
    done = [_vectors(episode.actions, dataset.action_space) for episode in episodes]
    for i, (rows, obs, act) in enumerate(zip(steps, seen, done, strict=True)):
        if (len(obs), len(act)) != (rows + 1, rows):
            raise UserError(
                f"{source}: episode {i} has {rows} rewards, {len(act)} actions and {len(obs)} observations, where one "
                "observation more than rewards and actions is expected."
            )
    columns = {
        "observations": np.concatenate([obs[:-1] for obs in seen]),
        "actions": np.concatenate(done),
        "rewards": _joined(episode.rewards for episode in episodes),
        "next_observations": np.concatenate([obs[1:] for obs in seen]),
        "terminals": _joined(episode.terminations for episode in episodes),
        "timeouts": _joined(episode.truncations for episode in episodes),
        "episodes": np.repeat(np.arange(len(episodes)), steps),
    }
    if all(isinstance(episode.infos, dict) and "by" in episode.infos for episode in episodes):
        # The first info of an episode is that of its reset.
        columns["by"] = np.concatenate(
            [np.asarray(each.infos["by"])[-n:] for each, n in zip(episodes, steps, strict=True)]
        )
    arrays = {name: _in_memory(array) for name, array in columns.items()}
    return of_arrays(arrays, sum(array.nbytes for array in columns.values()), source)


def _found(dataset: Any) -> Any:
    if not isinstance(dataset, str):
        return dataset
    try:
        import minari
    except ImportError as error:
        raise UserError("Minari's datasets need the package minari: pip install 'musbo[minari]'.") from error
    if dataset not in (known := minari.list_local_datasets()):
        have = f"it has {', '.join(sorted(known))}" if known else "it has none"
        raise UserError(
            f"Minari has no dataset {dataset!r} on this machine ({have}): `minari download {dataset}` fetches it."
        )
    return minari.load_dataset(dataset)


def _spaces(dataset: Any) -> list[tuple[Any, str]]:
    return [(dataset.observation_space, "observations"), (dataset.action_space, "actions")]


def _sizes(space: Any, name: str, source: str) -> int:
    """Numbers of a space; refused where it is no vector of numbers."""
    if inner := _parts(space):
        return sum(_sizes(part, f"{name}/{key}", source) for key, part in inner.items())
    if not hasattr(space, "low") or space.dtype.kind != "f" or len(space.shape) != 1:
        raise UserError(
            f"{source}: {name} is {space}; musbo needs vectors of continuous numbers, or a dictionary of such."
        )
    return space.shape[0]


def _vectors(values: Any, space: Any) -> np.ndarray:
    """Rows of a space, as vectors."""
    if inner := _parts(space):
        return np.concatenate([_vectors(values[key], part) for key, part in inner.items()], axis=1)
    return np.asarray(values).reshape(len(values), -1)


def _parts(space: Any) -> dict[str, Any]:
    return dict(space.spaces) if hasattr(getattr(space, "spaces", None), "items") else {}


def _joined(parts: Iterable[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(part) for part in parts])


def _in_memory(array: np.ndarray) -> Stored:
    return Stored(array.shape, array.dtype, lambda: array)
