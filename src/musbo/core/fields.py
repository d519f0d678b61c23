"""Whether what was read has the types that its class says: a file may say anything, and Python does not ask."""

import types
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def misfit(value: Any) -> str | None:
    """The first field of `value` that holds something else than its class says, at any depth; None where all fit.

    Only classes of musbo are asked: what others write into theirs is their own affair.
    """
    return next((name for name, hint in _hints(type(value)).items() if not fits(getattr(value, name), hint)), None)


def fits(value: Any, hint: Any) -> bool:
    """Whether `value` is what `hint` says; a hint that means nothing here fits everything."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        each = inner[:1] * len(value) if isinstance(value, tuple) and inner[1:] == (...,) else inner
        return isinstance(value, tuple) and len(value) == len(each) and all(map(fits, value, each))
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if hint in (int, float):  # a whole number does for a float, and True for neither
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if getattr(hint, "_is_protocol", False):
        return is_dataclass(value) and misfit(value) is None
    if isinstance(hint, type) and is_dataclass(hint):
        return isinstance(value, hint) and misfit(value) is None
    return isinstance(value, hint) if hint in (str, bool, types.NoneType) else True


@cache
def _hints(cls: type) -> dict[str, Any]:
    if not is_dataclass(cls) or not cls.__module__.startswith("musbo."):
        return {}
    found = get_type_hints(cls)
    return {field.name: found[field.name] for field in fields(cls)}
