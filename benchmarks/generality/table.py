"""What the runs of the bench show: results.csv, a table and a figure. What has not run is shown as missing."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.generality import kept
from benchmarks.generality.kept import Kept
from benchmarks.generality.plan import Run
from benchmarks.generality.score import Reference, score
from musbo.reporting import statistics
from musbo.reporting.statistics import Interval

SEED = 0  # of the bootstrap


@dataclass(frozen=True)
class Row:
    """One deployment of one run, as results.csv has it."""

    task: str
    method: str
    preset: str
    seed: int
    deployment: int
    mean_return: float
    score: float | None
    """None: the task has no reference yet."""
    core_seconds: float | None
    """Of the whole run, in the row of its last deployment."""
    source: str
    """A hash of the musbo that made it."""


@dataclass(frozen=True)
class Results:
    """Runs that were wanted, and what there is of them."""

    wanted: list[Run]
    rows: list[Row]
    done: list[Run]
    references: Mapping[str, Reference]

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.entry.name for run in self.wanted))

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(run.method for run in self.wanted))

    @property
    def missing(self) -> list[Run]:
        return [run for run in self.wanted if run not in self.done]

    def final(self) -> list[Row]:
        """The last deployment of every run that is done."""
        ends = {(run.entry.name, run.method, run.seed): run.entry.budget for run in self.done}
        return [row for row in self.rows if ends.get((row.task, row.method, row.seed)) == row.deployment]

    def scores(self, task: str, method: str) -> np.ndarray:
        """Of the finished runs, in the order of their seeds."""
        own = sorted(
            (row for row in self.final() if (row.task, row.method) == (task, method)), key=lambda row: row.seed
        )
        return np.asarray([row.score for row in own if row.score is not None], float)

    def scored(self, method: str) -> dict[str, np.ndarray]:
        """The tasks on which it has a score."""
        every = {task: self.scores(task, method) for task in self.tasks}
        return {task: values for task, values in every.items() if values.size}


def gather(out: Path, wanted: Sequence[Run], references: Mapping[str, Reference], known: Kept) -> Results:
    """Of the runs in `out` and of those that are kept."""
    rows, done = [], []
    for run in wanted:
        seen = kept.look(out, run, known)
        if seen.state == "done":
            done.append(run)
        line = references.get(run.entry.name)
        for number, value in enumerate(seen.returns, start=1):
            assert value is not None, "a simulator measures every deployment"
            cost = seen.core_seconds if number == run.entry.budget else None
            points = None if line is None else score(value, line)
            own = (run.entry.name, run.method, run.preset, run.seed)
            rows.append(Row(*own, number, value, points, cost, seen.source))
    return Results(list(wanted), rows, done, references)


def to_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    names = [field.name for field in fields(Row)]
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["return" if name == "mean_return" else name for name in names])
    table.writerows(["" if value is None else value for value in asdict(row).values()] for row in rows)
    return text.getvalue()


# --- statistics over tasks ---


def overall(results: Results, method: str) -> Interval | None:
    """The interquartile mean over the tasks that it has been scored on; None without one."""
    own = list(results.scored(method).values())
    return _interval(statistics.interquartile_mean, own) if own else None


def improvement(results: Results, method: str) -> tuple[Interval, int] | None:
    """The chance that a run of the first method beats one of this on the same task, and on how many tasks both are."""
    ours, other = results.scored(results.methods[0]), results.scored(method)
    both = [task for task in ours if task in other]
    if not both:
        return None
    pair = ([ours[task] for task in both], [other[task] for task in both])
    return _interval(statistics.probability_of_improvement, *pair), len(both)


def _interval(statistic: Callable, *methods: list[np.ndarray]) -> Interval:
    return statistics.interval(statistic, *methods, seed=SEED)


def _repeated(scored: Mapping[str, np.ndarray]) -> bool:
    """Whether every task has two runs or more: of one run a bootstrap says nothing."""
    return min(map(len, scored.values())) > 1


# --- the table ---


def told(results: Results) -> list[str]:
    """Mean scores by task and method, then all tasks together, then what is missing."""
    methods = results.methods
    lines = [_line("task", methods), _line("---", ["---"] * len(methods))]
    lines += [_line(task, [_cell(results, task, method) for method in methods]) for task in results.tasks]
    lines += [_line("mean", [_mean(results, method) for method in methods])]
    lines += [_line("IQM", [_overall(results, method) for method in methods])]
    first = methods[0]
    lines += [_line(f"P({first} better)", ["", *(_improvement(results, method) for method in methods[1:])])]
    lines += [_line("core-minutes a run", [_minutes(results, method) for method in methods]), ""]
    if unscored := [task for task in results.tasks if task not in results.references]:
        lines += [f"No reference yet, so no score: {', '.join(unscored)}.", ""]
    sources = Counter(row.source for row in results.final())
    made = ", ".join(f"{source} ({n} {'run' if n == 1 else 'runs'})" for source, n in sources.items())
    lines += [f"Source of musbo: {made}.", ""] if sources else []
    return [*lines, *_absent(results)]


def _line(name: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join((name, *cells))} |"


def _cell(results: Results, task: str, method: str) -> str:
    wanted = [run for run in results.wanted if (run.entry.name, run.method) == (task, method)]
    done = sum(run in results.done for run in wanted)
    if not done:
        return "missing"
    values = results.scores(task, method)
    shown = f"{values.mean():.2f}" if values.size else "no reference"
    return shown if done == len(wanted) else f"{shown} ({done} of {len(wanted)})"


def _partly(results: Results, tasks: int) -> str:
    """What has to be said beside a number that is not about all tasks."""
    return "" if tasks == len(results.tasks) else f" ({tasks} of {len(results.tasks)} tasks)"


def _mean(results: Results, method: str) -> str:
    own = results.scored(method)
    if not own:
        return "missing"
    return f"{float(statistics.mean(list(own.values()))):.2f}{_partly(results, len(own))}"


def _overall(results: Results, method: str) -> str:
    found, own = overall(results, method), results.scored(method)
    if found is None:
        return "missing"
    return f"{_range(found, _repeated(own))}{_partly(results, len(own))}"


def _improvement(results: Results, method: str) -> str:
    found = improvement(results, method)
    if found is None:
        return "missing"
    several = _repeated(results.scored(results.methods[0])) and _repeated(results.scored(method))
    return f"{_range(found[0], several)}{_partly(results, found[1])}"


def _range(found: Interval, several: bool) -> str:
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]" if several else f"{found.value:.2f}"


def _minutes(results: Results, method: str) -> str:
    costs = [row.core_seconds for row in results.final() if row.method == method and row.core_seconds is not None]
    return f"{np.mean(costs) / 60:.1f}" if costs else "unknown"


def _absent(results: Results) -> list[str]:
    missing = results.missing
    if not missing:
        return [f"All {len(results.wanted)} runs are there."]
    lines = [f"Missing, {len(missing)} of {len(results.wanted)} runs:", ""]
    whole = [task for task in results.tasks if not any(run.entry.name == task for run in results.done)]
    lines += [f"- everything on {', '.join(whole)}"] if whole else []
    for task, method in dict.fromkeys((run.entry.name, run.method) for run in missing if run.entry.name not in whole):
        seeds = [str(run.seed) for run in missing if (run.entry.name, run.method) == (task, method)]
        lines.append(f"- {task}, {method}: {', '.join(seeds)}")
    return lines
