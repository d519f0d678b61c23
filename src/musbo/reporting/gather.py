"""The runs that a report is about: campaigns, and the cells of studies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from musbo.campaign import flags
from musbo.campaign.places import LEDGER
from musbo.campaign.settings import Campaign, shown_name, slug, task_in
from musbo.campaign.summary import Summary, summary
from musbo.cluster.study import RECORD, Cell, Study, cells, recorded
from musbo.core.errors import UserError

SHOWN = 3
"""So many reasons are named in an error; of the others, how many there are."""


@dataclass(frozen=True)
class Group:
    """A task, a budget and a batch size: what methods are compared on."""

    task: str
    """As it is called on the page, in file names too: no two tasks have the same name."""
    budget: int
    batch_size: int

    @property
    def title(self) -> str:
        return f"{self.task}, {self.budget} x {self.batch_size:,}"

    @property
    def slug(self) -> str:
        return f"{self.task}-{self.budget}x{self.batch_size}"


@dataclass(frozen=True)
class Run:
    """One campaign, under the name that its study gives its method."""

    folder: Path
    method: str
    summary: Summary
    task: str
    """Its name on the page."""

    @property
    def settings(self) -> Campaign:
        return self.summary.settings

    @property
    def task_place(self) -> str:
        """The task as a command line here would name it."""
        return task_in(self.folder, self.settings.task)

    @property
    def brought(self) -> tuple[str, ...]:
        """The batches that it was given, by the beginnings of their hashes."""
        return tuple(item.artefact[:8] for item in self.summary.brought)

    @property
    def batch_size(self) -> int:
        """Transitions per deployment. Where all were brought, nothing was asked for: it is their mean."""
        sizes = [item.batch.transitions for item in self.summary.deployments]
        all_brought = len(self.brought) >= self.settings.budget
        return round(sum(sizes) / len(sizes)) if all_brought and sizes else self.settings.batch_size

    @property
    def group(self) -> Group:
        return Group(self.task, self.settings.budget, self.batch_size)

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def finished(self) -> bool:
        return self.summary.finished


@dataclass(frozen=True)
class Missing:
    """A cell of a study without a finished run."""

    cell: Cell
    state: str
    """What is known of it: not begun, unfinished, or why it cannot be read."""


@dataclass(frozen=True)
class Material:
    """What was found."""

    runs: tuple[Run, ...]
    missing: tuple[Missing, ...]
    studies: tuple[tuple[Path, Study], ...]
    scores: Mapping[str, float] = field(default_factory=dict)
    """By task: the return whose reaching is counted in deployments."""

    @property
    def alone(self) -> bool:
        """One run, and not a study of one: its page shows the inside of it."""
        return len(self.runs) == 1 and not self.studies

    @property
    def groups(self) -> list[Group]:
        return list(dict.fromkeys(run.group for run in self.runs))

    @property
    def order(self) -> dict[str, int]:
        """Every method of the page and its place: as the studies name them, whichever runs are there."""
        named = [method.name for _, study in self.studies for method in study.methods]
        return {method: i for i, method in enumerate(dict.fromkeys([*named, *(run.method for run in self.runs)]))}

    def methods(self, group: Group) -> list[str]:
        """The first one is what the others are compared with."""
        return sorted({run.method for run in self.runs if run.group == group}, key=self.order.__getitem__)

    def of(self, group: Group, method: str) -> list[Run]:
        """By seed."""
        found = [run for run in self.runs if (run.group, run.method) == (group, method)]
        return sorted(found, key=lambda run: run.seed)

    def finished(self, group: Group, method: str) -> list[Run]:
        """An unfinished run has no final policy to compare."""
        return [run for run in self.of(group, method) if run.finished]

    def asked(self, group: Group, method: str) -> int:
        """How many runs there would be, if none were missing."""
        named = {run.task_place: run.task for run in self.runs}
        lacking = [item.cell for item in self.missing]
        sought = [
            cell for cell in lacking
            if Group(named.get(cell.task, cell.task), cell.budget, cell.batch_size) == group
            and cell.method.name == method
        ]  # fmt: skip
        inside = [folder for folder, _ in self.studies]
        alone = [run for run in self.of(group, method) if not run.finished and run.folder.parent not in inside]
        return len(self.finished(group, method)) + len(sought) + len(alone)

    def comparable(self, group: Group, method: str) -> list[Run]:
        """Finished runs; where there is none, the one that is under way."""
        return self.finished(group, method) or self.of(group, method)[:1]

    def in_order(self, group: Group) -> list[Run]:
        """Method by method, seed by seed: what is shown of one run is chosen by this order, and not by its result."""
        return [run for method in self.methods(group) for run in self.comparable(group, method)]


def names(tasks: Iterable[str], own: Mapping[str, str] | None = None) -> dict[str, str]:
    """A short name for every task: what it calls itself (`own`), or NAME of `/somewhere/file.py:NAME`, and more of it
    where that is not enough."""
    found: dict[str, str] = {}
    for task in dict.fromkeys(tasks):
        place, _, attribute = task.rpartition(":")
        short = shown_name(task, (own or {}).get(task, ""))
        wanted = [short, slug(f"{Path(place).stem}.{attribute}") if place else short]
        wanted += [f"{wanted[-1]}-{n}" for n in range(2, len(found) + 3)]
        found[task] = next(name for name in wanted if name not in found.values())
    return found


def gather(folders: Iterable[Path], scores: Mapping[str, float] | None = None) -> Material:
    """The runs in `folders`, each of which holds a run or a study."""
    runs: list[Run] = []
    missing: list[Missing] = []
    unreadable: list[str] = []
    studies: list[tuple[Path, Study]] = []
    for folder in folders:
        study = recorded(folder) if folder.is_dir() else None
        if study is not None:
            studies.append((folder, study))
            for cell in cells(study):
                cell = replace(cell, task=task_in(folder, cell.task))
                try:
                    found = _cell(folder, cell)
                except UserError as error:  # one damaged cell does not take the page away from the others
                    missing.append(Missing(cell, str(error)))
                    unreadable.append(f"{cell.folder} ({str(error).rstrip('.')})")
                    continue
                runs += [found] if found else []
                missing += [] if found and found.finished else [Missing(cell, _state(found))]
        elif (folder / LEDGER).exists():
            runs.append(_run(folder))
        else:
            raise UserError(f"{folder} holds neither a run nor a study: it has no {LEDGER} and no {RECORD}.")
    begun = [run for run in runs if run.summary.deployments]
    if not begun and unreadable:
        more = f"; and {len(unreadable) - SHOWN} more" if len(unreadable) > SHOWN else ""
        raise UserError(f"there is nothing to report: no run can be read. {'; '.join(unreadable[:SHOWN])}{more}.")
    if not begun:
        raise UserError("there is nothing to report yet: no run has a batch.")
    known = names((run.task_place for run in runs), {run.task_place: run.summary.task.name for run in runs})
    begun = [replace(run, task=known[run.task_place]) for run in begun]
    _require_different(begun)
    _require_alike(begun)
    if scores and len(runs) == 1 and not studies:
        raise UserError("a score to reach is for a comparison: give several runs, or a study.")
    if strangers := set(scores or ()) - set(known.values()):
        raise UserError(
            f"no run is on {', '.join(sorted(strangers))}: a score is for one of {', '.join(known.values())}."
        )
    return Material(tuple(begun), tuple(missing), tuple(studies), dict(scores or {}))


def _cell(out: Path, cell: Cell) -> Run | None:
    """The run of a cell; None where it is not begun."""
    folder = out / cell.folder
    return replace(_run(folder), method=cell.method.name) if (folder / LEDGER).exists() else None


def _state(run: Run | None) -> str:
    """Of a cell that is not finished."""
    if run is None:
        return "not begun"
    return f"unfinished, {len(run.summary.returns)} of {run.settings.budget} deployments"


def _run(folder: Path) -> Run:
    found = summary(folder)
    return Run(folder, found.settings.algo, found, found.settings.task)


def _require_different(runs: Sequence[Run]) -> None:
    """Two runs of one place would be counted as two seeds."""
    seen: dict[tuple[Group, str, int], Run] = {}
    for run in runs:
        before = seen.setdefault((run.group, run.method, run.seed), run)
        if before is not run:
            raise UserError(
                f"{before.folder} and {run.folder} are both {run.method} on {run.group.title} with seed {run.seed}: "
                "leave one out, or give them names of their own as variants of a study."
            )


def _require_alike(runs: Sequence[Run]) -> None:
    """Seeds of one method differ in their seed alone."""
    first: dict[tuple[Group, str], Run] = {}
    for run in runs:
        other = first.setdefault((run.group, run.method), run)
        differs = flags.differences(_settings(other), _settings(run))
        differs += ["the task"] if run.summary.task != other.summary.task else []
        if differs:
            raise UserError(
                f"{other.folder} and {run.folder} are both {run.method} on {run.group.title}, but their settings "
                f"differ, so the runs cannot be averaged: {flags.some(differs)}. Report them apart, give them names as "
                "variants of a study, or remove the one that is out of date and run it again."
            )


def _settings(run: Run) -> dict[str, Any]:
    own = {f"--{name}": value for name, value in flags.flat(run.settings.method)}
    brought = " ".join(run.brought) or "none"
    return {"--algo": run.settings.algo, "--episodes": run.settings.episodes, "the batches brought": brought, **own}
