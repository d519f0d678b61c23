"""What a campaign is told once, when it is created, and never changes."""

import re
from dataclasses import dataclass
from pathlib import Path

from musbo.algorithms import recipes
from musbo.algorithms.method import Method
from musbo.core.errors import UserError
from musbo.tasks.find import TASKS, find_task
from musbo.tasks.task import Task

SEEDS = 2**32  # jax.random.PRNGKey takes no more bits than that, and repeats itself beyond


@dataclass(frozen=True)
class Campaign:
    """Task, method, budget and seed: with the data, they determine every bit of the result."""

    task: str
    """As the command line takes it, a file by its absolute path; `<name>`: a Task object of a Python program."""
    algo: str
    preset: str
    seed: int
    deployments: int
    """I"""
    batch: int
    """B"""
    episodes: int
    """Evaluation episodes after every deployment."""
    method: Method

    def __post_init__(self) -> None:
        if self.deployments < 1:
            raise UserError(f"a campaign needs at least 1 deployment, not {self.deployments}.")
        if self.batch < 2:
            raise UserError(f"a batch needs at least 2 transitions (one to train on, one held out), not {self.batch}.")
        if self.episodes < 1:
            raise UserError(f"evaluation needs at least 1 episode, not {self.episodes}.")
        if not 0 <= self.seed < SEEDS:
            raise UserError(f"the seed must be at least 0 and below {SEEDS}, not {self.seed}.")


def campaign(
    task: str | Task = "pendulum",
    algo: str = "musbo",
    preset: recipes.Preset | None = None,
    seed: int = 0,
    deployments: int | None = None,
    batch: int | None = None,
    episodes: int | None = None,
    method: Method | None = None,
) -> Campaign:
    """Settings from a few words; what is not said is the preset's."""
    name = task_name(task)
    preset = preset or recipes.default_preset(name)
    chosen = method or recipes.settings(algo, preset, name)  # refuses an unknown algorithm or preset
    budget = recipes.budget(preset, name)
    return Campaign(
        task=name,
        algo=algo,
        preset=preset,
        seed=seed,
        deployments=budget.deployments if deployments is None else deployments,
        batch=budget.batch if batch is None else batch,
        episodes=budget.episodes if episodes is None else episodes,
        method=chosen,
    )


def task_name(task: str | Task) -> str:
    """How a campaign remembers its task: a file by its absolute path, so that a run resumes from any directory."""
    if isinstance(task, Task):
        ours = task.name in TASKS and find_task(task.name) == task
        return task.name if ours else f"<{task.name}>"
    place, colon, name = task.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if colon and place.endswith(".py") else task


def default_folder(settings: Campaign) -> Path:
    """Where a run goes when nobody says: runs/<task>-<algo>-<preset>-s<seed>."""
    task = re.sub(r"[^A-Za-z0-9._-]+", "-", settings.task.rpartition(":")[2]).strip("-") or "task"
    return Path("runs") / f"{task}-{settings.algo}-{settings.preset}-s{settings.seed}"


def fingerprint(task: Task) -> dict:
    """What must not change between two visits to a campaign."""
    return {
        "obs_size": task.obs_size,
        "act_size": task.act_size,
        "act_low": list(task.act_low),
        "act_high": list(task.act_high),
        "episode_steps": task.episode_steps,
        "reward": "learned" if task.reward == "learned" else "given",
        "terminated": "learned" if task.terminated == "learned" else "given" if task.terminated else "never",
    }


def load_task(settings: Campaign, given: Task | None = None) -> Task:
    """The campaign's task, found by its name, or `given` by a Python program that has it as an object."""
    if given is not None:
        return given
    if settings.task.startswith("<"):
        raise UserError(
            f"the task {settings.task} of this run was an object of a Python program, which no name leads to: "
            "go on in Python with musbo.resume(folder, task=...), or name it with --task file.py:NAME."
        )
    return find_task(settings.task)
