"""Recordings that the field's runtime wrote: a header, then records of one width, each with its checksum.

docs/formats.md has the layout. A power cut may leave the last record half written: it is left out. Damage anywhere
else is refused.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import partial
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
        return pa.table({name: columns[name]() for name in chosen})

    return Table(source, tuple(columns), read)


def recording_header(data: bytes, source: str) -> dict[str, Any]:
    """What a recording says of itself: its bundle, the ledger head of that, task, machine, names."""
    return _read(data, source)[0]


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
            ("signal", "<f4"),
            ("obs", "<f4", (obs,)),
            ("commanded", "<f4", (act,)),
            ("executed", "<f4", (act,)),
            ("noise", "<f4", (act,)),
            ("checksum", "<u4"),
        ]
    )


def _sound(records: np.ndarray, data: memoryview, width: int, source: str) -> np.ndarray:
    """The records without a damaged last one; refused where another is damaged."""
    each = (zlib.crc32(data[i * width : (i + 1) * width - 4]) for i in range(len(records)))
    wrong = np.flatnonzero(np.fromiter(each, np.uint32, len(records)) != records["checksum"])
    if wrong.tolist() == [len(records) - 1]:
        records, wrong = records[:-1], wrong[:0]
    if len(wrong):
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


def _columns(header: dict[str, Any], records: np.ndarray) -> dict[str, Callable[[], Any]]:
    """All columns, each made when it is asked for.

    Rows whose observation is no number are left out, since nothing can be learned from them.
    """
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
    kept = records if seen.all() else records[seen]
    begins, acted = ~follows[seen], acted[seen]
    last = np.append(begins[1:], True)[: len(kept)]
    row = np.arange(len(kept))

    def flag(bit: int) -> np.ndarray:
        return kept["flags"] & bit > 0

    def words(codes: np.ndarray, known: Sequence[str]) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(known))

    def same(key: str) -> Any:
        return words(np.zeros(len(kept)), [str(header.get(key, ""))])

    def each(key: str, name: str) -> dict[str, Callable[[], Any]]:
        size = records[key].shape[1]
        return {f"{name}_{i}": lambda i=i: np.ascontiguousarray(kept[key][:, i]) for i in range(size)}

    def executed(i: int) -> np.ndarray:
        # In a closing row nothing was executed, and nobody asks: only its observation is used.
        return np.where(acted, kept["executed"][:, i], np.float32(0))

    def by() -> np.ndarray:
        """Of policies that share the episodes, the challenger has every so manieth: see `SharedActor`."""
        shared = header.get("every")
        second = kept["episode"] % shared == 1 if isinstance(shared, int) and shared > 1 else np.zeros(len(kept), bool)
        return np.where((kept["source"] == 0) & second, np.int8(1), -kept["source"].astype(np.int8))

    columns = each("obs", "obs")
    columns |= {f"act_{i}": partial(executed, i) for i in range(records["executed"].shape[1])}
    if not last.all() and np.isfinite(kept["reward"][~last]).all():
        columns["reward"] = lambda: np.where(last, np.float32(0), kept["reward"])
    return columns | {
        "terminated": lambda: flag(TERMINATED),
        "truncated": lambda: flag(TRUNCATED) & ~flag(TERMINATED),
        "episode": lambda: np.cumsum(begins) - 1,
        "step": lambda: row - np.maximum.accumulate(np.where(begins, row, 0)),
        "by": by,
        "time": lambda: np.ascontiguousarray(kept["time"]),
        "source": lambda: words(kept["source"], SOURCES),
        "reason": lambda: words(kept["reason"], REASONS),
        "shadow": lambda: flag(SHADOW),
        "fallback_failed": lambda: flag(FALLBACK_FAILED),
        "signal": lambda: np.ascontiguousarray(kept["signal"]),
        **each("commanded", "commanded"),
        **each("noise", "noise"),
        "machine": lambda: same("machine"),
        "bundle": lambda: same("bundle"),
    }
