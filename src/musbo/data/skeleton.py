"""A mapping to fill in, from the columns of a file: names that say what they mean are put in their places."""

import json
import math
import re

import numpy as np
import pyarrow as pa

from musbo.core.errors import UserError
from musbo.data.readers.table import Table

WORDS = {
    "time": {"time", "timestamp", "datetime", "date", "t", "ts", "seconds", "minute", "minutes", "step"},
    "episode": {"episode", "episodes", "ep", "run", "trial", "session", "trajectory", "traj", "batch"},
    "reward": {"reward", "rewards", "rew", "r"},
    "machine": {"machine", "device", "robot", "asset"},
    "quality": {"quality"},
    "terminated": {"terminated", "termination", "terminations", "terminal", "terminals", "done", "dones"},
    "truncated": {"truncated", "truncation", "truncations", "timeout", "timeouts"},
}
"""A column whose name is one of these, or one of these and `id`, is taken for it; the first such column is."""
ACTIONS = {"act", "action", "actions", "u", "control", "command", "cmd", "setpoint"}
"""First words of the names of actions."""
PAUSE = 10
"""A gap is suggested that is so many times the usual time between two rows."""
SHOWN = 200
"""Columns that are described one by one."""


def skeleton(table: Table) -> str:
    """The text of a TOML file; as it stands it may do, and a person has to look."""
    columns = {name: _values(column) for name, column in _columns(table).items()}
    rows = max((len(values) for values in columns.values() if values is not None), default=0)
    single = _single(table.names)
    taken = set(single.values())
    numbers = [name for name, values in columns.items() if name and values is not None and name not in taken]
    after = [name for name in numbers if _words(name)[:1] == ["next"]]
    act = [name for name in numbers if set(_words(name)[:1]) & ACTIONS]
    obs = [name for name in numbers if name not in (*after, *act)]
    width = max((len(_quoted(name)) for name in table.names[:SHOWN]), default=0)
    lines = [
        f"# What the columns of {_quoted(table.source)} mean ({rows:,} rows). Names were put where they seem to be:",
        "# move each to what it is, in the order of your task, and delete what the policy does not need.",
        "#",
        *(f"#   {_quoted(name):<{width}}  {_described(columns[name])}" for name in table.names[:SHOWN]),
        "",
        *_list("obs", obs, "what the policy sees"),
        *_list("act", act, "actions as they were executed"),
        *(("# " * (len(after) != len(obs)) + line) for line in _after(after)),
        "",
        _line("reward", single, "of the action in its row; not needed where your task has a formula"),
        _line("episode", single, "the same in all rows of an episode"),
        _line("time", single, "numbers or timestamps: the order of the rows of an episode"),
        _line("machine", single, "rows of different machines are of different episodes"),
        _line("terminated", single, "1 where the world ended the episode"),
        _line("truncated", single, "1 where the recording was cut"),
        _gap(single, columns),
        "",
        "# A historian's log, with values at uneven times: bring it to even steps of the controller (seconds).",
        "# interval = 60.0",
        f"# quality = {_quoted(single.get('quality', ''))}  # values that it does not call good are not used",
        "",
        '# Units: { column = "name", unit = "bar", scale = 1.0, offset = 0.0 } in place of "name" gives name * scale +',
        "# offset. A unit that is not the task's has to be converted.",
        "",
    ]
    return "\n".join(lines)


def _columns(table: Table) -> dict[str, pa.ChunkedArray | None]:
    """Every column that can be read."""
    names = list(dict.fromkeys(table.names))
    try:
        data = table.read(names)
        return {name: data.column(name) for name in names}
    except UserError:  # arrays of other lengths or kinds, among others that are fine
        return {name: _alone(table, name) for name in names}


def _alone(table: Table, name: str) -> pa.ChunkedArray | None:
    try:
        return table.read([name]).column(name)
    except UserError:
        return None


def _values(column: pa.ChunkedArray | None) -> np.ndarray | None:
    """The numbers of a column; None where it has others or none."""
    if column is None:
        return None
    kind = column.type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    values = column.drop_null().to_numpy().astype(np.float64)
    return values if len(values) else None


def _single(names: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        words = [word for word in _words(name) if word not in ("id", "index", "number")]
        for role, known in WORDS.items():
            if len(words) == 1 and words[0] in known:
                found.setdefault(role, name)
    return found


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())


def _described(values: np.ndarray | None) -> str:
    if values is None:
        return "not numbers"
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:g} in every row" if low == high else f"{low:g} to {high:g}"


def _list(role: str, names: list[str], about: str) -> list[str]:
    if not names:
        return [f"{role} = []  # {about}"]
    return [f"{role} = [  # {about}", *(f"  {_quoted(name)}," for name in names), "]"]


def _after(names: list[str]) -> list[str]:
    return _list("next_obs", names, "the observation after the action, as many as in obs") if names else []


def _line(role: str, single: dict[str, str], about: str) -> str:
    return f"{role} = {_quoted(single[role])}  # {about}" if role in single else f'# {role} = ""  # {about}'


def _gap(single: dict[str, str], columns: dict[str, np.ndarray | None]) -> str:
    about = "a longer pause in time begins a new episode (seconds, for timestamps); inf: the log is one episode"
    times = columns.get(single.get("time", ""))
    wanted = not {"episode", "terminated", "truncated"} & set(single)
    if times is not None and wanted and len(forward := np.diff(times)[np.diff(times) > 0]):
        usual = PAUSE * float(np.median(forward))
        return f"gap = {usual:g}  # {about}" if math.isfinite(usual) else f"# gap = 60.0  # {about}"
    return f"# gap = 60.0  # {about}"


def _quoted(name: str) -> str:
    """As TOML and JSON both write text."""
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
