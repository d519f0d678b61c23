"""Rewards of a log against the reward function of the task."""

from collections.abc import Iterator

import numpy as np

from musbo.data.finding import Finding
from musbo.data.logs import Logs
from musbo.data.rewards import has_rewards, model_rewards
from musbo.tasks.find import TASKS, our_task
from musbo.tasks.task import BuiltIn, Task

ROUNDING, LARGE = 0.01, 0.5
"""Root of the mean squared difference, in deviations of the rewards: what is noted, and what is a warning."""
MUCH_BETTER = 0.1


def rewards(logs: Logs, task: Task) -> Iterator[Finding]:
    # The model rewards of the paper's tasks differ from the simulators' on purpose: docs/decisions/model-reward.md.
    on_purpose = task.name in TASKS and not isinstance(our_task(task.name).simulator, BuiltIn)
    if not callable(task.reward) or not has_rewards(logs.batch) or on_purpose:
        return
    batch = logs.batch
    formula = model_rewards(task, batch)
    logged = batch.reward.astype(np.float64)
    scale = max(float(np.std(logged)), 1e-6 * (1 + float(np.abs(logged).max())))
    apart = _apart(logged, formula) / scale
    if apart <= ROUNDING:
        return
    wrong = np.flatnonzero(np.abs(logged - formula) > ROUNDING * scale)
    rows = logs.origin.rows(wrong)
    yield Finding(
        "reward disagrees",
        "warning" if apart > LARGE else "note",
        f"{logs.origin.reward} differs from the reward function of task {task.name} in {len(wrong) / len(logged):.0%} "
        f"of the rows, by {apart:.2g} of its deviation{_why(logs, logged, formula)}",
        "correct the function or the column, or write reward = 'learned' in the task",
        (logs.origin.reward,),
        int(rows[0]),
        len(rows),
    )


def _why(logs: Logs, logged: np.ndarray, formula: np.ndarray) -> str:
    """An explanation that fits nearly exactly, if there is one."""
    enough = MUCH_BETTER * _apart(logged, formula)
    inside = logs.batch.episode[1:] == logs.batch.episode[:-1]
    for text, one, other in (("late", logged[1:], formula[:-1]), ("early", logged[:-1], formula[1:])):
        if np.any(inside) and _apart(one[inside], other[inside]) < enough:
            return f" (it would agree if it were not one row {text})"
    size = float(np.sum(formula * formula))
    factor = float(np.sum(logged * formula)) / size if size else 0.0
    if _apart(logged, factor * formula) < enough:
        return f" (it is {factor:.4g} times the function)"
    shift = float(np.mean(logged - formula))
    if _apart(logged, formula + shift) < enough:
        return f" (it is the function {shift:+.4g})"
    return ""


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sqrt(np.mean((one - other) ** 2)))
