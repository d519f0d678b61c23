"""`musbo run`: begin a campaign and carry it out. Every setting of the method is a flag."""

import argparse
import sys

ORDER = 10
HELP = "Run a campaign: collect, train in imagination, evaluate, repeat."
EXAMPLES = """
  musbo run                                              the default task, pendulum
  musbo run hopper --algo me-trpo --seed 3 --budget 10 --batch-size 25000
  musbo run halfcheetah --label.alpha auto --trpo.delta 0.02 --updates 100
  musbo run halfcheetah --label trust --explore plain --explore.sigma 0.1
  musbo run Hopper-v5                                    any environment of Gymnasium; dm_control:walker-walk too
  musbo run my_task.py:TASK --preset quick --out runs/mine
  musbo run my_task.py:TASK --data logs.parquet --budget 1    pure offline: no simulator is needed
  musbo run plant.toml --data logs.parquet --budget 1         a task without code
  musbo run my_task.py:TASK --data logs.csv --mapping mapping.toml --budget 1   columns of other names
  musbo run pointmass --import my_method.py              with a method or a part of your own
  musbo run pointmass --json > result.json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from musbo.campaign import command

    command.add_arguments(parser)


def details(arguments: argparse.Namespace, every: bool) -> str:
    """The settings of the method that the words ask for; with `every`, what each does."""
    from musbo.campaign import command

    return command.settings_help(arguments, every)


def action(arguments: argparse.Namespace) -> int:
    from musbo.campaign import api, command
    from musbo.cli._common import advance
    from musbo.core.errors import UserError
    from musbo.data.files import read_logs
    from musbo.tasks.find import is_own

    settings = command.campaign_of(arguments)
    if arguments.mapping and not arguments.data:
        raise UserError("--mapping says what the columns of --data mean: give the files with --data too.")
    logs = [read_logs(place, arguments.mapping) for place in arguments.data]
    for each in logs:
        print(f"musbo: {each}", file=sys.stderr)
    folder = api.start(settings, logs, arguments.out)
    return advance(folder, arguments, None, trust_task=is_own(arguments.task))  # it was named here
