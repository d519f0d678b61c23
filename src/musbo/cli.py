"""The command line. Every command imports what it needs when it is called, so that help is instant."""

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from musbo import __version__
from musbo.core.errors import UserError
from musbo.core.interrupt import noting

INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for what the user can mend, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with noting():
            if words[:1] == ["run"]:
                return run(words[1:])
            if words[:1] == ["study"]:
                return study(words[1:])
            arguments = _parser().parse_args(words)
            return arguments.command(arguments)
    except UserError as error:
        print(f"musbo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("musbo: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more to flush at exit
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = _command_parser(
        None,
        "musbo",
        "Reinforcement learning with few deployments: collect a batch, train in imagination, repeat.",
        """examples:
  musbo run                                  the default task, pendulum, in a minute or two
  musbo run halfcheetah --seed 1             a task of the paper
  musbo run my_task.py:TASK --preset quick   a task of your own
  musbo resume runs/pendulum-musbo-quick-s0  go on after Ctrl-C or a crash
  musbo run --help                           every setting of the method""",
    )
    parser.add_argument("--version", action="version", version=f"musbo {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands.add_parser("run", help="run a campaign: deployments, training, evaluation", add_help=False)
    commands.add_parser("study", help="run methods x tasks x budgets x seeds, each a campaign", add_help=False)

    p = _command_parser(
        commands,
        "resume",
        "Go on with a run that was stopped or killed.",
        """examples:
  musbo resume runs/pendulum-musbo-quick-s0
  musbo resume runs/spring --task my_task.py:TASK   a run that Python began with a Task object""",
    )
    _run_argument(p, resume)
    _task_option(p)
    _output_options(p)

    p = _command_parser(
        commands,
        "status",
        "Where a run stands.",
        """examples:
  musbo status runs/pendulum-musbo-quick-s0
  musbo status runs/pendulum-musbo-quick-s0 --json | jq .returns""",
    )
    _run_argument(p, status)
    p.add_argument("--json", action="store_true", help="one object on standard output and nothing else")

    p = _command_parser(
        commands,
        "evaluate",
        "Measure a policy of a run in the simulator, over whole episodes.",
        """examples:
  musbo evaluate runs/pendulum-musbo-quick-s0                   the episodes that the run itself measured
  musbo evaluate runs/pendulum-musbo-quick-s0 --episodes 100 --seed 7
  musbo evaluate runs/pendulum-musbo-quick-s0 --deployment 1 --json""",
    )
    _run_argument(p, evaluate)
    p.add_argument("--episodes", type=int, metavar="N", help="whole episodes (default: as many as the run measured)")
    p.add_argument("--deployment", type=int, metavar="I", help="the policy trained after this one (default: the last)")
    p.add_argument("--seed", type=int, metavar="N", help="other episodes than those of the run")
    _task_option(p)
    p.add_argument("--json", action="store_true", help="one object on standard output and nothing else")

    p = _command_parser(
        commands,
        "play",
        "Film a policy of a run, off screen.",
        """examples:
  musbo play runs/pendulum-musbo-quick-s0                        writes play.gif into the run
  musbo play runs/hopper-musbo-fast-s0 --out hopper.mp4 --steps 1000""",
    )
    _run_argument(p, play)
    p.add_argument("--out", type=Path, metavar="FILE", help=".gif or .mp4 (default: play.gif in the run)")
    p.add_argument("--steps", type=int, default=300, metavar="N", help="at most this many steps (default: 300)")
    p.add_argument("--deployment", type=int, metavar="I", help="the policy trained after this one (default: the last)")
    p.add_argument("--seed", type=int, metavar="N", help="another episode than the first of the run's evaluation")
    _task_option(p)

    p = _command_parser(
        commands,
        "report",
        "Make a page about runs or studies, with figures and tables as files.",
        """examples:
  musbo report runs/pendulum-musbo-quick-s0          writes report/index.html into the run
  musbo report studies/small                         a comparison of its methods
  musbo report runs/a runs/b --out comparison        several together
  musbo report studies/novelty --score cheetah-run=550   how many deployments each method needs for that
  musbo report studies/small --tensorboard           for TensorBoard too""",
    )
    p.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a run, or a study")
    p.add_argument("--out", type=Path, metavar="DIR", help="where it goes (default: report in the directory, if one)")
    p.add_argument(
        "--score", action="append", default=[], metavar="TASK=RETURN",
        help="count the deployments until this return is reached (once for each task)",
    )  # fmt: skip
    p.add_argument("--no-film", action="store_true", help="no pictures of the last policy, so no simulator is asked")
    p.add_argument("--tensorboard", action="store_true", help="write logs for TensorBoard as well")
    p.add_argument("--json", action="store_true", help="what was written, as one object on standard output")
    p.set_defaults(command=report)

    p = _command_parser(
        commands,
        "tasks",
        "List the tasks that come with musbo.",
        """examples:
  musbo tasks
  musbo run pointmass         one of them
  musbo run my_task.py:TASK   one of your own: a musbo.Task, or a function that returns one""",
    )
    p.set_defaults(command=tasks)

    p = _command_parser(
        commands,
        "algos",
        "List the methods and the presets.",
        """examples:
  musbo algos
  musbo run hopper --algo bremen --preset fast""",
    )
    p.set_defaults(command=algos)
    return parser


def _command_parser(commands: Any, name: str, about: str, examples: str) -> argparse.ArgumentParser:
    settings: dict[str, Any] = {
        "description": about,
        "epilog": examples,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }
    if commands is None:
        return argparse.ArgumentParser(prog=name, **settings)
    return commands.add_parser(name, help=about[0].lower() + about[1:].rstrip("."), **settings)


def _run_argument(parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the directory of a run")
    parser.set_defaults(command=command)


def _task_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", metavar="NAME", help="the task, for a run that Python began with a Task object")


def _output_options(parser: Any) -> None:
    parser.add_argument(
        "--json", action="store_true", help="one object on standard output and nothing else; progress on standard error"
    )
    parser.add_argument(
        "--checkpoint-seconds", type=_seconds, default=20.0, metavar="S",
        help="write training down this often; a kill loses no more, or one epoch or update (default: 20)",
    )  # fmt: skip


def _seconds(word: str) -> float:
    seconds = float(word)
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {word}")
    return seconds


# musbo run

RUN_EXAMPLES = """examples:
  musbo run                                              the default task, pendulum
  musbo run hopper --algo me-trpo --seed 3 --deployments 10 --batch 25000
  musbo run halfcheetah --label.alpha auto --trpo.delta 0.02 --updates 100
  musbo run halfcheetah --label trust --explore plain --explore.sigma 0.1
  musbo run my_task.py:TASK --preset quick --out runs/mine
  musbo run my_task.py:TASK --data logs.parquet --deployments 1    pure offline: no simulator is needed
  musbo run pointmass --json > result.json"""


def _run_parser() -> argparse.ArgumentParser:
    """The flags of a campaign, and every flag that some method has; tyro reads the values of those."""
    from musbo.algorithms.recipes import ALGORITHMS, PRESETS

    parser = argparse.ArgumentParser(
        prog="musbo run",
        usage="musbo run [TASK] [--seed N] [--algo NAME] [--preset NAME] [--SETTING VALUE ...]",
        description="Run a campaign: collect a batch, train in imagination, evaluate, until the budget is spent.",
        epilog=RUN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    add = parser.add_argument
    add("task", nargs="?", default="pendulum", metavar="TASK",
        help="a name of `musbo tasks`, file.py:NAME or package.module:NAME (default: pendulum)")  # fmt: skip
    add("-h", "--help", action="store_true", help="show this help, with the settings of the method that is asked for")
    add("--algo", default="musbo", metavar="NAME", help=f"{', '.join(ALGORITHMS)} (default: musbo)")
    add("--preset", choices=tuple(PRESETS), metavar="NAME",
        help=f"{', '.join(PRESETS)} (default: quick on pendulum and pointmass, else fast)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="of every random number (default: 0)")
    add("--deployments", type=int, metavar="I", help="I: deployments, the first one random (default: the preset's)")
    add("--batch", type=int, metavar="B", help="B: transitions per deployment (default: the preset's)")
    add("--episodes", type=int, metavar="N", help="evaluation episodes per deployment (default: the preset's)")
    add("--data", nargs="+", default=[], metavar="FILE", help="Parquet batches that you have, as the first deployments")
    add("--out", type=Path, metavar="DIR", help="where the run goes (default: runs/<task>-<algo>-<preset>-s<seed>)")
    _output_options(parser)
    _method_flags(parser)
    return parser


def _method_flags(parser: argparse.ArgumentParser) -> None:
    from musbo.campaign.flags import PARTS, known_flags

    parts = parser.add_argument_group("parts of the method that come in kinds")
    for part, kinds in PARTS.items():
        parts.add_argument(f"--{part}", choices=tuple(kinds), metavar="KIND", help=_kinds(kinds))
    for flag, several in known_flags().items():
        spellings = dict.fromkeys((flag, "--" + flag[2:].replace("-", "_")))
        parser.add_argument(
            *spellings, dest=flag, nargs="+" if several else 1, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )


def _given(arguments: argparse.Namespace) -> list[str]:
    """The words of the method's own flags, without its kinds."""
    from musbo.campaign.flags import known_flags

    pairs = [(flag, values) for flag, values in vars(arguments).items() if flag in known_flags()]
    return [word for flag, values in pairs for word in (flag, *values)]


def _kinds(kinds: dict[str, type]) -> str:
    """Each kind with the first sentence of its description."""
    # Not at the first full stop: that of "eq. 16" ends no sentence.
    first = {word: re.split(r"\.(?=\s+[A-Z]|\s*$)", kind.__doc__ or "")[0] for word, kind in kinds.items()}
    return "; ".join(f"{word}: {text}" for word, text in first.items())


def run(words: list[str]) -> int:
    from musbo.campaign import api

    chosen, arguments = campaign_of(words)
    if chosen is None:
        return 0
    folder = api.start(chosen, arguments.data, arguments.out)
    return _advance(folder, arguments, None)


def campaign_of(words: list[str]) -> tuple[Any, argparse.Namespace]:
    """What the words of `musbo run` ask for; nothing, where they ask for help, which is then printed."""
    from musbo.algorithms import recipes
    from musbo.campaign import flags, settings

    parser = _run_parser()
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        raise UserError(flags.unknown_flag(unknown[0], _flag_names(parser)))
    name = settings.task_name(arguments.task)
    preset = arguments.preset or recipes.default_preset(name)
    kinds = {part: kind for part in flags.PARTS if (kind := getattr(arguments, part)) is not None}
    method = flags.with_kinds(recipes.settings(arguments.algo, preset, name), kinds)
    if arguments.help:
        print(parser.format_help())
        print(f"settings of {arguments.algo}, with the defaults of preset {preset} on {arguments.task}:\n")
        print(flags.help_text(method))
        return None, arguments
    method = flags.parse(method, _given(arguments))
    chosen = settings.campaign(
        arguments.task, arguments.algo, preset, arguments.seed, arguments.deployments, arguments.batch,
        arguments.episodes, method,
    )  # fmt: skip
    return chosen, arguments


def _flag_names(parser: argparse.ArgumentParser) -> list[str]:
    """Every flag in its first spelling."""
    return [
        action.option_strings[-1 if action.dest == "help" else 0] for action in parser._actions if action.option_strings
    ]


def resume(arguments: argparse.Namespace) -> int:
    return _advance(arguments.run, arguments, arguments.task)


def _advance(folder: Path, arguments: argparse.Namespace, task: str | None) -> int:
    from rich.console import Console

    from musbo.campaign import api, loop
    from musbo.report import curve, live, tables

    errors = Console(stderr=True)
    try:
        with live.watch(errors) as observe:
            result = api.resume(folder, task=task, observe=observe, checkpoint_seconds=arguments.checkpoint_seconds)
    except loop.Stopped:
        print(f"musbo: stopped; everything is written down. Go on with: musbo resume {folder}", file=sys.stderr)
        return INTERRUPTED
    except KeyboardInterrupt:
        print(
            f"musbo: interrupted; what came after the last checkpoint is done again. Go on with: musbo resume {folder}",
            file=sys.stderr,
        )
        return INTERRUPTED
    try:
        curve.draw(result.summary, folder)
    except UserError as error:
        print(f"musbo: {error}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(result.summary))
        return 0
    _console().print(*tables.tables(result.summary))
    print(f"policy, data, metrics and learning curve: {folder}")
    print(f"a page about it: musbo report {folder}")
    return 0


def _console() -> Any:
    """Standard output; a file or a pipe has no width, and a table in it is not folded."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=120)


# musbo study


STUDY_EXAMPLES = """examples:
  musbo study --tasks pendulum pointmass --algos musbo bremen --seeds 0 1 2 --out studies/small
  musbo study --seeds 3 4 --out studies/small                                       two seeds more of everything
  musbo study --out studies/small                                                   go on after a stop
  musbo study ablation-fast --out studies/ablation                                  one that comes with musbo
  musbo study mine.toml --ray auto                                                  on a Ray cluster
  musbo study mine.toml --label.alpha auto                                          a setting for every run

a file:
  tasks = ["halfcheetah", "hopper"]
  algos = ["musbo", "bremen"]
  seeds = [0, 1, 2]
  preset = "fast"
  [budgets]                             # deployments and batch; what is not said is the preset's
  halfcheetah = [5, 50_000]
  [variants.musbo-hot]                  # a known method with other settings
  algo = "musbo"
  settings = ["--label.alpha", "0.1"]"""


def _study_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="musbo study",
        usage="musbo study [FILE] [--tasks ...] [--algos ...] [--seeds ...] [--out DIR] [--SETTING VALUE ...]",
        description="Methods x tasks x budgets x seeds, each cell a run. What is done already is not run again.",
        epilog=STUDY_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="a .toml file, or a ready study; --list names those")
    add("--list", action="store_true", help="the studies that come with musbo")
    add("--tasks", nargs="+", metavar="TASK")
    add("--algos", nargs="+", metavar="NAME")
    add("--seeds", nargs="+", type=int, metavar="N")
    add("--preset", metavar="NAME", help="(default: each task's own)")
    add("--deployments", type=int, metavar="I", help="of every run (default: the preset's)")
    add("--batch", type=int, metavar="B", help="of every run (default: the preset's)")
    add("--episodes", type=int, metavar="N", help="evaluation episodes per deployment (default: the preset's)")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the study goes (default: studies/<file's name>, else studies/study)",
    )
    add("--jobs", type=int, metavar="N", help="runs at once; the cores are divided (default: one per core)")
    add("--ray", metavar="ADDRESS", help="on a Ray cluster: its address, or auto")
    add("--json", action="store_true", help="one object on standard output; progress on standard error")
    _method_flags(parser)
    return parser


def study(words: list[str]) -> int:
    from rich.console import Console

    from musbo.campaign import flags
    from musbo.cluster import local, on_ray
    from musbo.cluster import study as studies
    from musbo.report import study as shown

    parser = _study_parser()
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        raise UserError(flags.unknown_flag(unknown[0], _flag_names(parser)).replace("musbo run", "musbo study"))
    if arguments.list:
        for name, text in studies.ready().items():
            print(f"{name:<22}  {text}")
        return 0
    if arguments.ray and arguments.jobs is not None:
        raise UserError("--jobs divides the cores of this machine, and --ray runs elsewhere: give one of the two.")
    local.share_cores(arguments.jobs)  # refuses what this machine has not, before anything is written
    out = arguments.out or Path("studies") / (Path(arguments.file).stem if arguments.file else "study")
    before, asked = studies.recorded(out), _asked_study(arguments, out)
    _require_as_before(studies.together(out, asked), out)
    try:
        with studies.held(out, asked) as whole:
            print(f"musbo: {shown.opening(whole, before, out)}", file=sys.stderr)
            with shown.watch(Console(stderr=True)) as observe:
                if arguments.ray:
                    seen = on_ray.run(whole, out, arguments.ray, observe)
                else:
                    seen = local.run(whole, out, arguments.jobs, observe)
    except KeyboardInterrupt:
        print(f"musbo: stopped. Go on with: musbo study --out {out}", file=sys.stderr)
        return INTERRUPTED
    failed = [cell for cell, progress in seen.items() if progress.state == "failed"]
    if arguments.json:
        rows = [
            {"task": cell.task, "method": cell.method.name, "deployments": cell.deployments, "batch": cell.batch,
             "seed": cell.seed, "state": progress.state, "folder": cell.folder,
             "final_return": progress.last_return if progress.state == "done" else None,
             "reason": progress.reason or None}
            for cell, progress in seen.items()
        ]  # fmt: skip
        print(json.dumps({"study": str(out), "runs": rows}))
    else:
        _console().print(shown.table(seen))
    for cell in failed:
        why = f"{seen[cell].reason} (its log: {local.log_of(out, cell)})"
        print(f"musbo: {cell.folder} failed: {why}", file=sys.stderr)
    if failed:
        again = f"Try again with: musbo study --out {out}"
        print(f"musbo: {len(failed)} failed; the others are done. {again}", file=sys.stderr)
    return 1 if failed else 0


def _asked_study(arguments: argparse.Namespace, out: Path) -> Any:
    """The study that file and flags describe together, every cell of it checked before any is run; None: go on."""
    from dataclasses import replace

    from musbo.campaign.flags import PARTS
    from musbo.campaign.settings import task_name
    from musbo.cluster import study as studies

    rest = [word for part in PARTS if (kind := getattr(arguments, part)) for word in (f"--{part}", kind)]
    rest += ["--episodes", str(arguments.episodes)] if arguments.episodes is not None else []
    rest += _given(arguments)
    names = ("tasks", "algos", "seeds", "preset")
    said = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    sizes = (arguments.deployments, arguments.batch)
    if not arguments.file and not said and not rest and sizes == (None, None):
        return None
    before = None if arguments.file else studies.recorded(out)
    if before and not arguments.out:  # nobody named it: what is there may be something else altogether
        raise UserError(
            f"{out} holds a study already: give --out {out} to add to it (it runs every task with every method and "
            "seed), or another --out for a study of its own."
        )
    if before is None and not arguments.file:
        if missing := [name for name in ("tasks", "algos") if name not in said]:
            raise UserError(f"a new study needs --{' and --'.join(missing)}, or a file that says them.")
        chosen = replace(studies.parse(said), settings=tuple(rest))
    else:
        chosen = before or studies.load(arguments.file)
        # More of a study that is there: what is not said stays as it was, and a setting said again must be the same.
        settings = tuple(rest) if before and rest else (*chosen.settings, *rest)
        tasks = tuple(map(task_name, said.get("tasks", chosen.tasks)))
        methods = chosen.methods
        if "algos" in said:
            known = {method.name: method for method in methods}
            methods = tuple(known.get(name) or studies.Variant(name, name) for name in said["algos"])
        chosen = replace(
            chosen, tasks=tasks, methods=methods, settings=settings, seeds=tuple(said.get("seeds", chosen.seeds)),
            preset=said.get("preset", chosen.preset), budgets=_inherited(chosen, tasks, None not in sizes),
        )  # fmt: skip
    if sizes != (None, None):
        pairs = {
            (
                c.task,
                *(own if size is None else size for size, own in zip(sizes, (c.deployments, c.batch), strict=True)),
            )
            for c in studies.cells(chosen)
        }
        chosen = replace(chosen, budgets=tuple(sorted(pairs)))
    for cell in studies.cells(replace(chosen, seeds=chosen.seeds[:1])):  # the others differ in a number only
        _require_sound_cell(cell, chosen.settings)
    return chosen


def _inherited(study: Any, tasks: tuple[str, ...], said: bool) -> tuple[tuple[str, int, int], ...]:
    """The budgets of `tasks`: a new one has what all others were given; where they differ, it has to be `said`."""
    given = {task: [(i, b) for name, i, b in study.budgets if name == task] for task in study.tasks}
    shared, *others = given.values()
    new = [task for task in tasks if task not in given]
    if new and any(pairs != shared for pairs in others) and not said:
        raise UserError(
            f"the tasks of this study have budgets of their own, so {new[0]} needs one too: "
            "give --deployments and --batch with --tasks."
        )
    return tuple((task, i, b) for task in tasks for i, b in given.get(task, shared))


def _require_sound_cell(cell: Any, settings: tuple[str, ...]) -> None:
    """Refuse now what would fail in the middle of a study."""
    from musbo.campaign.settings import load_task
    from musbo.field.worlds import no_simulator

    try:
        words = cell.words(Path(), settings)[1:]
        if "--help" in words or "-h" in words:
            raise UserError("--help is no setting: `musbo run TASK --help` lists them.")
        chosen, arguments = campaign_of(words)
        task = load_task(chosen)
        chosen.method.require(task)
        if reason := no_simulator(task):
            raise UserError(reason)
        asked = (chosen.seed, chosen.deployments, chosen.batch, chosen.algo, chosen.preset, arguments.out)
        own = (cell.seed, cell.deployments, cell.batch, cell.method.algo, cell.preset, Path(cell.folder))
        if asked != own or arguments.data:
            what = "seed, deployments, batch, algo, preset, out and data"
            raise UserError(f"{what} are the study's own and cannot be among its settings.")
    except UserError as error:
        raise UserError(f"{cell.method.name} on {cell.task}: {error}") from error


def _require_as_before(study: Any, out: Path) -> None:
    """Seeds of a method differ in their seed alone: refuse to begin one where a preset has changed since the others."""
    from dataclasses import replace

    from musbo.campaign import flags
    from musbo.campaign.folders import LEDGER, open_settings
    from musbo.cluster.study import cells

    rows: dict[tuple[str, str, str], list[Any]] = {}
    for cell in cells(study):
        rows.setdefault(cell.row, []).append(cell)
    for row in rows.values():
        begun = [cell for cell in row if (out / cell.folder / LEDGER).exists()]
        new = [cell for cell in row if cell not in begun]
        if not begun or not new:
            continue
        try:
            old = open_settings(out / begun[0].folder)
        except UserError:  # a damaged ledger is the affair of its own run, which says so when it is begun
            continue
        now = replace(campaign_of(new[0].words(out, study.settings)[1:])[0], seed=old.seed)
        one, other = dict(flags.flat(old)), dict(flags.flat(now))
        names = [name for name in one | other if one.get(name) != other.get(name)]
        differs = [f"--{n.removeprefix('method.').replace('_', '-')} ({one.get(n)}, now {other.get(n)})" for n in names]
        if differs:
            shown = ", ".join(differs[:3]) + (f" and {len(differs) - 3} more" if len(differs) > 3 else "")
            raise UserError(
                f"{out / begun[0].folder} has other settings than {new[0].folder} would have: {shown}. They are no "
                "seeds of one method: use the musbo that began this study, or choose another --out."
            )


# The other commands


def status(arguments: argparse.Namespace) -> int:
    from musbo.campaign import results
    from musbo.report import tables, words

    summary = {**results.summary(arguments.run), **results.whereabouts(arguments.run)}
    if arguments.json:
        print(json.dumps(summary))
        return 0
    print(f"{summary['algorithm']} ({summary['preset']}) on {summary['task']}, seed {summary['seed']}")
    spent = words.count(summary["deployments"], "deployment")
    print(f"{summary['now']}: {words.count(summary['transitions'], 'transition')} in {spent} so far")
    if summary["per_deployment"]:
        _console().print(*tables.tables(summary))
    if not summary["finished"]:
        print(f"go on with: musbo resume {arguments.run}")
    return 0


def evaluate(arguments: argparse.Namespace) -> int:
    from musbo.campaign import api
    from musbo.report import words

    numbers = api.evaluate(
        arguments.run, episodes=arguments.episodes, deployment=arguments.deployment, seed=arguments.seed,
        task=arguments.task,
    )  # fmt: skip
    if arguments.json:
        print(json.dumps(numbers))
        return 0
    print(
        f"policy of deployment {numbers['deployment']} on {numbers['task']}: "
        f"return {words.with_spread(numbers['return'], numbers['spread'])} "
        f"over {words.count(numbers['episodes'], 'episode')}"
    )
    for name, text in (
        ("model_return", "return under the model reward"),
        ("length", "mean length"),
        ("speed", "speed"),
    ):
        if numbers[name] is not None:
            print(f"  {text}: {words.number(numbers[name])}")
    return 0


def play(arguments: argparse.Namespace) -> int:
    from musbo.campaign import api
    from musbo.report import video

    path = arguments.out or arguments.run / "play.gif"
    video.require_format(path)
    if arguments.steps < 1:
        raise UserError(f"--steps must be at least 1, not {arguments.steps}.")
    frames = api.film(
        arguments.run, steps=arguments.steps, deployment=arguments.deployment, seed=arguments.seed, task=arguments.task
    )
    print(f"{path}: {video.write(path, frames)} frames")
    return 0


def report(arguments: argparse.Namespace) -> int:
    from musbo.report import gather, page, tensorboard

    folders = arguments.folders
    if arguments.tensorboard:
        tensorboard.require()
    out = arguments.out or (folders[0] / "report" if len(folders) == 1 else Path("report"))
    material = gather.gather(folders, _scores(arguments.score))
    written = page.write(material, out, film=not arguments.no_film)
    if arguments.tensorboard:
        written["tensorboard"] = tensorboard.write(material.runs, out / "tensorboard")
    if arguments.json:
        print(json.dumps(written))
        return 0
    print(f"page: {written['page']}")
    print(f"figures: {len(written['figures'])} files, tables: {len(written['tables'])} files, in {out}")
    if arguments.tensorboard:
        print(f"logs: tensorboard --logdir {written['tensorboard']}")
    return 0


def _scores(words: list[str]) -> dict[str, float]:
    found = {}
    for word in words:
        task, _, text = word.rpartition("=")
        try:
            found[task] = float(text)
        except ValueError:
            found[task] = math.nan
        if not task or not math.isfinite(found[task]):
            raise UserError(f"--score takes TASK=RETURN, such as cheetah-run=550, not {word!r}.")
    return found


def tasks(arguments: argparse.Namespace) -> int:
    from musbo.tasks.find import TASKS

    width = max(map(len, TASKS))
    for name, line in TASKS.items():
        print(f"{name:<{width}}  {line}")
    print("\nYour own: musbo run file.py:NAME or package.module:NAME, where NAME is a musbo.Task.")
    return 0


def algos(arguments: argparse.Namespace) -> int:
    from musbo.algorithms.recipes import ALGORITHMS, PRESETS

    lines = {name: recipe.line for name, recipe in ALGORITHMS.items()}
    width = max(map(len, (*lines, *PRESETS)))
    for title, entries in (("methods (--algo)", lines), ("presets (--preset)", PRESETS)):
        print(title)
        for name, line in entries.items():
            print(f"  {name:<{width}}  {line}")
    return 0
