"""Files that are damaged in a random way, and what is read of them: the same as before, or one sentence.

    python -m tests.trust.damage WHOLE PLACE SEED FLIPS MANGLES KIND ...

reads damaged copies of WHOLE in PLACE, in a process of its own, so that its memory is that of the readers.
"""

import collections
import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from musbo.campaign import api, runner
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.campaign.store import Store
from musbo.campaign.summary import summary
from musbo.campaign.verify import verify
from musbo.cluster.study import Study, Variant, record, recorded, to_toml
from musbo.core import serial
from musbo.core.errors import UserError
from musbo.core.plain import plain
from musbo.data.files import read_batch
from tests.stories import tiny

SLOWEST = 5.0
"""Seconds that a refusal, or an answer, may take."""
LARGEST = 1_000_000
"""Kilobytes that a process which reads damaged files may hold, those of JAX among them."""


def make(folder: Path) -> None:
    """A whole run of two deployments, and a study beside it."""
    api.folders.create(folder / "run", tiny.settings())
    runner.advance(folder / "run", checkpoint_seconds=0.0)
    study = Study(("pointmass",), (Variant("musbo", "musbo"), Variant("cold", "musbo", ("--seed", "3"))), (0, 1, 2))
    record(folder / "study", study)
    (folder / "mine.toml").write_text(to_toml(study))


def numbers(run: Path) -> Any:
    """All that the ledger says."""
    with Ledger(run / LEDGER) as ledger:
        rows = [row.plain() for row in ledger.metrics()]
    return json.dumps([summary(run).plain(), rows])


def actions(path: Path) -> Any:
    policy = api.load_policy(path)
    return policy(np.linspace(-1, 1, 8).reshape(2, 4)).tobytes()


def rows(path: Path) -> Any:
    return [column.tobytes() for column in vars(read_batch(path)).values()]


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "ledger": ("run/ledger.sqlite", lambda folder: numbers(folder / "run")),
    "verify": ("run/ledger.sqlite", lambda folder: plain(verify(folder / "run"))),
    "policy": ("run/policy.safetensors", lambda folder: actions(folder / "run" / "policy.safetensors")),
    "batch": ("run/data/deployment-1.parquet", lambda folder: rows(folder / "run" / "data" / "deployment-1.parquet")),
    "store": ("run/store/*", lambda folder: stored(folder / "run")),
    "study": ("study/study.json", lambda folder: json.dumps(serial.to_json(recorded(folder / "study")))),
    "settings": ("run/settings.json", lambda folder: numbers(folder / "run")),
}
"""What is damaged, and what is read of it."""


def stored(run: Path) -> Any:
    store = Store(run / "store")
    return [store.get(name) for name in store.names()]


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(8 * len(data))
    return data[: at // 8] + bytes([data[at // 8] ^ (1 << at % 8)]) + data[at // 8 + 1 :]


def mangle(data: bytes, rng: random.Random) -> bytes:
    """One of many kinds of damage."""
    size, at = len(data), rng.randrange(len(data))
    length = rng.randrange(1, 1 + min(size, 1 << rng.randrange(1, 16)))
    match rng.randrange(9):
        case 0:
            return flip(data, rng)
        case 1:  # cut short
            return data[:at]
        case 2:  # a part is missing
            return data[:at] + data[at + length :]
        case 3:  # a part is there twice
            return data[: at + length] + data[at:]
        case 4:  # zeros, as after a power cut
            return data[:at] + bytes(min(length, size - at)) + data[at + length :]
        case 5:  # anything
            return data[:at] + rng.randbytes(min(length, size - at)) + data[at + length :]
        case 6:  # a part from elsewhere in the file
            other = rng.randrange(size)
            return data[:at] + data[other : other + length] + data[at + length :]
        case 7:  # a digit is another
            digits = [i for i, byte in enumerate(data[:200_000]) if 48 <= byte <= 57]
            place = rng.choice(digits) if digits else at
            return data[:place] + str(rng.randrange(10)).encode() + data[place + 1 :]
        case _:  # much more of it
            return data + rng.choice([b"[" * 100_000, b"9" * 5000, b"\0" * 1000, b'{"a":' * 50_000])


def damaged(
    whole: Path, place: Path, kind: str, hurt: Callable[[bytes, random.Random], bytes], seed: int, count: int
) -> Iterator[tuple[str, float]]:
    """How each damaged copy was taken (same, refused, or what went wrong), and the seconds it took."""
    pattern, read = READERS[kind]
    files = sorted(whole.glob(pattern))
    wanted = read(whole)
    for number in range(count):
        rng = random.Random(f"{kind} {seed} {number}")
        file = rng.choice(files)
        target = place / file.relative_to(whole)
        before = file.read_bytes()
        after = hurt(before, rng)
        target.unlink()
        target.write_bytes(after)
        began = time.monotonic()
        try:
            found = read(place)
            outcome = "same" if found == wanted else f"SILENT {kind} {number}: another value was read"
        except UserError as error:
            outcome = "refused" if str(error).strip() else f"EMPTY {kind} {number}"
        except Exception as error:
            outcome = f"TRACEBACK {kind} {number}: {type(error).__name__}: {error}"
        yield outcome, time.monotonic() - began
        target.unlink()
        shutil.copy(file, target)
        for stray in (target.with_name(target.name + "-journal"),):
            stray.unlink(missing_ok=True)


def peak() -> int | None:
    """The most kilobytes that this process has held, where the system says so.

    Not `getrusage`: on Linux it counts what the parent held when it started this process.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1])


def main(whole: str, place: str, seed: str, flips: str, mangles: str, *kinds: str) -> None:
    """A line of JSON for every kind of file and of damage."""
    shutil.copytree(whole, place)
    for kind in kinds:
        for hurt, count in ((flip, int(flips)), (mangle, int(mangles))):
            found: collections.Counter[str] = collections.Counter()
            slowest = 0.0
            for outcome, seconds in damaged(Path(whole), Path(place), kind, hurt, int(seed), count):
                found[outcome] += 1
                slowest = max(slowest, seconds)
            row = {"kind": kind, "hurt": hurt.__name__, "found": found, "slowest": slowest, "peak": peak()}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
