"""`musbo history`: what happened in a run or a campaign, event by event."""

import argparse

from musbo.cli import _common, _rounds

ORDER = 31
HELP = "List what happened in a run or a campaign, and what was foreseen of it."
EXAMPLES = """
  musbo history campaigns/line-3
  musbo history campaigns/line-3 --json | jq .events
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _common.add_run(parser)
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    from musbo.campaign.history import history
    from musbo.reporting.rounds import moment

    found = history(arguments.run)
    after, line = _rounds.following(arguments.run, arguments)
    if arguments.json:
        _common.print_json({"events": [item.plain() for item in found], **after})
        return 0
    for item in found:
        print(f"{moment(item.time)}  {item.deployment or '-':>3}  {item.kind:<10} {item.text}  {item.digest[:12]}")
    if line:
        print(line)
    return 0
