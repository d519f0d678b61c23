"""`musbo withdraw`: a bundle that will not be used."""

import argparse

from musbo.cli import _rounds

ORDER = 25
HELP = "Call a round's bundles back before they run; nothing is spent."
EXAMPLES = """
  musbo withdraw campaigns/line-3 2                                 its recordings are refused from now on
  musbo withdraw campaigns/line-3 2 --reason "the valve sticks"     why, for the history
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _rounds.add_campaign(parser, task=False)
    _rounds.add_round(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the history")


def action(arguments: argparse.Namespace) -> int:
    _rounds.campaign_of(arguments).withdraw(_rounds.round_of(arguments), reason=arguments.reason)
    text = f"the bundles of round {arguments.round} are called back; nothing is spent"
    return _rounds.close(arguments.run, arguments, {"round": _rounds.round_of(arguments)}, text)
