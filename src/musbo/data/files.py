"""Batches as Parquet files: one flat column per number, so that any table library can read and write them.

Columns: obs_0, obs_1, ..., act_0, ..., reward, next_obs_0, ..., terminated, truncated, and optionally episode and step,
which are rebuilt from the flags where a file lacks them. Other columns are ignored. Our own files carry a format
version in the metadata of the schema; a file without one was made by a user and is read as the current version.
"""

import hashlib
import io
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from musbo.core.durable import write_whole
from musbo.core.errors import UserError
from musbo.core.formats import require_known
from musbo.core.inside import given
from musbo.data.batch import Batch, make_batch

FORMAT = "musbo-batch"
VERSION = 2
"""2 carries a digest of its numbers."""
METADATA_KEY = b"musbo"

_OURS = re.compile(r"(next_obs|obs|act)_\d{1,6}|reward|terminated|truncated|episode|step")
MODEST = 20_000_000
EXPANSION = 10
"""Numbers that a file may hold: so many, or this many for every byte of it. A kilobyte can stand for gigabytes.

With these bounds, a file below 4 MB takes less than a gigabyte."""


def batch_bytes(batch: Batch) -> bytes:
    """The Parquet file of a batch. Equal batches give equal bytes, so that the file can be named by its content."""
    columns = {f"obs_{i}": column for i, column in enumerate(batch.obs.T)}
    columns |= {f"act_{i}": column for i, column in enumerate(batch.act.T)}
    columns |= {"reward": batch.reward}
    columns |= {f"next_obs_{i}": column for i, column in enumerate(batch.next_obs.T)}
    columns |= {"terminated": batch.terminated, "truncated": batch.truncated}
    columns |= {"episode": batch.episode, "step": batch.step}
    # No writer here: equal batches give equal bytes, whichever version of musbo writes them.
    header = json.dumps({"format": FORMAT, "version": VERSION, "sha256": _digest(batch)}).encode()
    table = pa.table({name: np.ascontiguousarray(column) for name, column in columns.items()})
    table = table.replace_schema_metadata({METADATA_KEY: header})
    small = _parquet(table, "zstd")
    # Numbers that are nearly all the same become so few bytes that we would refuse to read them.
    return small if _is_modest(table.num_rows, table.num_columns, len(small)) else _parquet(table, "none")


def _parquet(table: pa.Table, compression: str) -> bytes:
    sink = io.BytesIO()
    # Every choice that shapes the bytes is spelt out, so that a new default of the library does not change them.
    pq.write_table(
        table,
        sink,
        version="2.6",
        data_page_version="1.0",
        compression=compression,
        compression_level=3 if compression == "zstd" else None,
        use_dictionary=False,
        write_statistics=True,
        write_page_checksum=True,
        row_group_size=1 << 20,
    )
    return sink.getvalue()


def batch_from_bytes(data: bytes, source: str = "the batch") -> Batch:
    """Inverse of `batch_bytes`; `source` names the file in errors."""
    try:
        file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        names = file.schema_arrow.names
        columns = [name for name in dict.fromkeys(names) if _OURS.fullmatch(name)]
        # Nothing more of the metadata: Arrow ends the process where those of a column are damaged.
        _require_modest(file.metadata.num_rows, len(columns), len(data), source)
        table = file.read(columns=columns)  # the others are not even decoded
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, ValueError, KeyError) as error:
        raise UserError(
            f"{source} is not a readable Parquet file (foreign, cut short or damaged): write it again."
        ) from error
    said = _known_header(table.schema.metadata or {}, source)
    batch = _from_table(table, source)
    if said is not None and said != _digest(batch):
        raise UserError(f"{source} is damaged (it is not what its digest says): make or copy it again.")
    return batch


def _digest(batch: Batch) -> str:
    """SHA-256 of all numbers of a batch."""
    found = hashlib.sha256()
    for column in fields(Batch):
        array = np.ascontiguousarray(getattr(batch, column.name))
        found.update(f"{column.name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def write_batch(path: Path | str, batch: Batch) -> None:
    """Writes a batch so that the file is either complete or absent."""
    write_whole(Path(path), batch_bytes(batch))


def read_batch(path: Path | str) -> Batch:
    """A batch from a Parquet file, ours or a user's. It is not yet checked: see `checks.require_sound`."""
    try:
        data = given(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    return batch_from_bytes(data, str(path))


def _require_modest(rows: int, columns: int, size: int, source: str) -> None:
    """Refuse a file that says little in many numbers before any of them is decoded."""
    if not _is_modest(rows, columns, size):
        limit = max(MODEST, EXPANSION * size)
        raise UserError(
            f"{source} has {size:,} bytes, which stand for {rows * columns:,} numbers; musbo takes at most {limit:,} "
            "from it: split it, or write it without compression."
        )


def _is_modest(rows: int, columns: int, size: int) -> bool:
    return rows * columns <= max(MODEST, EXPANSION * size)


def _known_header(metadata: dict[bytes, bytes], source: str) -> str | None:
    """The digest that a file of ours says; None for a user's file, and for one of format 1."""
    if METADATA_KEY not in metadata:
        return None
    try:
        found: Any = json.loads(metadata[METADATA_KEY])
    except (ValueError, RecursionError):
        found = None
    version = require_known(found, FORMAT, VERSION, source)
    return found.get("sha256", "missing" if version >= 2 else None)


def _from_table(table: pa.Table, source: str) -> Batch:
    names = set(table.column_names)
    obs_size = max(_count(names, "obs_"), _count(names, "next_obs_"))
    obs = [f"obs_{i}" for i in range(obs_size)]
    next_obs = [f"next_obs_{i}" for i in range(obs_size)]
    act = [f"act_{i}" for i in range(_count(names, "act_"))]
    expected = [*obs, *act, "reward", *next_obs, "terminated", "truncated"]
    missing = [name for name in expected if name not in names]
    if missing:
        shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise UserError(f"{source} lacks the columns {shown}: add them, one flat column for each number.")

    def block(columns: list[str]) -> np.ndarray:
        return np.stack([_column(table, name, source) for name in columns], axis=1)

    def optional(name: str) -> np.ndarray | None:
        return _column(table, name, source) if name in names else None

    try:
        return make_batch(
            obs=block(obs),
            act=block(act),
            reward=_column(table, "reward", source),
            next_obs=block(next_obs),
            terminated=_column(table, "terminated", source),
            truncated=_column(table, "truncated", source),
            episode=optional("episode"),
            step=optional("step"),
        )
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def _count(names: set[str], prefix: str) -> int:
    """Number of columns that the highest index asks for; at least one, so that an absent block is named as missing."""
    found = [re.fullmatch(prefix + r"(\d{1,6})", name) for name in names]
    return max((int(match[1]) + 1 for match in found if match), default=1)


def _column(table: pa.Table, name: str, source: str) -> np.ndarray:
    if table.column_names.count(name) > 1:
        raise UserError(f"{source} has more than one column {name}: keep one.")
    column = table.column(name).combine_chunks()
    kind = column.type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise UserError(f"{source}: column {name} must hold numbers, but its type is {kind}.")
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise UserError(f"{source}: column {name} has {column.null_count} empty values, first in row {row}: fill them.")
    return column.to_numpy(zero_copy_only=False)
