"""What both sides of the agreement are measured by: the deterministic policy at ten points of its training.

Not at the end alone: on such data a policy that was good a thousand steps ago may be poor now and good again a
thousand steps later, whoever trained it.
"""

import json
from collections.abc import Callable
from typing import Any

from musbo.field.simulate import evaluate
from musbo.tasks.task import Task

CHECKPOINTS = 10
EPISODES = 20


def measured(task: Task, policy: Callable[[Any], Any], seed: int) -> float:
    """Mean return over whole episodes, the same ones for whoever is measured."""
    return float(evaluate(task, policy, EPISODES, seed).returns.mean())


def tell(returns: list[float]) -> None:
    """The last line of standard output: what run.py reads."""
    print(json.dumps({"returns": returns}), flush=True)
