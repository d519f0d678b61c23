"""`--import MODULE`: Python of the user's own, imported before the other words are read.

It is how a method or a part of one's own gets its name and its flags. Only these words choose what is imported, never
a file that is read: so the option is given again to resume a run, and a study hands it to every run.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

NAMED = "--import takes package.module or path/to/file.py"


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="MODULE",
        help="import package.module or path/to/file.py first, with methods or parts of your own; may be repeated",
    )  # fmt: skip


def bring(prog: str, words: Sequence[str]) -> None:
    """Import what `--import` names among the words of a verb."""
    parser = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    add_option(parser)
    places = parser.parse_known_args(words)[0].imports
    if not places:
        return
    from musbo.tasks import modules

    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # at the end: a file of the same name does not replace what is installed
    for place in places:
        modules.load(place, NAMED)


def handed_on(places: Sequence[str]) -> list[str]:
    """For another process: files by their absolute paths."""
    from musbo.tasks import modules

    return [str(Path(place).resolve()) if modules.is_file(place) else place for place in places]


def again(verb: str, arguments: argparse.Namespace, *words: object) -> str:
    """The command that a message proposes, with the imports of this one."""
    import shlex

    brought = [word for place in arguments.imports for word in ("--import", place)]
    return shlex.join(["musbo", verb, *map(str, words), *brought])
