"""Whether a run is what was written: its ledger, the artefacts that the ledger names, and the files made from them.

And whether a bundle is what was exported.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from musbo.campaign.events import Exported
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER, RECORDING, STORE
from musbo.campaign.status import Status
from musbo.campaign.store import Store
from musbo.core import serial
from musbo.core.errors import UserError
from musbo.core.inside import given, inside
from musbo.data.files import batch_from_bytes
from musbo.field.runtime import Bundle, FieldError, Mind


@dataclass(frozen=True)
class Verified:
    """What was checked, and what is wrong: `verify` found nothing where `problems` is empty."""

    events: int
    metrics: int
    artefacts: int
    files: int
    problems: tuple[str, ...]


def is_bundle(place: Path) -> bool:
    """Whether this is a bundle, as a folder or an archive."""
    return place.suffix == ".zip" or (place / "manifest.json").is_file()


def verify(place: str | Path) -> Verified:
    """Read everything of a run, a campaign or a bundle (a folder or a .zip), and change nothing.

    The ledger, the data and the networks are compared with their hashes, a bundle with its checksums and golden
    vectors; `problems` has a sentence for everything that is wrong. A ledger that cannot be read is a `UserError`.
    """
    place = given(place)
    return _bundle(place) if is_bundle(place) else _run(place)


def _bundle(place: Path) -> Verified:
    """Load a bundle as the runtime does, which compares it with its checksums and golden vectors."""
    try:
        Mind(Bundle(place))
    except FieldError as error:
        return Verified(0, 0, 0, 0, (str(error),))
    return Verified(0, 0, 0, 1, ())


def _run(folder: Path) -> Verified:
    with Ledger(inside(folder, LEDGER)) as ledger:
        ledger.verify()
        now, events, metrics = ledger.status(), len(ledger.events()), len(ledger.metrics())
        left = list(dict.fromkeys(each.what.archive for each in ledger.events() if isinstance(each.what, Exported)))
    store, problems = Store(folder / STORE), []
    # Of the files that came home, the recordings are kept.
    files = [f"{name}{RECORDING}" for item in now.collected.values() for name in item.files]
    came = [name for name in files if store.path(name).is_file()]

    def check(act: Callable[[], object]) -> None:
        try:
            act()
        except UserError as error:
            problems.append(str(error))

    batches, states = _named(now)
    kept = (folder / STORE).is_dir()
    if kept:
        for name in batches:
            check(lambda name=name: batch_from_bytes(store.get(name), name))
        for name in states:
            check(lambda name=name: serial.decode(store.get(name), name))
        for name in (*left, *came):
            check(lambda name=name: store.get(name))
    copies = _exported(folder, now)
    for path, name in copies.items():
        check(lambda path=path, name=name: _require_same(path, name))
    return Verified(
        events, metrics, len(batches) + len(states) + len(left) + len(came) if kept else 0, len(copies), tuple(problems)
    )


def _named(now: Status) -> tuple[list[str], list[str]]:
    """The batches and the states that have to be in the store."""
    batches = [item.artefact for item in (*now.creation.brought, *now.collected.values(), *now.shards)]
    states = [item.policy for item in now.trained.values()]
    if now.field:
        states += [name for each in now.candidates.values() for item in each for name in (item.state, item.policy)]
    states += [now.trained[max(now.trained)].state] if now.trained else []
    states += [now.checkpoint.state] if now.checkpoint else []
    return list(dict.fromkeys(batches)), list(dict.fromkeys(states))


def _exported(folder: Path, now: Status) -> dict[Path, str]:
    """The files of a finished run that are copies of artefacts, as far as they are there."""
    found = {inside(folder, "data") / f"deployment-{d}.parquet": item.artefact for d, item in now.collected.items()}
    if now.trained:
        found[folder / "policy.safetensors"] = now.trained[max(now.trained)].policy
    return {path: name for path, name in found.items() if now.finished and path.is_file()}


def _require_same(path: Path, name: str) -> None:
    if serial.sha256(inside(path.parent, path.name).read_bytes()) != name.partition(".")[0]:
        raise UserError(f"{path} is not what this run wrote: restore it from {STORE}/{name}")
