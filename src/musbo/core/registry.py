"""Stable names of what is stored, independent of where a class lives in the source tree.

A class that goes into a file has a short public name and a version:

    @stored("label/disagreement")
    @dataclass(frozen=True)
    class Disagreement: ...

The part before the slash is the kind of the thing. Kinds of settings (`label`, `start`, `explore`, ...) are also what a
user chooses from: `--label disagreement`. A module can move and a class can be renamed without touching a file that
exists. A field that is added has a default, or the version goes up and `upgrades` says how older fields are read:

    @stored("label/disagreement", version=2, upgrades={1: lambda fields: {**fields, "pairs": "batch"}})

The names of files written before there was a registry were class paths; `former_names` has them as aliases.

Classes register when their module is imported. `load` imports every module of musbo that may hold one, and what other
packages announce with the entry point group `musbo`. A name that a file holds is looked up here and never imported.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, TypeVar

from musbo.core.errors import UserError
from musbo.core.former_names import FORMER_NAMES

T = TypeVar("T", bound=type)
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Fields as one version wrote them to fields as the next one has them."""

GROUP = "musbo"
"""The entry point group by which another package announces modules that register something."""
_PACKAGES = (
    "musbo.data",
    "musbo.models",
    "musbo.learning",
    "musbo.gate",
    "musbo.algorithms",
    "musbo.campaign",
    "musbo.cluster",
)
_NAME = re.compile(r"[a-z][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)?")


@dataclass(frozen=True)
class Entry:
    """A class that can be stored."""

    name: str
    version: int
    cls: type
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    """By the version that they read."""


_by_name: dict[str, Entry] = {}
_by_class: dict[type, Entry] = {}
_loaded = False


def stored(name: str, version: int = 1, upgrades: Mapping[int, Upgrade] | None = None) -> Callable[[T], T]:
    """Give a class the name and version under which it is stored in files."""

    def decorate(cls: T) -> T:
        register(cls, name, version, upgrades)
        return cls

    return decorate


def register(cls: type, name: str, version: int = 1, upgrades: Mapping[int, Upgrade] | None = None) -> None:
    """`stored` for a class that somebody else defines, such as the state of an optimiser."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot be the name of a stored class: use lower case, as in label/disagreement.")
    if missing := [v for v in range(1, version) if v not in (upgrades or {})]:
        raise UserError(f"{name} version {version} needs an upgrade from version {missing[0]}.")
    before = _by_name.get(name)
    # The same class may come again, when its module is loaded a second time.
    if before is not None and (before.cls.__module__, before.cls.__qualname__) != (cls.__module__, cls.__qualname__):
        raise UserError(
            f"the name {name!r} of {_place(cls)} is taken by {_place(before.cls)}: choose another name for one of them."
        )
    _by_name[name] = _by_class[cls] = Entry(name, version, cls, dict(upgrades or {}))


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def entry_of(cls: type) -> Entry | None:
    """The entry of a class; None where it has no name."""
    return _by_class.get(cls)


def find(name: str) -> Entry | None:
    """The entry of a name, of today or of old."""
    name = FORMER_NAMES.get(name, name)
    if name not in _by_name:
        load()
    return _by_name.get(name)


def kinds(kind: str) -> dict[str, type]:
    """Everything that is stored as `kind/...`, by the rest of its name, in the order of registration."""
    load()
    return {name.partition("/")[2]: entry.cls for name, entry in _by_name.items() if name.startswith(f"{kind}/")}


def word(value: Any) -> str:
    """The name of a part without its kind: `disagreement` of a `label/disagreement`."""
    found = entry_of(type(value))
    if found is None:
        raise UserError(f"{_place(type(value))} has no name: give it one with @stored('kind/name').")
    return found.name.partition("/")[2]


def load() -> None:
    """Import everything that may register a class, once."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    for package in _PACKAGES:
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if not module.name.rpartition(".")[2].startswith("__"):
                importlib.import_module(module.name)
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # whatever another package raises must not end every command in a traceback
            raise UserError(
                f"the package {point.dist.name if point.dist else point.value} announces {point.value!r} to musbo, and "
                f"importing that failed ({type(error).__name__}: {error}): fix or uninstall the package."
            ) from error
