"""`musbo amend`: tell a campaign in the field something new."""

import argparse
from pathlib import Path

from musbo.cli import _rounds

ORDER = 26
HELP = "Change the budget, the limits or the task of a campaign in the field."
EXAMPLES = """
  musbo amend campaigns/line-3 --budget 8
  musbo amend campaigns/line-3 --limits limits.toml                of every bundle from now on
  musbo amend campaigns/line-3 --reward --trust-task               the task's reward is another one, on purpose
  musbo amend campaigns/line-3 --definition --trust-task           so is a name, a unit, a range or the interval
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _rounds.add_campaign(parser)
    parser.add_argument("--budget", type=int, metavar="I", help="deployments in all")
    parser.add_argument("--limits", type=Path, metavar="FILE", help="TOML with the limits of the site")
    parser.add_argument("--reward", action="store_true", help="the reward and the ends of episodes are those of now")
    parser.add_argument(
        "--definition", action="store_true", help="names, units, ranges and interval of the task are those of now"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the history")


def action(arguments: argparse.Namespace) -> int:
    campaign = _rounds.campaign_of(arguments)
    campaign.amend(
        budget=arguments.budget, limits=arguments.limits, reward=arguments.reward, definition=arguments.definition,
        reason=arguments.reason,
    )  # fmt: skip
    changed = [name for name in ("budget", "limits", "reward", "definition") if getattr(arguments, name)]
    return _rounds.close(arguments.run, arguments, {"amended": changed}, f"changed: {', '.join(changed)}")
