"""`musbo mapping`: a mapping to fill in."""

import argparse

ORDER = 37
HELP = "Print a mapping for your logs to fill in: what their columns mean."
EXAMPLES = """
  musbo mapping logs.csv > mapping.toml                       then edit it
  musbo check logs.csv --mapping mapping.toml                 what would be read
  musbo run my_task.py:TASK --data logs.csv --mapping mapping.toml --budget 1   train on it
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the logs: .csv, .parquet, .npz or .hdf5")


def action(arguments: argparse.Namespace) -> int:
    from musbo.data.readers.choose import open_table
    from musbo.data.skeleton import skeleton

    print(skeleton(open_table(arguments.file)), end="")
    return 0
