"""Studies from Python: the same as `musbo study`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musbo.campaign.changes import words
from musbo.cluster import local, on_ray, plan
from musbo.cluster import study as studies
from musbo.cluster.local import Observe
from musbo.cluster.plan import Said
from musbo.cluster.progress import Progress
from musbo.cluster.study import Cell, Study
from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.tasks import modules


@dataclass(frozen=True)
class How:
    """How the runs of a study are carried out."""

    jobs: int | None = None
    """Runs at once on this machine; None: one per core."""
    ray: str | None = None
    """The address of a Ray cluster."""
    imports: tuple[str, ...] = ()
    """Modules or files that every run imports first."""
    trust_task: bool = False
    """Run tasks that are Python which only the record of the study names."""


@dataclass(frozen=True)
class StudyResult:
    """A study, and how each of its runs ended."""

    folder: Path
    runs: dict[Cell, Progress]

    @property
    def failed(self) -> list[Cell]:
        return [cell for cell, progress in self.runs.items() if progress.state == "failed"]


def study(
    file: str | Path | None = None,
    *,
    out: str | Path,
    tasks: Sequence[str] = (),
    algos: Sequence[str] = (),
    seeds: Sequence[int] = (),
    preset: str | None = None,
    budget: int | None = None,
    batch_size: int | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    jobs: int | None = None,
    ray: str | None = None,
    imports: Sequence[str] = (),
    trust_task: bool = False,
) -> StudyResult:
    """Run all combinations of methods, tasks, budgets and seeds, each in its own directory below `out`.

    `file` is a .toml file or the name of a study that comes with musbo; without one, give `tasks` and `algos`.
    `settings` are for every run, by name as in `musbo.run` or as flags; `imports` are modules or files with methods or
    parts of your own, which every run imports first. Tasks in Python files that only the record in `out` names need
    `trust_task`. Finished runs are not repeated, so the same call resumes a study.
    """
    said = Said(
        str(file) if file else None, tuple(tasks), tuple(algos), tuple(seeds), preset, budget, batch_size,
        tuple(words(settings) if isinstance(settings, Mapping) else settings),
    )  # fmt: skip
    brought = tuple(str(Path(name).resolve()) if modules.is_file(name) else name for name in imports)
    for name in brought:
        modules.load(name, "imports are package.module or path/to/file.py")
    return StudyResult(given(out), carry_out(said, given(out), True, How(jobs, ray, brought, trust_task)))


def carry_out(
    said: Said,
    out: Path,
    named: bool,
    how: How,
    observe: Observe = lambda seen: None,
    opened: Callable[[Study, Study | None], None] = lambda whole, before: None,
) -> dict[Cell, Progress]:
    """Plan a study, check it, and run what is not done; `opened` hears what it is now and what it was before."""
    if how.ray and how.jobs is not None:
        raise UserError("--jobs divides the cores of this machine, and --ray runs elsewhere: give one of the two.")
    local.share_cores(how.jobs)  # refuses what this machine has not, before anything is written
    plan.require_trusted(said, out, how.trust_task)
    before, asked = studies.recorded(out), plan.asked(said, out, named)
    plan.require_as_before(studies.together(out, asked), out)
    with studies.held(out, asked) as whole:
        opened(whole, before)
        if how.ray:
            return on_ray.run(whole, out, how.ray, observe, how.imports)
        return local.run(whole, out, how.jobs, observe, how.imports)
