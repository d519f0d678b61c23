"""Settings of a method from words on a command line: one flag per field of the dataclasses, made by tyro.

A part that comes in kinds (how imagination is judged, where optimisation starts, ...) is chosen by a flag of its own,
`--label trust`, and has the settings of its kind below it, `--label.alpha 0.1`. So the flags depend on the method, and
the method on flags; `known_flags` therefore lists the flags of every kind of every method.
"""

import difflib
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import tyro

from musbo.algorithms.method import Method
from musbo.core.errors import UserError
from musbo.core.registry import kinds, word

M = TypeVar("M", bound=Method)
CONFIG = (tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff)


def parts_of(cls: type) -> Iterator[tuple[str, dict[str, type]]]:
    """The fields that come in kinds: their type is a protocol, and the kinds are what is stored as `field/...`.

    Of a method that is made of methods, those of its parts have dotted names: `first.label`.
    """
    for name, hint in get_type_hints(cls).items():
        if getattr(hint, "_is_protocol", False) and hint is not Method:  # a campaign's method is no part of a method
            yield name, {word: kind for word, kind in kinds(name).items() if issubclass(kind, hint)}
        elif hint in methods():
            yield from ((f"{name}.{part}", own) for part, own in parts_of(hint))


def part(method: Any, name: str) -> Any:
    """The part of this dotted name."""
    return reduce(getattr, name.split("."), method)


def has(method: Any, name: str) -> bool:
    """Whether the method has a part of this dotted name."""
    return name in dict(parts_of(type(method)))


def with_parts(method: M, values: Mapping[str, Any]) -> M:
    """The method with other parts, by their dotted names."""
    for name, value in values.items():
        head, _, rest = name.partition(".")
        method = replace(method, **{head: with_parts(getattr(method, head), {rest: value}) if rest else value})
    return method


def methods() -> tuple[type, ...]:
    """The classes of all methods."""
    return tuple(kinds("method").values())


def parts() -> dict[str, dict[str, type]]:
    """The parts that come in kinds, and their kinds by name."""
    found: dict[str, dict[str, type]] = {}
    for cls in methods():
        for name, own in parts_of(cls):
            found.setdefault(name, {}).update(own)
    for name, own in found.items():
        if unfit := sorted(set(kinds(name)) - set(own)):
            raise UserError(
                f"{name}/{unfit[0]} is registered and lacks a method that every {name} has: compare it with "
                f"{name}/{next(iter(own))}, and add what is missing."
            )
    return found


def known_flags() -> dict[str, bool]:
    """Every flag that some method has, and whether it takes more than one word."""
    return {flag: several for cls in methods() for flag, several in _flags(cls, "")}


def _flags(cls: Any, prefix: str) -> Iterator[tuple[str, bool]]:
    own = dict(parts_of(cls))
    for name, hint in get_type_hints(cls).items():
        if name not in {field.name for field in fields(cls)}:
            continue
        flag = f"{prefix}{name}".replace("_", "-")
        found = own[name].values() if name in own else [k for k in (hint, *get_args(hint)) if is_dataclass(k)]
        for kind in found:
            yield from _flags(kind, f"{flag}.")
        if not found:
            yield f"--{flag}", get_origin(hint) is tuple


def with_kinds(method: M, chosen: dict[str, str]) -> M:
    """The method with parts of these kinds; a part that is of its kind already keeps its settings."""
    own = dict(parts_of(type(method)))
    for name, kind in chosen.items():
        if kind not in own.get(name, {}):
            raise UserError(
                f"this method has no --{name} {kind}: `musbo run --algo NAME --help-all` lists what it has."
            )
    changed = {name: kind for name, kind in chosen.items() if word(part(method, name)) != kind}
    return with_parts(method, {name: own[name][kind]() for name, kind in changed.items()})


def parse(method: M, words: Sequence[str]) -> M:
    """`method` with the settings that `words` change. A word that tyro cannot read ends the program with 2."""
    own = dict(_own_flags(method))
    for flag in (each for each in words if each.startswith("--")):
        if flag not in own:
            raise UserError(_misplaced(method, flag))
    return tyro.cli(type(method), default=method, args=list(words), prog="musbo run", config=CONFIG)


def difference(method: Method, base: Method) -> list[str]:
    """The words that turn `base` into `method`: kinds first, then the settings that differ."""
    own = {name: word(part(method, name)) for name, _ in parts_of(type(method))}
    changed = {name: kind for name, kind in own.items() if word(part(base, name)) != kind}
    near = dict(flat(with_kinds(base, changed)))
    words = [each for name, kind in changed.items() for each in (f"--{name}", kind)]
    for name, value in flat(method):
        if value != near[name]:
            values = value if isinstance(value, tuple) else (value,)
            words += ["--" + name.replace("_", "-"), *map(str, values)]
    return words


def flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting by its dotted name; of a part that comes in kinds, its kind too."""
    parts = dict(parts_of(type(settings)))
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in parts:
            yield prefix + field.name, word(value)
        if is_dataclass(value):
            yield from flat(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What differs between two sets of settings by name, as `--name (this and that)`."""
    both = {name: (one.get(name, "-"), other.get(name, "-")) for name in {**one, **other}}
    shown = {name.replace("_", "-"): pair for name, pair in both.items() if pair[0] != pair[1]}
    return [f"{name} ({before} and {now})" for name, (before, now) in shown.items()]


def some(texts: Sequence[str], most: int = 3) -> str:
    """The first of `texts`, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _misplaced(method: Method, flag: str) -> str:
    """The sentence for a flag of another kind or of another method."""
    named = flag[2:].rpartition(".")[0].replace("-", "_")
    others = [name for name, cls in parts().get(named, {}).items() if flag in _of(cls, named)]
    if not others or not has(method, named):
        return f"{flag} is a setting of another method: `musbo run --algo NAME --help-all` lists what a method has."
    kind = word(part(method, named))
    return f"{flag} is a setting of --{named} {' or '.join(others)}, but here {named} is {kind}."


def _of(cls: type, name: str) -> set[str]:
    return {flag for flag, _ in _flags(cls, f"{name}.")}


def _own_flags(method: Any, prefix: str = "") -> Iterator[tuple[str, bool]]:
    for name in (field.name for field in fields(method)):
        value = getattr(method, name)
        flag = prefix + name.replace("_", "-")
        if type(value) in methods():
            yield from _own_flags(value, f"{flag}.")
        elif is_dataclass(value):
            yield from _flags(type(value), f"{flag}.")
        else:
            yield f"--{flag}", False


def help_text(method: Method) -> str:
    """The settings of `method` with their values as defaults."""
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):  # tyro leaves when it has printed its help
        tyro.cli(type(method), default=method, args=["--help"], prog="musbo run", config=CONFIG)
    _, _, boxes = text.getvalue().partition("\n\n")
    return _HELP_OF_HELP.sub("", boxes.partition("\n\n")[2])


# What tyro says of a flag that is no setting, with the head of its box where nothing else is in that.
_HELP_OF_HELP = re.compile(
    r"(^ options *\n -+ *\n)?^ *-h, --help\s+show this help message and exit *\n(?(1) *\n)"
    r"|^ *-h, --help\s+show this help message and exit *\n",
    re.MULTILINE,
)


def overview(method: Method, width: int = 80) -> str:
    """The settings of `method` with their values, a few lines for each part."""
    kinds = {name: f"({word(part(method, name))}) " for name, _ in parts_of(type(method))}
    found: dict[str, list[str]] = {name: [] for name in kinds}
    for name, value in flat(method):
        of, _, own = name.rpartition(".")
        shown = value if isinstance(value, tuple) else (value,)
        if name not in kinds:
            found.setdefault(of, []).append("\0".join((own.replace("_", "-"), *map(str, shown))))  # not to be broken
    lines = []
    for of, texts in found.items():
        head = f"--{of.replace('_', '-')}" + ("." if of and texts else "")
        lines += textwrap.wrap(
            kinds.get(of, "") + ", ".join(texts), width, initial_indent=f"  {head:<14}", subsequent_indent=" " * 16,
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip
    return "".join(f"{line}\n" for line in lines).replace("\0", " ")


def unknown_flag(word: str, known: Iterable[str]) -> str:
    """The sentence for a word that means nothing here, with what was probably meant."""
    flag, known = word.partition("=")[0], list(known)
    last = flag.lstrip("-").rpartition(".")[2]
    close = [name for name in known if name.lstrip("-").rpartition(".")[2] == last]
    shortest = min(
        (name.count(".") for name in close), default=0
    )  # of a method that is made of methods: not its parts'
    close = [name for name in close if name.count(".") == shortest] or difflib.get_close_matches(
        flag, known, n=3, cutoff=0.6
    )
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    kind = "flag" if flag.startswith("-") else "word"
    return f"the {kind} {flag} means nothing here.{hint} `musbo run --help` lists every flag."
