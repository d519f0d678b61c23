"""Artefacts are whole or absent, whatever is killed, and never other than what their name says."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import musbo
from musbo.campaign.events import Collected
from musbo.campaign.store import Store, stored_batch
from musbo.core.durable import is_temporary
from musbo.core.errors import UserError
from musbo.data.files import batch_bytes
from tests.contract.test_recipes import random_batch

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1


def test_an_artefact_is_named_by_its_content(tmp_path: Path) -> None:
    store = Store(tmp_path / "a" / "store")
    assert store.names() == []
    name = store.put_bytes(b"abc", ".npz")
    assert name == f"{ABC}.npz"
    assert store.get(name) == b"abc"
    assert store.path(name).read_bytes() == b"abc"
    assert store.put_bytes(b"abc", ".npz") == name
    assert store.names() == [name]
    store.sweep(())
    assert store.names() == []


@given(contents=st.lists(st.binary(max_size=20), max_size=5), keep=st.sets(st.integers(0, 4)))
def test_sweep_keeps_what_it_is_told(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], keep: set[int]
) -> None:
    store = Store(tmp_path_factory.mktemp("sweep"))
    names = [store.put_bytes(data, ".parquet") for data in contents]
    kept = {name for i, name in enumerate(names) if i in keep}
    removed = store.sweep(kept)
    assert set(store.names()) == kept
    assert sorted(removed) == sorted(set(names) - kept)
    assert all(store.get(name) == data for name, data in zip(names, contents, strict=True) if name in kept)


def test_sweep_removes_unfinished_files_and_leaves_those_of_other_people(tmp_path: Path) -> None:
    store = Store(tmp_path)
    stray = tmp_path / ".0123456789abcdef.tmp"
    for path in (stray, tmp_path / "notes.txt", tmp_path / ".hidden.tmp"):
        path.write_text("x")
    (tmp_path / "folder").mkdir()
    assert store.sweep(set()) == [stray.name]
    assert sorted(os.listdir(tmp_path)) == [".hidden.tmp", "folder", "notes.txt"]


@pytest.mark.parametrize("damage", [b"", b"ab", b"abd", b"abcd"])
def test_a_damaged_artefact_is_refused_and_can_be_put_again(tmp_path: Path, damage: bytes) -> None:
    store = Store(tmp_path)
    name = store.put_bytes(b"abc", ".npz")
    store.path(name).write_bytes(damage)
    with pytest.raises(UserError, match=f"{name} is damaged"):
        store.get(name)
    store.put_bytes(b"abc", ".npz")
    assert store.get(name) == b"abc"


def test_a_missing_artefact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read .*No such file"):
        Store(tmp_path).get(f"{ABC}.npz")


@pytest.mark.parametrize(
    "name", ["", "abc.npz", f"../{ABC}", f"{ABC}/../x", ABC.upper(), f"{ABC}.npz\n", ".0123456789abcdef.tmp"]
)
def test_a_name_cannot_point_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="does not name an artefact"):
        Store(tmp_path).path(name)


def test_artefacts_can_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    store = Store(tmp_path)
    mask = os.umask(0o022)
    try:
        name = store.put_bytes(b"abc", ".npz")
    finally:
        os.umask(mask)
    assert store.path(name).stat().st_mode & 0o777 == 0o644


KILLED = """
import os, signal, sys
from pathlib import Path
from musbo.campaign.events import Collected
from musbo.campaign.store import Store, stored_batch

function, call = sys.argv[2], int(sys.argv[3])
real, calls = getattr(os, function), 0

def deadly(*args, **kwargs):
    global calls
    calls += 1
    if calls == call:
        if function == "fsync":
            os.ftruncate(args[0], 5)  # as if only a part had been written
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)

store = Store(Path(sys.argv[1]))
store.put_bytes(b"first" * 1000, ".npz")
setattr(os, function, deadly)
store.put_bytes(b"second" * 1000, ".npz")
store.put_bytes(b"third" * 1000, ".npz")
raise SystemExit("still alive")
"""


@pytest.mark.parametrize(
    ("function", "call", "written"),
    [("open", 1, 1), ("fsync", 1, 1), ("replace", 1, 1), ("open", 2, 2), ("replace", 2, 2), ("open", 4, 3)],
)
def test_kill_9_at_every_moment_of_a_write(tmp_path: Path, function: str, call: int, written: int) -> None:
    """The calls of a write are open (a temporary file), fsync, replace, open (the folder), fsync."""
    environment = {**os.environ, "PYTHONPATH": str(Path(musbo.__file__).parents[1])}
    child = [sys.executable, "-c", KILLED, str(tmp_path), function, str(call)]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr

    store = Store(tmp_path)
    whole = [b"first" * 1000, b"second" * 1000, b"third" * 1000][:written]
    assert {store.get(name) for name in store.names()} == set(whole)
    strays = [name for name in os.listdir(tmp_path) if is_temporary(name)]
    assert len(strays) == (function in ("fsync", "replace"))

    keep = set(store.names())
    assert store.sweep(keep) == strays
    assert set(os.listdir(tmp_path)) == keep
    assert store.get(store.put_bytes(b"second" * 1000, ".npz")) == b"second" * 1000


def test_a_batch_has_as_many_transitions_as_its_event_says(tmp_path: Path) -> None:
    store, batch = Store(tmp_path / "store"), random_batch()
    said = Collected(store.put_bytes(batch_bytes(batch), ".parquet"), len(batch), 1, 0.0, 1.0)
    assert len(stored_batch(store, said)) == len(batch)
    with pytest.raises(UserError, match=f"has {len(batch)} transitions, and the ledger says {len(batch) + 1}"):
        stored_batch(store, replace(said, transitions=len(batch) + 1))
