"""`musbo new`: begin a campaign in the field. Every setting of the method is a flag."""

import argparse
import sys

ORDER = 21
HELP = "Begin a campaign whose data come home from a real field."
EXAMPLES = """
  musbo new plant.toml --budget 5                                     your own controller acts in the first round
  musbo new my_task.py:TASK --data logs.parquet --budget 5            logs come first, each file a deployment
  musbo new my_task.py:TASK --data logs.csv --mapping mapping.toml --out campaigns/line-3
  musbo new my_task.py:TASK --data logs.parquet --budget 1            plain offline learning
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
    from musbo.cli import _rounds
    from musbo.data.files import read_logs

    settings = command.campaign_of(arguments)
    logs = [read_logs(place, arguments.mapping) for place in arguments.data]
    for each in logs:
        print(f"musbo: {each}", file=sys.stderr)
    folder = api.start(settings, logs, arguments.out, field=True)
    said = {"folder": str(folder), "budget": settings.budget}
    return _rounds.close(folder, arguments, said, f"campaign in {folder}: a budget of {settings.budget}")
