"""The files that a person looks for when a campaign is finished."""

import io
import json
import os
from dataclasses import replace
from pathlib import Path

from musbo.campaign.ledger import Ledger
from musbo.campaign.places import STORE
from musbo.campaign.settings import task_like
from musbo.campaign.store import Store
from musbo.campaign.summary import read_status, summarise
from musbo.core import serial
from musbo.core.durable import is_temporary, write_whole
from musbo.core.errors import UserError
from musbo.core.inside import inside
from musbo.models.actor import Actor
from musbo.models.frame import AnyPolicy
from musbo.tasks.history import stacked


def export(folder: Path, ledger: Ledger, store: Store) -> None:
    """The policy, batches, metrics and summary under names that a person looks for, each file whole or absent."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    now = ledger.status()
    write_whole(folder / "policy.safetensors", store.get(now.trained[max(now.trained)].policy))
    data = inside(folder, "data")
    data.mkdir(exist_ok=True)
    for d, item in now.collected.items():
        _same_file(store.path(item.artefact), data / f"deployment-{d}.parquet")
    rows = [row.plain() for row in ledger.metrics()]
    write_whole(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), table)
    write_whole(folder / "metrics.parquet", table.getvalue())
    outcome = replace(summarise(now), finished=True)
    write_whole(folder / "summary.json", json.dumps(outcome.plain(), indent=1).encode())
    for stray in folder.iterdir():
        if is_temporary(stray.name):  # of a process that was killed at this place
            stray.unlink()


def _same_file(source: Path, target: Path) -> None:
    """`target` as a second name of `source`, which costs no space, or a copy where a file system has no such names.

    Read-only: a program that wrote into the one would write into the other.
    """
    target.unlink(missing_ok=True)
    try:
        os.chmod(source, 0o444)
        os.link(source, target)
    except OSError:
        write_whole(target, source.read_bytes())


def behaviour(folder: Path, deployment: int | None = None) -> Actor:
    """Who would collect the batch after the last training."""
    now = read_status(folder)
    last = max(now.trained)
    if deployment not in (None, last):
        raise UserError(
            f"{folder} keeps what is needed to explore for its last policy only, that of deployment {last}: leave "
            "deployment out to load it."
        )
    created = now.creation
    state = serial.decode(Store(folder / STORE).get(now.trained[last].state))
    return created.settings.method.actor(stacked(task_like(created.settings.task, created.task)), state)


def final_policy(folder: Path, deployment: int | None = None) -> tuple[AnyPolicy, int]:
    """The policy trained after `deployment` (the last one by default)."""
    trained = read_status(folder).trained
    if not trained:
        raise UserError(f"{folder} has no trained policy yet: continue it with `musbo resume {folder}`.")
    d = max(trained) if deployment is None else deployment
    if d not in trained:
        raise UserError(f"{folder} has no policy of deployment {d}: it has {', '.join(map(str, sorted(trained)))}.")
    return serial.decode(Store(folder / STORE).get(trained[d].policy)), d
