"""What the observations of a run are called."""

from collections.abc import Sequence

from musbo.campaign.summary import Summary
from musbo.tasks.find import TASKS, our_task


def names(summary: Summary) -> tuple[str, ...]:
    """The names that the task gives, with their units; where it gives none, obs_0 and so on, as in the data."""
    task = summary.task if summary.settings.task not in TASKS else our_task(summary.settings.task)
    return labels(summary.task.obs_size, getattr(task, "obs_names", ()), getattr(task, "obs_units", ()))


def labels(size: int, given: Sequence[str], units: Sequence[str]) -> tuple[str, ...]:
    """`size` names, from what is `given`; a name has its unit in brackets."""
    every = given if len(given) == size else [f"obs_{i}" for i in range(size)]
    units = units if len(units) == size else [""] * size
    return tuple(f"{name} ({unit})" if unit else name for name, unit in zip(every, units, strict=True))
