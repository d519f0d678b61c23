"""Export: the newest policy of a run as a bundle for the field, a folder and a .zip."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from musbo.campaign.deployable import require_sound, require_sound_actor
from musbo.campaign.events import Candidate, Created, Trained
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER, STORE, new_place
from musbo.campaign.settings import TaskShape, task_like
from musbo.campaign.store import Store, stored_batch
from musbo.campaign.summary import read_status
from musbo.core import serial
from musbo.core.compilation import keep_compiled
from musbo.core.durable import sync_folder, write_whole
from musbo.core.errors import UserError
from musbo.core.inside import given, inside
from musbo.core.plain import plain
from musbo.core.text import parse_json, parse_toml, read_text
from musbo.data.batch import Batch
from musbo.data.history import stacked_batch
from musbo.field.bundle import About, Columns, Contents, Seen, baseline_contents, contents, merged, zip_bytes
from musbo.field.readme import ANY
from musbo.field.reissue import Reissue, reissued
from musbo.field.runtime import CHECKSUMS
from musbo.tasks.history import stacked
from musbo.tasks.task import Task

BUNDLES = "bundles"
SAMPLE = 100
"""Observations of every batch that golden vectors are chosen from."""


@dataclass(frozen=True)
class Bundle:
    """An exported bundle."""

    folder: Path
    archive: Path
    """The same files as a .zip."""
    id: str
    """What recordings name it by."""
    task: str
    deployment: int
    """The policy was trained after this one; 0: it has none, and the site's own controller acts."""
    explores: bool
    """Whether the runtime adds exploration noise unless it is told otherwise."""
    files: tuple[str, ...]
    notes: tuple[str, ...]
    """What is not in it, and why."""

    def plain(self) -> dict[str, Any]:
        """As JSON: what `musbo export --json` prints."""
        return plain(self) | {"folder": str(self.folder), "archive": str(self.archive)}


@dataclass(frozen=True, eq=False)
class Made:
    """A bundle that is written nowhere yet."""

    contents: Contents
    task: str
    deployment: int
    """The policy was trained after this one; 0: there is none."""


def export(
    run: str | Path,
    *,
    out: str | Path | None = None,
    limits: str | Path | Mapping[str, Any] | None = None,
) -> Bundle:
    """Write the newest policy of a run, finished or not, as a bundle for the field.

    The bundle is written to the folder `out` (by default inside the run) and beside it as a .zip. `limits` are a TOML
    file or a dictionary: see `limits.toml` in the bundle. Exporting the same again changes nothing.
    """
    keep_compiled()
    run = given(run)
    if read_status(run).field:
        raise UserError(f"{run} is a campaign in the field: use musbo.Campaign({str(run)!r}).export().")
    made = make(run, read_limits(limits))
    return put(run, f"deployment-{made.deployment}", out, made)


def put(run: Path, name: str, out: str | Path | None, made: Made) -> Bundle:
    """The files of a bundle in their place."""
    if out is None:
        place = inside(run, BUNDLES, name)
        place.parent.mkdir(exist_ok=True)
    else:
        place = given(out)
    archive = place.with_name(f"{place.name}.zip")
    found = made.contents
    _write(place, archive, found)
    files = tuple(sorted(found.files))
    return Bundle(place, archive, found.id, made.task, made.deployment, found.explores, files, found.notes)


@dataclass(frozen=True)
class Leaving:
    """What a bundle says of the campaign in the field that it leaves."""

    round: int | None
    """That its recordings are the batch of; None where none is awaited."""
    head: str
    """Digest of the last event before it leaves."""
    verdict: str | None = None


def read_limits(limits: str | Path | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if limits is None or isinstance(limits, Mapping):
        return limits or {}
    try:
        return parse_toml(read_text(given(limits)), str(limits))
    except OSError as error:
        raise UserError(f"{limits} cannot be read: {error.strerror}; check the path.") from error


def parse_limits(text: str, run: Path) -> dict[str, Any]:
    """The limits that a campaign was told."""
    found = parse_json(text or "{}", f"{run} (its limits)")
    if not isinstance(found, dict):
        raise UserError(f"{run} is damaged (its limits are no table): restore it from a copy, or amend them")
    return found


def limits_of(shape: TaskShape, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a campaign's bundles, as far as they follow from no data; refused where no bundle could have them."""
    anywhere = (np.full(shape.obs_size, -ANY, np.float32), np.full(shape.obs_size, ANY, np.float32))
    bounds = (np.asarray(shape.act_low, np.float32), np.asarray(shape.act_high, np.float32))
    return merged(bounds, anywhere, shape.act_change, shape.interval, limits)


def make(run: Path, limits: Mapping[str, Any], leaving: Leaving | None = None, policy: str | None = None) -> Made:
    """The bundle of the policy of a run that counts, or of another candidate by the name of its `policy`."""
    with Ledger(run / LEDGER) as ledger:
        now = ledger.status()
        trainings = [event for event in ledger.events() if isinstance(event.what, Trained | Candidate)]
        if not trainings:
            raise UserError(f"{run} has no trained policy yet: continue it with `musbo resume {run}`.")
        # Not the newest event: what is exported of a run stays the same when it goes on.
        head = ledger.digest(trainings[-1])
    store, d, created = Store(run / STORE), trainings[-1].deployment, now.creation
    training, method = now.trained[d], created.settings.method
    if policy is not None:
        every = zip(now.candidates[d], now.methods[d], strict=True)
        training, method = next((own, how) for own, how in every if own.policy == policy)
    state = serial.decode(store.get(training.state), training.state)
    task = task_like(created.settings.task, created.task)
    batches = (stored_batch(store, item) for i, item in sorted(now.collected.items()) if i <= d)
    explores = not now.finished if now.field else d < created.settings.budget
    about = _left(_about(created, d, head, explores), leaving)
    seen = stacked(task)
    require_sound(state.policy, seen.obs_size, seen.act_size)
    actor = method.actor(seen, state)
    require_sound_actor(actor, seen.obs_size, seen.act_size)
    return Made(contents(state.policy, actor, _seen(task, batches, created.task), about, limits), about.task, d)


def make_first(created: Created, limits: Mapping[str, Any], leaving: Leaving) -> Made:
    """The bundle of a campaign that has no policy yet."""
    about = replace(_left(_about(created, 0, leaving.head, explores=True), leaving), history=0)
    shape = created.task
    low, high = (
        np.asarray(ends or (sign * ANY,) * shape.obs_size, np.float32)
        for ends, sign in ((shape.obs_low, -1), (shape.obs_high, 1))
    )
    bounds = (np.asarray(shape.act_low, np.float32), np.asarray(shape.act_high, np.float32))
    return Made(baseline_contents(bounds, (low, high), about, limits), about.task, 0)


def again(archive: bytes, limits: Mapping[str, Any], awaited: bool, leaving: Leaving) -> Made:
    """A bundle that left before, for another round."""
    return Made(*reissued(archive, Reissue(leaving.round, leaving.head, awaited, dict(limits))))


def _about(created: Created, deployment: int, head: str, explores: bool) -> About:
    shape = created.task
    return About(
        task=shape.name or created.settings.task,
        observation=_columns("obs", shape.obs_size, shape.obs_names, shape.obs_units),
        action=_columns("act", shape.act_size, shape.act_names, shape.act_units),
        episode_steps=shape.episode_steps,
        history=shape.history,
        interval=shape.interval,
        change=shape.act_change,
        deployment=deployment,
        ledger=head,
        versions=created.versions,
        explores=explores,
    )


def _left(about: About, leaving: Leaving | None) -> About:
    if leaving is None:
        return about
    return replace(about, round=leaving.round, ledger=leaving.head, verdict=leaving.verdict)


def _columns(prefix: str, size: int, names: tuple[str, ...], units: tuple[str, ...]) -> Columns:
    return Columns(names or tuple(f"{prefix}_{i}" for i in range(size)), units or ("",) * size)


def _seen(task: Task, batches: Iterator[Batch], shape: TaskShape) -> Seen:
    """Some observations as the policy sees them, and the range of all, widened by its width and a deviation on either
    side; but not beyond what the task says that the plant can show."""
    samples, ends, moments = [], [], []
    for batch in batches:
        chosen = np.linspace(0, len(batch) - 1, min(SAMPLE, len(batch))).astype(int)
        samples.append(stacked_batch(task, batch).obs[chosen])
        obs = batch.obs
        ends.append((obs.min(axis=0), obs.max(axis=0)))
        each = obs.astype(np.float64)
        moments.append((len(obs), each.sum(axis=0), (each**2).sum(axis=0)))
    low = np.min([end[0] for end in ends], axis=0).astype(np.float64)
    high = np.max([end[1] for end in ends], axis=0).astype(np.float64)
    n, total, squares = (sum(moment[i] for moment in moments) for i in range(3))
    deviation = np.sqrt(np.maximum(squares / n - (total / n) ** 2, 0))
    # A column that never moved would have no width at all.
    margin = high - low + np.where(deviation > 0, deviation, np.maximum(1.0, np.abs(high)))
    least, most = low - margin, high + margin
    if shape.obs_low:
        least, most = (
            np.maximum(least, np.minimum(shape.obs_low, low)),
            np.minimum(most, np.maximum(shape.obs_high, high)),
        )
    return Seen(np.concatenate(samples), least.astype(np.float32), most.astype(np.float32))


def _write(folder: Path, archive: Path, made: Contents) -> None:
    """The folder and the archive, each whole or absent."""
    if folder.exists() or folder.is_symlink():
        _require_same(folder, made)
    else:
        place = new_place(folder)
        try:
            place.mkdir(parents=True)
            for name, data in made.files.items():
                write_whole(place / name, data)
            os.rename(place, folder)
            sync_folder(folder.parent)
        except (OSError, UserError) as error:
            shutil.rmtree(place, ignore_errors=True)
            if isinstance(error, UserError):
                raise
            raise UserError(f"cannot make {folder}: {error.strerror}; choose another --out.") from error
    # The limits of the folder may have been changed on purpose: they stay, and the archive has them.
    limits = inside(folder, made.limits)
    own = limits.read_bytes() if limits.is_file() else made.files[made.limits]
    write_whole(archive, zip_bytes({**made.files, made.limits: own}))


def _require_same(folder: Path, made: Contents) -> None:
    listed = inside(folder, CHECKSUMS)
    same = folder.is_dir() and listed.is_file() and listed.read_bytes() == made.files[CHECKSUMS]
    if not same:
        raise UserError(f"{folder} holds something else already: remove it, or choose another --out.")
    for name, data in made.files.items():
        if name != made.limits and (not (path := inside(folder, name)).is_file() or path.read_bytes() != data):
            raise UserError(f"{folder}/{name} is not what was exported: remove {folder}, and export it again.")
