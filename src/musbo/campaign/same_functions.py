"""Whether the reward and the termination of a task are still those that a campaign has learned from."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from musbo.campaign.events import Probed
from musbo.campaign.status import Status
from musbo.campaign.store import Store
from musbo.data.batch import Batch
from musbo.data.files import batch_from_bytes
from musbo.field.dry_run import probe_values, same_values, values_on
from musbo.field.probes import covering_rows, transitions_of
from musbo.tasks.task import Task


def probed(task: Task, batch: Batch) -> Probed | None:
    """What the functions give for some transitions of a batch; None where they are learned."""
    rows = covering_rows(batch)
    values = values_on(task, transitions_of(batch, rows))
    return Probed(tuple(rows.tolist()), values) if values else None


def probed_again(task: Task, store: Store, now: Status) -> tuple[Probed, ...]:
    """The same of every batch so far."""
    found = (probed(task, batch) for batch in _batches(store, now.batches.values()))
    return tuple(each for each in found if each is not None)


def where_changed(task: Task, store: Store, now: Status) -> str | None:
    """Which transitions show that the functions are others; None where they are the same on all of them."""
    before, shape = now.creation.task_values, now.creation.task
    of_then = replace(task, obs_low=shape.obs_low, obs_high=shape.obs_high)  # whose ranges the probes covered
    if before and not same_values(before, probe_values(of_then)[: len(before)]):
        return "made-up transitions"
    known = {d: each for d, each in now.probed.items() if d in now.batches}
    if not known:
        return None
    batches = _batches(store, (now.batches[d] for d in known))
    parts = [transitions_of(batch, each.rows) for batch, each in zip(batches, known.values(), strict=True)]
    obs, act, next_obs = (np.concatenate(column) for column in zip(*parts, strict=True))
    values, first = values_on(task, (obs, act, next_obs)), 0  # all at once: one program does
    for d, each in known.items():
        here = slice(first, first := first + len(each.rows))
        if len(values) != len(each.values) or not all(
            same_values(old, new[here]) for old, new in zip(each.values, values, strict=True)
        ):
            return f"transitions of deployment {d}"
    return None


def _batches(store: Store, names: Iterable[str]) -> Iterator[Batch]:
    """One at a time."""
    return (batch_from_bytes(store.get(name), name) for name in names)
