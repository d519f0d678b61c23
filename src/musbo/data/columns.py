"""Columns of a table as arrays: numbers, flags, times, and names as whole numbers. What is missing is refused."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float32, Int, Int8, Shaped

from musbo.core.errors import UserError
from musbo.data.batch import as_choosers, as_flags
from musbo.data.finding import Finding, Refused
from musbo.data.mapping import UNITS, Column

_NUMBERED = np.iinfo(np.int32).max


@contextmanager
def named(source: str) -> Iterator[None]:
    """What is said about arrays names the log that they are from."""
    try:
        yield
    except UserError as error:
        said = str(error)
        raise UserError(said if said.startswith(source) else f"{source}: {said}") from error


@dataclass(frozen=True, eq=False)
class Clock:
    """A column of times as they are stored, and what one unit of it is in those of the gap."""

    values: Shaped[np.ndarray, " n"]
    seconds: float


def clock_of(
    data: pa.Table, name: str | None, source: str, unit: str = "s", written: str | None = None
) -> Clock | None:
    if name is None:
        return None
    column = full(data, name, source)
    kind = column.type
    if written is not None:
        column = _parsed(column, name, source, written)
        kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        column, kind = column.cast(pa.timestamp("ns"), safe=False), None
    elif pa.types.is_duration(kind) or pa.types.is_time(kind):
        unit = pa.duration("ns") if pa.types.is_duration(kind) else pa.time64("ns")
        column, kind = column.cast(unit, safe=False), None
    if kind is None:
        return Clock(np.asarray(column.cast(pa.int64())), 1e-9)
    values = numeric(column, name, source, " or timestamps such as 2024-05-31T12:00:00 (or give time_format)")
    if not np.all(np.isfinite(values)):
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise UserError(
            f"{source}: column {name} is not a finite number in row {row}: the rows cannot be put in order."
        )
    return Clock(values.astype(np.int64) if values.dtype.kind in "biu" else values, UNITS[unit])


def _parsed(column: pa.Array, name: str, source: str, written: str) -> pa.Array:
    """Timestamps from text, by a format such as %d.%m.%Y %H:%M:%S."""
    try:
        return pc.strptime(column.cast(pa.string()), format=written, unit="ns")  # pyright: ignore[reportAttributeAccessIssue]
    except pa.ArrowException as error:
        said = " ".join(str(error)[:200].split())
        raise UserError(
            f"{source}: column {name} does not hold times as time_format, {written!r}, says ({said}): correct it."
        ) from error


def require_flat(data: pa.Table, source: str) -> None:
    """Refuse columns whose cells are lists or tables of their own: nothing here reads them."""
    for column in data.schema:
        if pa.types.is_nested(column.type):
            what = f"column {column.name} must hold one value in a row, but its type is {column.type}"
            raise Refused(Finding("wrong type", "error", what[:200], "", (column.name,), source=source))


def identities(data: pa.Table, name: str | None, source: str) -> Int[np.ndarray, " n"] | None:
    """A whole number for each row's episode: the log's own where it has such, else by first appearance."""
    if name is None:
        return None
    column = full(data, name, source)
    if pa.types.is_integer(column.type):
        values = np.asarray(column)
        if not len(values) or (values.min() >= 0 and values.max() <= _NUMBERED):
            return values.astype(np.int32)
    if pa.types.is_floating(column.type) and np.isnan(np.asarray(column)).any():
        row = int(np.flatnonzero(np.isnan(np.asarray(column)))[0])
        raise UserError(f"{source}: column {name} is not a number in row {row}: say which episode that row is of.")
    return np.asarray(pc.dictionary_encode(column).indices).astype(np.int64)  # pyright: ignore[reportAttributeAccessIssue]


def flags_of(data: pa.Table, name: str | None, source: str) -> Bool[np.ndarray, " n"]:
    if name is None:
        return np.zeros(data.num_rows, bool)
    with named(source):
        return as_flags(name, numbers_of(data, name, source))


def choosers_of(data: pa.Table, name: str | None, source: str) -> Int8[np.ndarray, " n"] | None:
    """Who chose the actions, where the log says."""
    if name is None:
        return None
    with named(source):
        return as_choosers(name, numbers_of(data, name, source))


def block_of(data: pa.Table, columns: Sequence[Column], source: str) -> Float32[np.ndarray, "n k"]:
    found = np.empty((data.num_rows, len(columns)), np.float32)
    for i, one in enumerate(columns):
        values = numbers_of(data, one.column, source)
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # what float32 cannot hold becomes inf, which the checks report with its row
            if (one.scale, one.offset) == (1.0, 0.0):
                found[:, i] = values
            else:
                found[:, i] = values.astype(np.float64) * one.scale + one.offset
    return found


def numbers_of(data: pa.Table, name: str, source: str) -> Shaped[np.ndarray, " n"]:
    return numeric(full(data, name, source), name, source)


def numeric(column: pa.Array, name: str, source: str, or_else: str = "") -> Shaped[np.ndarray, " n"]:
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        what = f"column {name} must hold numbers{or_else}, but its type is {kind}{_first_text(column)}"
        raise Refused(Finding("wrong type", "error", what, "", (name,), source=source))
    return column.to_numpy(zero_copy_only=False)


def _first_text(column: pa.Array) -> str:
    """The first text in a column that is no number."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return ""
    for row, value in enumerate(column):
        try:
            float(value.as_py())
        except ValueError:
            return f" (row {row} holds {value.as_py()[:30]!r})"
    return ""


def whole(data: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    column = data.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_null(column.type) and not len(column):  # a file of CSV without rows
        column = column.cast(pa.float64())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def full(data: pa.Table, name: str, source: str) -> pa.Array:
    """A column in one piece; refused where values are missing."""
    column = whole(data, name)
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        what = f"column {name} has {column.null_count:,} empty values, first in row {row}"
        do = "fill them, or leave out those episodes"
        raise Refused(Finding("empty values", "error", what, do, (name,), row, column.null_count, source=source))
    return column


def labels_of(data: pa.Table, name: str | None, source: str) -> tuple[Int[np.ndarray, " n"] | None, tuple[str, ...]]:
    """A column of names as whole numbers, by first appearance, and the names."""
    if name is None:
        return None, ()
    column = data.column(name)
    if not pa.types.is_dictionary(column.type) or column.null_count:
        column = pc.dictionary_encode(full(data, name, source))  # pyright: ignore[reportAttributeAccessIssue]
    else:  # which may name what does not appear, and in another order
        column = column.unify_dictionaries().combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    known = column.dictionary.to_pylist()
    codes, first, each = np.unique(np.asarray(column.indices), return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    return place[each], tuple(str(known[code]) for code in codes[order])


def names_in(data: pa.Table, name: str | None) -> tuple[str, ...]:
    """What a column of names says anywhere; empty cells say nothing."""
    if name is None:
        return ()
    said = pc.unique(data.column(name)).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]
    return tuple(dict.fromkeys(str(one) for one in said if one is not None and str(one)))


def together(one: Int[np.ndarray, " n"] | None, other: Int[np.ndarray, " n"] | None) -> Int[np.ndarray, " n"] | None:
    """A whole number for every pair of both; both are below 2^31."""
    if one is None or other is None:
        return other if one is None else one
    if not len(one) or other.min() == other.max():
        return one
    pairs = other.astype(np.int64) * (int(one.max()) + 1) + one
    return np.unique(pairs, return_inverse=True)[1].astype(np.int64)
