"""A table that was opened but not read: the names of its columns are known, its numbers are still in the file.

Every format is one file of this package with one function that opens it. What is asked of a file is bounded here,
before memory is spent on it: a kilobyte can stand for gigabytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from musbo.core.errors import UserError
from musbo.data.finding import Finding
from musbo.data.said import Said

MODEST = 20_000_000
EXPANSION = 10
"""Numbers that a file may hold: so many, or this many for every byte of it.

With these bounds, a file below 4 MB takes less than a gigabyte."""
MOST_COLUMNS = 10_000
"""Of a file, whether they are asked for or not."""
WIDEST = 10_000
"""Columns of one array."""
LARGEST_NUMBER = 8
"""Bytes: Arrow has no long doubles."""


@dataclass(frozen=True)
class Table:
    """Columns by name. An array of several columns called x has the columns x_0, x_1, ..."""

    source: str
    """What errors call it: its path, as a rule."""
    names: tuple[str, ...]
    read: Callable[[Sequence[str]], pa.Table]
    """The columns of these names, each of one length; nothing else of the file is decoded."""
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    """What a Parquet file says of itself."""
    told: tuple[Finding, ...] = ()
    """What its reader has to say about it."""
    said: Mapping[str, Said] = field(default_factory=dict)
    """What the file says that a column is, by the column's name here."""


def require_modest(rows: int, columns: int, size: int, source: str) -> None:
    """Refuse a file that says little in many numbers before any of them is decoded."""
    if not is_modest(rows, columns, size):
        limit = max(MODEST, EXPANSION * size)
        raise UserError(
            f"{source} has {size:,} bytes, which stand for {rows * columns:,} numbers; musbo takes at most {limit:,} "
            "from it: split it, or write it without compression."
        )


def is_modest(rows: int, columns: int, size: int) -> bool:
    return rows * columns <= max(MODEST, EXPANSION * size)


def require_few(columns: int, source: str) -> None:
    if columns > MOST_COLUMNS:
        raise UserError(f"{source} has {columns:,} columns; musbo reads files of at most {MOST_COLUMNS:,}.")


@dataclass(frozen=True)
class Stored:
    """An array in a file, by what its header says."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]


def of_arrays(arrays: Mapping[str, Stored], size: int, source: str) -> Table:
    """The table of a file that holds named arrays of one row per step; `size` is that of the file in bytes."""
    places = {column: (name, i) for name, array in arrays.items() for i, column in enumerate(_columns(name, array))}
    require_few(len(places), source)

    def read(chosen: Sequence[str]) -> pa.Table:
        wanted = dict.fromkeys(places[column][0] for column in chosen)
        lengths = {name: _require_numbers(name, arrays[name], source) for name in wanted}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} has {rows:,}" for name, rows in lengths.items())
            raise UserError(f"{source}: its arrays must have one length, but {said} rows.")
        total = sum(int(np.prod(arrays[name].shape, dtype=object)) for name in wanted)
        require_modest(total, 1, size, source)
        loaded = {name: arrays[name].read() for name in wanted}
        loaded = {name: array.reshape(len(array), -1) for name, array in loaded.items()}
        return pa.table({column: _contiguous(loaded[places[column][0]], places[column][1]) for column in chosen})

    return Table(source, tuple(places), read)


def _columns(name: str, array: Stored) -> list[str]:
    if len(array.shape) == 2 and 1 < array.shape[1] <= WIDEST:
        return [f"{name}_{i}" for i in range(array.shape[1])]
    return [name]  # one column, or what is refused when it is asked for


def _require_numbers(name: str, array: Stored, source: str) -> int:
    """The number of rows."""
    if array.dtype.kind == "O":
        raise UserError(
            f"{source}: {name} holds Python objects, and musbo unpickles nothing: save it as an array of numbers."
        )
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > LARGEST_NUMBER:
        raise UserError(f"{source}: {name} must hold numbers, but its type is {array.dtype}.")
    if len(array.shape) not in (1, 2) or 0 in array.shape[1:] or array.shape[1:] > (WIDEST,):
        raise UserError(f"{source}: {name} has the shape {array.shape}; musbo needs one row per step, [n] or [n, k].")
    return array.shape[0]


def _contiguous(array: np.ndarray, i: int) -> np.ndarray:
    return np.ascontiguousarray(array[:, i], array.dtype.newbyteorder("="))
