"""The directory of a campaign: what it is told when it is created, and how it is opened again."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from musbo.campaign.definition import differences
from musbo.campaign.events import Brought, Created
from musbo.campaign.kept_task import files_to_keep, keep, task_place
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER, LOCK, SETTINGS, STORE, TASK, new_place, new_places
from musbo.campaign.same_functions import probed, where_changed
from musbo.campaign.settings import Campaign, load_task, shape_of, task_for
from musbo.campaign.store import Store, is_artefact
from musbo.campaign.summary import read_status
from musbo.campaign.versions import versions
from musbo.core import serial
from musbo.core.durable import is_temporary, sync_folder, write_whole
from musbo.core.errors import UserError
from musbo.core.lock import lock
from musbo.data.checks import require_sound
from musbo.data.files import write_parquet
from musbo.data.finding import Finding
from musbo.data.logs import Logs
from musbo.data.rewards import rewarded
from musbo.field.dry_run import Tried, dry_run, probe_values
from musbo.field.formulas import agreement
from musbo.field.simulate import require_rewards
from musbo.field.worlds import no_simulator
from musbo.tasks.find import TASKS, digest
from musbo.tasks.task import Task

TRIES = 5


def create(
    folder: Path, settings: Campaign, data: Sequence[Logs] = (), given: Task | None = None, field: bool = False
) -> None:
    """A new campaign in `folder`, with batches that the user already has as its first deployments.

    With `field`, further batches come home from a real field; else they are collected in the simulator.

    It is made beside its place and moved there whole: a process killed on the way leaves no half a campaign.
    """
    task = load_task(settings.task, given, trusted=True)  # the user has just named it
    ours = settings.task in TASKS and given is None  # those are tested
    # Before its reward is asked for anything.
    if field:  # of a task of ours too: on a later visit another one may be given in its place
        tried = Tried(probe_values(task)) if ours else dry_run(replace(task, simulator=None))
    else:
        tried = Tried(()) if ours else dry_run(task)
    batches = [rewarded(logs.batch, task, logs.source) for logs in data]
    odd = [
        tuple(finding.text for finding in require_sound(batch, task, logs.source, logs.origin))
        for logs, batch in zip(data, batches, strict=True)
    ]
    if len(data) > settings.budget:
        raise UserError(f"{len(data)} batches were given for a budget of {settings.budget}: raise --budget.")
    for logs in data:
        if len(logs) < 2:
            raise UserError(f"{logs.source} has one transition; a batch needs two, one to train on and one held out.")
    settings.method.require(task)
    if not ours:
        for i, batch in enumerate(batches):
            require_rewards(task, batch)
            odd[i] += tuple(each.text for each in agreement(task, batch, "the logged").cautions)
    missing = settings.budget - len(data)
    if missing and not field and (reason := no_simulator(task)):
        hint = "" if task.simulator else " Bring a batch for each with --data, or lower --budget."
        what = f"{missing} of {settings.budget} deployments would have to be collected here"
        raise UserError(f"{what}, but {reason.rstrip('.')}.{hint}")
    _require_free(folder)
    folder = folder.resolve()
    source = digest(settings.task) if given is None else None
    kept = files_to_keep(settings.task) if given is None else {}
    settings = replace(settings, task=task_for(folder, settings.task))
    record = serial.to_json(settings)  # refuses what could not be read back, before anything is written
    with _made(folder) as place:
        write_whole(place / SETTINGS, json.dumps(record, indent=1).encode())
        keep(place, source, kept)
        store = Store(place / STORE)
        brought = tuple(
            Brought(
                store.put(partial(write_parquet, batch), ".parquet"),
                logs.source,
                len(batch),
                texts,
                probed(task, batch) if tried.values else None,
            )
            for logs, batch, texts in zip(data, batches, odd, strict=True)
        )
        with Ledger(place / LEDGER, create=True) as ledger:
            ledger.append(
                Created(
                    settings,
                    shape_of(task),
                    versions(),
                    brought,
                    source,
                    tried.values,
                    tried.steps,
                    tried.findings,
                    field,
                )  # fmt: skip
            )


# A new directory


@contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """A directory beside `folder` that becomes it. What killed processes left of theirs is removed."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder.parent}: {error.strerror}; choose another --out.") from error
    for old in new_places(folder):
        with suppress(UserError), lock(old):  # refused where its process is alive
            _remove(old)
    with ExitStack() as stack:
        place = _locked(folder, stack)
        try:
            yield place
            os.rename(place, folder)  # replaces an empty directory, and nothing else
        except OSError as error:
            _remove(place)
            raise UserError(f"cannot make {folder}: {error.strerror}; choose another --out.") from error
        except UserError:
            _remove(place)
            raise
        sync_folder(folder.parent)


def _locked(folder: Path, stack: ExitStack) -> Path:
    """A new directory, locked. Until it is locked, another process may take it for one of a killed process."""
    for left in reversed(range(TRIES)):
        place = new_place(folder)
        try:
            place.mkdir()
        except OSError as error:
            raise UserError(f"cannot make {place}: {error.strerror}; choose another --out.") from error
        try:
            stack.enter_context(lock(place))
            if place.is_dir():
                return place
        except UserError:
            if place.is_dir():
                _remove(place)
            if not left:
                raise
    raise UserError(f"cannot lock a new directory beside {folder}: choose another --out.")


def _remove(place: Path) -> None:
    """Remove a directory with what a campaign being made has in it. What is not ours stays, and then so does it."""
    stored = [] if (place / STORE).is_symlink() else list((place / STORE).glob("*"))
    tasks = [] if (place / TASK).is_symlink() else [path for path in (place / TASK).glob("*") if is_artefact(path.name)]
    kept = [path for each in tasks if not each.is_symlink() for path in each.iterdir()]
    for path in (*stored, *kept, *place.iterdir()):
        ours = path in kept or path.parent.name == STORE and is_artefact(path.name)
        ours |= path.name in (LEDGER, f"{LEDGER}-journal", SETTINGS, LOCK) or is_temporary(path.name)
        if ours and not path.is_dir():
            path.unlink(missing_ok=True)  # another process may be removing it too
    for folder in (place / STORE, *tasks, place / TASK, place):
        with suppress(OSError):
            folder.rmdir()


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
    return read_status(folder).creation.settings


def open_task(folder: Path, given: Task | None, trusted: bool = False, amending: bool = False) -> tuple[Created, Task]:
    """What a run was created with, and its task, which must be what the run began with.

    While `amending`, its reward and termination may be others.
    """
    now = read_status(folder)
    created = now.creation
    task = load_task(task_place(folder, created.settings.task, created.task_digest), given, trusted)
    if created.field:  # batches come from elsewhere, and no policy is tried here
        task = replace(task, simulator=None)
    if amending and replace(created.task, reward="", terminated="") == replace(
        shape_of(task), reward="", terminated=""
    ):
        return created, task
    if created.task != shape_of(task):
        said = differences(created.task, shape_of(task))
        raise UserError(
            f"task {created.settings.task} is not what this run began with ({said}): restore it, or start anew"
            + (
                f" with its data (`musbo new --data`). If the reward or the termination alone is meant to be another, "
                f"say so with `musbo amend {folder} --reward`."
                if created.field
                else "."
            )
        )
    if created.task_values and (where := where_changed(task, Store(folder / STORE), now)) is not None:
        raise UserError(
            f"the reward or the termination of task {created.settings.task} gives other values than when this run "
            f"began, for {where}, and what it has learned is not about those: restore it, or start anew"
            + (f", or say that it is meant with `musbo amend {folder} --reward`." if created.field else ".")
        )
    return created, task


def noticed(folder: Path, created: Created, task: Task, given: Task | None) -> tuple[Finding, ...]:
    """What of the task of a campaign in the field is other than when it began, and may be: see `open_task`."""
    if not created.field:
        return ()
    if said := differences(created.task, shape_of(task)):
        what = f"the definition of the task has changed since the campaign began: {said}"
        do = (
            f"restore it, or say that it is meant with `musbo amend {folder} --definition`; bundles have the former one"
        )
        return (Finding("task changed", "warning", what, do),)
    if given is None and task_changed(folder, created):
        what = "the file of the task has changed since the campaign began, but not its definition or its values"
        return (Finding("task changed", "note", what, "nothing, if that is meant"),)
    return ()


def task_changed(folder: Path, created: Created) -> bool:
    """Whether the source of the task is another one than when the run began."""
    name = created.settings.task
    now = digest(task_place(folder, name, created.task_digest)) if created.task_digest else None
    return now is not None and now != created.task_digest
