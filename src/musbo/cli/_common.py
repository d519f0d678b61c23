"""What several verbs share."""

import argparse
import sys
from pathlib import Path
from typing import Any

from musbo.cli._imports import again
from musbo.cli._output import print_json as print_json
from musbo.core.errors import UserError

INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the directory of a run")


def add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", metavar="NAME", help="the task of the run, where it is one of your own")
    add_trust(parser)


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust-task", action="store_true", help="run the Python that the run names as its task: only if you know it"
    )


def add_deployment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deployment", type=int, metavar="I", help="the policy trained after this one (default: the last)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one object on standard output and nothing else")


def console() -> Any:
    """Standard output; a file or a pipe has no width, and a table in it is not folded."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=120)


def advised(summary: Any) -> dict[str, Any]:
    """The verdict and the advice of a run, as JSON."""
    from musbo.core.plain import plain
    from musbo.reporting.advice import advise
    from musbo.reporting.verdict import verdict

    found = advise(summary)
    return {"verdict": verdict(summary, found), "advice": plain(found)}


def show_verdict(summary: Any) -> None:
    """The returns as a picture, what was learned, and the advice in order."""
    from musbo.reporting.advice import advise
    from musbo.reporting.verdict import picture, verdict
    from musbo.reporting.words import sentence

    found = advise(summary)
    if drawn := picture(summary):
        print(f"return  {drawn}")
    print(verdict(summary, found))
    for i, each in enumerate(found, 1):
        print(f"  {i}. {sentence(each.text)}")


def advance(folder: Path, arguments: argparse.Namespace, task: str | None, trust_task: bool) -> int:
    """Do all that is left of a run, and show what came out."""
    from rich.console import Console

    from musbo.campaign import api, runner
    from musbo.reporting import curve, live, run_tables

    word = ["--trust-task"] if trust_task else []
    go_on = f"Go on with: {again('resume', arguments, folder, *word)}"
    try:
        with live.watch(Console(stderr=True)) as observe:
            result = api.resume(
                folder, task=task, observe=observe, checkpoint_seconds=arguments.checkpoint_seconds,
                trust_task=trust_task,
            )  # fmt: skip
    except runner.Interrupted:
        print(f"musbo: stopped; everything is written down. {go_on}", file=sys.stderr)
        return INTERRUPTED
    except KeyboardInterrupt:
        print(f"musbo: interrupted; what came after the last checkpoint is done again. {go_on}", file=sys.stderr)
        return INTERRUPTED
    try:
        curve.draw(result.summary, folder)
    except UserError as error:
        print(f"musbo: {error}", file=sys.stderr)
    if arguments.json:
        print_json({**result.summary.plain(), **advised(result.summary)})
        return 0
    console().print(*run_tables.tables(result.summary))
    show_verdict(result.summary)
    print(f"policy, data, metrics and learning curve: {folder}")
    if not (sys.stdout.isatty() and show_page(folder, trust_task)):
        print(f"a page about it: {again('report', arguments, folder, *word)}")
    return 0


def show_page(folder: Path, trust_task: bool) -> bool:
    """Write the page about a run for whoever sits at the terminal; False where figures cannot be drawn."""
    from musbo.reporting.api import report

    try:
        written = report(folder, trust_task=trust_task)
    except UserError as error:
        print(f"musbo: {error}", file=sys.stderr)
        return False
    print(f"a page about it: {written.page}")
    return True
