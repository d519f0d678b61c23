"""`musbo abandon`: a round that brings no data."""

import argparse

from musbo.cli import _rounds

ORDER = 24
HELP = "Close a round that brings no data: it never ran, or it ran and is spent."
EXAMPLES = """
  musbo abandon campaigns/line-3 2 --never-ran                     nothing is spent
  musbo abandon campaigns/line-3 2 --spent "the disk was lost"     the deployment is spent
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _rounds.add_campaign(parser, task=False)
    _rounds.add_round(parser)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--never-ran", action="store_true", help="the bundle did not run: nothing is spent")
    either.add_argument("--spent", metavar="REASON", help="it ran, and why its data are lost: the deployment is spent")


def action(arguments: argparse.Namespace) -> int:
    from musbo.core.errors import UserError

    if not arguments.never_ran and arguments.spent is None:
        raise UserError("say --never-ran, which spends nothing, or --spent REASON.")
    _rounds.campaign_of(arguments).abandon(_rounds.round_of(arguments), spent=arguments.spent)
    what = "nothing is spent" if arguments.spent is None else "it is spent"
    said = {"round": _rounds.round_of(arguments), "spent": arguments.spent is not None}
    return _rounds.close(arguments.run, arguments, said, f"round {arguments.round} brings no data; {what}")
