"""What comes home to a campaign in the field, and what lies in it, damaged in a random way: refused or still valid.

    python -m tests.trust.damaged_homes PLACE SEED FLIPS MANGLES KIND ...

works in PLACE, in a process of its own, so that its memory is that of the readers, and so that one that dies is
noticed. Every damaged file is given to the verbs that read it. Whatever happens, the folder of the campaign holds what
it held before, or what the verb that succeeded had to add; nothing beside it is written, and nothing is unpickled.
"""

import collections
import contextlib
import hashlib
import io
import json
import os
import pickle
import random
import shutil
import struct
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import musbo
from musbo.campaign.field_campaign import Campaign
from musbo.cli import main as musbo_main
from musbo.core.errors import UserError
from musbo.field.runtime import FieldError, Runtime
from tests.campaign.homes import awaited, batch_of, recorded, records, waiting, walks
from tests.trust.damage import flip, mangle, peak

MAPPING = 'obs = ["obs"]\nact = ["act"]\nreward = "reward"\nnext_obs = ["next_obs"]\nepisode = "episode"\n'
MADE = walks(4)


def make(place: Path) -> None:
    """A campaign whose round is in the field, and what came home to it in every form."""
    campaign = waiting(place / "campaign")
    bundle = awaited(campaign)
    campaign.export(out=place / "bundle", bundle=bundle)
    shutil.rmtree(place / "campaign")  # that export left its lock, and was written down
    waiting(place / "campaign")
    recorded(place / "home.musbo", records(MADE), bundle)
    batch = batch_of(MADE)
    musbo.write_batch(place / "home.parquet", batch)
    arrays = {name: getattr(batch, name) for name in ("obs", "act", "reward", "next_obs", "episode")}
    np.savez(place / "home.npz", allow_pickle=False, **arrays)
    (place / "mapping.toml").write_text(MAPPING)


# What is read of each


def said(*words: str) -> tuple[int, str]:
    """The exit code of a command, and what it prints; an exception of it is not caught."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = musbo_main(list(words))
    return code, out.getvalue() + err.getvalue()


def told(*words: str) -> str:
    code, text = said(*words)
    if "Traceback" in text or (code and not text.strip()):
        return f"TRACEBACK {text[-300:]}"
    return "valid" if code == 0 else "refused" if code == 2 else f"CODE {code}"


def arriving(place: Path, file: Path) -> str:
    """`musbo check` changes nothing, whatever it says; `musbo ingest` takes it or changes nothing."""
    folder, before = place / "campaign", everything(place)
    more = ["--mapping", str(place / "mapping.toml")] if file.suffix == ".npz" else []
    checked = told("check", str(file), "--campaign", str(folder), *more)
    if everything(place) != before:
        return "CHECK CHANGED SOMETHING"
    taken = told("ingest", str(folder), str(file), "--accept", *more)
    now = everything(place)
    if taken == "valid":
        return afterwards(place, before, now)
    if checked == "valid" and taken == "refused":
        return "CHECK SAYS LESS"
    return taken if now == before else "REFUSED AND CHANGED SOMETHING"


def afterwards(place: Path, before: dict[str, str], now: dict[str, str]) -> str:
    """A batch and perhaps a recording are new, and the ledger is another; all of it is sound."""
    changed = {name for name in now.keys() | before.keys() if now.get(name) != before.get(name)}
    odd = [name for name in changed if not name.startswith(("campaign/store/", "campaign/ledger.sqlite"))]
    problems = Campaign(place / "campaign").verify().problems
    shutil.rmtree(place / "campaign")
    waiting(place / "campaign")
    return f"CHANGED {odd} {problems}" if odd or problems else "valid"


def leaving(place: Path, file: Path) -> str:
    """A bundle, by `musbo verify` and by the runtime that numpy alone drives."""
    bundle, before = (file if file.suffix == ".zip" else file.parent), everything(place)
    verified = told("verify", str(bundle))
    try:
        with Runtime(bundle, fallback=[0.0, 0.0], seed=0) as controller:
            action = controller.act(np.zeros(4, np.float32))
        ran = "valid" if action is not None and np.all(np.abs(action) <= 1) else "WILD"
    except FieldError as error:
        ran = "refused" if str(error).strip() else "EMPTY"
    if everything(place) != before:
        return "CHANGED SOMETHING"
    # limits.toml is the site's: the runtime reads it, and the bundle is sound without.
    return ran if ran == verified else f"VERIFY SAYS {verified}, THE RUNTIME {ran}"


def lying(place: Path, file: Path) -> str:
    """The ledger or an artefact of a campaign: what every verb says that looks, and one that would write."""
    folder, before = place / "campaign", everything(place)
    found = [told(verb, str(folder)) for verb in ("status", "history", "verify")]
    if everything(place) != before:
        return "CHANGED SOMETHING"
    found.append(told("ingest", str(folder), str(place / "home.musbo"), "--accept"))
    changed = {name for name, digest in everything(place).items() if before.get(name) != digest}
    if any(not name.startswith("campaign/") for name in changed):
        return f"CHANGED {sorted(changed)}"
    wrong = [each for each in found if each not in ("valid", "refused")]
    if not wrong and found[2] == "valid" and found[3] == "valid" and Campaign(folder).verify().problems:
        return "UNSOUND AFTERWARDS"
    shutil.rmtree(folder)
    waiting(folder)
    return wrong[0] if wrong else "refused" if "refused" in found[:3] else "valid"


def everything(place: Path) -> dict[str, str]:
    """What lies in a folder and beside it, but for locks."""
    found = {}
    for path in sorted(place.rglob("*")):
        if path.is_file() and path.name != "lock" and "pycache" not in str(path):
            found[str(path.relative_to(place))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


KINDS: dict[str, tuple[str, Callable[[Path, Path], str]]] = {
    "recording": ("home.musbo", arriving),
    "batch": ("home.parquet", arriving),
    "npz": ("home.npz", arriving),
    "bundle": ("bundle/*", leaving),
    "archive": ("bundle.zip", leaving),
    "ledger": ("campaign/ledger.sqlite", lying),
    "artefact": ("campaign/store/*", lying),
}
"""What is damaged, and who reads it."""


# Damage that is not random: what checksums do not find, because it is made anew


class Trap:
    """What would run if it were unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (os.environ["TRAP"], 0o777, True)


def forged(kind: str, data: bytes, rng: random.Random) -> bytes:
    """A file whose author knew what the readers check."""
    if kind == "recording":
        return _forged_recording(data, rng)
    if kind in ("npz", "archive"):
        return _forged_zip(data, rng)
    return mangle(data, rng)


def _forged_recording(data: bytes, rng: random.Random) -> bytes:
    """Other numbers, with the right checksums: any bits at all in some records, or another header."""
    length = struct.unpack_from("<I", data, 12)[0]
    begin = 20 + length
    header, body = json.loads(data[16 : 16 + length]), bytearray(data[begin:])
    width = 40 + 4 * (len(header["obs"]) + 3 * len(header["act"]))
    if rng.random() < 0.4:
        key = rng.choice(list(header))
        odd = [None, 7, -1, 1e999, "", "x" * 5000, [], ["a"] * 3, {}, [[]] * 20, True, "../../../etc/passwd", "\0"]
        header[key] = rng.choice(odd)
        if rng.random() < 0.2:
            del header[key]
    for _ in range(rng.randrange(1, 40)):
        row = rng.randrange(len(body) // width)
        at = row * width + rng.randrange(8, width - 4)
        body[at : at + rng.choice((1, 2, 4, 8))] = rng.choice(
            [b"\0", b"\xff\xff\xff\xff", b"\0\0\xc0\x7f", b"\0\0\x80\x7f", rng.randbytes(4), rng.randbytes(8)]
        )
        body = body[: len(data) - begin].ljust(len(data) - begin, b"\0")
        start = row * width
        for first in (start, min(start + width, len(body) - width)):
            struct.pack_into("<I", body, first + width - 4, zlib.crc32(body[first : first + width - 4]))
    text = json.dumps(header).encode()
    head = b"MUSBOREC" + struct.pack("<II", 1, len(text)) + text
    return head + struct.pack("<I", zlib.crc32(head)) + bytes(body)


def _forged_zip(data: bytes, rng: random.Random) -> bytes:
    """Members with other names, other contents, pickles among them, and very much of nothing."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
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
    }
    kind = rng.choice(list(odd))
    other, content = odd[kind]
    if kind not in ("traversal", "absolute", "new bomb", "folder", "twice"):
        members[name] = content
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for each, value in members.items():
            archive.writestr(each, value)
        if other not in members or kind == "twice":
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the name is there already
                archive.writestr(other, content)
    return sink.getvalue()


def damaged(place: Path, kind: str, how: str, seed: int, count: int) -> Iterator[tuple[str, float]]:
    """How each damaged file was taken (valid, refused, or what went wrong), and the processor time of it."""
    pattern, read = KINDS[kind]
    files = [path for path in sorted(place.glob(pattern)) if path.is_file()]
    for number in range(count):
        rng = random.Random(f"{kind} {how} {seed} {number}")
        file = rng.choice(files)
        before = file.read_bytes()
        hurt: dict[str, Callable[[], bytes]] = {
            "flip": lambda before=before, rng=rng: flip(before, rng),
            "mangle": lambda before=before, rng=rng: mangle(before, rng),
            "forge": lambda before=before, rng=rng: forged(kind, before, rng),
        }
        file.write_bytes(hurt[how]())
        began = time.process_time()
        try:
            outcome = read(place, file)
        except UserError as error:
            outcome = "refused" if str(error).strip() else "EMPTY"
        except Exception as error:
            outcome = f"TRACEBACK {type(error).__name__}: {error}"
        if outcome not in ("valid", "refused"):
            outcome = f"{kind} {how} {number}, {file.name}: {outcome}"
        if os.path.exists(os.environ["TRAP"]):
            outcome = f"{kind} {how} {number}: UNPICKLED OR WRITTEN"
        yield outcome, time.process_time() - began
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(before)


def main(place: str, seed: str, flips: str, mangles: str, *kinds: str) -> None:
    """A line of JSON for every kind of file and of damage."""
    root = Path(place)
    os.environ["TRAP"] = str(root.parent / "sprung")
    if not root.exists():
        root.mkdir(parents=True)
        make(root)
    whole = {kind: KINDS[kind] for kind in kinds}
    for kind, (pattern, read) in whole.items():
        assert read(root, min(path for path in root.glob(pattern) if path.is_file())) == "valid", kind
    counts = {"flip": int(flips), "mangle": int(mangles), "forge": int(mangles)}
    for kind in kinds:
        for how, count in counts.items():
            found: collections.Counter[str] = collections.Counter()
            slowest = 0.0
            for outcome, seconds in damaged(root, kind, how, int(seed), count):
                found[outcome] += 1
                slowest = max(slowest, seconds)
            row = {"kind": kind, "hurt": how, "found": found, "slowest": slowest, "peak": peak()}
            print(json.dumps(row), flush=True)
    assert sorted(path.name for path in root.parent.iterdir()) == [root.name]


if __name__ == "__main__":
    main(*sys.argv[1:])
