"""Tasks that are found without a simulator: ours by their names, and one's own in a module or a file.

`field/find.py` knows the others too: the environments of Gymnasium and the suite of dm_control.
"""

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from musbo.core.errors import UserError
from musbo.tasks import builtin, modules, paper
from musbo.tasks.task import Task
from musbo.tasks.toml import is_toml, toml_digest

_OURS = {
    task.name: task
    for task in (
        builtin.pendulum,
        builtin.pointmass,
        paper.halfcheetah,
        paper.cheetah_run,
        paper.ant,
        paper.hopper,
        paper.walker2d,
        paper.cheetah_run_gym,
    )
}

# One line each, for `musbo tasks`.
TASKS: dict[str, str] = {
    "pendulum": "swing a rod up and hold it; built in, 3 observations, 1 action, 200 steps",
    "pointmass": "bring a point mass home; built in, 4 observations, 2 actions, 50 steps",
    "halfcheetah": "run forward; Gymnasium HalfCheetah-v5, 17 observations, 6 actions, 1000 steps",
    "cheetah-run": "run at 10 m/s; dm_control cheetah run, 17 observations, 6 actions, 1000 steps",
    "ant": "walk forward on four legs; Gymnasium Ant-v5, 27 observations, 8 actions, 1000 steps",
    "hopper": "hop forward without falling; Gymnasium Hopper-v5, 11 observations, 3 actions, up to 1000 steps",
    "walker2d": "walk forward without falling; Gymnasium Walker2d-v5, 17 observations, 6 actions, up to 1000 steps",
    "cheetah-run-gym": "run at 10 m/s; Gymnasium HalfCheetah-v5 body, 17 observations, 6 actions, 1000 steps",
}

OWN = "a task of your own is named as path/to/file.py:NAME, package.module:NAME or path/to/file.toml"


DM_CONTROL = "dm_control:"
"""What the name of a task of the suite begins with: `dm_control:walker-walk`."""


def our_task(name: str) -> Task:
    """The task of ours that has this name."""
    return _OURS[name]


def is_python(name: str) -> bool:
    """Whether a name leads to Python that is not part of an installed simulator: a module or a file."""
    return ":" in name and not name.startswith(DM_CONTROL) and not is_toml(name)


def is_own(name: str) -> bool:
    """Whether a name leads to what the user wrote: Python, or a TOML file that may name some."""
    return is_python(name) or is_toml(name)


def own_task(name: str) -> Task:
    """`package.module:NAME` or `path/to/file.py:NAME`.

    NAME is a Task or a function without arguments that returns one.
    """
    place, _, attribute = name.rpartition(":")
    module = modules.load(place, OWN)
    if not hasattr(module, attribute):
        tasks = [key for key, value in vars(module).items() if isinstance(value, Task)]
        there = f"the tasks in it are: {', '.join(tasks)}" if tasks else "it has no Task at its top level"
        raise UserError(f"{place} has no {attribute!r}; {there}.")
    found = getattr(module, attribute)
    task = _call(found, name) if callable(found) and not isinstance(found, type) else found
    if not isinstance(task, Task):
        kind = "class" if isinstance(task, type) else type(task).__name__
        raise UserError(
            f"{name} is a {kind}; it must be a musbo Task or a function that returns one. An environment becomes a "
            "task with musbo.task_from."
        )
    return task


def digest(name: str) -> str | None:
    """SHA-256 of the source of a task of one's own; None for other tasks, and where there is no source file."""
    if is_toml(name):
        return toml_digest(name)
    if not is_python(name):
        return None
    place = name.rpartition(":")[0]
    if not place.endswith(".py"):
        spec = importlib.util.find_spec(place)
        place = spec.origin if spec is not None and spec.origin else ""
    path = Path(place)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _call(function: Callable[[], Any], name: str) -> Any:
    try:
        return function()
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"Calling {name} failed: {type(error).__name__}: {error}.") from error
