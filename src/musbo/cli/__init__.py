"""The command line: `musbo VERB ...`.

Every file of this package whose name does not begin with an underscore is a verb; nothing lists them. A verb is a
module in one shape, `Verb`: its arguments and its action stand together. It imports what is slow (JAX, rich, pyarrow,
...) inside its functions, so that help is instant.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from musbo import __version__
from musbo.cli import _imports, _output
from musbo.cli._common import INTERRUPTED as INTERRUPTED
from musbo.core.errors import UserError
from musbo.core.interrupt import noting

ABOUT = "Reinforcement learning with few deployments: collect a batch, train in imagination, repeat."
EXAMPLES = """
  musbo run                                  the default task, pendulum, in a minute or two
  musbo run halfcheetah --seed 1             a task of the paper
  musbo run my_task.py:TASK --preset quick   a task of your own
  musbo resume runs/pendulum-musbo-quick-s0  go on after Ctrl-C or a crash
  musbo run --help-all                       every setting of the method
"""


@runtime_checkable
class Verb(Protocol):
    """What a file of a verb has.

    It may also have `details(arguments, every) -> str`, which its help ends with: `every` is true for `--help-all`.
    """

    ORDER: int
    """Its place in `musbo --help`."""
    HELP: str
    """What it does, as one sentence."""
    EXAMPLES: str
    """Commands, one a line, each with a word about it."""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments; `--help` and `--import` are there already."""
        ...

    def action(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for what the user can fix, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):  # names of files and texts from elsewhere need not be whole characters
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with noting():
            found = verbs()
            name = _parser(found).parse_args(words[:1]).verb
            return _call(name, found[name], words[1:])
    except UserError as error:
        print(f"musbo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("musbo: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more to flush at exit
        return 1
    except SystemExit as left:  # argparse and tyro leave when they have shown help or said what is wrong
        if not isinstance(left.code, int):
            raise
        return left.code


def verbs() -> dict[str, Verb]:
    """The verbs by name, in the order of the help."""
    # Not pkgutil: it imports `inspect`, and help would take a third longer.
    names = {file.stem for folder in __path__ for file in Path(folder).glob("[!_]*.py")}
    found = {name.replace("_", "-"): cast(Verb, import_module(f"{__name__}.{name}")) for name in names}
    return dict(sorted(found.items(), key=lambda item: (item[1].ORDER, item[0])))


def _parser(found: dict[str, Verb]) -> argparse.ArgumentParser:
    """For the first word alone: a verb, `--help` or `--version`."""
    parser = _plain_parser("musbo", ABOUT, EXAMPLES)
    parser.add_argument("--version", action="version", version=f"musbo {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="verb", required=True)
    for name, verb in found.items():
        commands.add_parser(name, help=verb.HELP[0].lower() + verb.HELP[1:].rstrip("."), add_help=False)
    return parser


def parser_of(name: str, verb: Verb) -> argparse.ArgumentParser:
    """For the words after a verb."""
    parser = _plain_parser(f"musbo {name}", verb.HELP, verb.EXAMPLES)
    if hasattr(verb, "details"):
        parser.add_argument("--help-all", action="help", help="every setting of the method too, and what it does")
    _imports.add_option(parser)
    verb.arguments(parser)
    return parser


def _plain_parser(name: str, about: str, examples: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=name,
        description=about,
        epilog="examples:\n" + examples.strip("\n"),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=22),
        allow_abbrev=False,
    )


def _call(name: str, verb: Verb, words: list[str]) -> int:
    _imports.bring(f"musbo {name}", words)  # first: what is imported may bring flags and their values
    parser = parser_of(name, verb)
    others = [word for word in words if word not in ("-h", "--help", "--help-all")]
    details = getattr(verb, "details", None)
    if details and len(others) < len(words):  # they may depend on words that come after `--help`
        known = parser.parse_known_args(others)[0]
        parser.epilog = f"{parser.epilog}\n\n{details(known, '--help-all' in words)}"
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        from musbo.campaign import command, flags

        sentence = flags.unknown_flag(unknown[0], command.flag_names(parser))
        raise UserError(sentence.replace("musbo run", f"musbo {name}"))
    if getattr(arguments, "json", False):
        with _output.reserved():
            return verb.action(arguments)
    return verb.action(arguments)
