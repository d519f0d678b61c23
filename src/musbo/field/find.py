"""From a name on the command line to a Task, whatever kind of task it is."""

import difflib
import re

from musbo.core.errors import UserError
from musbo.field.task_from import task_from
from musbo.field.worlds import import_gymnasium
from musbo.tasks.find import DM_CONTROL, OWN, TASKS, is_python, our_task, own_task
from musbo.tasks.task import DmControl, Gym, Task
from musbo.tasks.toml import is_toml, toml_task

_ID = re.compile(r".*-v\d+")


def find_task(name: str, trusted: bool = True) -> Task:
    """A task by its name; one of ours comes first. Without `trusted` no Python that a TOML file names is loaded.

    - `hopper`: one of `musbo tasks`;
    - `Hopper-v5`: an environment that is registered with Gymnasium;
    - `dm_control:walker-walk`: a task of the dm_control suite;
    - `package.module:NAME` or `path/to/file.py:NAME`: a Task, or a function without arguments that returns one;
    - `path/to/plant.toml`: a task without a simulator;
    - `package.module:Name-v0`: an environment that the module registers with Gymnasium.
    """
    if name in TASKS:
        return our_task(name)
    if is_toml(name):
        return toml_task(name, trusted)
    if is_python(name) and not _ID.fullmatch(name):
        return own_task(name)
    if name.startswith(DM_CONTROL) or is_python(name) or (_ID.fullmatch(name) and name in import_gymnasium().registry):
        return task_from(name)
    raise UserError(_unknown(name))


def found_again(task: Task) -> bool:
    """Whether the name of this task leads to it again, in another process too."""
    if task.name in TASKS:
        return our_task(task.name) == task
    plain = isinstance(task.simulator, Gym | DmControl) and not is_python(task.name)
    known = task.simulator == Gym(task.name) or task.name.startswith(DM_CONTROL)
    # An environment whose name alone is known has neither formulas nor names of one's own.
    return plain and known and task.reward == "learned" and find_task(task.name) == task


def _unknown(name: str) -> str:
    """The sentence for a name that leads nowhere, with the nearest ones."""
    try:
        ids = list(import_gymnasium().registry)
    except UserError:  # without Gymnasium there are ours and one's own
        if _ID.fullmatch(name):
            raise
        ids = []
    lower = {each.lower(): each for each in (*ids, *TASKS)}
    close = [lower[each] for each in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.6)]
    versions = [each for each in ids if each.lower().rpartition("-v")[0] == name.lower()]
    hint = f"Did you mean {' or '.join(dict.fromkeys((*versions[-1:], *close)))}? " if close or versions else ""
    return (
        f"There is no task {name!r}. {hint}Known tasks: {', '.join(TASKS)}; environments of Gymnasium by their id, "
        f"such as Hopper-v5 (with --import where a module of yours registers it), and of dm_control as "
        f"{DM_CONTROL}walker-walk; {OWN}."
    )
