"""The interval between two steps: as the task declares it, and the same in all logs and on all machines.

A model of a step predicts as far ahead as the interval is long, so steps of two lengths are not to be mixed.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from musbo.data.finding import Finding
from musbo.data.logs import Logs
from musbo.tasks.task import Task

APART = 0.1
"""Part of an interval by which another one may differ."""


def usual_interval(took: Float[np.ndarray, " n"]) -> float | None:
    """How long most steps take; None where no time is known."""
    known = took[np.isfinite(took)]
    interval = float(np.median(known)) if len(known) else 0.0
    return interval if interval > 0 else None


def intervals(every: Sequence[Logs], task: Task | None) -> Iterator[Finding]:
    """Each machine of each log, beside the task; where that declares no interval, beside the first of them."""
    declared = task.interval if task is not None else None
    expected, where = declared, ""
    for logs in every:
        for machine, rows in logs.by_machine():
            if logs.time is None or logs.until is None:
                continue
            interval = usual_interval((logs.until - logs.time)[rows])
            on = f" on machine {machine}" if machine else ""
            if interval is not None and expected is None:
                expected, where = interval, f"{on} in {logs.source}"
            if interval is None or expected is None or abs(interval - expected) <= APART * expected:
                continue
            if task is not None and declared is not None:
                beside = f"the interval of task {task.name} is {declared:g} seconds"
                do = (
                    "correct the task if the plant has another interval, give time_unit in the mapping if the times "
                    "are not seconds, else bring the log to even steps with interval in the mapping"
                )
            else:
                beside = f"{expected:g}{where}"
                do = "leave out what has another interval, or bring all to one with interval in the mapping"
            yield Finding(
                "another interval",
                "warning",
                f"a step takes {interval:g}{on}, and {beside}",
                do,
                row=int(logs.origin.rows(rows[:1])[0]),
                rows=len(rows),
                machines=(machine,) if machine else (),
                source=logs.source,
            )
