"""Forgeries: damage that no checksum finds, because its author knew what the readers check and made all of it anew.

So the readers behind the checksums see it: wrong types, numbers that are none, names that lead elsewhere, very much of
something, and what is missing, twice or too deep.
"""

import hashlib
import io
import json
import os
import pickle
import random
import sqlite3
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy

from musbo.campaign import events, seal
from musbo.core import serial
from musbo.core.errors import UserError
from musbo.data.files import METADATA_KEY, batch_from_bytes, digest
from musbo.field.bundle import checksums
from tests.trust.damage import mangle

Forgery: TypeAlias = dict[Path, bytes | None]
"""Files with their new content; None: it is removed."""


class Trap:
    """What would run if it were unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (os.environ["TRAP"], 0o777, True)


# JSON

DEEP = 100_000
RAW = (
    "null", "true", "false", "0", "-1", "7", "0.5", "1e999", "-1e999", "NaN", "1e308", "1e-320", "9" * 400, "9" * 5000,
    str(2**31), str(2**63), str(-(2**63) - 1), '""', '"x"', '"\\u0000"', '"\\ud800"', '"\\u202e\\u001b[31m"',
    '"../../outside"', '"/etc/passwd"', '"' + "x" * 5000 + '"', '"%s{0}{x}"', "[]", "{}", "[[]]", "[1, 2, 3]",
    '["a", "a"]', "[null]", '{"a": 1}', '{"float": "nan"}', '{"float": "-inf"}', '{"tuple": []}', '{"tuple": [1, "a"]}',
    '{"array": "x"}', '{"type": "event/stopped", "version": 1, "fields": {}}', '{"type": "x"}',
    '{"key": 1, "impl": "x"}', "[" * 900 + "]" * 900, '{"a":' * DEEP + "1" + "}" * DEEP,
)  # fmt: skip
"""Values as they may stand in a file."""


def odd_json(text: str | bytes, rng: random.Random) -> bytes:
    """The same tree, with something odd in a place or two."""
    try:
        tree: Any = [json.loads(text)]
    except (ValueError, RecursionError):  # it is odd already
        return text.encode() if isinstance(text, str) else text
    raw: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = _places(tree)
        inside, key = rng.choice(places)
        match rng.randrange(12):
            case 0 if inside is not tree:
                del inside[key]
            case 1 if isinstance(inside, dict):
                inside[rng.choice(["", "extra", "../x", "\0", "__class__", "x" * 1000])] = inside[key]
            case 2 if isinstance(inside, dict):
                inside[rng.choice(["renamed", key + " ", key.upper()])] = inside.pop(key)
            case 3 | 4:  # what stands elsewhere
                other, name = rng.choice(places)
                inside[key] = json.loads(json.dumps(other[name]))
            case 5 | 6 if isinstance(inside[key], int | float):
                inside[key] = rng.choice([-inside[key], inside[key] + 1, inside[key] * 1000, -1, 0, 0.5])
            case 7 if isinstance(inside[key], list):
                inside[key] = inside[key][1:] or [inside[key]]
            case 8 if isinstance(inside[key], list):
                inside[key] = inside[key] * 2
            case _:
                raw.append(rng.choice(RAW))
                inside[key] = f"@{len(raw) - 1}@"
        if len(raw) and raw[-1] == RAW[-1]:
            break
    found = json.dumps(tree)[1:-1]
    for i, literal in enumerate(raw):
        found = found.replace(f'"@{i}@"', literal)
    return found.encode()


def _places(tree: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        inside = waiting.pop()
        keys = inside if isinstance(inside, dict) else range(len(inside))
        for key in keys:
            found.append((inside, key))
            if isinstance(inside[key], dict | list):
                waiting.append(inside[key])
    return found


# Recordings


def recording(data: bytes, rng: random.Random) -> bytes:
    """Other numbers, with the right checksums: any bits at all in some records, or another header."""
    length = struct.unpack_from("<I", data, 12)[0]
    begin = 20 + length
    text, body = data[16 : 16 + length], bytearray(data[begin:])
    header = json.loads(text)
    width = 40 + 4 * (len(header["obs"]) + 3 * len(header["act"]))
    for _ in range(rng.choice((0, 0, 1, 2, 40))):
        row = rng.randrange(len(body) // width)
        at = row * width + rng.randrange(width - 4)
        value = rng.choice(
            [b"\0", b"\xff\xff\xff\xff", b"\0\0\xc0\x7f", b"\0\0\x80\x7f", rng.randbytes(4), rng.randbytes(8)]
        )
        body[at : at + len(value)] = value
        for first in range(row * width, min(len(body), (row + 2) * width), width):
            struct.pack_into("<I", body, first + width - 4, zlib.crc32(body[first : first + width - 4]))
    if rng.random() < 0.5:
        text = odd_json(text, rng) if rng.random() < 0.9 else mangle(text, rng)
    version = rng.choice([0, 2, 2**32 - 1]) if rng.random() < 0.05 else 1
    head = b"MUSBOREC" + struct.pack("<II", version, len(text)) + text
    return head + struct.pack("<I", zlib.crc32(head)) + bytes(body[: len(data) - begin])


# Batches


def parquet(data: bytes, rng: random.Random) -> bytes:
    """Other columns, types and numbers, with the digest of what they are."""
    table = pq.read_table(io.BytesIO(data))
    columns = [(name, table.column(name).combine_chunks()) for name in table.column_names]
    for _ in range(rng.randrange(4)):
        i = rng.randrange(len(columns))
        name, column = columns[i]
        match rng.randrange(8):
            case 0 if len(columns) > 1:
                del columns[i]
            case 1:
                columns.append((rng.choice([name, "extra", "obs_99", "obs_-1", "act_1e9", "", "\0"]), column))
            case 2:
                columns[i] = (rng.choice(["obs_9999999999", "obs_x", name.upper(), "../x"]), column)
            case 3 | 4:
                columns[i] = (name, _odd_type(column, rng))
            case _ if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
                columns[i] = (name, _odd_numbers(column, rng))
    rows = 0 if rng.random() < 0.05 else min(len(column) for _, column in columns)
    made = pa.table([column[:rows] for _, column in columns], names=[name for name, _ in columns])
    header: dict[str, Any] = {"format": "musbo-batch", "version": rng.choice([1, 2, 3, 3, 3])}
    metadata = {} if rng.random() < 0.2 else {METADATA_KEY: json.dumps(header).encode()}
    try:  # the reader says itself what the digest is
        if header["version"] > 1:
            header["sha256"] = digest(batch_from_bytes(_parquet(made, {})), header["version"])
            metadata = {METADATA_KEY: json.dumps(header).encode()} if metadata else {}
    except (UserError, ValueError, OverflowError):
        pass
    if rng.random() < 0.2:
        metadata = {METADATA_KEY: odd_json(json.dumps(header), rng)}
    return _parquet(made, metadata, rng.choice(["none", "zstd", "snappy", "gzip"]), rng.random() < 0.3)


def _parquet(table: pa.Table, metadata: dict[bytes, bytes], compression: str = "none", words: bool = False) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), sink, compression=compression, use_dictionary=words)
    return sink.getvalue()


def _odd_type(column: pa.Array, rng: random.Random) -> pa.Array:
    values, n = column.to_pylist(), len(column)
    odd: list[Callable[[], pa.Array]] = [
        lambda: pa.array([str(value) for value in values]),
        lambda: pa.array([str(value) for value in values]).dictionary_encode(),
        lambda: pa.array([[value] for value in values]),
        lambda: pa.array([{"a": value} for value in values]),
        lambda: pa.array([pickle.dumps(Trap())] * n),
        lambda: pa.nulls(n),
        lambda: pa.nulls(n, column.type),
        lambda: pa.array([None if i % 7 == 3 else value for i, value in enumerate(values)], column.type),
        lambda: pa.array([float(value) for value in values], pa.float64()),
        lambda: pa.array([2**63 + i for i in range(n)], pa.uint64()),
        lambda: pa.array([-(2**63) + i for i in range(n)], pa.int64()),
        lambda: pa.array(np.asarray(values, np.float16), pa.float16()),
        lambda: pa.array(range(n), pa.timestamp("s")),
        lambda: pa.array(range(n), pa.duration("ns")),
        lambda: pa.array([i % 86400 for i in range(n)], pa.time32("s")),
        lambda: pa.array([i % 2 == 0 for i in range(n)]),
        lambda: pa.array(range(n), pa.int64()).cast(pa.decimal128(38, 10)),
        lambda: pa.array(["\ud800".encode("utf-8", "surrogatepass")] * n, pa.binary()).view(pa.string()),
    ]
    return rng.choice(odd)()


def _odd_numbers(column: pa.Array, rng: random.Random) -> pa.Array:
    values = np.array(column)
    floats = values.dtype.kind == "f"
    odd = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-44, 0.0] if floats else [0, 1, -1, 127, 2**31 - 1, -(2**31)]
    rows = slice(None) if rng.random() < 0.3 else np.asarray(rng.sample(range(len(values)), min(5, len(values))))
    with np.errstate(over="ignore"):
        values[rows] = np.asarray(rng.choice(odd)).astype(values.dtype)
    return pa.array(values)


# Archives of arrays


def npz(data: bytes, rng: random.Random) -> bytes:
    """Members with other names, other contents, pickles among them, and very much of nothing."""
    members = _members(data)
    if rng.random() < 0.4:
        name = rng.choice(list(members))
        members[name] = odd_array(members[name], rng)
        return _zipped(members)
    return _odd_members(members, rng)


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(members: dict[str, bytes], more: tuple[str, bytes] | None = None, stored: bool = False) -> bytes:
    sink = io.BytesIO()
    how = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(sink, "w", how, compresslevel=1) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the name is there already
        for each, value in (*members.items(), *([more] if more else [])):
            archive.writestr(zipfile.ZipInfo(each), value, how)
    return sink.getvalue()


def _odd_members(members: dict[str, bytes], rng: random.Random) -> bytes:
    name = rng.choice(list(members))
    objects = io.BytesIO()
    np.lib.format.write_array(objects, np.array([Trap(), Trap()], object), allow_pickle=True)
    odd = {
        "traversal": ("../../outside", members[name]),
        "absolute": (os.environ["TRAP"] + "/outside", members[name]),
        "objects": (name, objects.getvalue()),
        "pickle": (name, pickle.dumps(Trap())),
        "bomb": (name, bytes(60_000_000)),
        "new bomb": ("bomb.npy", bytes(60_000_000)),
        "mangled": (name, mangle(members[name], rng)),
        "empty": (name, b""),
        "folder": ("folder/", b""),
        "twice": (name, members[name]),
        "surrogate": ("a\udc80\\..\\x".encode("utf-8", "surrogateescape").decode("latin-1"), b"x"),
    }
    kind = rng.choice(list(odd))
    if kind in ("traversal", "absolute", "new bomb", "folder", "twice", "surrogate"):
        return _zipped(members, odd[kind])
    return _zipped(members | {name: odd[kind][1]})


def odd_array(data: bytes, rng: random.Random) -> bytes:
    """A .npy of another shape, type or content; or one whose header says something else than what follows."""
    array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    odd: list[Callable[[], Any]] = [
        lambda: array.T,
        lambda: array.reshape(-1),
        lambda: array[..., None],
        lambda: array[:0],
        lambda: array[:-1],
        lambda: np.concatenate([array, array]),
        lambda: np.zeros_like(array),
        lambda: np.full_like(array, np.nan) if array.dtype.kind == "f" else array,
        lambda: array * array.dtype.type(-1) if array.dtype.kind != "b" else ~array,
        lambda: array.astype(np.float64) * 1e38,
        lambda: array.astype("S5"),
        lambda: array.astype("U2"),
        lambda: array.astype(np.complex64),
        lambda: array.astype(">f4"),
        lambda: array.astype(np.float16),
        lambda: array.astype("M8[s]") if array.dtype.kind in "iu" else array.astype(np.int64),
        lambda: np.float32(1.0),
        lambda: np.zeros((2, 0, 3), np.float32),
        lambda: np.zeros(array.shape, [("a", "<f4"), ("b", "<i4")]),
        lambda: np.asfortranarray(array.astype(np.float32)),
        lambda: np.where(rng.random() < 0.5, array, array[:1]).astype(array.dtype) if len(array) else array,
    ]
    sink = io.BytesIO()
    if rng.random() < 0.75:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.lib.format.write_array(sink, np.asarray(rng.choice(odd)()), allow_pickle=False)
        return sink.getvalue()
    shape = rng.choice(
        ["(1000000000000,)", "(-1, -50)", "(2**60,)", "(" + "1," * 5000 + ")", "(True, 3)", "None", "('a',)", "(1e9,)"]
    )
    kind = rng.choice(["'<f4'", "'|O'", "[('a', '<f4', (1000000,))]", "'<f4,<f4'", "None", "'V1000000000'", "'<f16'"])
    text = f"{{'descr': {kind}, 'fortran_order': {rng.choice(['False', 'True', '7'])}, 'shape': {shape}, }}"
    text = text.ljust((len(text) + 64) // 64 * 64 - 11) + "\n"
    version, size = rng.choice([((1, 0), "<H"), ((2, 0), "<I"), ((3, 0), "<I"), ((9, 9), "<H")])
    return b"\x93NUMPY" + bytes(version) + struct.pack(size, len(text)) + text.encode() + data[-200:]


# Bundles


def bundle(files: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """Files of a bundle, some of them others, with the checksums of what they are."""
    files = dict(files)
    for _ in range(rng.choice((1, 1, 2))):
        match rng.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                files["manifest.json"] = odd_json(files["manifest.json"], rng)
            case 5 | 6:
                name = rng.choice(["weights.npz", "golden.npz"])
                files[name] = _odd_arrays(files[name], rng)
            case 7:
                files["limits.toml"] = _odd_limits(files.get("limits.toml", b""), rng)
            case 8:
                del files[rng.choice(sorted(files))]
                break
            case _:
                name = rng.choice(sorted(files))
                files[name] = mangle(files[name], rng)
    said = checksums({name: data for name, data in files.items() if name != "SHA256SUMS"})
    if "SHA256SUMS" in files:
        files["SHA256SUMS"] = said if rng.random() < 0.9 else _odd_sums(said, rng)
    return files


def _odd_arrays(data: bytes, rng: random.Random) -> bytes:
    members = _members(data)
    if not members or rng.random() < 0.2:
        return _odd_members(members, rng) if members else mangle(data, rng)
    name = rng.choice(list(members))
    match rng.randrange(5):
        case 0:
            del members[name]
        case 1:
            members[rng.choice(["policy.w9.npy", "x.npy", "policy.b0", "", "labeler.w0.npy"])] = members[name]
        case 2:
            members[name] = members[rng.choice(list(members))]
        case _:
            members[name] = odd_array(members[name], rng)
    return _zipped(members, stored=rng.random() < 0.95)


def _odd_limits(data: bytes, rng: random.Random) -> bytes:
    lines = data.decode("latin-1").split("\n")
    odd = ["nan", "1e999", "-1", "[]", "[" * 50_000, '"off"', '"x"', "[1, [2]]", "9" * 5000, "true", "{}", "1_0", "0x1"]
    known = ["low", "high", "change", "join", "noise", "obs_low", "obs_high", "stale", "late", "fallbacks", "cost"]
    key = rng.choice([*known, "fallback", "extra", "a.b", "[a]", ""])
    lines.insert(rng.randrange(1 + len(lines)), f"{key} = {rng.choice(odd)}")
    return "\n".join(lines).encode("latin-1") + rng.choice([b"", b"", b"\xff\xfe", b"\0"])


def _odd_sums(data: bytes, rng: random.Random) -> bytes:
    line = rng.choice(data.splitlines(keepends=True))
    return rng.choice(
        [data + line, data.replace(line, b""), data + b"0" * 64 + b"  ../../x\n", data * 1000, data.upper(), b"\n"]
    )


def archive(data: bytes, rng: random.Random) -> bytes:
    """A bundle as a .zip: its files, or the archive itself."""
    members = _members(data)
    return _zipped(bundle(members, rng)) if rng.random() < 0.7 else _odd_members(members, rng)


def folder(place: Path, rng: random.Random) -> Forgery:
    """The same as a folder."""
    before = {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
    after = bundle(before, rng)
    return {
        place / name: after.get(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    }


# Ledgers


def ledger(data: bytes, rng: random.Random) -> bytes:
    """Another history, with hashes that are right."""
    database = opened(data)
    _LEDGERS[rng.choice(list(_LEDGERS))](database, rng)
    if rng.random() < 0.9:
        rechain(database)
    if rng.random() < 0.04:
        odd = rng.choice(["'x'", "-1", "NULL", "x'00'", "1e300", "''", f"'{'g' * 64}'"])
        column = rng.choice(["events", "chain", "metrics", "total", "checkpoint"])
        _try(database, f"UPDATE seal SET {column} = {odd}")
    if rng.random() < 0.04:
        database.execute(f"PRAGMA user_version = {rng.choice([-1, 0, 1, 2, 4, 2**31 - 1])}")
    return database.serialize()


def opened(data: bytes) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.deserialize(data)
    database.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    database.execute("PRAGMA ignore_check_constraints = ON")
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute(f"DROP TRIGGER {name}")
    return database


def rechain(database: sqlite3.Connection) -> None:
    """Every hash anew, as far as the tables are there."""
    if not _has(database, "seal") or not _has(database, "events"):
        return
    chain, count = seal.FIRST, 0
    columns = [row[1] for row in database.execute("PRAGMA table_info(events)")]
    if "payload" not in columns or not _has(database, "checkpoint"):
        return
    for row in database.execute("SELECT id, time, kind, deployment, payload FROM events ORDER BY id").fetchall():
        chain, count = seal.chained(chain, row), count + 1
        database.execute("UPDATE events SET digest = ? WHERE id = ?", (chain, row[0]))
    metrics = (
        database.execute("SELECT deployment, stage, step, total, row FROM metrics").fetchall()
        if _has(database, "metrics")
        else []
    )
    under_way = database.execute("SELECT time, deployment, payload FROM checkpoint").fetchone()
    now = (count, chain, len(metrics), seal.added(seal.FIRST, metrics), seal.digest(under_way) if under_way else "")
    database.execute("UPDATE seal SET events = ?, chain = ?, metrics = ?, total = ?, checkpoint = ?", now)


def _has(database: sqlite3.Connection, table: str) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ? AND sql NOT LIKE '%GENERATED%'"
    return database.execute(query, (table,)).fetchone() == (1,)


def _try(database: sqlite3.Connection, statement: str, values: tuple[Any, ...] = ()) -> None:
    """What a constraint of the table does not allow is not done."""
    try:
        database.execute(statement, values)
    except sqlite3.Error:
        return


def _odd_payload(database: sqlite3.Connection, rng: random.Random) -> None:
    i, payload = rng.choice(database.execute("SELECT id, payload FROM events").fetchall())
    database.execute("UPDATE events SET payload = ? WHERE id = ?", (odd_json(payload, rng).decode(), i))


def _odd_cell(database: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(["events", "events", "metrics"])
    columns = {"events": ["id", "time", "kind", "deployment", "payload"]}
    column = rng.choice(columns.get(table, ["deployment", "stage", "step", "total", "row"]))
    rows = [row[0] for row in database.execute(f"SELECT rowid FROM {table}")]
    odd = [
        "NULL", "-1", "0", "1", "3", "99", str(2**62), "1e308", "9e999", "''", "'x'", "x'ff00'", "CAST(x'ff' AS TEXT)",
        "'null'", "'[]'", "'NaN'", "'stopped'", "'shard'", "'finished'", "'unknown'", "char(0)", "'{\"a\": 1e999}'",
        "'{\"a\": [[1]]}'", "'" + "[" * DEEP + "'",
    ]  # fmt: skip
    _try(database, f"UPDATE {table} SET {column} = {rng.choice(odd)} WHERE rowid = ?", (rng.choice(rows),))


def _odd_order(database: sqlite3.Connection, rng: random.Random) -> None:
    """Events that are missing, twice, or in another order."""
    ids = [row[0] for row in database.execute("SELECT id FROM events ORDER BY id")]
    one, other = rng.choice(ids), rng.choice(ids)
    columns = [row[1] for row in database.execute("PRAGMA table_info(events)")][1:]
    for index in ("once", "once_each"):
        if rng.random() < 0.5:
            database.execute(f"DROP INDEX IF EXISTS {index}")
    match rng.randrange(4):
        case 0:
            database.execute("DELETE FROM events WHERE id = ?", (one,))
        case 1:
            database.execute("DELETE FROM events WHERE id >= ?", (one,))
        case 2:
            names = ", ".join(columns)
            _try(database, f"INSERT INTO events ({names}) SELECT {names} FROM events WHERE id = ?", (one,))
        case _:
            for old, new in ((one, -1), (other, one), (-1, other)):
                _try(database, "UPDATE events SET id = ? WHERE id = ?", (new, old))


def _odd_event(database: sqlite3.Connection, rng: random.Random) -> None:
    """One more event, which may not come now."""
    some: list[events.What] = [
        events.Stopped(), events.Finished(), events.Withdrawn(), events.Abandoned(True, "x"), events.Abandoned(False),
        events.Shard("0" * 64 + ".parquet"), events.Failed("x"), events.Judged("0" * 64, True, "x"),
        events.Amended(budget=rng.choice([None, -5, 0, 1, 2**70]), limits=rng.choice([None, "x", "[]", '{"low": 1}'])),
        events.Exported("f" * 64, "0" * 64 + ".zip", rng.choice([-1, 0, 1, 99]), "0" * 64, rng.random() < 0.5),
        events.Evaluated(0.0), events.Trained("0" * 64 + ".safetensors", "../../outside", 1.0),
        events.Collected("../../../outside", rng.choice([-1, 0, 10**15]), 0, None, None, files=("../../outside",)),
    ]  # fmt: skip
    what, deployment = rng.choice(some), rng.choice([0, 1, 2, 2, 3, 7, 10**9])
    names = [row[1] for row in database.execute("PRAGMA table_info(events)")]
    row = {"time": 1.7e9, "kind": events.kind_of(what), "deployment": deployment, "digest": ""}
    row = {name: value for name, value in row.items() if name in names} | {"payload": events.to_text(what)}
    marks = ", ".join("?" * len(row))
    _try(database, f"INSERT INTO events ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


def _odd_checkpoint(database: sqlite3.Connection, rng: random.Random) -> None:
    text = events.to_text(events.Checkpoint("0" * 64 + ".safetensors", 1.0))
    row = (rng.choice([0.0, 1.7e9]), rng.choice([1, 2, 99]), odd_json(text, rng).decode())
    _try(database, "INSERT INTO checkpoint (time, deployment, payload) VALUES (?, ?, ?)", row)


def _odd_metrics(database: sqlite3.Connection, rng: random.Random) -> None:
    i, row = rng.choice(database.execute("SELECT rowid, row FROM metrics").fetchall())
    database.execute("UPDATE metrics SET row = ? WHERE rowid = ?", (odd_json(row, rng).decode(), i))


FOREVER = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t)"


def _odd_schema(database: sqlite3.Connection, rng: random.Random) -> None:
    """Tables that are computed, triggers of a stranger, and what no ledger has."""
    match rng.randrange(8):
        case 0:
            database.execute("DROP TABLE metrics")
            database.execute(
                f"CREATE VIEW metrics AS {FOREVER} SELECT 1 AS deployment, 'a' AS stage, x AS step, 1 AS total, '{{}}' "
                "AS row FROM t"
            )
        case 1:
            database.execute("ALTER TABLE events RENAME TO old")
            database.execute(f"CREATE VIEW events AS SELECT * FROM old WHERE ({FOREVER} SELECT max(x) FROM t) > 0")
        case 2:
            database.execute(
                "CREATE TRIGGER stranger BEFORE INSERT ON events "
                f"BEGIN SELECT max(x) FROM ({FOREVER} SELECT x FROM t); END"
            )
        case 3:
            database.execute("CREATE TRIGGER stranger AFTER INSERT ON events BEGIN DELETE FROM metrics; END")
        case 4:
            database.execute("DROP TABLE metrics")
            database.execute("CREATE TABLE metrics AS SELECT 1 AS deployment, 'a' AS stage, 1 AS step, 1 AS total")
            bomb = "hex(zeroblob(400000000))"
            database.execute(f"ALTER TABLE metrics ADD COLUMN row TEXT GENERATED ALWAYS AS ({bomb}) VIRTUAL")
        case 5:
            table = rng.choice(["events", "metrics", "checkpoint", "seal"])
            database.execute(f"DROP TABLE IF EXISTS {table}")
        case 6:
            _try(database, "ALTER TABLE events DROP COLUMN payload")
        case _:
            database.execute("CREATE TABLE other AS SELECT * FROM events")


_LEDGERS: dict[str, Callable[[sqlite3.Connection, random.Random], None]] = {
    "payload": _odd_payload, "payload too": _odd_payload, "payload again": _odd_payload, "cell": _odd_cell,
    "order": _odd_order, "event": _odd_event, "checkpoint": _odd_checkpoint, "metrics": _odd_metrics,
    "schema": _odd_schema,
}  # fmt: skip


# Artefacts


def artefact(file: Path, beside: Path, rng: random.Random) -> Forgery:
    """An artefact of a store, under the name of what it holds, and a ledger that names it so."""
    how = {".parquet": parquet, ".zip": archive, ".safetensors": safetensor}
    data = how[file.suffix](file.read_bytes(), rng)
    name = hashlib.sha256(data).hexdigest()
    database = opened(beside.read_bytes())
    database.execute("UPDATE events SET payload = replace(payload, ?, ?)", (file.stem, name))
    if file.suffix == ".zip":  # and the id of the bundle, as far as it has one
        old, new = (_id(each) for each in (file.read_bytes(), data))
        database.execute("UPDATE events SET payload = replace(payload, ?, ?)", (old, new))
    rechain(database)
    return {file: None, file.with_name(name + file.suffix): data, beside: database.serialize()}


def _id(data: bytes) -> str:
    return hashlib.sha256(_members(data).get("SHA256SUMS", b"")).hexdigest()


def safetensor(data: bytes, rng: random.Random) -> bytes:
    """Another tree or other arrays, with the digest of what they are."""
    arrays = safetensors.numpy.load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    manifest = json.loads(header["__metadata__"]["musbo"])
    manifest.pop("sha256")
    if rng.random() < 0.4:
        name = rng.choice(list(arrays))
        sink = io.BytesIO()
        np.lib.format.write_array(sink, arrays[name], allow_pickle=False)
        try:
            arrays[name] = np.ascontiguousarray(
                np.lib.format.read_array(io.BytesIO(odd_array(sink.getvalue(), rng)), allow_pickle=False)
            )
            safetensors.numpy.save(arrays)
        except Exception:  # what safetensors cannot hold
            del arrays[name]
    text = json.dumps(manifest)
    if rng.random() < 0.7:
        text = odd_json(text, rng).decode()
    try:
        manifest = json.loads(text)
        manifest["sha256"] = serial._digest(manifest, arrays)
        text = json.dumps(manifest, sort_keys=True)
    except (ValueError, RecursionError, TypeError):
        pass
    return safetensors.numpy.save(arrays, {"musbo": text})
