"""`musbo verify`: whether a run is what was written."""

import argparse
from pathlib import Path

from musbo.cli import _common

ORDER = 35
HELP = "Check that a run is what was written: ledger, data, networks and the files made from them."
EXAMPLES = """
  musbo verify runs/pendulum-musbo-quick-s0        after a copy, or before somebody else relies on it
  musbo verify studies/small/* --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="the directory of a run")
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    """2 where anything is wrong."""
    from musbo.campaign.verify import verify
    from musbo.core.errors import UserError
    from musbo.core.plain import plain

    found = {}
    for run in arguments.runs:
        try:
            found[str(run)] = plain(verify(run))
        except UserError as error:  # its ledger cannot be read: nothing else can be checked
            found[str(run)] = {"problems": [str(error)]}
    if arguments.json:
        _common.print_json(found)
    else:
        for run, seen in found.items():
            if not seen["problems"]:
                print(
                    f"{run}: sound ({seen['events']} events, {seen['metrics']} rows of metrics, {seen['artefacts']} "
                    f"artefacts, {seen['files']} files)"
                )
            for problem in seen["problems"]:
                print(f"{run}: {problem}")
    return 2 if any(seen["problems"] for seen in found.values()) else 0
