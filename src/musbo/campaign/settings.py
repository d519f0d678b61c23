"""What a campaign is told once, when it is created, and never changes."""

import os
import re
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from musbo.algorithms import recipes
from musbo.algorithms.method import Method
from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.core.registry import stored
from musbo.field.find import find_task, found_again
from musbo.tasks.find import is_own, is_python
from musbo.tasks.task import Task, labels
from musbo.tasks.toml import is_toml, read_declared, require_no_python

SEEDS = 2**32  # jax.random.PRNGKey takes no more bits than that, and repeats itself beyond


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 called the budget `deployments` and the size of a batch `batch`."""
    budget, batch_size = fields.pop("deployments"), fields.pop("batch")
    return {**fields, "budget": budget, "batch_size": batch_size}


@stored("campaign", version=2, upgrades={1: _renamed})
@dataclass(frozen=True)
class Campaign:
    """Task, method, budget and seed: with the data, they determine every bit of the result."""

    task: str
    """As the command line takes it; `<name>`: a Task object of a Python program. In a run, a file is named by its path
    from the run's directory."""
    algo: str
    preset: str
    seed: int
    budget: int
    """I: deployments."""
    batch_size: int
    """B: transitions per deployment."""
    episodes: int
    """Evaluation episodes after every deployment."""
    method: Method

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise UserError(f"a campaign needs a budget of at least 1 deployment, not {self.budget}.")
        if self.batch_size < 2:
            size = self.batch_size
            raise UserError(f"a batch needs at least 2 transitions (one to train on, one held out), not {size}.")
        if self.episodes < 1:
            raise UserError(f"evaluation needs at least 1 episode, not {self.episodes}.")
        if not 0 <= self.seed < SEEDS:
            raise UserError(f"the seed must be at least 0 and below {SEEDS}, not {self.seed}.")


class Purpose(IntEnum):
    """What random numbers of a campaign are for; the numbers are part of what a seed means."""

    BEGIN = 0
    COLLECT = 1
    TRAIN = 2
    EVALUATE = 3
    GATE = 4


def campaign(
    task: str | Task = "pendulum",
    algo: str = "musbo",
    preset: recipes.Preset | None = None,
    seed: int = 0,
    budget: int | None = None,
    batch_size: int | None = None,
    episodes: int | None = None,
    method: Method | None = None,
) -> Campaign:
    """Settings from a few words; what is not said is the preset's."""
    if not isinstance(task, str | Task):
        raise UserError(
            f"a task is a name or a musbo.Task, not a {type(task).__name__}: make one with musbo.task_from."
        )
    name = task_name(task)
    known = task if isinstance(task, Task) else find_task(name)
    preset = preset or recipes.default_preset(known)
    chosen = method or recipes.recipe(algo, preset, known)  # refuses an unknown algorithm or preset
    scale = recipes.scale(preset, known)
    return Campaign(
        task=name,
        algo=algo,
        preset=preset,
        seed=seed,
        budget=scale.budget if budget is None else budget,
        batch_size=scale.batch_size if batch_size is None else batch_size,
        episodes=scale.episodes if episodes is None else episodes,
        method=chosen,
    )


# How a task is named


def task_name(task: str | Task) -> str:
    """The name of a task while a command runs: a file by its absolute path, whatever the current directory is."""
    if isinstance(task, Task):
        return task.name if found_again(task) else f"<{task.name}>"
    place, name = _file_and_name(task)
    return f"{place.resolve()}{name}" if place else task


def task_for(folder: Path, name: str) -> str:
    """The name of a task as it is stored in `folder`: a file by its path from there, so that both can move together."""
    place, own = _file_and_name(name)
    return f"{os.path.relpath(place, folder.resolve())}{own}" if place and place.is_absolute() else name


def task_in(folder: Path, name: str) -> str:
    """The name of a task that is stored in `folder`, for this process."""
    place, own = _file_and_name(name)
    return f"{(folder.resolve() / place).resolve()}{own}" if place else name


def short_name(task: str) -> str:
    """A task in names of files and directories: of `/somewhere/file.py:NAME` NAME, of `/somewhere/plant.toml` plant."""
    if is_toml(task):
        return slug(Path(task).stem) or "task"
    return slug(task.rpartition(":")[2]) or "task"


def slug(text: str) -> str:
    """`text` without what does not belong into the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")


def _file_and_name(task: str) -> tuple[Path | None, str]:
    """The file of a task, and what stands behind it in its name."""
    if is_toml(task):
        return given(task), ""
    place, colon, name = task.rpartition(":")
    return (given(place), f":{name}") if colon and place.endswith(".py") else (None, task)


def shown_name(task: str, own: str = "") -> str:
    """A task in titles and names of files: by the name that it gives itself where the other is a place in a file."""
    return slug(own) or short_name(task) if is_own(task) else short_name(task)


def default_folder(settings: Campaign, own: str = "") -> Path:
    """Where a run goes when nobody says: runs/<task>-<algo>-<preset>-s<seed>; `own`: what the task calls itself."""
    return Path("runs") / f"{shown_name(settings.task, own)}-{settings.algo}-{settings.preset}-s{settings.seed}"


@stored("campaign/task")
@dataclass(frozen=True)
class TaskShape:
    """What of a task must not change between two visits to a campaign."""

    obs_size: int
    act_size: int
    act_low: tuple[float, ...]
    act_high: tuple[float, ...]
    episode_steps: int
    reward: str
    """given or learned"""
    terminated: str
    """given, learned or never"""
    # What it calls itself and its numbers may be corrected at any time.
    name: str = field(default="", compare=False)
    """Its own name; empty in runs from before it was kept."""
    obs_names: tuple[str, ...] = field(default=(), compare=False)
    obs_units: tuple[str, ...] = field(default=(), compare=False)
    act_names: tuple[str, ...] = field(default=(), compare=False)
    act_units: tuple[str, ...] = field(default=(), compare=False)
    history: int = 0
    interval: float | None = field(default=None, compare=False)
    obs_low: tuple[float, ...] = field(default=(), compare=False)
    obs_high: tuple[float, ...] = field(default=(), compare=False)
    act_change: tuple[float | None, ...] = field(default=(), compare=False)

    @property
    def obs_labels(self) -> tuple[str, ...]:
        """Every observation in words, with its unit."""
        return labels("observation", self.obs_size, self.obs_names, self.obs_units)

    @property
    def act_labels(self) -> tuple[str, ...]:
        """Every action in words, with its unit."""
        return labels("action", self.act_size, self.act_names, self.act_units)


def shape_of(task: Task) -> TaskShape:
    return TaskShape(
        task.obs_size,
        task.act_size,
        tuple(task.act_low),
        tuple(task.act_high),
        task.episode_steps,
        reward="learned" if task.reward == "learned" else "given",
        terminated="learned" if task.terminated == "learned" else "given" if task.terminated else "never",
        name=task.name,
        obs_names=task.obs_names,
        obs_units=task.obs_units,
        act_names=task.act_names,
        act_units=task.act_units,
        history=task.history,
        interval=task.interval,
        obs_low=task.obs_low,
        obs_high=task.obs_high,
        act_change=task.act_change,
    )


def task_like(name: str, shape: TaskShape) -> Task:
    """A task of this shape, as far as settings follow from one: for a reader, who must not run anybody's Python."""
    return Task(
        shape.name or name,
        shape.obs_size,
        shape.act_size,
        shape.act_low,
        shape.act_high,
        shape.episode_steps,
        reward="learned",
        terminated=None if shape.terminated == "never" else "learned",
        history=shape.history,
    )


def load_task(name: str, given: Task | None = None, trusted: bool = False) -> Task:
    """The task of this name, or `given` by the user.

    A name that is written in a run or a study may come from somebody else: Python of one's own is imported only where
    it is `trusted`, that is where the user has said so.
    """
    if given is not None:
        return given
    if name.startswith("<"):
        raise UserError(
            f"the task {name} of this run was an object of a Python program, which no name leads to: "
            "go on in Python with musbo.resume(folder, task=...), or name it with --task file.py:NAME."
        )
    require_trusted(name, trusted)
    return find_task(name, trusted)


def require_trusted(name: str, trusted: bool) -> None:
    """Refuse a task that is somebody's Python, unless the user has said that it may be run."""
    if is_toml(name) and not trusted:
        require_no_python(name, read_declared(name))
    if is_python(name) and not trusted:
        raise UserError(
            f"the task is Python code, {name}, which is not run without your word: look at it, then add --trust-task, "
            "or name the task with --task (from Python: trust_task=True or task=...)."
        )
