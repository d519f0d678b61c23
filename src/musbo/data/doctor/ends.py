"""How episodes end: terminations at the time limit, terminations that the task does not see, unfinished episodes."""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from musbo.data.chunks import in_chunks
from musbo.data.finding import Finding, first_few, said_rows
from musbo.data.logs import Logs
from musbo.tasks.task import Task

NEARLY = 1e-5
"""Part of a value's size by which it may lie on the other side of a threshold, because it was rounded."""


def ends(logs: Logs, task: Task) -> Iterator[Finding]:
    yield from _at_the_limit(logs, task)
    yield from _unfinished(logs, task)
    if callable(task.terminated):
        yield from _disagrees(logs, task.terminated, task.name)


def _at_the_limit(logs: Logs, task: Task) -> Iterator[Finding]:
    batch = logs.batch
    lengths = batch.lengths()
    last = batch.starts() + lengths - 1
    full = lengths == task.episode_steps
    wrong = last[full & batch.terminated[last]]
    if len(wrong) < 2 or callable(task.terminated):  # the task's own function knows better
        return
    rows = logs.origin.rows(wrong)
    yield Finding(
        "terminated at the time limit",
        "warning",
        f"terminated is set in {len(wrong):,} of the {np.sum(full):,} episodes of {task.episode_steps:,} steps, the "
        "limit of the task",
        "set truncated there and not terminated, unless the world itself ends then",
        row=int(rows[0]),
        rows=len(rows),
        episodes=first_few(batch.episode[wrong]),
        machines=logs.machines_of(wrong),
    )


def _unfinished(logs: Logs, task: Task) -> Iterator[Finding]:
    batch = logs.batch
    lengths = batch.lengths()
    last = batch.starts() + lengths - 1
    short = (lengths < task.episode_steps) & ~batch.terminated[last]
    limit = "set episode_steps of the task to the length of an episode"
    for kind, chosen, where, do in (
        ("unfinished episodes", short, "stop before", "nothing; their ends are taken as cut"),
        ("long episodes", lengths > task.episode_steps, "go on beyond", limit),
    ):
        if np.any(chosen):
            what = (
                f"{np.sum(chosen):,} of {len(lengths):,} episodes {where} the {task.episode_steps:,} steps of the task"
            )
            rows = logs.origin.rows(last[chosen])
            yield Finding(
                kind,
                "note",
                what,
                do,
                row=int(rows[0]),
                rows=len(rows),
                episodes=first_few(batch.episode[last[chosen]]),
            )


def _disagrees(logs: Logs, terminated: Callable[[Array], Array], name: str) -> Iterator[Finding]:
    batch = logs.batch
    said = in_chunks(partial(_ended, terminated), (batch.next_obs,))
    # Rounding may carry a value over a threshold: a hair either way has to agree.
    cut = "set truncated where the episode was cut, or correct the function"
    missed = "set terminated in the last row of such episodes, or correct the function"
    for kind, rows, do in (
        ("terminated against the task", np.flatnonzero(batch.terminated & ~said), cut),
        ("termination missed", np.flatnonzero(said & ~batch.terminated), missed),
    ):
        near = [_ended(terminated, batch.next_obs[rows] * np.float32(1 + sign * NEARLY)) for sign in (-1, 1)]
        rows = rows[np.all([np.asarray(each) == said[rows] for each in near], axis=0)] if len(rows) else rows
        if len(rows):
            places = logs.origin.rows(rows)
            flag = "is set" if kind.startswith("terminated") else "is not set"
            yield Finding(
                kind,
                "warning",
                f"terminated {flag} in {said_rows(places)}, where the function of task {name} says otherwise",
                do,
                row=int(places[0]),
                rows=len(rows),
                episodes=first_few(batch.episode[rows]),
                machines=logs.machines_of(rows),
            )


@partial(jax.jit, static_argnums=0)
def _ended(terminated: Callable[[Array], Array], next_obs: Float[Array, "n obs"]) -> Bool[Array, " n"]:
    return jax.vmap(terminated)(next_obs).reshape(-1)
