"""Logs from anywhere: damaged, forged or too large, each is read or refused in a sentence, and nothing is unpickled."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import musbo
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.data.mapping import mapping
from tests.trust import damage, damaged_logs
from tests.trust.test_damage import ENVIRONMENT

FILES = ("logs.csv", "logs.npz", "logs.hdf5", "logs.parquet", "mapping.toml")
MAPPING = mapping(obs="x", act="u", episode="run")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    damaged_logs.make(folder := tmp_path_factory.mktemp("logs"))
    return folder


def examine(whole: Path, place: Path, seed: int, flips: int, mangles: int, *names: str) -> None:
    words = ["-m", "tests.trust.damaged_logs", str(whole), str(place), *map(str, (seed, flips, mangles)), *names]
    done = subprocess.run(
        [sys.executable, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=60 + flips + mangles
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [sum(row["found"].values()) for row in rows] == [flips, mangles] * len(names)
    for row in rows:
        assert set(row["found"]) <= {"read", "refused"} and row["found"]["refused"], row
        assert row["slowest"] < damage.SLOWEST, row
        assert row["peak"] is None or row["peak"] < damage.LARGEST, row


def test_damage(whole: Path, tmp_path: Path):
    examine(whole, tmp_path, 0, 40, 40, *FILES)


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_much_damage(whole: Path, tmp_path: Path, name: str):
    examine(whole, tmp_path, 1, 300, 1450, name)


# npz


def npy(values: np.ndarray, header: dict[str, Any] | None = None) -> bytes:
    """An array as numpy writes it, or with another header."""
    sink = io.BytesIO()
    if header is None:
        np.lib.format.write_array(sink, values, allow_pickle=values.dtype.kind == "O")
    else:
        np.lib.format.write_array_header_1_0(sink, header)
        sink.write(values.tobytes())
    return sink.getvalue()


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return path


class Trap:
    """What would run if it were unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (os.environ["TRAP"], 0o777, True)


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))
    objects = np.empty(3, object)
    objects[:] = [Trap(), Trap(), Trap()]
    numbers, runs = npy(np.zeros(3)), npy(np.zeros(3, int))
    path = npz(tmp_path / "logs.npz", x=npy(objects), u=numbers, run=runs)
    with pytest.raises(UserError, match="x holds Python objects, and musbo unpickles nothing"):
        musbo.read_batch(path, MAPPING)
    beside = npz(tmp_path / "beside.npz", x=numbers, u=numbers, run=runs, other=npy(objects))
    assert len(musbo.read_batch(beside, MAPPING)) == 2
    assert main(["mapping", str(path)]) == 0
    assert not (tmp_path / "sprung").exists()
    np.load(path, allow_pickle=True)["x"]  # the trap is one
    assert (tmp_path / "sprung").exists()


def test_zip_bombs_are_refused_before_they_are_unpacked(tmp_path: Path):
    numbers, runs = npy(np.zeros(3)), npy(np.zeros(3, int))
    many = npy(np.zeros(30_000_000, np.uint8))  # 30 MB in 30 kB
    bomb = npz(tmp_path / "bomb.npz", x=many, u=many, run=many)
    assert bomb.stat().st_size < 200_000
    with pytest.raises(UserError, match="which stand for 90,000,000 numbers; musbo takes at most 20,000,000"):
        musbo.read_batch(bomb, MAPPING)
    header = {"descr": "<f8", "fortran_order": False, "shape": (3,)}
    for name, member in (
        ("longer", npy(np.zeros(4), header)),  # than its header says
        ("shorter", npy(np.zeros(2), header)),
        ("negative", npy(np.zeros(3), header | {"shape": (-3,)})),
        ("endless", npy(np.zeros(3), header | {"shape": (10**30,)})),
        ("wide", npy(np.zeros(3), header | {"shape": (3, 10**30)})),
        ("no type", npy(np.zeros(3), header | {"descr": "<q9"})),
        ("no header", b"\x93NUMPY\x01\x00v\x00" + b"(" * 118),
        ("no array", b"x"),
        ("new", b"\x93NUMPY\x03\x00" + npy(np.zeros(3))[8:]),
    ):
        with pytest.raises(UserError):
            musbo.read_batch(npz(tmp_path / f"{name}.npz", x=member, u=numbers, run=runs), MAPPING)


def test_names_in_a_zip_write_nothing(tmp_path: Path):
    numbers = npy(np.zeros(3))
    path = npz(tmp_path / "logs.npz", **{"../out": numbers, "/tmp/out": numbers, "u": numbers, "run": numbers})
    before = sorted(tmp_path.iterdir())
    found = musbo.read_batch(path, mapping(obs="../out", act="u", episode="run"))
    assert len(found) == 2 and sorted(tmp_path.iterdir()) == before


def test_compressions_that_numpy_does_not_write(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "logs.npz", "w", zipfile.ZIP_LZMA) as file:
        file.writestr("x.npy", npy(np.zeros(3)))
    with pytest.raises(UserError, match="not a readable npz file"):
        musbo.read_batch(tmp_path / "logs.npz", MAPPING)


# HDF5


def hdf5(path: Path, **more: Any) -> Path:
    """A file whose x is made by `create_dataset` with these arguments."""
    with h5py.File(path, "w") as file:
        file["u"], file["run"] = np.zeros(3), np.zeros(3, int)
        file.create_dataset("x", **more)
    return path


def test_hdf5_that_says_little_in_many_numbers(tmp_path: Path):
    path = hdf5(tmp_path / "empty.h5", shape=(10**12,), dtype="f8", chunks=(1000,))  # nothing of it is stored
    with pytest.raises(UserError, match="must have one length"):
        musbo.read_batch(path, MAPPING)
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for name in ("x", "u", "run"):
            file.create_dataset(name, shape=(10**10,), dtype="f8", chunks=(1000,))
    with pytest.raises(UserError, match="which stand for 30,000,000,000 numbers"):
        musbo.read_batch(tmp_path / "all.h5", MAPPING)
    path = hdf5(tmp_path / "block.h5", shape=(3,), maxshape=(None,), dtype="f8", chunks=(100_000_000,))
    with pytest.raises(UserError, match="no column 'x'"):  # one block of it would take 800 MB
        musbo.read_batch(path, MAPPING)


def test_hdf5_of_other_kinds(tmp_path: Path):
    text = hdf5(tmp_path / "text.h5", data=["a", "b", "c"])
    with pytest.raises(UserError, match="x holds Python objects"):  # as h5py would give them
        musbo.read_batch(text, MAPPING)
    record = hdf5(tmp_path / "record.h5", data=np.zeros(3, [("a", "f4"), ("b", "i4")]))
    with pytest.raises(UserError, match="x must hold numbers, but its type is"):
        musbo.read_batch(record, MAPPING)
    outside = hdf5(tmp_path / "outside.h5", shape=(3,), dtype="f8", external=[("/etc/hostname", 0, 24)])
    with pytest.raises(UserError, match="no column 'x'"):
        musbo.read_batch(outside, MAPPING)
    with h5py.File(tmp_path / "round.h5", "w") as file:
        file["x"], file["u"], file["run"] = np.zeros(3), np.zeros(3), np.zeros(3, int)
        file["group/back"] = file["/"]  # a group that holds itself
    assert len(musbo.read_batch(tmp_path / "round.h5", MAPPING)) == 2


# Places


def test_places_that_are_no_files(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.csv")
    for place, message in (
        (tmp_path / "pipe.csv", "is no file, but a directory or a device"),  # and nobody waits for its other end
        ("/dev/zero", "is no file, but a directory or a device"),
        (tmp_path, "is no file, but a directory or a device"),
        ("a\0b.csv", "NUL"),
        (tmp_path / "absent.csv", "No such file"),
    ):
        with pytest.raises(UserError, match=message):
            musbo.read_batch(place, MAPPING)


def test_mappings_without_end(tmp_path: Path, whole: Path):
    for text in ("obs = " + "[" * 100_000, "a." * 20_000 + "a = 1", "obs = [" + "9" * 5000 + "]", "obs = [[[[[]]]]]"):
        (tmp_path / "odd.toml").write_text(text)
        with pytest.raises(UserError):
            musbo.read_batch(whole / "logs.csv", tmp_path / "odd.toml")
