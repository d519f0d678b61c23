"""`musbo tasks`: what can be run."""

import argparse

ORDER = 80
HELP = "List the tasks that come with musbo."
EXAMPLES = """
  musbo tasks
  musbo run pointmass                one of them
  musbo run Hopper-v5                any environment of Gymnasium; reward and ends of episodes are learned
  musbo run dm_control:walker-walk   a task of dm_control
  musbo run my_task.py:TASK          one of your own: a musbo.Task, or a function that returns one
  musbo run plant.toml --data logs.csv --budget 1      one of your own without code, for logs
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def action(arguments: argparse.Namespace) -> int:
    from musbo.tasks.find import TASKS

    width = max(map(len, TASKS))
    for name, line in TASKS.items():
        print(f"{name:<{width}}  {line}")
    print("\nOf Gymnasium by their id: musbo run Hopper-v5; of dm_control: musbo run dm_control:walker-walk.")
    print("Your own: musbo run file.py:NAME or package.module:NAME, where NAME is a musbo.Task, or file.toml.")
    return 0
