"""Recordings that the field's runtime wrote: a header, then records of one width, each with its checksum.

docs/formats.md has the layout. A power cut may leave the last record half written: it is left out. Damage anywhere
else is refused.
"""

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from musbo.core.errors import UserError
from musbo.core.formats import require_known
from musbo.core.text import parse_json
from musbo.data.finding import Finding
from musbo.data.readers.table import WIDEST, Table
from musbo.data.said import Said

MAGIC = b"MUSBOREC"
VERSION = 1
LARGEST_HEADER = 1_000_000
BLOCK = 4_000_000
"""Bytes that are read at a time: a recording is never in memory as a whole."""
SOURCES = ("policy", "limiter", "fallback", "human")
REASONS = ("", "not finite", "stale", "late", "outside the data", "latched", "recording failed")
TERMINATED, TRUNCATED, CLOSING, SHADOW, FALLBACK_FAILED = 1, 2, 4, 8, 16
SELDOM = 0.1
"""Part of the records that may be left out without a warning."""
_SMALL = np.dtype(
    [("time", "<f8"), ("episode", "<u4"), ("step", "<u4"), ("source", "u1"), ("flags", "u1"), ("reason", "<u2")]
    + [("reward", "<f4"), ("signal", "<f4")]
)
_BLOCKS = {"obs": "obs", "act": "executed", "commanded": "commanded", "noise": "noise"}
"""Numbered columns, by the block of a record that they are from."""
_WIDE = re.compile(rf"({'|'.join(_BLOCKS)})_(\d+)")


def open_recording(path: Path, source: str) -> Table:
    """The steps of a recording, in the layout of a batch with further columns.

    `act_0`, ... are the executed actions. An episode is cut where an observation is no number or a step is missing, and
    after a step of which nobody said what was executed.
    """
    with path.open("rb") as file:
        sound = _read(file, source)
    columns = _columns(sound)

    def read(chosen: Sequence[str]) -> pa.Table:
        wide = [_WIDE.fullmatch(name) for name in chosen]
        found = _wide(path, sound, [(match[1], int(match[2])) for match in wide if match is not None])
        return pa.table({name: found[name] if name in found else columns[name]() for name in chosen})

    names = [f"{block}_{i}" for block in ("obs", "act") for i in range(sound.width(block))]
    more = [f"{block}_{i}" for block in ("commanded", "noise") for i in range(sound.width(block))]
    return Table(source, (*names, *columns, *more), read, told=tuple(_told(sound)), said=_said(sound.header, source))


def is_recording(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def recording_header(path: Path, source: str) -> dict[str, Any]:
    """What a recording says of itself: its bundle, the ledger head of that, task, machine, names."""
    with path.open("rb") as file:
        return _header(file, source)[0]


def ledger_head(path: Path, source: str) -> str | None:
    """The event of a campaign that its bundle names, where it says one."""
    head = recording_header(path, source).get("ledger")
    return head if isinstance(head, str) else None


@dataclass(frozen=True, eq=False)
class Sound:
    """The sound records of a recording: where they are, and of each all but the wide blocks of numbers."""

    source: str
    header: dict[str, Any]
    kind: np.dtype
    begin: int
    """Bytes before the first record."""
    stamp: tuple[int, int]
    """Size of the file, and when it was changed."""
    small: np.ndarray
    seen: np.ndarray
    """Whether its observation is finite."""
    acted: np.ndarray
    """Whether an action was executed, and is known."""

    def width(self, block: str) -> int:
        return self.kind[_BLOCKS[block]].shape[0]


def _header(file: BufferedIOBase, source: str) -> tuple[dict[str, Any], int]:
    """What it says, and the bytes up to the first record."""
    begin = file.read(16)
    if begin[: len(MAGIC)] != MAGIC:
        raise UserError(f"{source} is no recording of musbo: check that it is the file you meant.")
    version, length = struct.unpack_from("<II", begin.ljust(16, b"\xff"), 8)
    text = b"" if length > LARGEST_HEADER else file.read(length)
    checksum = file.read(4)
    if len(begin) < 16 or length > LARGEST_HEADER or len(text) < length or len(checksum) < 4:
        raise UserError(f"{source} ends within its header: copy it again.")
    if zlib.crc32(begin + text) != struct.unpack("<I", checksum)[0]:
        raise UserError(f"{source} is damaged: the checksum of its header differs; copy it again.")
    header = parse_json(text, source)
    require_known(header, "musbo-recording", VERSION, source)
    if version != header["version"]:
        raise UserError(f"{source} says two versions of its format: write it again.")
    return header, 20 + length


def _read(file: BufferedIOBase, source: str) -> Sound:
    """Check every record."""
    header, begin = _header(file, source)
    kind = _record(*(len(_names(header, key, source)) for key in ("obs", "act")))
    stamp = _stamp(file)
    count = (stamp[0] - begin) // kind.itemsize
    small, seen, acted = np.empty(count, _SMALL), np.empty(count, bool), np.empty(count, bool)
    wrong: list[int] = []
    odd: list[int] = []
    for first, records, data in _blocks(file, kind, count, source):
        here = slice(first, first + len(records))
        size = kind.itemsize
        each = (zlib.crc32(data[i * size : (i + 1) * size - 4]) for i in range(len(records)))
        checksums = np.fromiter(each, np.uint32, len(records))
        wrong += (first + np.flatnonzero(checksums != records["checksum"])).tolist()
        odd += (first + np.flatnonzero(records["number"] != np.arange(first, first + len(records)))[:2]).tolist()
        for key in _SMALL.names or ():
            small[key][here] = records[key]
        seen[here] = np.isfinite(records["obs"]).all(axis=1)
        acted[here] = np.isfinite(records["executed"]).all(axis=1) & (records["flags"] & CLOSING == 0)
    count -= wrong == [count - 1]  # what a power cut left of the last one
    if wrong and wrong[0] < count:
        raise UserError(
            f"{source} is damaged: {len(wrong)} records have a wrong checksum, first record {wrong[0]}; copy it again."
        )
    if odd and odd[0] < count:
        raise UserError(f"{source} is damaged: its records are not numbered from 0; copy it again.")
    small, seen, acted = small[:count], seen[:count], acted[:count]
    _require_sound(small, source)
    return Sound(source, header, kind, begin, stamp, small, seen, acted)


def _stamp(file: BufferedIOBase) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _blocks(
    file: BufferedIOBase, kind: np.dtype, count: int, source: str
) -> Iterator[tuple[int, np.ndarray, memoryview]]:
    """The records from here on, some at a time: the number of the first, the records, and their bytes."""
    most = max(1, BLOCK // kind.itemsize)
    for first in range(0, count, most):
        size = min(most, count - first) * kind.itemsize
        data = file.read(size)
        if len(data) != size:
            raise UserError(f"{source} became shorter while it was read: try again when nothing writes to it.")
        yield first, np.frombuffer(data, kind), memoryview(data)


def _told(sound: Sound) -> Iterator[Finding]:
    """What is not among the transitions."""
    small, n = sound.small, len(sound.small)
    if lost := int(np.sum(~sound.seen)):
        what = f"{lost:,} of {n:,} records have an observation that is not finite, and were left out"
        yield Finding(
            "left out", _level(lost, n), what, "see why the sensors failed; episodes are cut there", rows=lost
        )
    unknown = np.flatnonzero(~sound.acted & (small["flags"] & CLOSING == 0))
    if len(unknown):
        shadow = ", as in shadow mode" if np.all(small["flags"][unknown] & SHADOW) else ""
        what = f"nobody knows what was done in {len(unknown):,} of {n:,} records{shadow}: they are no transitions"
        yield Finding(
            "left out", _level(len(unknown), n), what, "record the executed actions", row=int(unknown[0]),
            rows=len(unknown),
        )  # fmt: skip
    same = small["episode"][1:] == small["episode"][:-1]
    gaps = np.flatnonzero(same & (small["step"][1:] != small["step"][:-1].astype(np.int64) + 1))
    if len(gaps):
        what = f"steps are missing in {len(gaps):,} places, first after record {gaps[0]}, and episodes are cut there"
        do = "see why they were not recorded"
        yield Finding("missing steps", "warning", what, do, row=int(gaps[0]), rows=len(gaps))


def _level(count: int, of: int) -> Literal["warning", "note"]:
    return "warning" if count > SELDOM * of else "note"


def _wide(path: Path, sound: Sound, chosen: Sequence[tuple[str, int]]) -> dict[str, np.ndarray]:
    """Columns of the wide blocks, of the rows whose observation is finite."""
    if not chosen:
        return {}
    found = {f"{block}_{i}": np.empty(int(sound.seen.sum()), np.float32) for block, i in chosen}
    with path.open("rb") as file:
        if _stamp(file) != sound.stamp:
            raise UserError(f"{sound.source} was changed while it was read: try again when nothing writes to it.")
        file.seek(sound.begin)
        done = 0
        for first, records, _ in _blocks(file, sound.kind, len(sound.small), sound.source):
            here = slice(first, first + len(records))
            seen, acted = sound.seen[here], sound.acted[here]
            count = int(seen.sum())
            for block, i in chosen:
                values = records[_BLOCKS[block]][:, i]
                # In a closing row nothing was executed, and nobody asks: only its observation is used.
                values = np.where(acted, values, np.float32(0)) if block == "act" else values
                found[f"{block}_{i}"][done : done + count] = values[seen]
            done += count
    return found


def _names(header: Any, key: str, source: str) -> list[str]:
    names = header.get(key)
    if not isinstance(names, list) or not 1 <= len(names) <= WIDEST or not all(isinstance(n, str) for n in names):
        raise UserError(f"{source}: its header must list the names of {key}: write it again.")
    return names


def _said(header: dict[str, Any], source: str) -> dict[str, Said]:
    """What the header says of its columns. Bundles call what has no name obs_0, ..., which says nothing."""
    found: dict[str, Said] = {}
    for block in ("obs", "act"):
        names = _names(header, block, source)
        units = header.get(f"{block}_units") or [""] * len(names)
        if not isinstance(units, list) or len(units) != len(names) or not all(isinstance(u, str) for u in units):
            raise UserError(f"{source}: its header must list as many units of {block} as names: write it again.")
        for i, (name, unit) in enumerate(zip(names, units, strict=True)):
            column = f"{block}_{i}"
            found[column] = Said("" if name == column else name, unit)
    return found


def _record(obs: int, act: int) -> np.dtype:
    wide = [("obs", "<f4", (obs,)), *((name, "<f4", (act,)) for name in ("commanded", "executed", "noise"))]
    return np.dtype([("number", "<u8"), *_SMALL.descr, *wide, ("checksum", "<u4")])


def _require_sound(small: np.ndarray, source: str) -> None:
    for key, most in (("source", len(SOURCES)), ("reason", len(REASONS))):
        if (small[key] >= most).any():
            row = int(np.flatnonzero(small[key] >= most)[0])
            raise UserError(f"{source}: record {row} has the {key} {small[key][row]}, and there are {most}.")


def _columns(sound: Sound) -> dict[str, Callable[[], Any]]:
    """All columns but the wide ones, each made when it is asked for.

    Rows whose observation is no number are left out, since nothing can be learned from them.
    """
    small, seen, acted = sound.small, sound.seen, sound.acted
    # A row begins an episode unless it follows the one before it without a gap.
    follows = np.zeros(len(small), bool)
    follows[1:] = (
        (small["episode"][1:] == small["episode"][:-1])
        & (small["step"][1:] == small["step"][:-1].astype(np.int64) + 1)
        & seen[:-1]
        & acted[:-1]
    )
    kept = small if seen.all() else small[seen]
    begins = ~follows[seen]
    last = np.append(begins[1:], True)[: len(kept)]
    row = np.arange(len(kept), dtype=np.int32)

    def flag(bit: int) -> np.ndarray:
        return kept["flags"] & bit > 0

    def words(codes: np.ndarray, known: Sequence[str]) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(known))

    def same(key: str) -> Any:
        return words(np.zeros(len(kept), np.int8), [str(sound.header.get(key, ""))])

    def by() -> np.ndarray:
        """Policies may share the episodes: see `SharedActor`."""
        shares = _shares(sound.header)
        number = shares[kept["episode"] % len(shares)]
        return np.where(kept["source"] == 0, number, -kept["source"].astype(np.int8))

    columns: dict[str, Callable[[], Any]] = {}
    if not last.all() and np.isfinite(kept["reward"][~last]).all():
        columns["reward"] = lambda: np.where(last, np.float32(0), kept["reward"])
    return columns | {
        "terminated": lambda: flag(TERMINATED),
        "truncated": lambda: flag(TRUNCATED) & ~flag(TERMINATED),
        "episode": lambda: np.cumsum(begins, dtype=np.int32) - 1,
        "step": lambda: row - np.maximum.accumulate(np.where(begins, row, 0)),
        "by": by,
        "time": lambda: np.ascontiguousarray(kept["time"]),
        "source": lambda: words(kept["source"], SOURCES),
        "reason": lambda: words(kept["reason"], REASONS),
        "shadow": lambda: flag(SHADOW),
        "fallback_failed": lambda: flag(FALLBACK_FAILED),
        "signal": lambda: np.ascontiguousarray(kept["signal"]),
        "machine": lambda: same("machine"),
        "bundle": lambda: same("bundle"),
    }


MOST_SHARES = 1000


def _shares(header: dict[str, Any]) -> np.ndarray:
    """The number of the policy that has episode 0, 1, ..., over and over; 0 alone where nothing else can be read.

    The first runtimes wrote `every`: the second of so many episodes was the challenger's.
    """
    said, every = header.get("shares"), header.get("every")
    if isinstance(every, int) and 1 < every <= MOST_SHARES:
        said = [int(i == 1) for i in range(every)]
    if not isinstance(said, list) or not 0 < len(said) <= MOST_SHARES:
        return np.zeros(1, np.int8)
    sound = all(type(number) is int and 0 <= number <= 127 for number in said)
    return np.asarray(said if sound else [0], np.int8)
