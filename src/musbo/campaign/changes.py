"""Settings of a method from Python, by the names that the command line has: `{"label.alpha": "auto", "updates": 50}`.

A part that comes in kinds is chosen by its name, `{"label": "trust"}`, or given as a value, `{"label": Trust()}`.
"""

import difflib
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from musbo.algorithms.method import Method
from musbo.campaign import flags
from musbo.core.errors import UserError
from musbo.core.fields import fits
from musbo.core.registry import word

M = TypeVar("M", bound=Method)
ARGUMENTS = ("task", "algo", "preset", "seed", "budget", "batch_size", "episodes", "data", "out")
"""Of `musbo.run` itself."""

WHOLE = ""
"""The rest of a name that names a setting itself, and nothing inside it."""


def changed(method: M, settings: Mapping[str, Any]) -> M:
    """`method` with these settings."""
    named = {_name(key): value for key, value in settings.items()}
    parts = dict(flags.parts_of(type(method)))
    kinds = {key: value for key, value in named.items() if key in parts}
    for key, value in kinds.items():
        if not isinstance(value, (str, *parts[key].values())):
            some = ", ".join(parts[key])
            raise UserError(f"{key} takes one of {some}, by its name or as a value, not {value!r}.")
        if isinstance(value, str) and value not in parts[key]:
            raise UserError(f"there is no {key} {value!r}: choose one of {', '.join(parts[key])}.")
    method = flags.with_kinds(method, {key: value for key, value in kinds.items() if isinstance(value, str)})
    method = flags.with_parts(method, {key: value for key, value in kinds.items() if not isinstance(value, str)})
    return _with(method, {key: value for key, value in named.items() if key not in kinds}, "", method)


def words(settings: Mapping[str, Any]) -> list[str]:
    """The same settings as words of a command line."""
    found: list[str] = []
    for key, value in settings.items():
        name = _name(key)
        if is_dataclass(value) and not isinstance(value, type):
            inner = [(f"{name}.{each}", own) for each, own in flags.flat(value)]
            found += [f"--{name}", word(value)]
        else:
            inner = [(name, value)]
        for each, own in inner:
            values = own if isinstance(own, tuple | list) else (own,)
            found += ["--" + each.replace("_", "-"), *map(str, values)]
    return found


def _name(key: str) -> str:
    return key.replace("-", "_")


def _with(settings: Any, changes: Mapping[str, Any], prefix: str, method: Method) -> Any:
    """All changes of one dataclass at once: some are sound together only."""
    heads: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        heads.setdefault(head, {})[rest] = value
    hints, now = get_type_hints(type(settings)), {}
    for head, inner in heads.items():
        known = head in {field.name for field in fields(settings)}
        part = getattr(settings, head) if known else None
        if not known or (WHOLE in inner) == is_dataclass(part):
            rest = next(iter(inner))
            raise UserError(_unknown(f"{prefix}{head}" + (f".{rest}" if rest else ""), method))
        if is_dataclass(part):
            now[head] = _with(part, inner, f"{prefix}{head}.", method)
        else:
            now[head] = _fitting(f"{prefix}{head}", inner[WHOLE], hints[head])
    return replace(settings, **now)


def _fitting(name: str, value: Any, hint: Any) -> Any:
    """`value` as the setting has it: tuples for lists, floats for whole numbers, and numbers of numpy as plain ones."""
    found = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
    found = tuple(found) if isinstance(found, list) else found
    takes = get_args(hint) or (hint,)
    if isinstance(found, int) and not isinstance(found, bool) and float in takes and int not in takes:
        found = float(found)
    if not fits(found, hint):
        raise UserError(f"{name} takes {_described(hint)}, not {value!r}.")
    return found


def _described(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_described, inner))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple:
        return f"a tuple of {_described(inner[0])}"
    return "None" if hint is types.NoneType else getattr(hint, "__name__", str(hint))


def _unknown(name: str, method: Method) -> str:
    """The sentence for a setting that the method does not have."""
    if name in ARGUMENTS:
        return f"{name} is no setting of the method but an argument of its own: musbo.run(..., {name}=...)."
    own = [each for each, _ in flags.flat(method)]
    part, _, rest = name.rpartition(".")
    others = flags.parts().get(part, {})
    kinds = [kind for kind, cls in others.items() if rest and rest in {field.name for field in fields(cls)}]
    if kinds and flags.has(method, part):
        here = word(flags.part(method, part))
        return f"{name} is a setting of {part} {' or '.join(kinds)}, but here {part} is {here}."
    last = name.rpartition(".")[2]
    close = [each for each in own if each.rpartition(".")[2] == last]
    close = close or difflib.get_close_matches(name, own, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else "`musbo run --algo NAME --help-all` lists what it has."
    return f"{word(method)} has no setting {name!r}: {hint}"
