"""The runs that a report is about: campaigns, and the cells of studies."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from musbo.campaign import flags
from musbo.campaign.folders import LEDGER, read_status, settings_of
from musbo.campaign.results import summary
from musbo.campaign.settings import Campaign
from musbo.cluster.study import RECORD, Cell, Study, cells, recorded
from musbo.core.errors import UserError


@dataclass(frozen=True)
class Group:
    """Task and budget: what methods are compared on."""

    task: str
    """As it is called on the page, in file names too: no two tasks have the same name."""
    deployments: int
    batch: int

    @property
    def title(self) -> str:
        return f"{self.task}, {self.deployments} x {self.batch:,}"

    @property
    def slug(self) -> str:
        return f"{self.task}-{self.deployments}x{self.batch}"


@dataclass(frozen=True)
class Run:
    """One campaign, under the name that its study gives its method."""

    folder: Path
    method: str
    settings: Campaign
    summary: dict[str, Any]
    task: str
    """Its name on the page."""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """What its task was."""
    brought: tuple[str, ...] = ()
    """The batches that it was given, by the beginnings of their hashes."""

    @property
    def batch(self) -> int:
        """Transitions per deployment. Where all were brought, nothing was asked for: it is their mean."""
        sizes = [item["batch"]["size"] for item in self.summary["per_deployment"]]
        brought = len(self.brought) >= self.settings.deployments
        return round(sum(sizes) / len(sizes)) if brought and sizes else self.settings.batch

    @property
    def group(self) -> Group:
        return Group(self.task, self.settings.deployments, self.batch)

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def finished(self) -> bool:
        return self.summary["finished"]


@dataclass(frozen=True)
class Material:
    """What was found. `missing` are cells of a study that have no finished run, with what is known of each."""

    runs: tuple[Run, ...]
    missing: tuple[tuple[Cell, str], ...]
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
        sought = [
            cell for cell, _ in self.missing
            if (cell.method.name, cell.deployments, cell.batch) == (method, group.deployments, group.batch)
            and self.named.get(cell.task, cell.task) == group.task
        ]  # fmt: skip
        inside = [folder for folder, _ in self.studies]
        alone = [run for run in self.of(group, method) if not run.finished and run.folder.parent not in inside]
        return len(self.finished(group, method)) + len(sought) + len(alone)

    @property
    def named(self) -> dict[str, str]:
        """The names of the tasks on the page."""
        return {run.settings.task: run.task for run in self.runs}

    def comparable(self, group: Group, method: str) -> list[Run]:
        """Finished runs; where there is none, the one that is under way."""
        return self.finished(group, method) or self.of(group, method)[:1]


def names(tasks: Iterable[str]) -> dict[str, str]:
    """A short name for every task: of `/somewhere/file.py:NAME` NAME, and more of it where that is not enough."""
    found: dict[str, str] = {}
    for task in dict.fromkeys(tasks):
        place, _, own = task.rpartition(":")
        wanted = [own, f"{Path(place).stem}.{own}" if place else own]
        wanted = [re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "task" for name in wanted]
        wanted += [f"{wanted[-1]}-{n}" for n in range(2, len(found) + 3)]
        found[task] = next(name for name in wanted if name not in found.values())
    return found


def gather(folders: Iterable[Path], scores: Mapping[str, float] | None = None) -> Material:
    runs: list[Run] = []
    missing: list[tuple[Cell, str]] = []
    studies: list[tuple[Path, Study]] = []
    for folder in folders:
        study = recorded(folder) if folder.is_dir() else None
        if study is not None:
            studies.append((folder, study))
            for cell in cells(study):
                found, state = _cell(folder, cell)
                runs += [found] if found else []
                missing += [] if found and found.finished else [(cell, state)]
        elif (folder / LEDGER).exists():
            runs.append(_run(folder))
        else:
            raise UserError(f"{folder} holds neither a run nor a study: it has no {LEDGER} and no {RECORD}.")
    known = names(run.settings.task for run in runs)
    runs = [replace(run, task=known[run.settings.task]) for run in runs]
    _require_different(runs)
    _require_alike(runs)
    if not any(run.summary["per_deployment"] for run in runs):
        raise UserError("there is nothing to report yet: no run has a batch.")
    if scores and len(runs) == 1 and not studies:
        raise UserError("a score to reach is for a comparison: give several runs, or a study.")
    if strangers := set(scores or ()) - set(known.values()):
        raise UserError(
            f"no run is on {', '.join(sorted(strangers))}: a score is for one of {', '.join(known.values())}."
        )
    begun = tuple(run for run in runs if run.summary["per_deployment"])
    return Material(begun, tuple(missing), tuple(studies), dict(scores or {}))


def _cell(out: Path, cell: Cell) -> tuple[Run | None, str]:
    folder = out / cell.folder
    if not (folder / LEDGER).exists():
        return None, "not begun"
    try:
        found = replace(_run(folder), method=cell.method.name)
    except UserError as error:  # one damaged cell does not take the page away from the others
        return None, str(error)
    done = len(found.summary["returns"])
    return found, "finished" if found.finished else f"unfinished, {done} of {cell.deployments} deployments"


def _run(folder: Path) -> Run:
    status = read_status(folder)
    settings = settings_of(status)
    assert status.settings is not None
    created = status.settings
    brought = tuple(item["batch"][:8] for item in created["data"])
    return Run(folder, settings.algo, settings, summary(folder), settings.task, created["task"], brought)


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
        differs = [
            f"{name.replace('_', '-')} ({before} and {now})"
            for name, before, now in _differences(_settings(other), _settings(run))
        ] + (["the task"] if run.fingerprint != other.fingerprint else [])  # fmt: skip
        if differs:
            shown = ", ".join(differs[:3]) + (f" and {len(differs) - 3} more" if len(differs) > 3 else "")
            raise UserError(
                f"{other.folder} and {run.folder} are both {run.method} on {run.group.title}, but differ in {shown}: "
                "they are no seeds of one method. Report them apart, give them names as variants of a study, or remove "
                "the one that is out of date and run it again."
            )


def _settings(run: Run) -> dict[str, Any]:
    own = {f"--{name}": value for name, value in flags.flat(run.settings.method)}
    brought = " ".join(run.brought) or "none"
    return {"--algo": run.settings.algo, "--episodes": run.settings.episodes, "the batches brought": brought, **own}


def _differences(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    both = {name: (one.get(name, "-"), other.get(name, "-")) for name in one | other}
    return [(name, *pair) for name, pair in both.items() if pair[0] != pair[1]]
