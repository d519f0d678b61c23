"""Deployment-constrained reinforcement learning.

    import musbo

    result = musbo.run("pendulum", seed=0)
    action = result.policy(observation)

Everything that is importable from `musbo`, `musbo.methods`, `musbo.labels`, `musbo.explorers`, `musbo.starts`,
`musbo.handovers`, `musbo.data` and `musbo.tasks.task` is public and stays. Other modules may change between versions.

Names are loaded when they are first used, so that `import musbo` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from musbo import data as data
    from musbo.algorithms.recipes import recipe as recipe
    from musbo.campaign.api import Measurement as Measurement
    from musbo.campaign.api import Result as Result
    from musbo.campaign.api import evaluate as evaluate
    from musbo.campaign.api import load_policy as load_policy
    from musbo.campaign.api import resume as resume
    from musbo.campaign.api import run as run
    from musbo.campaign.bundles import Bundle as Bundle
    from musbo.campaign.bundles import export as export
    from musbo.campaign.deployable import NumpyPolicy as NumpyPolicy
    from musbo.campaign.field_campaign import Campaign as Campaign
    from musbo.campaign.gating import Gated as Gated
    from musbo.campaign.summary import Summary as Summary
    from musbo.campaign.verify import Verified as Verified
    from musbo.campaign.verify import verify as verify
    from musbo.cluster.api import study as study
    from musbo.core.diagnostics import Caution as Caution
    from musbo.core.diagnostics import Diagnostic as Diagnostic
    from musbo.core.diagnostics import Findings as Findings
    from musbo.core.errors import UserError as UserError
    from musbo.core.registry import stored as stored
    from musbo.data.batch import Batch as Batch
    from musbo.data.batch import make_batch as make_batch
    from musbo.data.files import read_batch as read_batch
    from musbo.data.files import write_batch as write_batch
    from musbo.field.find import find_task as find_task
    from musbo.field.task_from import gym_task as gym_task
    from musbo.field.task_from import task_from as task_from
    from musbo.reporting.api import report as report
    from musbo.tasks.task import BuiltIn as BuiltIn
    from musbo.tasks.task import Task as Task

__version__ = "0.2.0"

_PLACES = {
    "recipe": "musbo.algorithms.recipes",
    "Measurement": "musbo.campaign.api",
    "NumpyPolicy": "musbo.campaign.deployable",
    "Result": "musbo.campaign.api",
    "evaluate": "musbo.campaign.api",
    "load_policy": "musbo.campaign.api",
    "resume": "musbo.campaign.api",
    "run": "musbo.campaign.api",
    "Bundle": "musbo.campaign.bundles",
    "export": "musbo.campaign.bundles",
    "Campaign": "musbo.campaign.field_campaign",
    "Gated": "musbo.campaign.gating",
    "Summary": "musbo.campaign.summary",
    "Verified": "musbo.campaign.verify",
    "verify": "musbo.campaign.verify",
    "study": "musbo.cluster.api",
    "Caution": "musbo.core.diagnostics",
    "Diagnostic": "musbo.core.diagnostics",
    "Findings": "musbo.core.diagnostics",
    "UserError": "musbo.core.errors",
    "stored": "musbo.core.registry",
    "Batch": "musbo.data.batch",
    "make_batch": "musbo.data.batch",
    "read_batch": "musbo.data.files",
    "write_batch": "musbo.data.files",
    "find_task": "musbo.field.find",
    "gym_task": "musbo.field.task_from",
    "task_from": "musbo.field.task_from",
    "report": "musbo.reporting.api",
    "BuiltIn": "musbo.tasks.task",
    "Task": "musbo.tasks.task",
}


def __getattr__(name: str) -> Any:
    if name == "data":  # a package: `import musbo` is enough for musbo.data.from_dataframe
        return import_module("musbo.data")
    if name not in _PLACES:
        raise AttributeError(f"module 'musbo' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*_PLACES, "__version__"]
