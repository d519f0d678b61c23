"""What the verbs of a campaign in the field share."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from musbo.cli import _common
from musbo.core.errors import UserError

if TYPE_CHECKING:
    from musbo.campaign.field_campaign import Campaign


def add_campaign(parser: argparse.ArgumentParser, task: bool = True) -> None:
    parser.add_argument("run", type=Path, metavar="CAMPAIGN", help="the directory of a campaign")
    if task:
        _common.add_task(parser)
    _common.add_json(parser)


def add_round(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("round", metavar="ROUND", help="the number of the round, as `musbo status` shows it")


def round_of(arguments: argparse.Namespace) -> int:
    """The number of the round."""
    if not arguments.round.isdecimal():
        raise UserError(f"a round is a number, as `musbo status` shows it, not {arguments.round!r}.")
    return int(arguments.round)


def campaign_of(arguments: argparse.Namespace) -> "Campaign":
    """The campaign that the words name."""
    from musbo.campaign.field_campaign import Campaign

    given, trust = getattr(arguments, "task", None), getattr(arguments, "trust_task", False)
    return Campaign(arguments.run, task=given, trust_task=trust)


def following(folder: Path, arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """What comes next in a campaign or a run: as JSON, and as a line, which is empty where nothing does."""
    from musbo.campaign.rounds import what_next
    from musbo.campaign.summary import read_status, whereabouts
    from musbo.cli import _imports

    now = read_status(folder)
    if now.field:
        after = what_next(now, folder)
        return after.plain(), f"next: {after.text}"
    line = "" if now.finished else f"go on with: {_imports.again('resume', arguments, folder)}"
    return {"next_step": whereabouts(folder).next_step}, line


def close(folder: Path, arguments: argparse.Namespace, said: dict[str, Any], text: str) -> int:
    """Say what was done, and what comes next."""
    after, line = following(folder, arguments)
    if arguments.json:
        _common.print_json({**said, **after})
        return 0
    print(text)
    print(line)
    return 0
