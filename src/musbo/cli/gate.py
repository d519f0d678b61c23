"""`musbo gate`: a verdict on a policy before it leaves, from data and models alone."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from musbo.cli import _rounds

if TYPE_CHECKING:
    from musbo.campaign.gating import Gated

ORDER = 28
HELP = "Judge a policy before it leaves: GO, NO-GO or NEED-DATA, and why."
EXAMPLES = """
  musbo gate campaigns/line-3                          the policy that may leave next, against what ran last
  musbo gate campaigns/line-3 --margin 50              a loss of more than 50 per episode is bad
  musbo gate campaigns/line-3 --candidate 1 --json     of several policies of a round, the first
  musbo gate campaigns/line-3 --override "an expert stands by"   it may leave, and that is written down

The exit code of a GO is 0, of a NO-GO 3, of NEED-DATA 4; with --override it is 0.
The chances are rough: the rule has not been calibrated yet (docs/how-to/gate.md).
"""
CODES = {"GO": 0, "NO-GO": 3, "NEED-DATA": 4}


def arguments(parser: argparse.ArgumentParser) -> None:
    _rounds.add_campaign(parser)
    parser.add_argument(
        "--candidate", type=int, metavar="N", help="which of several policies, from 1 (default: newest)"
    )
    parser.add_argument(
        "--margin", type=float, metavar="X", help="the loss of return per episode that is bad (default: see the guide)"
    )
    parser.add_argument("--override", metavar="REASON", help="it may leave whatever the verdict is; both are kept")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="where the page about it goes (default: gate/ in the campaign)"
    )


def action(arguments: argparse.Namespace) -> int:
    """The exit code of the verdict; 0 where it was overridden."""
    if arguments.page is not None:
        from musbo.reporting.page import template

        template()  # what is missing is said before the verdict is written down
    campaign = _rounds.campaign_of(arguments)
    print("musbo: fitting models and values that no policy was trained in; this may take minutes", file=sys.stderr)
    found = campaign.gate(arguments.candidate, margin=arguments.margin, override=arguments.override)
    page = _page(found, arguments)
    _rounds.close(arguments.run, arguments, {**found.plain(), "page": page}, _text(found, page))
    return 0 if found.go else CODES[found.word]


def _text(found: "Gated", page: str | None) -> str:
    lines = [f"{found.word}{f', overridden: {found.judged.override}' if found.judged.override else ''}"]
    lines += [f"  {each}" for each in found.ruling.reasons]
    if found.settles is not None:
        lines.append(f"  About {found.settles:,} more transitions of the incumbent would make a verdict.")
    lines += [f"the verdict as a page: {page}"] if page else []
    return "\n".join(lines)


def _page(found: "Gated", arguments: argparse.Namespace) -> str | None:
    """Where it was written; None where figures cannot be drawn and nobody asked for it."""
    from musbo.core.errors import UserError
    from musbo.reporting.gate_page import write_page

    try:
        return str(write_page(arguments.run, found, arguments.page))
    except UserError as error:
        if arguments.page is not None:
            raise
        print(f"musbo: {error}", file=sys.stderr)
        return None
