"""The runs that a report is about: campaigns, and the cells of studies."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musbo.campaign.folders import LEDGER, open_settings
from musbo.campaign.results import summary
from musbo.campaign.settings import Campaign
from musbo.cluster.study import RECORD, Cell, Study, cells, recorded
from musbo.core.errors import UserError


@dataclass(frozen=True)
class Group:
    """Task and budget: what methods are compared on."""

    task: str
    deployments: int
    batch: int

    @property
    def title(self) -> str:
        return f"{short(self.task)}, {self.deployments} x {self.batch:,}"

    @property
    def slug(self) -> str:
        return f"{short(self.task)}-{self.deployments}x{self.batch}"


@dataclass(frozen=True)
class Run:
    """One campaign, under the name that its study gives its method."""

    folder: Path
    method: str
    settings: Campaign
    summary: dict[str, Any]

    @property
    def group(self) -> Group:
        return Group(self.settings.task, self.settings.deployments, self.settings.batch)

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

    @property
    def groups(self) -> list[Group]:
        return list(dict.fromkeys(run.group for run in self.runs))

    @property
    def order(self) -> dict[str, int]:
        """Every method of the page and its place, which gives it the same colour in all figures."""
        return {method: i for i, method in enumerate(dict.fromkeys(run.method for run in self.runs))}

    def methods(self, group: Group) -> list[str]:
        """In the order in which they were given."""
        return list(dict.fromkeys(run.method for run in self.runs if run.group == group))

    def of(self, group: Group, method: str) -> list[Run]:
        """The finished runs, by seed: an unfinished one has no final policy to compare."""
        found = [r for r in self.runs if (r.group, r.method) == (group, method) and r.finished and r.summary["returns"]]
        return sorted(found, key=lambda run: run.seed)


def short(task: str) -> str:
    """`/somewhere/file.py:NAME` is NAME; `<name>`, an object of a Python program, is name."""
    return task.rpartition(":")[2].strip("<>")


def gather(folders: Iterable[Path]) -> Material:
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
            runs.append(_run(folder, None))
        else:
            raise UserError(f"{folder} holds neither a run nor a study: it has no {LEDGER} and no {RECORD}.")
    _require_different(runs)
    if not any(run.summary["per_deployment"] for run in runs):
        raise UserError("there is nothing to report yet: no run has a batch.")
    return Material(tuple(run for run in runs if run.summary["per_deployment"]), tuple(missing), tuple(studies))


def _cell(out: Path, cell: Cell) -> tuple[Run | None, str]:
    folder = out / cell.folder
    if not (folder / LEDGER).exists():
        return None, "not begun"
    try:
        found = _run(folder, cell.method.name)
    except UserError as error:  # one damaged cell does not take the page away from the others
        return None, str(error)
    done = len(found.summary["returns"])
    return found, "finished" if found.finished else f"unfinished, {done} of {cell.deployments} deployments"


def _run(folder: Path, method: str | None) -> Run:
    settings = open_settings(folder)
    return Run(folder, method or settings.algo, settings, summary(folder))


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
