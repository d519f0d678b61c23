"""`musbo status`: how far a run is."""

import argparse
import sys

from musbo.cli import _common, _imports, _rounds

ORDER = 30
HELP = "Where a run or a campaign stands, and what comes next."
EXAMPLES = """
  musbo status runs/pendulum-musbo-quick-s0
  musbo status runs/pendulum-musbo-quick-s0 --json | jq .returns
  musbo status campaigns/line-3 --watch              again and again, until Ctrl-C
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _common.add_run(parser)
    parser.add_argument(
        "--watch", type=float, nargs="?", const=2.0, metavar="S", help="show it again every S seconds (default: 2)"
    )
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    if arguments.watch is None:
        return _show(arguments)
    import time

    while True:
        if not arguments.json:
            print("\033[2J\033[H" if sys.stdout.isatty() else "", end="")
        _show(arguments)
        time.sleep(max(arguments.watch, 0.1))


def _show(arguments: argparse.Namespace) -> int:
    from musbo.campaign.summary import read_status

    return _show_field(arguments) if read_status(arguments.run).field else _show_run(arguments)


def _show_field(arguments: argparse.Namespace) -> int:
    from rich.table import Table

    from musbo.reporting import rounds, words

    found = _rounds.campaign_of(arguments).status()
    own = found.summary.settings
    if arguments.json:
        _common.print_json(found.plain())
        return 0
    print(f"{own.algo} ({own.preset}) on {own.task}, seed {own.seed}")
    print(f"{found.summary.deployed} of {words.count(own.budget, 'deployment')} spent, "
          f"{words.count(found.summary.transitions, 'transition')}")  # fmt: skip
    table = Table(box=None, pad_edge=False)
    for name in rounds.COLUMNS:
        table.add_column(name, justify="left" if name in rounds.WORDS else "right")
    for each in found.rounds:
        table.add_row(*(text(each) for text in rounds.COLUMNS.values()))
    _common.console().print(table, markup=False)
    for remark in rounds.remarks(found.rounds):
        print(remark)
    for shown in found.learned:
        print(f"{shown.title}, on held-out real data: {words.diagnostic(shown)}")
    print(f"next: {found.next.text}")
    return 0


def _show_run(arguments: argparse.Namespace) -> int:
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
