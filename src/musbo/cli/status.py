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
    from musbo.campaign import results
    from musbo.report import tables, words

    summary = {**results.summary(arguments.run), **results.whereabouts(arguments.run)}
    if arguments.json:
        _common.print_json(summary)
        return 0
    print(f"{summary['algorithm']} ({summary['preset']}) on {summary['task']}, seed {summary['seed']}")
    spent = words.count(summary["deployments"], "deployment")
    print(f"{summary['now']}: {words.count(summary['transitions'], 'transition')} in {spent} so far")
    if summary["per_deployment"]:
        _common.console().print(*tables.tables(summary))
    if not summary["finished"]:
        print(f"go on with: {_imports.again('resume', arguments, arguments.run)}")
    return 0
