"""What a call of `musbo study` asks for, worked out and checked before anything runs."""

from dataclasses import dataclass, replace
from pathlib import Path

from musbo.campaign import command, flags, settings
from musbo.campaign.folders import open_settings
from musbo.campaign.places import LEDGER
from musbo.campaign.settings import load_task, task_for, task_name
from musbo.cluster import study as studies
from musbo.cluster.study import Cell, Study, Variant, cells
from musbo.core.errors import UserError
from musbo.field.worlds import no_simulator


@dataclass(frozen=True)
class Said:
    """What the words of a call say; None or empty: nothing."""

    file: str | None = None
    """A .toml file, or the name of a ready study."""
    tasks: tuple[str, ...] = ()
    algos: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    preset: str | None = None
    budget: int | None = None
    batch_size: int | None = None
    settings: tuple[str, ...] = ()
    """Words for every run."""


def require_trusted(said: Said, out: Path, trusted: bool) -> None:
    """Refuse tasks that are Python which only the record of a study names, unless the user has said they may be run."""
    before = studies.recorded(out)
    if before is None or trusted:
        return
    named = {task_name(task) for task in (*said.tasks, *(studies.load(said.file).tasks if said.file else ()))}
    for task in before.tasks:
        settings.require_trusted(task, task in named)


def asked(said: Said, out: Path, named: bool) -> Study | None:
    """The study that file and words describe together, every cell of it checked; None: go on with what is in `out`.

    `named`: the user has said `out`, so what is there may be added to.
    """
    if said == Said():
        if before := studies.recorded(out):
            for cell in cells(before):
                if not (out / cell.folder / LEDGER).exists():  # it will be begun with the words of the record
                    _require_sound(cell, before.settings, simulated=False)
        return None
    before = None if said.file else studies.recorded(out)
    if before and not named:  # what is there may be something else altogether
        raise UserError(
            f"{out} holds a study already: give --out {out} to add to it (it runs every task with every method and "
            "seed), or another --out for a study of its own."
        )
    if said.file:
        chosen = _changed(studies.load(said.file), said)
    elif before:
        # What is not said stays as it was, and a setting said again must be the same.
        chosen = _changed(replace(before, settings=()) if said.settings else before, said)
    else:
        chosen = _new(said)
    chosen = _sized(chosen, said.budget, said.batch_size)
    for cell in cells(replace(chosen, seeds=chosen.seeds[:1])):  # the others differ in a number only
        _require_sound(cell, chosen.settings)
    return chosen


def _new(said: Said) -> Study:
    if missing := [name for name in ("tasks", "algos") if not getattr(said, name)]:
        raise UserError(f"a new study needs --{' and --'.join(missing)}, or a file that says them.")
    methods = tuple(Variant(name, name) for name in said.algos)
    tasks = tuple(map(task_name, said.tasks))
    return Study(tasks, methods, said.seeds or (0,), said.preset, settings=said.settings)


def _changed(study: Study, said: Said) -> Study:
    """The study with what was said; a method that it knows keeps its settings."""
    tasks = tuple(map(task_name, said.tasks or study.tasks))
    known = {method.name: method for method in study.methods}
    methods = tuple(known.get(name) or Variant(name, name) for name in said.algos)
    return replace(
        study, tasks=tasks, methods=methods or study.methods, seeds=said.seeds or study.seeds,
        preset=said.preset or study.preset, settings=(*study.settings, *said.settings),
        budgets=_inherited(study, tasks, None not in (said.budget, said.batch_size)),
    )  # fmt: skip


def _inherited(study: Study, tasks: tuple[str, ...], sized: bool) -> tuple[tuple[str, int, int], ...]:
    """The budgets of `tasks`: a new one has what all others were given; where they differ, it has to be said."""
    given = {task: [(i, b) for name, i, b in study.budgets if name == task] for task in study.tasks}
    shared, *others = given.values()
    new = [task for task in tasks if task not in given]
    if new and any(pairs != shared for pairs in others) and not sized:
        raise UserError(
            f"the tasks of this study have budgets of their own, so {new[0]} needs one too: "
            "give --budget and --batch-size with --tasks."
        )
    return tuple((task, i, b) for task in tasks for i, b in given.get(task, shared))


def _sized(study: Study, budget: int | None, batch_size: int | None) -> Study:
    """The study with these numbers for every task; None: as it is."""
    if budget is None and batch_size is None:
        return study
    budgets = {
        (c.task, c.budget if budget is None else budget, c.batch_size if batch_size is None else batch_size)
        for c in cells(study)
    }
    return replace(study, budgets=tuple(sorted(budgets)))


def _require_sound(cell: Cell, settings: tuple[str, ...], simulated: bool = True) -> None:
    """Refuse now what would fail in the middle of a study, and settings that would lead a run elsewhere."""
    try:
        words = cell.words(Path(), settings)[1:]
        if "--help" in words or "-h" in words:
            raise UserError("--help is no setting: `musbo run TASK --help` lists them.")
        chosen, arguments = command.read(words)
        if simulated:
            task = load_task(chosen.task, trusted=True)  # `require_trusted` was asked before
            chosen.method.require(task)
            if reason := no_simulator(task):
                raise UserError(reason)
        asked = (chosen.seed, chosen.budget, chosen.batch_size, chosen.algo, chosen.preset, arguments.out)
        own = (cell.seed, cell.budget, cell.batch_size, cell.method.algo, cell.preset, Path(cell.folder))
        if asked != own or arguments.data or arguments.mapping:
            what = "seed, budget, batch size, algo, preset, out, data and mapping"
            raise UserError(f"{what} are the study's own and cannot be among its settings.")
    except UserError as error:
        raise UserError(f"{cell.method.name} on {cell.task}: {error}") from error


def require_as_before(study: Study, out: Path) -> None:
    """Seeds of a method differ in their seed alone: refuse to begin one where a preset has changed since the others."""
    rows: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells(study):
        rows.setdefault(cell.row, []).append(cell)
    for row in rows.values():
        begun = [cell for cell in row if (out / cell.folder / LEDGER).exists()]
        new = [cell for cell in row if cell not in begun]
        if begun and new:
            _require_alike(study, out, begun[0], new[0])


def _require_alike(study: Study, out: Path, begun: Cell, new: Cell) -> None:
    """Refuse to begin `new` if it would differ from `begun` in more than its seed."""
    try:
        old = open_settings(out / begun.folder)
    except UserError:  # a damaged ledger is the affair of its own run, which says so when it is begun
        return
    now, _ = command.read(new.words(out, study.settings)[1:])
    now = replace(now, seed=old.seed, task=task_for(out / begun.folder, now.task))
    differ = flags.differences(*({f"--{n.removeprefix('method.')}": v for n, v in flags.flat(s)} for s in (old, now)))
    if differ:
        raise UserError(
            f"{out / begun.folder} and {new.folder}: settings differ, so the runs cannot be averaged: "
            f"{flags.some(differ)}. Use the musbo that began this study, or choose another --out."
        )
