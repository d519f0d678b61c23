"""From a name on the command line to a Task: a task of ours, or one's own in a module or a file."""

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from musbo.core.errors import UserError
from musbo.tasks import builtin, paper
from musbo.tasks.task import Task

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


def find_task(name: str) -> Task:
    """A task of ours, `package.module:NAME` or `path/to/file.py:NAME`.

    NAME is a Task or a function without arguments that returns one.
    """
    if name in _OURS:
        return _OURS[name]
    place, colon, attribute = name.rpartition(":")
    if not colon:
        close = difflib.get_close_matches(name, list(_OURS), n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        raise UserError(
            f"There is no task {name!r}. {hint}Known tasks: {', '.join(_OURS)}; "
            "your own task is named as file.py:NAME or package.module:NAME."
        )
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place, name)
    if not hasattr(module, attribute):
        tasks = [key for key, value in vars(module).items() if isinstance(value, Task)]
        there = f"the tasks in it are: {', '.join(tasks)}" if tasks else "it has no Task at its top level"
        raise UserError(f"{place} has no {attribute!r}; {there}.")
    found = getattr(module, attribute)
    task = _call(found, name) if callable(found) and not isinstance(found, type) else found
    if not isinstance(task, Task):
        raise UserError(f"{name} is a {type(task).__name__}; it must be a musbo Task or a function that returns one.")
    return task


def _call(function: Callable[[], Any], name: str) -> Any:
    try:
        return function()
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"Calling {name} failed: {type(error).__name__}: {error}.") from error


def _load_module(place: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(error.name + ".")):
            raise UserError(
                f"The module {place!r} of task {name!r} cannot be imported; "
                "install it, set PYTHONPATH, or name a file as path/to/file.py:NAME."
            ) from error
        raise UserError(f"Importing {place!r} failed: {error}.") from error
    except Exception as error:
        raise UserError(f"Importing {place!r} failed: {type(error).__name__}: {error}.") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"There is no file {path}; a task of your own is named as path/to/file.py:NAME.")
    # One module object per file, so that a task found twice is the same value and compiled functions are reused.
    known = f"_musbo_task_{abs(hash(path.resolve()))}"
    if known in sys.modules:
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be loaded as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[known] = module  # before execution: dataclasses in the file look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[known]
        raise UserError(f"Loading {path} failed: {type(error).__name__}: {error}.") from error
    return module
