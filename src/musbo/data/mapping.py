"""What the columns of a log mean: which are observations, which actions, and what says where an episode ends.

A mapping is a small TOML file, or arguments from Python:

    obs = ["room", "walls", { column = "pressure_psi", scale = 6894.76 }]
    act = ["valve"]
    reward = "profit"
    episode = "day"
    time = "timestamp"

A name that is no column stands for the columns name_0, name_1, ... A file that needs no mapping has one of the LAYOUTS.
"""

import difflib
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.core.text import parse_toml, read_text

ALIGN = ("last", "mean", "next")
"""Which value an even step has."""
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
"""Seconds of the units of a time that is a number."""
GOOD = ("good", "ok", "true", "1", "192")
"""What a column of quality says of values that can be used; 192 is OPC's."""
SHOWN = 10
"""Names that an error message spells out."""


@dataclass(frozen=True)
class Column:
    """A column of a log, and the units that it is brought to: value * scale + offset.

    `unit` is that of the log. Where it is not the unit of the task, scale and offset have to convert it.
    Where the log is brought to even steps (`interval`): `align` says which value a step has, `hold` for how many
    seconds a value counts, and `quality` names the column that says whether it is good.
    """

    column: str
    scale: float = 1.0
    offset: float = 0.0
    align: str = "last"
    """The last value up to the step, the mean of those since the step before, or the next one in the step."""
    hold: float = math.inf
    quality: str | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if not self.column:
            raise UserError("a column needs a name, but one is empty.")
        if not (math.isfinite(self.scale) and math.isfinite(self.offset)) or self.scale == 0:
            raise UserError(f"column {self.column}: scale and offset must be finite, and scale not 0.")
        if self.align not in ALIGN:
            raise UserError(f"column {self.column}: align is one of {', '.join(ALIGN)}, not {self.align!r}.")
        if not self.hold > 0:
            raise UserError(f"column {self.column}: hold must be above 0, not {self.hold}.")


@dataclass(frozen=True)
class Mapping:
    """Names of the columns of a log by what they mean."""

    obs: tuple[Column, ...]
    """What the policy sees, in the order of the task."""
    act: tuple[Column, ...]
    """Actions as they were executed."""
    reward: Column | None = None
    """Of the action of its row. Not needed where the task has a formula."""
    next_obs: tuple[Column, ...] = ()
    """The observation after the action. Without it, that of the next row of the episode is taken."""
    terminated: str | None = None
    """Whether the world ended the episode in this row: true or false, 1 or 0."""
    truncated: str | None = None
    """Whether the episode was cut in this row. Without it, episodes are cut where they end."""
    episode: str | None = None
    """A number or a name that is the same in all rows of an episode."""
    time: str | None = None
    """Numbers or timestamps by which the rows of an episode are put in order."""
    step: str | None = None
    """Counts the rows of an episode from 0: rows that are missing are found. With `episode` it is their order."""
    gap: float | None = None
    """A longer pause begins a new episode, in seconds: numbers count as such unless time_unit says otherwise."""
    machine: str | None = None
    """The machine of a row, a number or a name: rows of different machines are of different episodes."""
    commanded: tuple[Column, ...] = ()
    """Actions as they were commanded, where act has those that were executed: they are compared."""
    by: str | None = None
    """Who chose the action: 0 the policy, -1 a limiter changed it, -2 the fallback, -3 a person, -4 unknown."""
    bundle: str | None = None
    """The id of the bundle that was at work, where the log says: see `Campaign.ingest`."""
    interval: float | None = None
    """Seconds of a step: the log is brought to even steps, and episodes are split where a value is missing."""
    quality: str | None = None
    """The column that says whether the values of its row are good; a column may have one of its own."""
    good: tuple[str, ...] = GOOD
    """What it says of good values."""
    time_unit: str = "s"
    """Of a time that is a number."""
    time_format: str | None = None
    """Of a time that is text other than ISO 8601, such as %d.%m.%Y %H:%M:%S."""
    source: str = "the mapping"
    """What errors call it."""

    def __post_init__(self) -> None:
        if not self.obs or not self.act:
            raise UserError(f"{self.source} must name at least one column in obs and one in act.")
        if self.next_obs and len(self.next_obs) != len(self.obs):
            raise UserError(
                f"{self.source} names {len(self.obs)} columns in obs and {len(self.next_obs)} in next_obs: name as "
                "many, or leave next_obs out."
            )
        if self.gap is not None and not self.gap > 0:
            raise UserError(f"{self.source}: gap must be above 0, not {self.gap}.")
        if self.gap is not None and self.time is None and self.gap != math.inf:
            raise UserError(f"{self.source} has a gap but no time: name the column of the time.")
        if self.commanded and len(self.commanded) != len(self.act):
            raise UserError(
                f"{self.source} names {len(self.act)} columns in act and {len(self.commanded)} in commanded: name as "
                "many, or leave commanded out."
            )
        self._check_times()
        if self.episode is self.terminated is self.truncated is self.gap is None:
            raise UserError(
                f"{self.source} does not say where episodes end: name a column as episode, terminated or truncated, or "
                "give time and gap; gap = inf means that the log is one episode."
            )

    def _check_times(self) -> None:
        if self.time_unit not in UNITS:
            raise UserError(f"{self.source}: time_unit is one of {', '.join(UNITS)}, not {self.time_unit!r}.")
        if self.interval is None:
            uneven = [*self.obs, *self.act, *self.commanded, *([self.reward] if self.reward else [])]
            odd = [one for one in uneven if (one.align, one.hold, one.quality) != ("last", math.inf, None)]
            if odd or self.quality:
                name = odd[0].column if odd else self.quality
                raise UserError(
                    f"{self.source}: align, hold and quality (column {name}) are for logs that are brought to even "
                    "steps: give interval, in seconds."
                )
            return
        if not 0 < self.interval < math.inf:
            raise UserError(f"{self.source}: interval must be a number of seconds above 0, not {self.interval}.")
        if self.time is None:
            raise UserError(f"{self.source} has an interval but no time: name the column of the time.")
        if self.next_obs or self.step:
            raise UserError(f"{self.source}: with an interval, the steps are made: leave next_obs and step out.")


ROLES = tuple(field.name for field in fields(Mapping) if field.name != "source")


def mapping(
    *,
    obs: str | Column | Sequence[str | Column],
    act: str | Column | Sequence[str | Column],
    reward: str | Column | None = None,
    next_obs: str | Column | Sequence[str | Column] = (),
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    time: str | None = None,
    step: str | None = None,
    gap: float | None = None,
    machine: str | None = None,
    commanded: str | Column | Sequence[str | Column] = (),
    by: str | None = None,
    bundle: str | None = None,
    interval: float | None = None,
    quality: str | None = None,
    good: Sequence[str] = GOOD,
    time_unit: str = "s",
    time_format: str | None = None,
    source: str = "the mapping",
) -> Mapping:
    """A Mapping from names."""
    return Mapping(
        _columns(obs), _columns(act), None if reward is None else _column(reward), _columns(next_obs),
        terminated, truncated, episode, time, step, gap, machine, _columns(commanded), by, bundle, interval, quality,
        tuple(good), time_unit, time_format, source,
    )  # fmt: skip


def _columns(given: str | Column | Sequence[str | Column]) -> tuple[Column, ...]:
    return (_column(given),) if isinstance(given, str | Column) else tuple(_column(one) for one in given)


def _column(given: str | Column) -> Column:
    return Column(given) if isinstance(given, str) else given


# As a file


def read_mapping(path: Path | str) -> Mapping:
    """The mapping in a TOML file."""
    try:
        text = read_text(given(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    return parse_mapping(parse_toml(text, str(path)), str(path))


def parse_mapping(said: dict[str, Any], source: str) -> Mapping:
    """The mapping in a table of TOML."""
    for key in said:
        if key not in ROLES:
            raise UserError(f"{source}: {key!r} means nothing in a mapping{_near(key, ROLES)}; it has {_list(ROLES)}.")
    if missing := [key for key in ("obs", "act") if not said.get(key)]:
        raise UserError(f'{source} lacks {" and ".join(missing)}: write, say, {missing[0]} = ["first", "second"].')
    roles: dict[str, Any] = {}
    for key, value in said.items():
        if key in ("obs", "act", "next_obs", "commanded"):
            items = value if isinstance(value, list) else [value]
            roles[key] = [_parse_column(item, f"{source}: {key}") for item in items]
        elif key == "reward":
            roles[key] = _parse_column(value, f"{source}: reward")
        elif key in ("gap", "interval"):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"{source}: {key} must be a number, not {str(value)[:100]!r}.")
            roles[key] = float(value)
        elif key == "good":
            items = value if isinstance(value, list) else [value]
            if not items or not all(isinstance(item, str | int) for item in items):
                raise UserError(f'{source}: good takes what the column of quality says, such as ["Good", 192].')
            roles[key] = [str(item).lower() for item in items]
        elif isinstance(value, str) and value:
            roles[key] = value
        else:
            raise UserError(f"{source}: {key} must be the name of a column in quotes, not {str(value)[:100]!r}.")
    return mapping(**roles, source=source)


def _parse_column(said: Any, where: str) -> Column:
    if isinstance(said, str):
        said = {"column": said}
    names = {field.name for field in fields(Column)}
    if not isinstance(said, dict) or not isinstance(said.get("column"), str) or set(said) - names:
        raise UserError(
            f'{where} takes names of columns in quotes, or {{ column = "name", scale = 1.0, offset = 0.0 }}, not '
            f"{str(said)[:100]}."
        )
    for key in ("align", "quality", "unit"):
        if not isinstance(said.get(key, ""), str):
            raise UserError(f"{where}: {key} of column {said['column']} must be in quotes, not {said[key]!r}.")
    for key in ("scale", "offset", "hold"):
        if isinstance(said.get(key, 1.0), bool) or not isinstance(said.get(key, 1.0), int | float):
            raise UserError(f"{where}: {key} of column {said['column']} must be a number, not {said[key]!r}.")
    numbers = {key: float(said[key]) for key in ("scale", "offset", "hold") if key in said}
    texts = {key: said[key] for key in ("align", "quality", "unit") if key in said}
    return Column(said["column"], **numbers, **texts)


# Files that need none

LAYOUTS = {
    "ours": {
        "obs": "obs", "act": "act", "reward": "reward", "next_obs": "next_obs", "terminated": "terminated",
        "truncated": "truncated", "episode": "episode", "step": "step", "by": "by", "bundle": "bundle",
    },
    "D4RL": {
        "obs": "observations", "act": "actions", "reward": "rewards", "next_obs": "next_observations",
        "terminated": "terminals", "truncated": "timeouts", "episode": "episodes", "by": "by",
    },
}  # fmt: skip
"""Names by which files are understood without a mapping. Only obs and act are needed."""
RECORDED = {"time": "time", "machine": "machine", "commanded": "commanded"}
"""More of those of a recording, whose `step` is the order of its rows: all of them, or none."""


def known_layout(names: Sequence[str], source: str) -> Mapping:
    """The mapping of a file that calls its columns as we do, or as D4RL does."""
    for roles in LAYOUTS.values():
        if not _has(names, roles["obs"]) and not _has(names, roles["act"]):
            continue
        found: dict[str, Any] = {role: name for role, name in roles.items() if _has(names, name)}
        if "step" in found and "episode" in found and all(_has(names, name) for name in RECORDED.values()):
            found |= RECORDED
        found = {role: f"{roles[role]}_0" for role in ("obs", "act")} | found  # to be named as missing
        return mapping(**found, source=source)
    raise UserError(
        f"{source} has the columns {_list(names)}, and musbo cannot tell what they mean: write a mapping and give it "
        f"with --mapping. `musbo mapping {source} > mapping.toml` prints one to fill in."
    )


def _has(names: Sequence[str], name: str) -> bool:
    return name in names or highest(names, name) is not None


def highest(names: Sequence[str], prefix: str) -> int | None:
    """The largest number i of a column prefix_i."""
    found = [re.fullmatch(re.escape(prefix) + r"_(\d{1,6})", name) for name in names if name.startswith(prefix)]
    return max((int(match[1]) for match in found if match), default=None)


# The columns of a file


@dataclass(frozen=True)
class Chosen:
    """The columns of one file that a mapping means."""

    obs: tuple[Column, ...]
    act: tuple[Column, ...]
    next_obs: tuple[Column, ...]
    reward: Column | None
    terminated: str | None
    truncated: str | None
    episode: str | None
    time: str | None
    step: str | None
    machine: str | None
    commanded: tuple[Column, ...]
    by: str | None
    bundle: str | None
    quality: str | None

    def names(self) -> list[str]:
        """Every column once."""
        lists = [*self.obs, *self.act, *self.next_obs, *self.commanded, *([self.reward] if self.reward else [])]
        single = (
            self.terminated,
            self.truncated,
            self.episode,
            self.time,
            self.step,
            self.machine,
            self.by,
            self.bundle,
            self.quality,
        )
        single = (*single, *(one.quality for one in lists))
        return list(dict.fromkeys([*(one.column for one in lists), *(one for one in single if one is not None)]))


def choose(mapping: Mapping, names: Sequence[str], source: str) -> Chosen:
    """What `mapping` means in a file with these columns; refused where one is missing, or there twice."""
    width = max(_width(mapping.obs, names), _width(mapping.next_obs, names))
    chosen = Chosen(
        obs=_expanded(mapping.obs, names, width),
        act=_expanded(mapping.act, names, 0),
        next_obs=_expanded(mapping.next_obs, names, width),
        reward=mapping.reward,
        terminated=mapping.terminated,
        truncated=mapping.truncated,
        episode=mapping.episode,
        time=mapping.time,
        step=mapping.step,
        machine=mapping.machine,
        commanded=_expanded(mapping.commanded, names, 0),
        by=mapping.by,
        bundle=mapping.bundle,
        quality=mapping.quality,
    )
    known = set(names)
    if missing := [name for name in chosen.names() if name not in known]:
        raise UserError(_missing(missing, mapping, names, source))
    counts = Counter(names)
    if twice := [name for name in chosen.names() if counts[name] > 1]:
        raise UserError(f"{source} has more than one column {twice[0]}: keep one.")
    return chosen


def _width(columns: tuple[Column, ...], names: Sequence[str]) -> int:
    """Columns that the highest number of a block asks for; 0 where there is no block."""
    if len(columns) != 1 or columns[0].column in names:
        return 0
    found = highest(names, columns[0].column)
    return 0 if found is None else found + 1


def _expanded(columns: tuple[Column, ...], names: Sequence[str], least: int) -> tuple[Column, ...]:
    """Every column by itself; a block that stands alone has at least `least`, so that what it lacks is named."""
    return tuple(each for one in columns for each in _block(one, names, least if len(columns) == 1 else 0))


def _block(one: Column, names: Sequence[str], least: int) -> list[Column]:
    width = max(_width((one,), names), least)
    if one.column in names or not width:
        return [one]
    return [replace(one, column=f"{one.column}_{i}") for i in range(width)]


def _missing(missing: list[str], mapping: Mapping, names: Sequence[str], source: str) -> str:
    if mapping.source == source:  # a layout: nobody wrote these names into a mapping
        return f"{source} lacks the columns {_list(missing)}: add them, one flat column for each number."
    name = missing[0]
    role = next((role for role in ROLES if name in _named(getattr(mapping, role))), "obs")
    more = f" ({len(missing) - 1} more are missing)" if len(missing) > 1 else ""
    return (
        f"{source} has no column {name!r}, which {mapping.source} names in {role}{_near(name, names)}{more}. Its "
        f"columns are {_list(names)}."
    )


def _named(value: Any) -> list[str]:
    values = value if isinstance(value, tuple) else (value,)
    return [one.column if isinstance(one, Column) else one for one in values]


def _near(name: str, names: Sequence[str]) -> str:
    lowered = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.5)
    return f" (did you mean {lowered[close[0]]!r}?)" if close else ""


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
