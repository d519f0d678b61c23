"""`musbo status`: how far a run is."""

import argparse

from musbo.cli import _common, _imports

ORDER = 30
HELP = "Where a run stands."
EXAMPLES = """
  musbo status runs/pendulum-musbo-quick-s0
  musbo status runs/pendulum-musbo-quick-s0 --json | jq .returns
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _common.add_run(parser)
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    from musbo.campaign.summary import summary, whereabouts
    from musbo.core.plain import plain
    from musbo.reporting import run_tables, words

    found, where = summary(arguments.run), whereabouts(arguments.run)
    if arguments.json:
        _common.print_json({**found.plain(), **_common.advised(found), **plain(where)})
        return 0
    own = found.settings
    print(f"{own.algo} ({own.preset}) on {own.task}, seed {own.seed}")
    spent = words.count(found.deployed, "deployment")
    print(f"{where.now}: {words.count(found.transitions, 'transition')} in {spent} so far")
    if found.deployments:
        _common.console().print(*run_tables.tables(found))
        _common.show_verdict(found)
    if not found.finished:
        print(f"go on with: {_imports.again('resume', arguments, arguments.run)}")
    return 0
