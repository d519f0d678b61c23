"""Recordings that the field's runtime wrote: a header, then records of one width, each with its checksum.

docs/formats.md has the layout. A power cut may leave the last record half written: it is left out. Damage anywhere
else is refused.
"""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from musbo.core.errors import UserError
from musbo.core.formats import require_known
from musbo.core.text import parse_json
from musbo.data.readers.table import WIDEST, Table

MAGIC = b"MUSBOREC"
VERSION = 1
LARGEST_HEADER = 1_000_000
SOURCES = ("policy", "limiter", "fallback", "human")
REASONS = ("", "not finite", "stale", "late", "outside the data", "latched", "recording failed")
TERMINATED, TRUNCATED, CLOSING, SHADOW, FALLBACK_FAILED = 1, 2, 4, 8, 16


def open_recording(path: Path, source: str) -> Table:
    """The steps of a recording, in the layout of a batch with further columns.

    `act_0`, ... are the executed actions. An episode is cut where an observation is no number or a step is missing, and
    after a step of which nobody said what was executed.
    """
    header, records = _read(path.read_bytes(), source)
    columns = _columns(header, records)

    def read(chosen: Sequence[str]) -> pa.Table:
        return pa.table({name: columns[name] for name in chosen})

    return Table(source, tuple(columns), read)


def _read(data: bytes, source: str) -> tuple[dict[str, Any], np.ndarray]:
    """The header and the sound records."""
    if data[: len(MAGIC)] != MAGIC:
        raise UserError(f"{source} is no recording of musbo: check that it is the file you meant.")
    if len(data) < 20:
        raise UserError(f"{source} ends within its header: copy it again.")
    version, length = struct.unpack_from("<II", data, 8)
    end = 16 + length
    if length > LARGEST_HEADER or len(data) < end + 4:
        raise UserError(f"{source} ends within its header: copy it again.")
    if zlib.crc32(data[:end]) != struct.unpack_from("<I", data, end)[0]:
        raise UserError(f"{source} is damaged: the checksum of its header differs; copy it again.")
    header = parse_json(data[16:end], source)
    require_known(header, "musbo-recording", VERSION, source)
    obs, act = (_names(header, key, source) for key in ("obs", "act"))
    kind = _record(len(obs), len(act))
    if version != header["version"]:
        raise UserError(f"{source} says two versions of its format: write it again.")
    count = (len(data) - end - 4) // kind.itemsize
    records = np.frombuffer(data, kind, count, offset=end + 4)
    return header, _sound(records, memoryview(data)[end + 4 :], kind.itemsize, source)


def _names(header: Any, key: str, source: str) -> list[str]:
    names = header.get(key)
    if not isinstance(names, list) or not 1 <= len(names) <= WIDEST or not all(isinstance(n, str) for n in names):
        raise UserError(f"{source}: its header must list the names of {key}: write it again.")
    return names


def _record(obs: int, act: int) -> np.dtype:
    return np.dtype(
        [
            ("number", "<u8"),
            ("time", "<f8"),
            ("episode", "<u4"),
            ("step", "<u4"),
            ("source", "u1"),
            ("flags", "u1"),
            ("reason", "<u2"),
            ("reward", "<f4"),
            ("zeta", "<f4"),
            ("obs", "<f4", (obs,)),
            ("commanded", "<f4", (act,)),
            ("executed", "<f4", (act,)),
            ("noise", "<f4", (act,)),
            ("checksum", "<u4"),
        ]
    )


def _sound(records: np.ndarray, data: memoryview, width: int, source: str) -> np.ndarray:
    """The records without a damaged last one; refused where another is damaged."""
    said = records["checksum"].tolist()
    found = [zlib.crc32(data[i * width : (i + 1) * width - 4]) for i in range(len(records))]
    wrong = [i for i, (a, b) in enumerate(zip(said, found, strict=True)) if a != b]
    if wrong == [len(records) - 1]:
        records, wrong = records[:-1], []
    if wrong:
        raise UserError(
            f"{source} is damaged: {len(wrong)} records have a wrong checksum, first record {wrong[0]}; copy it again."
        )
    if not np.array_equal(records["number"], np.arange(len(records))):
        raise UserError(f"{source} is damaged: its records are not numbered from 0; copy it again.")
    for key, most in (("source", len(SOURCES)), ("reason", len(REASONS))):
        if (records[key] >= most).any():
            row = int(np.flatnonzero(records[key] >= most)[0])
            raise UserError(f"{source}: record {row} has the {key} {records[key][row]}, and there are {most}.")
    return records


def _columns(header: dict[str, Any], records: np.ndarray) -> dict[str, Any]:
    """All columns; rows whose observation is no number are left out, since nothing can be learned from them."""
    seen = np.asarray(np.isfinite(records["obs"]).all(axis=1))
    acted = np.asarray(np.isfinite(records["executed"]).all(axis=1) & (records["flags"] & CLOSING == 0))
    # A row begins an episode unless it follows the one before it without a gap.
    follows = np.zeros(len(records), bool)
    follows[1:] = (
        (records["episode"][1:] == records["episode"][:-1])
        & (records["step"][1:] == records["step"][:-1].astype(np.int64) + 1)
        & seen[:-1]
        & acted[:-1]
    )
    kept = records[seen]
    begins = ~follows[seen]
    episode = np.cumsum(begins) - 1
    row = np.arange(len(kept))
    columns = {f"obs_{i}": column for i, column in enumerate(kept["obs"].T)}
    # What was executed in a closing row is not known and not asked for: only its observation is used.
    executed = np.where(acted[seen][:, None], kept["executed"], np.float32(0))
    columns |= {f"act_{i}": column for i, column in enumerate(executed.T)}
    last = np.append(begins[1:], True)[: len(kept)]
    if len(kept) and np.isfinite(kept["reward"][~last]).all() and not last.all():
        columns["reward"] = np.where(last, np.float32(0), kept["reward"])
    columns["terminated"] = kept["flags"] & TERMINATED > 0
    columns["truncated"] = (kept["flags"] & TRUNCATED > 0) & ~columns["terminated"]
    columns["episode"] = episode
    columns["step"] = row - np.maximum.accumulate(np.where(begins, row, 0)) if len(kept) else row
    columns["time"] = kept["time"]
    columns["source"] = np.asarray(SOURCES)[kept["source"]]
    columns["reason"] = np.asarray(REASONS)[kept["reason"]]
    columns["shadow"] = kept["flags"] & SHADOW > 0
    columns["zeta"] = kept["zeta"]
    for key in ("commanded", "noise"):
        columns |= {f"{key}_{i}": column for i, column in enumerate(kept[key].T)}
    columns["machine"] = [str(header.get("machine", ""))] * len(kept)
    columns["bundle"] = [str(header.get("bundle", ""))] * len(kept)
    return {
        name: np.ascontiguousarray(column) if isinstance(column, np.ndarray) else column
        for name, column in columns.items()
    }
