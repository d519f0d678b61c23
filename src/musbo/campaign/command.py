"""The words of `musbo run`, and the campaign that they ask for.

A campaign has flags of its own (`--seed`, `--budget`, ...), and every setting of its method is one too. Which settings
those are depends on the method, so all flags that some method has are accepted here, and `flags.parse` then refuses
what is of another method.
"""

import argparse
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from musbo.algorithms import recipes
from musbo.algorithms.method import Method
from musbo.campaign import flags
from musbo.campaign.options import add_output_options
from musbo.campaign.settings import Campaign, campaign, task_name
from musbo.core.errors import UserError
from musbo.field.find import find_task
from musbo.tasks.task import Task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that `musbo run` takes."""
    parser.usage = "%(prog)s [TASK] [--seed N] [--algo NAME] [--preset NAME] [--SETTING VALUE ...]"
    add = parser.add_argument
    add("task", nargs="?", default="pendulum", metavar="TASK",
        help="a name of `musbo tasks`, a Gymnasium id, dm_control:walker-walk, file.py:NAME or package.module:NAME "
             "(default: pendulum)")  # fmt: skip
    add("--algo", default="musbo", metavar="NAME", help=f"{', '.join(recipes.ALGORITHMS)} (default: musbo)")
    add("--preset", choices=tuple(recipes.PRESETS), metavar="NAME",
        help=f"{', '.join(recipes.PRESETS)} (default: quick on pendulum and pointmass, else fast)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="of every random number (default: 0)")
    add_scale(parser, "")
    add("--episodes", type=int, metavar="N", help="evaluation episodes per deployment (default: the preset's)")
    add(
        "--data",
        nargs="+",
        default=[],
        metavar="FILE",
        help="logs that you have, as the first deployments: .csv, .parquet, .npz, .hdf5 or minari:NAME",
    )
    add("--mapping", type=Path, metavar="FILE", help="TOML that says what the columns of --data mean (musbo mapping)")
    add("--out", type=Path, metavar="DIR", help="where the run goes (default: runs/<task>-<algo>-<preset>-s<seed>)")
    add_output_options(parser)
    add_settings(parser)


def add_scale(parser: argparse.ArgumentParser, of: str) -> None:
    """The budget and the size of a batch; `of` says whose, where that is not clear."""
    add = parser.add_argument
    add("--budget", type=int, metavar="I", help=f"I: deployments{of} (default: the preset's)")
    add("--batch-size", type=int, metavar="B", help=f"B: transitions per deployment{of} (default: the preset's)")
    # As they were called in version 0.1.
    add("--deployments", type=int, dest="budget", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    add("--batch", type=int, dest="batch_size", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Every setting that some method has, with `-` or `_` between words; tyro reads the values."""
    parts = parser.add_argument_group("parts of the method that come in kinds")
    for part, kinds in flags.parts().items():
        shown = argparse.SUPPRESS if "." in part else ", ".join(kinds)
        parts.add_argument(f"--{part}", choices=tuple(kinds), metavar="KIND", help=shown)
    for flag, several in flags.known_flags().items():
        spellings = dict.fromkeys((flag, "--" + flag[2:].replace("-", "_")))
        parser.add_argument(
            *spellings, dest=flag, nargs="+" if several else 1, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )


def _described(method: Method) -> str:
    """Each kind of each part that the method has, with the first sentence of its description."""
    lines = []
    for part, kinds in flags.parts_of(type(method)):
        for word, kind in kinds.items():
            # Not at the first full stop: that of "eq. 16" ends no sentence.
            first = " ".join(re.split(r"\.(?=\s+[A-Z]|\s*$)", kind.__doc__ or "")[0].split())
            lines += textwrap.wrap(f"--{part} {word}: {first}", 78, initial_indent="  ", subsequent_indent="      ")
    return "".join(f"{line}\n" for line in lines)


def flag_names(parser: argparse.ArgumentParser) -> list[str]:
    """Every flag of a parser, in one spelling."""
    every = [[name for name in action.option_strings if name.startswith("--")] for action in parser._actions]
    return [names[0] for names in every if names]


def campaign_of(arguments: argparse.Namespace) -> Campaign:
    """The campaign that parsed words ask for."""
    preset, method, _ = _method(arguments)
    return campaign(
        arguments.task, arguments.algo, preset, arguments.seed, arguments.budget, arguments.batch_size,
        arguments.episodes, flags.parse(method, _own_settings(arguments)),
    )  # fmt: skip


def settings_help(arguments: argparse.Namespace, every: bool = False) -> str:
    """The settings of the method that parsed words ask for, with their defaults; what each does, with `every`."""
    preset, method, task = _method(arguments)
    title = f"settings of {arguments.algo}, with the defaults of preset {preset} on {arguments.task}"
    derived = recipes.reasons(arguments.algo, preset, task)
    said = "".join(["what follows from the task:\n", *(f"  {line}\n" for line in derived), "\n"]) if derived else ""
    if not every and not flags.overview(method):
        return f"{said}{arguments.algo} has no settings of its own.\n"
    if not every:
        return f"{said}{title} (--help-all says what each does):\n{flags.overview(method)}"
    described = _described(method)
    kinds = f"kinds of its parts:\n{described}\n" if described else ""
    return f"{title}:\n\n{said}{kinds}{flags.help_text(method)}"


def _method(arguments: argparse.Namespace) -> tuple[recipes.Preset, Method, Task]:
    """The preset, the method with parts of the kinds that were asked for, and the task that both are made for."""
    task = find_task(task_name(arguments.task))
    preset = arguments.preset or recipes.default_preset(task)
    return preset, flags.with_kinds(recipes.recipe(arguments.algo, preset, task), _kinds(arguments)), task


def setting_words(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The words among those parsed that a study hands to every run: kinds of parts, `--episodes`, settings."""
    words = [word for part, kind in _kinds(arguments).items() for word in (f"--{part}", kind)]
    words += ["--episodes", str(arguments.episodes)] if arguments.episodes is not None else []
    return (*words, *_own_settings(arguments))


def _kinds(arguments: argparse.Namespace) -> dict[str, str]:
    return {part: kind for part in flags.parts() if (kind := getattr(arguments, part)) is not None}


def _own_settings(arguments: argparse.Namespace) -> list[str]:
    """The words of the method's own flags, without its kinds."""
    known = flags.known_flags()
    pairs = [(flag, values) for flag, values in vars(arguments).items() if flag in known]
    return [word for flag, values in pairs for word in (flag, *values)]


def read(words: Sequence[str]) -> tuple[Campaign, argparse.Namespace]:
    """What the words after `musbo run` ask for, and all that they say; no help and no imports among them."""
    parser = argparse.ArgumentParser(prog="musbo run", allow_abbrev=False, add_help=False)
    add_arguments(parser)
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        raise UserError(flags.unknown_flag(unknown[0], flag_names(parser)))
    return campaign_of(arguments), arguments
