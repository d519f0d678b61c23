"""`musbo train`: the next policy of a campaign in the field."""

import argparse

from musbo.cli import _rounds

ORDER = 22
HELP = "Train the next policy of a campaign in the field on all its data."
EXAMPLES = """
  musbo train campaigns/line-3
  musbo train campaigns/line-3 --again                       another candidate, from the same data
  musbo train campaigns/line-3 --again --set updates=200     with other settings of the method
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _rounds.add_campaign(parser)
    parser.add_argument("--again", action="store_true", help="train a further candidate for the open round")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the method for it and what follows"
    )


def action(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from musbo.campaign.runner import Interrupted
    from musbo.cli._common import INTERRUPTED
    from musbo.core.errors import UserError
    from musbo.core.text import parse_toml
    from musbo.reporting import live

    settings = {}
    for word in arguments.set:
        name, _, value = word.partition("=")
        try:
            settings[name] = parse_toml(f"value = {value}", word)["value"]
        except UserError:  # a word without quotes
            settings[name] = value
    campaign = _rounds.campaign_of(arguments)
    waits = campaign.next.verb == "train" or arguments.again
    try:
        with live.watch(Console(stderr=True)) as observe:
            found = campaign.train(again=arguments.again, settings=settings, observe=observe)
    except Interrupted:
        Console(stderr=True).print(f"stopped; everything is written down. Go on with `musbo train {arguments.run}`.")
        return INTERRUPTED
    said = {"policy_sha256": found.policy_sha256, "deployed": found.deployed}
    text = f"trained on {found.transitions:,} transitions" if waits else "no data are new, so nothing was trained"
    return _rounds.close(arguments.run, arguments, {**said, "trained": waits}, text)
