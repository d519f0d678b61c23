"""Damaged and forged files given to a campaign in the field, its ledger and its bundles among them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trust import damage, damaged_homes, forge
from tests.trust.test_damage import ENVIRONMENT


def examine(place: Path, seed: int, damages: int, forgeries: int, *kinds: str) -> None:
    """In a process of its own, whose memory is that of the readers."""
    words = ["-m", "tests.trust.damaged_homes", str(place / "place"), *map(str, (seed, damages, forgeries)), *kinds]
    most = 120 + damage.SLOWEST * (2 * damages + forgeries) * len(kinds)
    done = subprocess.run([sys.executable, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=most)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [sum(row["found"].values()) for row in rows] == [damages, damages, forgeries] * len(kinds)
    for row in rows:
        assert set(row["found"]) <= {"valid", "refused"} and row["found"]["refused"], row
        assert row["peak"] is None or row["peak"] < damage.LARGEST, row


def test_damage(tmp_path: Path):
    """180 files."""
    examine(tmp_path, 0, 4, 12, *damaged_homes.KINDS)


@pytest.mark.long
@pytest.mark.parametrize("kind", damaged_homes.KINDS)
def test_much_damage(tmp_path: Path, kind: str):
    """In all 10,080 files, most of them forged."""
    examine(tmp_path, 1, 210, 700, kind)


def test_the_trap_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is hidden in forged files would be noticed if anything unpickled it."""
    import pickle

    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))
    pickle.loads(pickle.dumps(forge.Trap()))
    assert os.path.isdir(tmp_path / "sprung")
