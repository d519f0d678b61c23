"""A task as a TOML file: what is known about a plant, without a simulator.

Where reward and ends are learned, there is no code at all:

    name = "boiler"
    interval = 5.0                 # seconds between two actions
    history = 4                    # past observations and actions that the policy sees; may be left out
    episode_steps = 288
    reward = "learned"             # or "reward.py:reward", a function in a file beside this one
    terminated = "never"           # or "learned", or a function

    [[observation]]
    name = "temperature"
    unit = "°C"
    low = 0
    high = 200

    [[action]]
    name = "valve"
    unit = "%"
    low = 0
    high = 100
    change = 5                     # the largest change from one step to the next

Reading it runs nothing. The Python that it may name is loaded only where the user has named the file.
"""

import difflib
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.core.text import parse_toml, read_text
from musbo.tasks import modules
from musbo.tasks.task import Task

ENDING = ".toml"
MOST = 2000
"""Observations or actions of a task."""
LONGEST_EPISODE = 100_000_000
LONGEST_HISTORY = 1000
KEYS = ("name", "interval", "history", "episode_steps", "reward", "terminated", "observation", "action")
OF_OBSERVATION = ("name", "unit", "low", "high")
OF_ACTION = ("name", "unit", "low", "high", "change")
REWARD = 'write "learned", or a function in a file beside this one: "reward.py:reward"'
ENDS = 'write "never", "learned", or a function in a file beside this one: "reward.py:over"'


def is_toml(name: str) -> bool:
    """Whether a task is named as a TOML file."""
    return name.endswith(ENDING)


@dataclass(frozen=True)
class Declared:
    """What a file says, checked; functions are still names."""

    path: Path
    name: str
    interval: float | None
    history: int
    episode_steps: int
    reward: str
    terminated: str
    observations: tuple[dict[str, Any], ...]
    actions: tuple[dict[str, Any], ...]

    @property
    def python(self) -> tuple[str, ...]:
        """The functions that it names."""
        return tuple(word for word in (self.reward, self.terminated) if ":" in word)


def toml_task(name: str, trusted: bool) -> Task:
    """The task in a file; refused where it names Python and the user has not said that it may be run."""
    said = read_declared(name)
    if not trusted:
        require_no_python(name, said)
    ranges = [column for column in said.observations if column["low"] is not None]
    return Task(
        name=said.name,
        obs_size=len(said.observations),
        act_size=len(said.actions),
        act_low=tuple(column["low"] for column in said.actions),
        act_high=tuple(column["high"] for column in said.actions),
        episode_steps=said.episode_steps,
        reward="learned" if said.reward == "learned" else _function(said, said.reward, "reward"),
        terminated=None
        if said.terminated == "never"
        else "learned"
        if said.terminated == "learned"
        else _function(said, said.terminated, "terminated"),
        obs_names=tuple(column["name"] for column in said.observations),
        obs_units=tuple(column["unit"] for column in said.observations),
        act_names=tuple(column["name"] for column in said.actions),
        act_units=tuple(column["unit"] for column in said.actions),
        interval=said.interval,
        history=said.history,
        obs_low=tuple(column["low"] for column in ranges),
        obs_high=tuple(column["high"] for column in ranges),
        act_change=tuple(column["change"] for column in said.actions)
        if any(column["change"] is not None for column in said.actions)
        else (),
    )


def require_no_python(name: str, said: Declared) -> None:
    """Refuse a file that names Python, for a user who has not said that it may be run."""
    if said.python:
        raise UserError(
            f"the task {name} names Python code, {said.python[0]}, which is not run without your word: look at it, "
            "then add --trust-task, or name the task with --task (from Python: trust_task=True or task=...)."
        )


def toml_digest(name: str) -> str | None:
    """SHA-256 of the file and of the Python that it names; None where one of them is not there."""
    path = given(name)
    if not path.is_file():
        return None
    found = hashlib.sha256(path.read_bytes())
    for word in read_declared(name).python:
        place = path.parent / word.rpartition(":")[0]
        if not place.is_file():
            return None
        found.update(place.read_bytes())
    return found.hexdigest()


def toml_files(name: str) -> dict[str, bytes]:
    """The file and the Python that it names, by the names that they have in one folder."""
    said = read_declared(name)
    found = {said.path.name: said.path.read_bytes()}
    for word in said.python:
        place = word.rpartition(":")[0]
        if Path(place).name != place:
            raise UserError(f"{said.path} names {place}: put it into the same folder, with which it is copied.")
        found[place] = (said.path.parent / place).read_bytes()
    return found


def _function(said: Declared, word: str, key: str) -> Any:
    place, _, attribute = word.rpartition(":")
    module = modules.load(str(said.path.parent / place), f"{key} in {said.path} names it")
    function = getattr(module, attribute, None)
    if not callable(function) or isinstance(function, type):
        raise UserError(f"{said.path}: {key}: {place} has no function {attribute!r}; correct the name.")
    return function


def read_declared(name: str) -> Declared:
    """What a file says. Nothing is imported."""
    path = given(name)
    if not path.is_file():
        raise UserError(f"There is no file {path}: a task without code is a TOML file; check the path.")
    try:
        text = read_text(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; check the path.") from error
    return _declared(parse_toml(text, str(path)), _Place(path, text))


@dataclass(frozen=True)
class _Place:
    """Where in a file something stands, for errors."""

    path: Path
    text: str
    table: str = ""
    index: int = -1

    def refuse(self, key: str, what: str) -> UserError:
        where = f"{self.table} {self.index + 1}: " if self.table else ""
        line = self._line(key)
        return UserError(f"{self.path}{f', line {line}' if line else ''}: {where}{what}")

    def _line(self, key: str) -> int | None:
        """The line of a key, where the file is written one key to a line."""
        counts: dict[str, int] = {}
        table, index = "", -1
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\s*\[\[?\s*([\w-]+)\s*\]\]?", line):
                table = header[1]
                index = counts[table] = counts.get(table, -1) + 1
                if not self.table and table == key:
                    return number
                if not key and (table, index) == (self.table, self.index):
                    return number
            elif (table, index) == (self.table, self.index) and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
                return number
        return None


def _declared(said: dict[str, Any], place: _Place) -> Declared:
    _require_known(said, KEYS, place)
    for key, example in (
        ("name", 'name = "boiler"'),
        ("episode_steps", "episode_steps = 288"),
        ("reward", 'reward = "learned"'),
        ("terminated", 'terminated = "never"'),
        ("observation", "a table [[observation]] with a name for each"),
        ("action", "a table [[action]] with name, low and high for each"),
    ):
        if key not in said:
            raise UserError(f"{place.path} lacks {key}: write {example}.")
    steps = said["episode_steps"]
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= LONGEST_EPISODE:
        raise place.refuse(
            "episode_steps", f"episode_steps is a whole number from 1 to {LONGEST_EPISODE:,}, not {_short(steps)}."
        )
    interval = None
    if "interval" in said:
        interval = _number(said, "interval", place)
        if not interval > 0:
            raise place.refuse("interval", "interval is in seconds and above 0.")
    history = said.get("history", 0)
    if isinstance(history, bool) or not isinstance(history, int) or not 0 <= history <= LONGEST_HISTORY:
        raise place.refuse(
            "history", f"history is a count of past steps from 0 to {LONGEST_HISTORY:,}, not {_short(history)}."
        )
    return Declared(
        place.path,
        _text(said, "name", place),
        interval,
        history,
        steps,
        _rule(said, "reward", ("learned",), REWARD, place),
        _rule(said, "terminated", ("never", "learned"), ENDS, place),
        _columns(said, "observation", OF_OBSERVATION, place),
        _columns(said, "action", OF_ACTION, place),
    )


def _columns(said: dict[str, Any], key: str, known: Sequence[str], place: _Place) -> tuple[dict[str, Any], ...]:
    tables = said[key]
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise place.refuse(key, f"write a table [[{key}]] for each {key}, with two brackets.")
    if len(tables) > MOST:
        raise place.refuse(key, f"{len(tables):,} tables [[{key}]]: at most {MOST:,}.")
    found, names = [], set()
    for i, table in enumerate(tables):
        here = _Place(place.path, place.text, key, i)
        _require_known(table, known, here)
        if "name" not in table:
            raise here.refuse("", f'lacks a name: write name = "temperature" below its [[{key}]].')
        name = _text(table, "name", here)
        if name in names:
            raise here.refuse("name", f"there is another {key} {name!r}: give each a name of its own.")
        names.add(name)
        unit = _text(table, "unit", here, empty=True) if "unit" in table else ""
        numbers = {k: _number(table, k, here) if k in table else None for k in known if k not in ("name", "unit")}
        _require_range(numbers, key, here)
        found.append({"name": name, "unit": unit, **numbers})
    given_ranges = sum(column["low"] is not None for column in found)
    if given_ranges not in (0, len(found)):
        i = next(i for i, column in enumerate(found) if column["low"] is None)
        text = "others have a range and this one has none: write low and high for every observation, or for none."
        raise _Place(place.path, place.text, key, i).refuse("", text)
    return tuple(found)


def _require_range(numbers: dict[str, float | None], key: str, here: _Place) -> None:
    low, high = numbers["low"], numbers["high"]
    if (low is None) != (high is None):
        raise here.refuse("low" if high is None else "high", "a range has both ends: write low and high.")
    if low is None or high is None:
        if key == "action":
            raise here.refuse("", "an action needs its range: write low and high.")
    elif not low < high:
        raise here.refuse("low", f"low must be below high, not {low:g} and {high:g}.")
    change = numbers.get("change")
    if change is not None and not change > 0:
        raise here.refuse("change", "change is the largest change of a step and must be above 0.")


def _rule(said: dict[str, Any], key: str, words: Sequence[str], do: str, place: _Place) -> str:
    value = said[key]
    if isinstance(value, str) and value in words:
        return value
    file, colon, function = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not (colon and file.endswith(".py") and function.isidentifier() and "\0" not in file and len(file) < 1000):
        raise place.refuse(key, f"{key} cannot be {_short(value)}: {do}.")
    return str(value)


def _require_known(table: dict[str, Any], known: Sequence[str], place: _Place) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? " if near else ""
            text = f"{_short(key)} means nothing here: {hint}There are {', '.join(known)}."
            raise place.refuse(key, text)


def _text(table: dict[str, Any], key: str, place: _Place, empty: bool = False) -> str:
    value = table[key]
    if not isinstance(value, str) or len(value) > 200 or not (value.strip() or empty) or not value.isprintable():
        raise place.refuse(key, f"{key} is a short text in quotes, not {_short(value)}.")
    return value


def _number(table: dict[str, Any], key: str, place: _Place) -> float:
    value = table[key]
    # A whole number may be too large for any float; what float32 cannot hold is of no use to a network.
    sound = not isinstance(value, bool) and isinstance(value, int | float) and -1e38 < value < 1e38
    if not sound or not math.isfinite(value):
        raise place.refuse(key, f"{key} must be a finite number, not {_short(value)}.")
    return float(value)


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}..."
