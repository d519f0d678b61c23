"""The sections that compare methods: on each task, on all tasks together, and every run."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from musbo.reporting import compare, comparison_figures, measures, run_tables
from musbo.reporting.compare import MethodRow, Place, extra_steps, place
from musbo.reporting.gather import Group, Material, Missing, Run
from musbo.reporting.measures import Average
from musbo.reporting.overall import Overall, OverallRow
from musbo.reporting.page_run import MODEL_RETURN, named
from musbo.reporting.section import Section
from musbo.reporting.sheets import Columns, Sheet, sheet
from musbo.reporting.words import count, decimals, duration, number, percent, signed, with_deviation


def _interval(low: float | None, high: float | None, text: Callable[[float | None], str] = number) -> str:
    return "-" if low is None else f"{text(low)} to {text(high)}"


METHODS: Columns[MethodRow] = {
    "method": lambda row: row.method,
    "runs": lambda row: f"{row.runs} of {row.asked}" if row.asked > row.runs else str(row.runs),
    "final return": lambda row: with_deviation(row.mean, row.deviation),
    "model return": lambda row: run_tables.model_return(row.mean, row.model_return),
    "IQM": lambda row: number(row.iqm),
    "95 % interval": lambda row: _interval(row.iqm_low, row.iqm_high),
    "mean over deployments": lambda row: number(row.area),
    "deployments to there": lambda row: _needed(row),
    "minus first": lambda row: signed(row.difference),
    "its interval": lambda row: _interval(row.difference_low, row.difference_high),
    "better than first": lambda row: percent(row.better),
    "oracle steps": lambda row: run_tables.steps(row.extra_steps),
    "time": lambda row: duration(row.hours * 3600),
}
TOGETHER: Columns[OverallRow] = {
    "method": lambda row: row.method,
    "tasks and budgets": lambda row: str(row.tasks),
    "runs": lambda row: str(row.runs),
    "IQM": lambda row: decimals(row.iqm),
    "95 % interval": lambda row: _interval(row.iqm_low, row.iqm_high, decimals),
    "mean": lambda row: decimals(row.mean),
    "better than first": lambda row: percent(row.better),
    "its interval": lambda row: _interval(row.better_low, row.better_high, percent),
}


def _needed(row: MethodRow) -> str:
    if row.reached is None or row.needed is None:
        return "-"
    return f"{'∞' if np.isinf(row.needed) else f'{row.needed:g}'} ({row.reached} of {row.runs})"


def comparison(material: Material, group: Group) -> Section:
    """The returns of all methods on one task and budget."""
    section = Section(f"Return: {group.title}", _terms(material, group))
    lost = compare.unscored(material, group)
    if lost:
        section.words += f" Without a final return, and not in what follows: {', '.join(map(named, lost))}"
        section.words += " (no simulator to evaluate in, or a return that was no number)."
    drawn = (comparison_figures.curves(material, group), comparison_figures.final_returns(material, group))
    section.figures = [figure for figure in drawn if figure]
    rows = compare.method_rows(material, group)
    if not rows:
        section.words += "" if lost else " No run has finished yet."
        return section
    note = _note(rows, asked=group.task in material.scores)
    section.sheets = [sheet(f"methods-{group.slug}", "Methods", rows, METHODS, note), _returns(material, group)]
    return section


def _note(rows: list[MethodRow], asked: bool) -> str:
    """What the words of the table mean. `asked`: the score to reach was given."""
    note = f"The final return is the mean ± deviation over seeds. Differences are to {rows[0].method}, seed by seed"
    note += ", with bootstrap intervals; 'better' is the chance that a run beats one of the first method."
    if min(row.runs for row in rows) < 5:
        note += " With fewer than five seeds an interval is little more than their range, and with one there is none."
    if rows[0].goal is not None:
        half_way = "" if asked else ", half-way between random actions and the best mean"
        note += f" 'There' is a return of {number(rows[0].goal)}{half_way}: the median of the deployments to there, and"
        note += " the runs that got there."
    if any(run_tables.model_return(row.mean, row.model_return) != "-" for row in rows):
        note += f" {MODEL_RETURN}"
    if any(row.extra_steps for row in rows):
        note += " 'Oracle steps' were tried in the simulator beside the transitions of a run, the mean over runs."
    return note


def _terms(material: Material, group: Group) -> str:
    """What a return here is the return of. Methods that came from several places may differ."""
    own = [run.settings for run in material.runs if run.group == group]
    presets = dict.fromkeys(each.preset for each in own)
    episodes = dict.fromkeys(str(each.episodes) for each in own)
    return (
        f"{count(group.budget, 'deployment')} of {group.batch_size:,} transitions, preset {' and '.join(presets)}. "
        f"A return is the mean over {' and '.join(episodes)} episodes."
    )


@dataclass(frozen=True)
class ReturnsRow:
    """Mean ± deviation over seeds of the return after every deployment."""

    method: str
    runs: int
    after: tuple[Average, ...]


def _returns(material: Material, group: Group) -> Sheet:
    rows = [
        ReturnsRow(method, len(runs), measures.averages(measures.returns(runs)))
        for method, runs in compare.finals(material, group).items()
    ]
    columns: dict[str, Callable[[ReturnsRow], str]] = {"method": lambda row: row.method}
    for d in range(group.budget):
        columns[str(d + 1)] = lambda row, d=d: average(row.after, d)
    return sheet(f"returns-{group.slug}", "Return after each deployment", rows, columns)


def average(after: tuple[Average, ...], d: int, text: Callable[[float | None], str] = number) -> str:
    """After deployment `d`, counted from 0."""
    return with_deviation(after[d].mean, after[d].deviation, text) if d < len(after) else "-"


# All tasks together


def together(found: Overall, material: Material) -> Section:
    several = len({group.task for group in material.groups}) < len(material.groups)
    section = Section("All tasks and budgets together" if several else "All tasks together")
    words = []
    if found.rows:
        words.append(
            "Scores are normalised: random actions are 0, the best method's mean final return is 1 on each. "
            "The scale is relative to the methods on this page."
        )
        order = material.order
        section.figures = [comparison_figures.aggregate(found, order), comparison_figures.profiles(found, order)]
        section.sheets = [sheet("all-tasks", "All tasks", found.rows, TOGETHER)]
    else:
        words.append("Nothing to put together yet: it takes two methods with finished runs on the same two, at least.")
    if found.unfinished:
        words.append(f"Left out, because no run is finished with a return: {_titles(found.unfinished)}.")
    if found.no_line:
        why = "no method is above random actions or these are not known"
        words.append(f"Left out, because {why}: {_titles(found.no_line)}.")
    if found.partly:
        words.append(f"Left out, because they have no finished run on some of these: {', '.join(found.partly)}.")
    section.words = " ".join(words)
    return section


def _titles(groups: list[Group]) -> str:
    return "; ".join(group.title for group in groups)


# Every run


@dataclass(frozen=True)
class OutcomeRow:
    """A run and what came of it."""

    place: Place
    final_return: float | None
    finished: bool
    seconds: float
    policy_sha256: str | None
    extra_steps: int


RUNS: Columns[OutcomeRow] = {
    "task": lambda row: row.place.task,
    "budget": lambda row: str(row.place.budget),
    "batch size": lambda row: f"{row.place.batch_size:,}",
    "method": lambda row: row.place.method,
    "seed": lambda row: str(row.place.seed),
    "last return": lambda row: number(row.final_return),
    "oracle steps": lambda row: run_tables.steps(row.extra_steps),
    "finished": lambda row: "yes" if row.finished else "no",
    "time": lambda row: duration(row.seconds),
    "policy": lambda row: (row.policy_sha256 or "-")[:12],
}


@dataclass(frozen=True)
class MissingRow:
    run: str
    state: str


def every_run(material: Material) -> Section:
    """All runs, every deployment of them, and the runs that are missing."""
    section = Section("Every run")
    section.sheets = [sheet("runs", "Runs", [_outcome(run) for run in material.runs], RUNS)]
    section.sheets.append(sheet("deployments", "Every deployment of every run", compare.run_rows(material), {}))
    if material.missing:
        section.sheets.append(_missing(material.missing))
    return section


def _outcome(run: Run) -> OutcomeRow:
    found = run.summary
    return OutcomeRow(
        place(run), found.final_return, run.finished, found.seconds, found.policy_sha256, extra_steps(run)
    )


def _missing(missing: tuple[Missing, ...]) -> Sheet:
    rows = [MissingRow(item.cell.folder, item.state) for item in missing]
    return sheet("missing", "Missing", rows, {"run": lambda row: row.run, "state": lambda row: row.state})
