"""`musbo resume`: go on with a run."""

import argparse

from musbo.cli import _common

ORDER = 20
HELP = "Go on with a run that was stopped or killed."
EXAMPLES = """
  musbo resume runs/pendulum-musbo-quick-s0
  musbo resume runs/spring --trust-task             the task is Python of your own, which the run names
  musbo resume runs/spring --task my_task.py:TASK   the same, or a run that Python began with a Task object
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from musbo.campaign.options import add_output_options

    _common.add_run(parser)
    _common.add_task(parser)
    add_output_options(parser)


def action(arguments: argparse.Namespace) -> int:
    return _common.advance(arguments.run, arguments, arguments.task, arguments.trust_task)
