"""Settings of a method from words on a command line: one flag per field of the dataclasses, made by tyro.

A part that comes in kinds (how imagination is judged, where optimisation starts, ...) is chosen by a flag of its own,
`--label trust`, and has the settings of its kind below it, `--label.alpha 0.1`. So the flags depend on the method, and
the method on flags; `known_flags` therefore lists the flags of every kind of every method.
"""

import difflib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import tyro

from musbo.algorithms.method import Method
from musbo.algorithms.recipes import METHODS
from musbo.core.errors import UserError

M = TypeVar("M", bound=Method)
CONFIG = (tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff)


def _word(cls: type) -> str:
    """BestImagined -> best_imagined, SmallMLP -> small_mlp."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


def _parts(cls: type) -> Iterator[tuple[str, tuple[type, ...]]]:
    for name, hint in get_type_hints(cls).items():
        if get_args(hint) and all(is_dataclass(kind) for kind in get_args(hint)):
            yield name, get_args(hint)


PARTS: dict[str, dict[str, type]] = {}
"""The parts that come in kinds, and their kinds by name."""
for _cls in METHODS:
    for _name, _kinds in _parts(_cls):
        PARTS.setdefault(_name, {}).update({_word(kind): kind for kind in _kinds})


def known_flags() -> dict[str, bool]:
    """Every flag that some method has, and whether it takes more than one word."""
    return {flag: several for cls in METHODS for flag, several in _flags(cls, "")}


def _flags(cls: Any, prefix: str) -> Iterator[tuple[str, bool]]:
    for name, hint in get_type_hints(cls).items():
        if name not in {field.name for field in fields(cls)}:
            continue
        flag = f"{prefix}{name}".replace("_", "-")
        kinds = [kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)]
        for kind in kinds:
            yield from _flags(kind, f"{flag}.")
        if not kinds:
            yield f"--{flag}", get_origin(hint) is tuple


def with_kinds(method: M, kinds: dict[str, str]) -> M:
    """The method with parts of these kinds; a part that is of its kind already keeps its settings."""
    own = dict(_parts(type(method)))
    for part, kind in kinds.items():
        if PARTS[part][kind] not in own.get(part, ()):
            raise UserError(f"this method has no --{part} {kind}: `musbo run --algo NAME --help` lists what it has.")
    changed = {part: PARTS[part][kind] for part, kind in kinds.items()}
    return replace(
        method,
        **{part: kind() for part, kind in changed.items() if not isinstance(getattr(method, part), kind)},
    )


def parse(method: M, words: Sequence[str]) -> M:
    """`method` with the settings that `words` change. A word that tyro cannot read ends the program with 2."""
    own = dict(_own_flags(method))
    for flag in (word for word in words if word.startswith("--")):
        if flag not in own:
            raise UserError(_misplaced(method, flag))
    return tyro.cli(type(method), default=method, args=list(words), prog="musbo run", config=CONFIG)


def difference(method: Method, base: Method) -> list[str]:
    """The words that turn `base` into `method`: kinds first, then the settings that differ."""
    kinds = {name: _word(type(getattr(method, name))) for name, _ in _parts(type(method))}
    changed = {name: kind for name, kind in kinds.items() if _word(type(getattr(base, name))) != kind}
    near = dict(flat(with_kinds(base, changed)))
    words = [word for name, kind in changed.items() for word in (f"--{name}", kind)]
    for name, value in flat(method):
        if value != near[name]:
            values = value if isinstance(value, tuple) else (value,)
            words += ["--" + name.replace("_", "-"), *map(str, values)]
    return words


def flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting by its dotted name; of a part that comes in kinds, its kind too."""
    parts = dict(_parts(type(settings)))
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in parts:
            yield prefix + field.name, _word(type(value))
        if is_dataclass(value):
            yield from flat(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def _misplaced(method: Method, flag: str) -> str:
    """The sentence for a flag of another kind or of another method."""
    part = flag[2:].partition(".")[0].replace("-", "_")
    others = [word for word, cls in PARTS.get(part, {}).items() if flag in _of(cls, part)]
    if not others or not hasattr(method, part):
        return f"{flag} is a setting of another method: `musbo run --algo NAME --help` lists what a method has."
    kind = _word(type(getattr(method, part)))
    return f"{flag} is a setting of --{part} {' or '.join(others)}, but here {part} is {kind}."


def _of(cls: type, part: str) -> set[str]:
    return {flag for flag, _ in _flags(cls, f"{part}.")}


def _own_flags(method: Any) -> Iterator[tuple[str, bool]]:
    for name in (field.name for field in fields(method)):
        value = getattr(method, name)
        flag = name.replace("_", "-")
        if is_dataclass(value):
            yield from _flags(type(value), f"{flag}.")
        else:
            yield f"--{flag}", False


def help_text(method: Method) -> str:
    """The settings of `method` with their values as defaults."""
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):  # tyro leaves when it has printed its help
        tyro.cli(type(method), default=method, args=["--help"], prog="musbo run", config=CONFIG)
    _, _, boxes = text.getvalue().partition("\n\n")
    return boxes.partition("\n\n")[2]


def unknown_flag(word: str, known: Iterable[str]) -> str:
    """The sentence for a word that means nothing here, with what was probably meant."""
    flag, known = word.partition("=")[0], list(known)
    last = flag.lstrip("-").rpartition(".")[2]
    close = [name for name in known if name.lstrip("-").rpartition(".")[2] == last]
    close = close or difflib.get_close_matches(flag, known, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    kind = "flag" if flag.startswith("-") else "word"
    return f"the {kind} {flag} means nothing here.{hint} `musbo run --help` lists every flag."
