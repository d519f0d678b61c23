"""`musbo study`: many runs, each a cell of methods x tasks x budgets x seeds."""

import argparse
import sys
from pathlib import Path
from typing import Any

from musbo.cli import _common, _imports

ORDER = 60
HELP = "Run methods x tasks x budgets x seeds, each a campaign."
EXAMPLES = """
  musbo study --tasks pendulum pointmass --algos musbo bremen --seeds 0 1 2 --out studies/small
  musbo study --seeds 3 4 --out studies/small                                       two seeds more of everything
  musbo study --out studies/small                                                   go on after a stop
  musbo study ablation-fast --out studies/ablation                                  one that comes with musbo
  musbo study mine.toml --ray auto                                                  on a Ray cluster
  musbo study mine.toml --label.alpha auto                                          a setting for every run
  musbo study mine.toml --import my_method.py                                       with a method of your own

a file:
  tasks = ["halfcheetah", "hopper"]
  algos = ["musbo", "bremen"]
  seeds = [0, 1, 2]
  preset = "fast"
  [budgets]                             # deployments and batch size; what is not said is the preset's
  halfcheetah = [5, 50_000]
  [variants.musbo-hot]                  # a known method with other settings
  algo = "musbo"
  settings = ["--label.alpha", "0.1"]
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from musbo.campaign.command import add_scale, add_settings

    parser.description = f"{HELP} What is done already is not run again."
    parser.usage = "%(prog)s [FILE] [--tasks ...] [--algos ...] [--seeds ...] [--out DIR] [--SETTING VALUE ...]"
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="a .toml file, or a ready study; --list names those")
    add("--list", action="store_true", help="the studies that come with musbo")
    add("--tasks", nargs="+", default=[], metavar="TASK")
    add("--algos", nargs="+", default=[], metavar="NAME")
    add("--seeds", nargs="+", default=[], type=int, metavar="N")
    add("--preset", metavar="NAME", help="(default: each task's own)")
    add_scale(parser, " of every run")
    add("--episodes", type=int, metavar="N", help="evaluation episodes per deployment (default: the preset's)")
    add("--out", type=Path, metavar="DIR",
        help="where the study goes (default: studies/<file's name>, else studies/study)")  # fmt: skip
    add("--jobs", type=int, metavar="N", help="runs at once; the cores are divided (default: one per core)")
    add("--ray", metavar="ADDRESS", help="on a Ray cluster: its address, or auto")
    _common.add_trust(parser)
    add("--json", action="store_true", help="one object on standard output; progress on standard error")
    add_settings(parser)


def action(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from musbo.campaign import command
    from musbo.cluster import api, local
    from musbo.cluster import study as studies
    from musbo.cluster.plan import Said
    from musbo.reporting import study as shown

    if arguments.list:
        for name, text in studies.ready().items():
            print(f"{name:<22}  {text}")
        return 0
    out = arguments.out or Path("studies") / (Path(arguments.file).stem if arguments.file else "study")
    said = Said(
        arguments.file, tuple(arguments.tasks), tuple(arguments.algos), tuple(arguments.seeds), arguments.preset,
        arguments.budget, arguments.batch_size, command.setting_words(arguments),
    )  # fmt: skip
    how = api.How(arguments.jobs, arguments.ray, tuple(_imports.handed_on(arguments.imports)), arguments.trust_task)

    def opened(whole: studies.Study, before: studies.Study | None) -> None:
        print(f"musbo: {shown.opening(whole, before, out)}", file=sys.stderr)

    try:
        with shown.watch(Console(stderr=True)) as observe:
            seen = api.carry_out(said, out, arguments.out is not None, how, observe, opened)
    except KeyboardInterrupt:
        print(f"musbo: stopped. Go on with: {_again(arguments, out)}", file=sys.stderr)
        return _common.INTERRUPTED
    if arguments.json:
        _common.print_json({"study": str(out), "runs": [_row(cell, progress) for cell, progress in seen.items()]})
    else:
        _common.console().print(shown.table(seen))
    failed = [cell for cell, progress in seen.items() if progress.state == "failed"]
    for cell in failed:
        why = f"{seen[cell].reason} (its log: {local.log_of(out, cell)})"
        print(f"musbo: {cell.folder} failed: {why}", file=sys.stderr)
    if failed:
        again = f"Try again with: {_again(arguments, out)}"
        print(f"musbo: {len(failed)} failed; the others are done. {again}", file=sys.stderr)
    return 1 if failed else 0


def _again(arguments: argparse.Namespace, out: Path) -> str:
    from musbo.cluster.study import recorded
    from musbo.tasks.find import is_own

    known = recorded(out)
    word = ["--trust-task"] if known and any(map(is_own, known.tasks)) else []
    return _imports.again("study", arguments, "--out", out, *word)


def _row(cell: Any, progress: Any) -> dict[str, Any]:
    """One run, for `--json`."""
    return {
        "task": cell.task, "method": cell.method.name, "budget": cell.budget, "batch_size": cell.batch_size,
        "seed": cell.seed, "state": progress.state, "folder": cell.folder,
        "final_return": progress.last_return if progress.state == "done" else None,
        "reason": progress.reason or None,
    }  # fmt: skip
