"""Spaces of Gymnasium: which of them musbo takes, and how they become flat vectors of numbers with names.

Observations are a Box, or Boxes in a Dict or Tuple, nested as one likes; actions are one Box with finite bounds.
Everything else is refused in one sentence.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from musbo.core.errors import UserError


class Part(NamedTuple):
    """One Box of the observations."""

    path: tuple[Any, ...]
    """The keys that lead to it; empty where the observations are one Box."""
    shape: tuple[int, ...]


def observed_parts(space: Any, of: str) -> tuple[Part, ...]:
    """The Boxes of the observations of the environment `of`, in the order of the space."""
    parts = tuple(_parts(space, (), of))
    if not size_of(parts):
        raise UserError(f"The observations of {of} are {space}, which holds no number.")
    return parts


def size_of(parts: tuple[Part, ...]) -> int:
    """How many numbers there are in all."""
    return sum(math.prod(part.shape) for part in parts)


def _parts(space: Any, path: tuple[Any, ...], of: str) -> Iterator[Part]:
    kind = type(space).__name__
    if kind in ("Dict", "Tuple"):
        inner = space.spaces
        for key, each in inner.items() if kind == "Dict" else enumerate(inner):
            yield from _parts(each, (*path, key), of)
        return
    where = (
        f"The part {'.'.join(map(str, path))!r} of the observations of {of} is"
        if path
        else f"The observations of {of} are"
    )
    if kind != "Box":
        rest = (
            "leave it out with gymnasium.wrappers.FilterObservation or turn it into numbers in a wrapper of your own, "
            "and give the wrapped environment"
            if path
            else "give an environment that returns measured numbers, or use a method for finitely many states, such as "
            "Q-learning"
        )
        raise UserError(f"{where} {space}, and musbo's models predict numbers on a scale (Box): {rest}.")
    if len(space.shape) > 2 or (len(space.shape) == 2 and space.dtype == np.uint8):
        rest = "leave it out with gymnasium.wrappers.FilterObservation" if path else "give an environment without them"
        raise UserError(
            f"{where} pictures (shape {space.shape}), and musbo learns from measured numbers such as "
            f"positions and speeds: {rest}, or use a method for pictures, such as DreamerV3."
        )
    yield Part(path, tuple(space.shape))


def part_names(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The names of the numbers of one part: `speed`, or `speed_0`, `speed_1`, ... where there are several."""
    if math.prod(shape) == 1:
        return (name,)
    return tuple("_".join((name, *map(str, index))) for index in np.ndindex(*shape))


def observation_names(parts: tuple[Part, ...]) -> tuple[str, ...]:
    """The names that a Dict or a Tuple gives to its numbers; none where the observations are one Box."""
    if not parts[0].path:
        return ()
    return tuple(name for part in parts for name in part_names(".".join(map(str, part.path)), part.shape))


def reader(parts: tuple[Part, ...]) -> Callable[[Any], np.ndarray]:
    """From what an environment returns to one flat vector."""
    if not parts[0].path:
        return np.ravel if len(parts[0].shape) != 1 else _as_it_is

    def read(obs: Any) -> np.ndarray:
        found = []
        for path, _ in parts:
            value = obs
            for key in path:
                value = value[key]
            found.append(np.ravel(value))
        return np.concatenate(found)

    return read


def _as_it_is(value: Any) -> Any:
    return value


class Bounds(NamedTuple):
    """The actions of an environment."""

    low: tuple[float, ...]
    high: tuple[float, ...]


def action_bounds(space: Any, of: str) -> Bounds:
    """The bounds of the actions of the environment `of`."""
    kind = type(space).__name__
    wrapped = "and give the wrapped environment to musbo.task_from"
    if kind in ("Dict", "Tuple"):
        raise UserError(
            f"The actions of {of} are {space}, and musbo chooses one vector: join them into one Box in a wrapper of "
            f"your own, {wrapped}."
        )
    if kind != "Box" or space.dtype.kind != "f":
        raise UserError(
            f"The actions of {of} are {space}, and musbo is for continuous actions: if the environment has a "
            "continuous form (some take continuous=True), give that one, else use a method for discrete actions, such "
            "as DQN or PPO."
        )
    low, high = np.ravel(space.low), np.ravel(space.high)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(
            f"The actions of {of} are unbounded, and musbo needs to know how far they may go: wrap it as "
            "gymnasium.wrappers.TransformAction(env, lambda act: act, gymnasium.spaces.Box(low, high)) with finite "
            f"low and high, {wrapped}."
        )
    return Bounds(tuple(low.tolist()), tuple(high.tolist()))


def writer(space: Any) -> Callable[[np.ndarray], np.ndarray]:
    """From a flat action of floats to what an environment takes."""
    if space.dtype == np.float32 and len(space.shape) == 1:
        return _as_it_is
    # A bound such as 0.1 is larger as a single float than as a double, and some environments check.
    return lambda act: np.clip(act.astype(space.dtype).reshape(space.shape), space.low, space.high)
