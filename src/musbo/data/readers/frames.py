"""Frames that a program already holds: pandas, polars and Arrow. None of them is imported here."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from musbo.core.errors import UserError
from musbo.data.readers.table import Table


def open_frame(frame: Any, source: str) -> Table:
    """The table of a frame; the named index of a pandas frame counts as a column."""
    if isinstance(frame, pa.Table):
        return Table(source, tuple(frame.column_names), lambda chosen: frame.select(list(chosen)))
    if hasattr(frame, "collect_schema") and not hasattr(frame, "to_arrow"):
        raise UserError(f"{source} is a lazy frame: give it as frame.collect().")
    if hasattr(frame, "to_arrow"):
        return Table(source, tuple(frame.columns), lambda chosen: frame.select(list(chosen)).to_arrow())
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):
        return _open_pandas(frame, source)
    raise UserError(f"{source} must be a frame of pandas or polars, or a table of pyarrow, not {type(frame).__name__}.")


def _open_pandas(frame: Any, source: str) -> Table:
    index = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if index:
        frame = frame.reset_index(level=index)
    names = list(frame.columns)
    if odd := [name for name in names if not isinstance(name, str)]:
        raise UserError(f"{source}: the names of its columns must be text, but one is {odd[0]!r}: rename it.")

    def read(chosen: Sequence[str]) -> pa.Table:
        try:
            return pa.Table.from_pandas(frame[list(chosen)], preserve_index=False)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            said = " ".join(str(error)[:200].split())
            raise UserError(f"{source} has a column of mixed types ({said}): make each of one type.") from error

    return Table(source, tuple(names), read)
