"""`musbo judge`: a verdict on a policy before it leaves."""

import argparse

from musbo.cli import _rounds

ORDER = 27
HELP = "Write down a verdict on a policy before it leaves: GO or NO-GO, and why."
EXAMPLES = """
  musbo judge campaigns/line-3 --go "replayed on last week's logs, nothing odd"
  musbo judge campaigns/line-3 --no-go "opens both valves at once"             it cannot be exported
  musbo judge campaigns/line-3 --go "better than the second" --candidate 1
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _rounds.add_campaign(parser, task=False)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--go", metavar="REASON", help="it may leave")
    either.add_argument("--no-go", metavar="REASON", help="it may not")
    parser.add_argument(
        "--candidate", type=int, metavar="N", help="which of several policies, from 1 (default: newest)"
    )


def action(arguments: argparse.Namespace) -> int:
    from musbo.core.errors import UserError

    go = arguments.go is not None
    reason = arguments.go if go else arguments.no_go
    if reason is None:
        raise UserError("say --go REASON, after which it may leave, or --no-go REASON.")
    _rounds.campaign_of(arguments).judge(go, reason, candidate=arguments.candidate)
    return _rounds.close(
        arguments.run, arguments, {"go": go}, "the policy may leave" if go else "the policy may not leave"
    )
