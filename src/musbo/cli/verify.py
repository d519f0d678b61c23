"""`musbo verify`: whether a run is what was written."""

import argparse
from pathlib import Path

from musbo.cli import _common

ORDER = 35
HELP = "Check that a run is what was written: ledger, data and networks."
EXAMPLES = """
  musbo verify runs/pendulum-musbo-quick-s0        after a copy, or before somebody else relies on it
  musbo verify studies/small/* --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="the directory of a run")
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    """2 where anything is wrong."""
    from musbo.campaign.verify import Verified, verify
    from musbo.core.errors import UserError
    from musbo.core.plain import plain

    found: dict[str, Verified] = {}
    for run in arguments.runs:
        try:
            found[str(run)] = verify(run)
        except UserError as error:  # its ledger cannot be read: nothing else can be checked
            found[str(run)] = Verified(0, 0, 0, 0, (str(error),))
    if arguments.json:
        _common.print_json(plain(found))
    else:
        for run, seen in found.items():
            counts = (
                f"{seen.events} events, {seen.metrics} rows of metrics, {seen.artefacts} artefacts, {seen.files} files"
            )
            for line in seen.problems or (f"sound ({counts})",):
                print(f"{run}: {line}")
    return 2 if any(seen.problems for seen in found.values()) else 0
