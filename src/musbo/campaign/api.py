"""The same as the command line, from Python: run, resume, evaluate, and the policy as a function of numpy arrays.

import musbo

result = musbo.run("pendulum", seed=0)
action = result.policy(observation)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from musbo.algorithms.method import Method
from musbo.algorithms.recipes import Preset
from musbo.campaign import folders, measure, results, runner
from musbo.campaign.changes import changed
from musbo.campaign.deployable import NumpyPolicy as NumpyPolicy
from musbo.campaign.events import Episodes
from musbo.campaign.news import Observer, unobserved
from musbo.campaign.rounds import what_next
from musbo.campaign.settings import Campaign, campaign, default_folder, load_task
from musbo.campaign.summary import Summary, read_status
from musbo.core import serial
from musbo.core.compilation import keep_compiled
from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.core.plain import plain
from musbo.data.batch import Batch
from musbo.data.files import read_logs
from musbo.data.logs import Logs, from_batch
from musbo.data.mapping import Mapping
from musbo.field.find import find_task
from musbo.field.render import render
from musbo.models.frame import AnyPolicy
from musbo.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run: its folder, its summary and the final policy."""

    folder: Path
    summary: Summary
    """What was run and what came out; `summary.plain()` is what `summary.json` holds."""
    policy: NumpyPolicy

    @property
    def returns(self) -> tuple[float | None, ...]:
        """Mean evaluation return after every deployment; None where there is no simulator."""
        return self.summary.returns

    @property
    def final_return(self) -> float | None:
        return self.summary.final_return


def run(
    task: str | Task = "pendulum",
    *,
    algo: str = "musbo",
    preset: Preset | None = None,
    seed: int = 0,
    budget: int | None = None,
    batch_size: int | None = None,
    episodes: int | None = None,
    method: Method | None = None,
    settings: dict[str, Any] | None = None,
    data: Sequence[str | Path | Batch | Logs] = (),
    mapping: Mapping | str | Path | None = None,
    out: str | Path | None = None,
    observe: Observer = unobserved,
) -> Result:
    """A whole campaign: `budget` deployments of `batch_size` transitions, each followed by training and evaluation.

    `task` is a name as on the command line, or a Task. `data` are batches that you already have, and count as the first
    deployments: files (`mapping` says what their columns mean), or what `musbo.data.from_dataframe` and `make_batch`
    return. `settings` are those of the method by the names of the command line, `{"label.alpha": "auto",
    "updates": 50}`; parts that come in kinds by name or as values, `{"label": "trust", "explore": Plain(0.1)}`.
    Arguments that are None take the values of the preset. Everything is written to `out`, by default a folder
    in `runs/`; an interrupted run is continued with `resume`.
    """
    asked = campaign(task, algo, preset, seed, budget, batch_size, episodes, method)
    asked = replace(asked, method=changed(asked.method, settings or {}))
    own = task if isinstance(task, Task) else None
    folder = start(asked, data, out, own, mapping)
    return resume(folder, task=own, observe=observe, trust_task=True)


def start(
    settings: Campaign,
    data: Sequence[str | Path | Batch | Logs] = (),
    out: str | Path | None = None,
    task: Task | None = None,
    mapping: Mapping | str | Path | None = None,
    field: bool = False,
) -> Path:
    """Create a campaign and do nothing yet; returns its folder. With `field`, its batches come home from a field."""
    keep_compiled()
    own = load_task(settings.task, task, trusted=True).name  # the user has just named it
    folder = default_folder(settings, own) if out is None else given(out)
    folders.create(folder, settings, [_logs(item, i, mapping) for i, item in enumerate(data)], task, field)
    return folder


def _logs(item: str | Path | Batch | Logs, i: int, mapping: Mapping | str | Path | None) -> Logs:
    if isinstance(item, Batch):
        return from_batch(item, f"data[{i}]")
    return item if isinstance(item, Logs) else read_logs(item, mapping)


def resume(
    folder: str | Path,
    *,
    task: str | Task | None = None,
    observe: Observer = unobserved,
    checkpoint_seconds: float = runner.CHECKPOINT_SECONDS,
    trust_task: bool = False,
) -> Result:
    """Continue the run in `folder` until it is finished.

    A run that names a task of your own does not import it by itself: pass it as `task`, or set `trust_task=True`.
    """
    keep_compiled()
    folder = given(folder)
    if (now := read_status(folder)).field:
        raise UserError(
            f"{folder} is a campaign in the field, whose verbs are musbo train, export, ingest, and others that `musbo "
            f"--help` lists (from Python: musbo.Campaign). What comes next: {what_next(now, folder).text}."
        )
    summary = runner.advance(folder, observe, _given(task), checkpoint_seconds, trust_task)
    return Result(folder, summary, load_policy(folder))


def _given(task: str | Task | None) -> Task | None:
    return find_task(task) if isinstance(task, str) else task


def load_policy(path: str | Path, deployment: int | None = None) -> NumpyPolicy:
    """The policy of a run (after `deployment`, by default the last one), or of a `policy.safetensors` file.

    One from the folder of a run can also `explore`, as it would when it collects the next batch.
    """
    keep_compiled()
    path = given(path)
    if path.is_dir():
        return NumpyPolicy(results.final_policy(path, deployment)[0], partial(results.behaviour, path, deployment))
    policy = serial.load(path)
    if not isinstance(policy, AnyPolicy):
        raise UserError(f"{path} holds a {type(policy).__name__}, not a policy: give a run's policy.safetensors.")
    return NumpyPolicy(policy)


@dataclass(frozen=True)
class Measurement:
    """Returns of a policy, evaluated in the simulator."""

    run: Path
    task: str
    deployment: int
    """The policy trained after this one."""
    seed: int
    """Of the episodes."""
    episodes: Episodes

    def plain(self) -> dict[str, Any]:
        """As JSON: what `musbo evaluate --json` prints."""
        where = {"run": str(self.run), "task": self.task, "deployment": self.deployment, "seed": self.seed}
        return {**where, **plain(self.episodes)}


def evaluate(
    folder: str | Path,
    *,
    episodes: int | None = None,
    deployment: int | None = None,
    seed: int | None = None,
    task: str | Task | None = None,
    trust_task: bool = False,
) -> Measurement:
    """Evaluate a policy of a run over whole episodes in the simulator, by default on the episodes of its evaluation."""
    settings, found, policy, d, seed = _visit(given(folder), deployment, seed, task, trust_task)
    count = settings.episodes if episodes is None else episodes
    return Measurement(Path(folder), settings.task, d, seed, measure.measure(found, policy, count, seed))


def film(
    folder: str | Path,
    *,
    steps: int | None = None,
    deployment: int | None = None,
    seed: int | None = None,
    task: str | Task | None = None,
    trust_task: bool = False,
) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """Pictures of the run's policy at work, one per step: by default the first episode of the run's evaluation."""
    _, found, policy, _, seed = _visit(given(folder), deployment, seed, task, trust_task)
    return render(found, policy, seed, steps)


def _visit(
    folder: Path, deployment: int | None, seed: int | None, task: str | Task | None, trust_task: bool
) -> tuple[Campaign, Task, AnyPolicy, int, int]:
    keep_compiled()
    created, found = folders.open_task(folder, _given(task), trust_task)
    settings = created.settings
    policy, d = results.final_policy(folder, deployment)
    if seed is not None and seed < 0:
        raise UserError(f"the seed must be at least 0, not {seed}.")
    return settings, found, policy, d, measure.evaluation_seed(settings) if seed is None else seed
