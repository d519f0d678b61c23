"""The directory of a campaign: what it is told when it is created, and where everything stands."""

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax
import numpy as np

import musbo
from musbo.campaign import steps
from musbo.campaign.ledger import LEDGER, Ledger, lock
from musbo.campaign.settings import Campaign, fingerprint, load_task
from musbo.campaign.store import Store
from musbo.core import serial
from musbo.core.cores import usable_cores
from musbo.core.durable import sync_folder, write_whole
from musbo.core.errors import UserError
from musbo.data.batch import Batch
from musbo.data.checks import require_sound
from musbo.data.files import batch_bytes
from musbo.field.worlds import no_simulator
from musbo.tasks.task import Task

STORE, SETTINGS = "store", "settings.json"
SIMULATORS = ("gymnasium", "mujoco", "dm_control")


def create(folder: Path, settings: Campaign, data: Sequence[tuple[str, Batch]] = (), given: Task | None = None) -> None:
    """A new campaign in `folder`, with batches that the user already has as its first deployments.

    It is made beside its place and moved there whole: a process killed on the way leaves no half a campaign.
    """
    task = load_task(settings, given)
    odd = [[finding.text for finding in require_sound(batch, task, source)] for source, batch in data]
    if len(data) > settings.deployments:
        raise UserError(f"{len(data)} batches were given for {settings.deployments} deployments: raise --deployments.")
    settings.method.require(task)
    missing = settings.deployments - len(data)
    if missing and (reason := no_simulator(task)):
        hint = "" if task.simulator else " Bring a batch for each with --data, or lower --deployments."
        what = f"{missing} of {settings.deployments} deployments would have to be collected here"
        raise UserError(f"{what}, but {reason.rstrip('.')}.{hint}")
    record = serial.to_json(settings)  # refuses what could not be read back, before anything is written
    _require_free(folder)
    folder = folder.resolve()
    place = folder.parent / f".{folder.name}.new"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {place}: {error.strerror}; choose another --out.") from error
    with lock(place):
        for stray in place.iterdir():  # of a process that was killed while it was here
            if stray.is_dir():
                shutil.rmtree(stray)
            elif stray.name != "lock":
                stray.unlink()
        write_whole(place / SETTINGS, json.dumps(record, indent=1).encode())
        store = Store(place / STORE)
        brought = [store.put_bytes(batch_bytes(batch), ".parquet") for _, batch in data]
        with Ledger(place / LEDGER, create=True) as ledger:
            ledger.append(
                "created",
                0,
                {
                    "settings": record,
                    "task": fingerprint(task),
                    "versions": versions(),
                    "data": [
                        {"batch": name, "source": source, "size": len(batch), "warnings": texts}
                        for name, (source, batch), texts in zip(brought, data, odd, strict=True)
                    ],
                },
            )
        try:
            os.rename(place, folder)  # replaces an empty directory, and nothing else
        except OSError as error:
            raise UserError(f"cannot make {folder}: {error.strerror}; choose another --out.") from error
        sync_folder(folder.parent)


def _require_free(folder: Path) -> None:
    if (folder / LEDGER).exists():
        raise UserError(
            f"{folder} already holds a run: continue it with `musbo resume {folder}`, or choose another --out."
        )
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose another --out.")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: choose another --out. Nothing was written.")


def open_settings(folder: Path) -> Campaign:
    return settings_of(read_status(folder))


def open_task(folder: Path, given: Task | None) -> tuple[Campaign, Task]:
    """A run's settings and its task, which must be what the run began with."""
    now = read_status(folder)
    settings = settings_of(now)
    task = load_task(settings, given)
    if now.settings["task"] != fingerprint(task):  # type: ignore[index]
        raise UserError(f"task {settings.task} is not what this run began with: restore it, or start a new run.")
    return settings, task


def read_status(folder: Path) -> steps.Status:
    if not (folder / LEDGER).is_file():
        raise UserError(f"{folder} holds no run: give the directory that `musbo run` wrote (its --out).")
    with Ledger(folder / LEDGER) as ledger:
        return steps.status(ledger.events())


def settings_of(status: steps.Status) -> Campaign:
    if status.settings is None:
        raise UserError("this run was never created completely: remove its directory and start again.")
    return serial.from_json(status.settings["settings"])


def versions() -> dict[str, str]:
    """What a run was made with: what decides on its bits, and its simulators."""
    return {
        "musbo": f"{musbo.__version__} (source {_source()})",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        **{name: found for name in ("jaxlib", "equinox", "optax", *SIMULATORS) if (found := _version(name))},
        "platform": platform.platform(),
        "device": jax.devices()[0].platform,
        # XLA divides its loops by this number, which a cell of a study is told.
        "cores": str(len(usable_cores())),
    }


@cache
def _source() -> str:
    """A hash of the package as it is here: between two releases the number says nothing."""
    folder, found = Path(musbo.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
