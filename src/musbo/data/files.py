"""Batches as files. Ours are Parquet: one flat column per number, so that any table library can read and write them.

Columns: obs_0, obs_1, ..., act_0, ..., reward, next_obs_0, ..., terminated, truncated, episode, step and by. Our own
files carry a format version in the metadata of the schema; a file without one was made by a user. How users' files are
read, in this layout or another, is in `logs`.
"""

import hashlib
import io
import json
from dataclasses import fields, replace
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from musbo.core.durable import write_through
from musbo.core.errors import UserError
from musbo.core.formats import require_known
from musbo.data.batch import Batch
from musbo.data.logs import Logs, transitions
from musbo.data.mapping import Mapping, known_layout, read_mapping
from musbo.data.readers.choose import open_table
from musbo.data.readers.parquet import open_parquet
from musbo.data.readers.table import Table, is_modest

FORMAT = "musbo-batch"
VERSION = 3
"""2 carries a digest of its numbers, 3 says who chose each action."""
METADATA_KEY = b"musbo"


def batch_bytes(batch: Batch) -> bytes:
    """The Parquet file of a batch. Equal batches give equal bytes, so that the file can be named by its content."""
    sink = io.BytesIO()
    write_parquet(batch, sink)
    return sink.getvalue()


def write_parquet(batch: Batch, sink: BufferedIOBase) -> None:
    """The same into an open file: a large batch is in memory twice, and not four times."""
    columns = {f"obs_{i}": column for i, column in enumerate(batch.obs.T)}
    columns |= {f"act_{i}": column for i, column in enumerate(batch.act.T)}
    columns |= {"reward": batch.reward}
    columns |= {f"next_obs_{i}": column for i, column in enumerate(batch.next_obs.T)}
    columns |= {"terminated": batch.terminated, "truncated": batch.truncated}
    columns |= {"episode": batch.episode, "step": batch.step, "by": batch.by}
    # No writer here: equal batches give equal bytes, whichever version of musbo writes them.
    header = json.dumps({"format": FORMAT, "version": VERSION, "sha256": digest(batch)}).encode()
    table = pa.table({name: np.ascontiguousarray(column) for name, column in columns.items()})
    table = table.replace_schema_metadata({METADATA_KEY: header})
    _parquet(table, sink, "zstd")
    # Numbers that are nearly all the same become so few bytes that we would refuse to read them.
    if not is_modest(table.num_rows, table.num_columns, sink.tell()):
        sink.seek(0)
        sink.truncate()
        _parquet(table, sink, "none")


def _parquet(table: pa.Table, sink: BufferedIOBase, compression: str) -> None:
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


def batch_from_bytes(data: bytes, source: str = "the batch") -> Batch:
    """Inverse of `batch_bytes`; `source` names the file in errors."""
    return _read(open_parquet(data, source), None).batch


def read_batch(path: Path | str, mapping: Mapping | Path | str | None = None) -> Batch:
    """A batch from a file, ours or a user's: `read_logs` without what it says about the reading."""
    return read_logs(path, mapping).batch


def read_logs(path: Path | str, mapping: Mapping | Path | str | None = None) -> Logs:
    """Transitions from a file, or from `minari:NAME`. They are not yet checked: see `checks.require_sound`.

    Formats: .csv, .tsv, .parquet, .npz, .hdf5, .h5, and .musbo for recordings. `mapping` says what the columns mean, as
    a Mapping or the path of a TOML file; without it, the columns have to be called as musbo or D4RL calls them.
    """
    return _read(open_table(path), read_mapping(mapping) if isinstance(mapping, str | Path) else mapping)


def _read(table: Table, mapping: Mapping | None) -> Logs:
    version, said = _known_header(table)
    logs = transitions(table, mapping or known_layout(table.names, table.source))
    if version in (1, 2) and "by" not in logs.used:  # written before there was that column, by what collects
        logs = replace(logs, batch=replace(logs.batch, by=np.zeros(len(logs), np.int8)))
    if mapping is None and said is not None and said != digest(logs.batch, version):
        raise UserError(f"{table.source} is damaged (it is not what its digest says): make or copy it again.")
    return logs


def digest(batch: Batch, version: int = VERSION) -> str:
    """SHA-256 of all numbers of a batch; in older formats some were not there."""
    found = hashlib.sha256()
    for column in fields(Batch):
        if version < 3 and column.name == "by":
            continue
        array = np.ascontiguousarray(getattr(batch, column.name))
        found.update(f"{column.name} {array.dtype.str} {array.shape}".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def write_batch(path: Path | str, batch: Batch) -> None:
    """Writes a batch so that the file is either complete or absent."""
    write_through(Path(path), partial(write_parquet, batch))


def _known_header(table: Table) -> tuple[int, str | None]:
    """The version of a file of ours and the digest that it says; 0 for a user's file, and no digest in format 1."""
    if METADATA_KEY not in table.metadata:
        return 0, None
    try:
        found: Any = json.loads(table.metadata[METADATA_KEY])
    except (ValueError, RecursionError):
        found = None
    version = require_known(found, FORMAT, VERSION, table.source)
    return version, found.get("sha256", "missing" if version >= 2 else None)
