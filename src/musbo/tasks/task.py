"""A task: everything that is known about the problem before any data arrive.

Sizes, action bounds, episode length, and two functions of a transition, the model reward r(s, a, s') and the
termination of s'. Both are written for one example with jax.numpy and are vmapped outside; training in imagination
uses them, so they are written once and checked against the simulator. A simulator is only described here, never
imported: a task can exist without one, when data come home from the field.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Array, Float32, PRNGKeyArray

from musbo.core.errors import UserError

Reward = Callable[[Array, Array, Array], Array]  # (obs, act, next_obs) -> scalar
Terminated = Callable[[Array], Array]  # next_obs -> scalar bool


@dataclass(frozen=True)
class BuiltIn:
    """A simulator written in JAX, as pure functions of one state."""

    reset: Callable[[PRNGKeyArray], Array]  # key -> state
    step: Callable[[Array, Array], tuple[Array, Array]]  # (state, act) -> (state, reward)
    observe: Callable[[Array], Array]  # state -> obs


@dataclass(frozen=True)
class Gym:
    """A registered Gymnasium environment."""

    id: str
    kwargs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class DmControl:
    """A task of the dm_control suite; observations are flattened in the suite's own order."""

    domain: str
    task: str


@dataclass(frozen=True)
class Factory:
    """A function without arguments that makes a new Gymnasium environment at every call."""

    make: Callable[[], Any]


@dataclass(frozen=True, eq=False)
class Single:
    """A Gymnasium environment that exists already and of which there is one: it may be a machine."""

    env: Any


MOST_SEEN = 100_000
"""Numbers that a policy may see at once."""

Simulator = BuiltIn | Gym | DmControl | Factory | Single


@dataclass(frozen=True)
class Task:
    """A control problem: sizes, action bounds, episode length, reward, termination, and optionally a simulator.

    `reward(obs, act, next_obs)` and `terminated(next_obs)` are functions of one example, written with jax.numpy, or
    "learned"; `terminated=None` states that episodes end by their time limit only. Without a `simulator` there are only
    logs. `interval` is in seconds; `obs_low` and `obs_high` are the range of every observation; `act_change` is the
    largest change of an action in a step. `history` is how many past observations and actions the policy sees, for
    plants with delays. `speed` is the index of the forward velocity among the observations, for reports; `initial`
    draws an initial observation, where the reset distribution is known.
    """

    name: str
    obs_size: int
    act_size: int
    act_low: tuple[float, ...]
    act_high: tuple[float, ...]
    episode_steps: int
    reward: Reward | Literal["learned"]
    terminated: Terminated | Literal["learned"] | None = None  # None: an episode ends by its time limit only
    simulator: Simulator | None = None  # None: logs only
    speed: int | None = None  # where the forward velocity stands in an observation, for reports
    initial: Callable[[PRNGKeyArray], Array] | None = None  # the simulator's reset distribution over observations
    obs_names: tuple[str, ...] = ()  # what the observations are, for tables and pages; empty: nobody said
    obs_units: tuple[str, ...] = ()  # "m/s", or "" for a number without a unit
    act_names: tuple[str, ...] = ()
    act_units: tuple[str, ...] = ()
    interval: float | None = None  # seconds between two actions, where they are known
    obs_low: tuple[float, ...] = ()  # the range of every observation, as the plant's people know it; empty: unknown
    obs_high: tuple[float, ...] = ()
    act_change: tuple[float | None, ...] = ()  # the largest change of each action in a step; None: no limit
    history: int = 0  # how many past observations and actions the policy sees beside the newest observation
    newest: int | None = None  # set by `stacked`: so many observations are new at every step, the others are the past

    def __post_init__(self) -> None:
        def refuse(text: str) -> None:
            raise UserError(f"task {self.name!r}: {text}")

        if self.obs_size < 1 or self.act_size < 1:
            refuse(f"obs_size and act_size must be at least 1, not {self.obs_size} and {self.act_size}.")
        if self.episode_steps < 1:
            refuse(f"episode_steps must be at least 1, not {self.episode_steps}.")
        if len(self.act_low) != self.act_size or len(self.act_high) != self.act_size:
            refuse(
                f"act_low and act_high need {self.act_size} numbers each, "
                f"not {len(self.act_low)} and {len(self.act_high)}."
            )
        for i, (low, high) in enumerate(zip(self.act_low, self.act_high, strict=True)):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                refuse(f"action {i} needs finite bounds with low < high, not [{low}, {high}]; scale it first.")
        if self.speed is not None and not 0 <= self.speed < self.obs_size:
            refuse(f"speed is an index into the {self.obs_size} observations, not {self.speed}.")
        for field, size in (("obs_names", self.obs_size), ("obs_units", self.obs_size),
                            ("act_names", self.act_size), ("act_units", self.act_size)):  # fmt: skip
            texts = getattr(self, field)
            if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
                refuse(f"{field} must be a tuple of strings, not {texts!r}.")
            if texts and len(texts) != size:
                refuse(f"{field} needs {size} entries or none, not {len(texts)}.")
            if field.endswith("names") and len(set(texts)) != len(texts):
                refuse(f"{field} has the same name twice: {max(texts, key=texts.count)!r}.")
        if self.interval is not None and not (math.isfinite(self.interval) and self.interval > 0):
            refuse(f"interval is in seconds and above 0, not {self.interval}.")
        if len(self.obs_low) not in (0, self.obs_size) or len(self.obs_high) != len(self.obs_low):
            refuse(f"obs_low and obs_high need {self.obs_size} numbers each, or none.")
        for i, (low, high) in enumerate(zip(self.obs_low, self.obs_high, strict=True)):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                refuse(f"observation {i} needs a finite range with low < high, not [{low}, {high}].")
        if len(self.act_change) not in (0, self.act_size):
            refuse(f"act_change needs {self.act_size} numbers or none, not {len(self.act_change)}.")
        for i, most in enumerate(self.act_change):
            if most is not None and not (math.isfinite(most) and most > 0):
                refuse(f"act_change of action {i} must be above 0, or None for no limit, not {most}.")
        if isinstance(self.history, bool) or not isinstance(self.history, int) or self.history < 0:
            refuse(f"history is a count of past steps, 0 or more, not {self.history!r}.")
        if (seen := self.obs_size + self.history * (self.obs_size + self.act_size)) > MOST_SEEN:
            refuse(f"with a history of {self.history} the policy sees {seen:,} numbers: at most {MOST_SEEN:,}.")
        for field, value in (("reward", self.reward), ("terminated", self.terminated)):
            if isinstance(value, str) and value != "learned":
                refuse(f"{field} must be a function or 'learned', not {value!r}.")

    @property
    def predicted(self) -> int:
        """How many observations a model has to predict: the first ones; what follows them is known."""
        return self.obs_size if self.newest is None else self.newest

    @property
    def obs_labels(self) -> tuple[str, ...]:
        """Every observation in words, with its unit: `height (m)`, or `observation 3` where nobody said."""
        return labels("observation", self.obs_size, self.obs_names, self.obs_units)

    @property
    def act_labels(self) -> tuple[str, ...]:
        """Every action in words, with its unit."""
        return labels("action", self.act_size, self.act_names, self.act_units)

    @property
    def low(self) -> Float32[np.ndarray, " act"]:
        return np.asarray(self.act_low, np.float32)

    @property
    def high(self) -> Float32[np.ndarray, " act"]:
        return np.asarray(self.act_high, np.float32)

    @property
    def centre(self) -> Float32[np.ndarray, " act"]:
        return (self.low + self.high) / 2

    @property
    def half_range(self) -> Float32[np.ndarray, " act"]:
        return (self.high - self.low) / 2


def labels(what: str, size: int, names: tuple[str, ...] = (), units: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Numbers of a vector in words: `height (m)`, or `observation 3` without a name."""
    known = names or tuple(f"{what} {i}" for i in range(size))
    return tuple(f"{name} ({unit})" if unit else name for name, unit in zip(known, units or ("",) * size, strict=True))
