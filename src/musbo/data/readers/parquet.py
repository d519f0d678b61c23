"""Parquet: any file of flat columns; the columns that nobody asks for are not decoded."""

import io
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from musbo.core.errors import UserError
from musbo.data.readers.table import Table, require_few, require_modest

LARGE, FEW = 100_000, 4
"""Rows of a file from which on so few columns are unpacked at a time."""
_BROKEN = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, ValueError, KeyError)


def open_parquet(place: bytes | Path, source: str) -> Table:
    """The table in a Parquet file, or in the bytes of one."""
    size = len(place) if isinstance(place, bytes) else place.stat().st_size

    try:
        # A file is not mapped: one that becomes shorter while it is read would end the process.
        inside = io.BytesIO(place) if isinstance(place, bytes) else pa.OSFile(str(place), "rb")
        file = pq.ParquetFile(inside, page_checksum_verification=True)
        schema = file.schema_arrow
        names, metadata = tuple(schema.names), dict(schema.metadata or {})
    except _BROKEN as error:
        raise _unreadable(source) from error
    require_few(len(names), source)

    def read(chosen: Sequence[str]) -> pa.Table:
        try:
            # Nothing more of the metadata: Arrow ends the process where those of a column are damaged.
            require_modest(file.metadata.num_rows, len(chosen), size, source)
            if file.metadata.num_rows < LARGE:
                return _sound(file.read(columns=list(chosen)))
            # Of a large file, what is packed and what is unpacked are not both in memory as a whole.
            parts = [file.read(columns=list(chosen[i : i + FEW])) for i in range(0, len(chosen), FEW)]
            columns = [column for part in parts for column in part.columns]
            return _sound(pa.table(columns, names=[name for part in parts for name in part.column_names]))
        except _BROKEN as error:
            raise _unreadable(source) from error

    return Table(source, names, read, metadata)


def _sound(table: pa.Table) -> pa.Table:
    """Refuse text that is not UTF-8, which nobody checks otherwise."""
    table.validate(full=True)
    return table


def _unreadable(source: str) -> UserError:
    return UserError(f"{source} is not a readable Parquet file (foreign, cut short or damaged): write it again.")
