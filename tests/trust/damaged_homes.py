"""What comes home to a campaign in the field, and what lies in it, damaged or forged: refused or still valid.

    python -m tests.trust.damaged_homes PLACE SEED DAMAGED FORGED KIND ...

works in PLACE, in a process of its own, so that its memory is that of the readers, and so that one that dies is
noticed. Every damaged file is given to the verbs that read it. Whatever happens, the folder of the campaign holds what
it held before, or what the verb that succeeded had to add; nothing beside it is written, and nothing is unpickled.
"""

import collections
import contextlib
import faulthandler
import hashlib
import io
import json
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import musbo
from musbo.campaign.field_campaign import Campaign
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.cli import main as musbo_main
from musbo.core.errors import UserError
from musbo.field.runtime import FieldError, Runtime
from tests.campaign.homes import GOLDEN, awaited, batch_of, recorded, records, waiting, walks
from tests.trust import forge
from tests.trust.damage import SLOWEST, flip, mangle, peak

MAPPING = 'obs = ["obs"]\nact = ["act"]\nreward = "reward"\nnext_obs = ["next_obs"]\nepisode = "episode"\n'
MADE = walks(4)
OF = {"campaign": ("campaign-v1", "home.musbo"), "rounds": ("campaign-v2", "other.musbo")}
"""Campaigns, each with what it is a copy of and what comes home to it."""


def make(place: Path) -> None:
    """A campaign whose round is in the field, and what came home to it in every form."""
    campaign = waiting(place / "campaign")
    bundle = awaited(campaign)
    campaign.export(out=place / "bundle", bundle=bundle)
    shutil.rmtree(place / "campaign")  # that export left its lock, and was written down
    waiting(place / "campaign")
    recorded(place / "home.musbo", records(MADE), bundle)
    recorded(place / "other.musbo", records(MADE), awaited(waiting(place / "rounds", OF["rounds"][0])))
    for name in ("run-v1", "run-v2"):
        shutil.copytree(GOLDEN / name, place / name)
    batch = batch_of(MADE)
    musbo.write_batch(place / "home.parquet", batch)
    arrays = {name: getattr(batch, name) for name in ("obs", "act", "reward", "next_obs", "episode")}
    np.savez(place / "home.npz", allow_pickle=False, **arrays)
    (place / "mapping.toml").write_text(MAPPING)


# What is read of each


def said(*words: str) -> tuple[int, str]:
    """The exit code of a command, and what it prints; an exception of it is not caught."""
    sink = io.BytesIO()
    with io.TextIOWrapper(sink, encoding="utf-8", write_through=True) as out:  # which takes no half of a character
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = musbo_main(list(words))
        return code, sink.getvalue().decode()


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
        ran = drive(bundle, place / "driven.musbo")
    except FieldError as error:
        ran = "refused" if str(error).strip() else "EMPTY"
    for own in ("driven.musbo", "counts.json", "latched.json", "bundle/counts.json", "bundle/latched.json"):
        (place / own).unlink(missing_ok=True)
    if (now := everything(place)) != before:
        return f"CHANGED {sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))}"
    # limits.toml is the site's: the runtime reads it, and the bundle is sound without.
    same = ran == verified or (verified == "valid" and ran == "refused")
    return ran if same else f"VERIFY SAYS {verified}, THE RUNTIME {ran}"


def drive(bundle: Path, record: Path) -> str:
    """Steps of an episode, an observation that is none, and a recording of it all."""
    with Runtime(bundle, fallback=[0.0, 0.0], seed=0, record=record) as controller:
        for value in (0.0, 0.1, -0.1, np.nan, 0.0):
            action = controller.act(np.full(4, value, np.float32), reward=0.0)
            if action is None or not np.all(np.abs(action) <= 1):
                return "WILD"
        controller.end(np.zeros(4, np.float32))
    return "valid"


LOOKING: tuple[tuple[str, ...], ...] = (
    ("status",), ("status", "--json"), ("history",), ("history", "--json"), ("verify",), ("verify", "--json"),
)  # fmt: skip
WRITING: tuple[tuple[str, ...], ...] = (
    ("amend", "--budget", "9"), ("withdraw", "2"), ("abandon", "2", "--never-ran"), ("abandon", "2", "--spent", "x"),
    ("judge", "--go", "x"), ("export",), ("export", "--bundle", "a"), ("export", "--bundle", "95"),
    ("export", "--bundle", "9a"), ("export", "--bundle", "1"),
)  # fmt: skip


def lying(place: Path, file: Path) -> str:
    """The ledger or an artefact of a campaign: what every verb says that looks, and some that would write."""
    folder = next(parent for parent in file.parents if parent.parent == place)
    golden, home = OF[folder.name]
    rng = random.Random(hashlib.sha256((folder / LEDGER).read_bytes()).hexdigest())
    before = everything(place)
    found = [told(*words, str(folder)) for words in LOOKING]
    if everything(place) != before:
        return "CHANGED SOMETHING"
    whole = (folder / LEDGER).read_bytes()
    for verb, *words in rng.sample(WRITING, 2):
        found.append(told(verb, str(folder), *words))
        (folder / LEDGER).write_bytes(whole)
    found.append(told("ingest", str(folder), str(place / home), "--accept"))
    changed = {name for name, digest in everything(place).items() if before.get(name) != digest}
    if any(not name.startswith(f"{folder.name}/") for name in changed):
        return f"CHANGED {sorted(changed)}"
    wrong = [each for each in found if each not in ("valid", "refused")]
    if not wrong and found[4] == "valid" and found[-1] == "valid" and Campaign(folder).verify().problems:
        return "UNSOUND AFTERWARDS"
    shutil.rmtree(folder)
    waiting(folder, golden)
    return wrong[0] if wrong else "refused" if "refused" in found[:6] else "valid"


def former(place: Path, file: Path) -> str:
    """The ledger of an older format, which is upgraded: in memory, and in its place."""
    folder = file.parent
    found = [told(*words, str(folder)) for words in LOOKING[::2]]
    try:
        with Ledger(file, writable=True) as ledger:
            ledger.verify()
    except UserError as error:
        found.append("refused" if str(error).strip() else "EMPTY")
    for kept in folder.glob("ledger.v*.sqlite"):
        kept.unlink()
    wrong = [each for each in found if each not in ("valid", "refused")]
    return wrong[0] if wrong else "refused" if "refused" in found else "valid"


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
    "rounds": ("rounds/ledger.sqlite", lying),
    "former": ("run-v*/ledger.sqlite", former),
    "artefact": ("campaign/store/*", lying),
}
"""What is damaged, and who reads it."""


FORGERS: dict[str, Callable[[Path, Path, random.Random], forge.Forgery]] = {
    "recording": lambda place, file, rng: {file: forge.recording(file.read_bytes(), rng)},
    "batch": lambda place, file, rng: {file: forge.parquet(file.read_bytes(), rng)},
    "npz": lambda place, file, rng: {file: forge.npz(file.read_bytes(), rng)},
    "bundle": lambda place, file, rng: forge.folder(file.parent, rng),
    "archive": lambda place, file, rng: {file: forge.archive(file.read_bytes(), rng)},
    "ledger": lambda place, file, rng: {file: forge.ledger(file.read_bytes(), rng)},
    "rounds": lambda place, file, rng: {file: forge.ledger(file.read_bytes(), rng)},
    "former": lambda place, file, rng: {file: forge.ledger(file.read_bytes(), rng)},
    "artefact": lambda place, file, rng: forge.artefact(file, place / "campaign" / LEDGER, rng),
}
"""How each is made anew, so that its checksums are right."""


def hurt(place: Path, file: Path, kind: str, how: str, rng: random.Random) -> forge.Forgery:
    if how == "forge":
        return FORGERS[kind](place, file, rng)
    return {file: (flip if how == "flip" else mangle)(file.read_bytes(), rng)}


def put(files: forge.Forgery) -> forge.Forgery:
    """Write these files; what they were before."""
    before: forge.Forgery = {path: path.read_bytes() if path.is_file() else None for path in files}
    for path, data in files.items():
        if data is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return before


def damaged(place: Path, kind: str, how: str, seed: int, count: int) -> Iterator[tuple[str, float]]:
    """How each damaged file was taken (valid, refused, or what went wrong), and the processor time of it."""
    pattern, read = KINDS[kind]
    files = [path for path in sorted(place.glob(pattern)) if path.is_file()]
    for number in range(count):
        rng = random.Random(f"{kind} {how} {seed} {number}")
        file = rng.choice(files)
        before = put(hurt(place, file, kind, how, rng))
        faulthandler.dump_traceback_later(60, exit=True)  # one that hangs in C hears nothing else
        began = time.process_time()
        try:
            outcome = read(place, file)
        except UserError as error:
            outcome = "refused" if str(error).strip() else "EMPTY"
        except Exception as error:
            frames = [each for each in traceback.extract_tb(error.__traceback__) if "/musbo/" in each.filename]
            where = ", ".join(f"{Path(each.filename).name}:{each.lineno}" for each in frames[-3:])
            outcome = f"TRACEBACK {type(error).__name__}: {str(error)[:200]} ({where})"
        seconds = time.process_time() - began
        faulthandler.cancel_dump_traceback_later()
        if seconds >= SLOWEST:
            outcome = f"SLOW {seconds:.1f} {outcome}"
        if outcome not in ("valid", "refused"):
            outcome = f"{kind} {how} {number}, {file.name}: {outcome}"
        if os.path.exists(os.environ["TRAP"]):
            outcome = f"{kind} {how} {number}: UNPICKLED OR WRITTEN"
        yield outcome, seconds
        put(before)


def main(place: str, seed: str, damages: str, forgeries: str, *kinds: str) -> None:
    """A line of JSON for every kind of file and of damage."""
    root = Path(place)
    os.environ["TRAP"] = str(root.parent / "sprung")
    if not root.exists():
        root.mkdir(parents=True)
        make(root)
    whole = {kind: KINDS[kind] for kind in kinds}
    for kind, (pattern, read) in whole.items():
        assert read(root, min(path for path in root.glob(pattern) if path.is_file())) == "valid", kind
    counts = {"flip": int(damages), "mangle": int(damages), "forge": int(forgeries)}
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
