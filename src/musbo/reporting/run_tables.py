"""A run as tables: one row per deployment."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from musbo.campaign.summary import Deployment, Summary
from musbo.core.diagnostics import Diagnostic
from musbo.reporting import words
from musbo.reporting.advice import behaviour, difference, evaluations
from musbo.reporting.sheets import Columns, filled
from musbo.reporting.words import decimals, duration, number, signed, with_deviation

WIDTH = 80
"""Of a narrow terminal: no table is wider."""


@dataclass(frozen=True)
class Row:
    """The numbers of one deployment; None where there is none."""

    deployment: int
    transitions: int
    batch_return: float | None
    extra_steps: int
    """What an oracle tried in the simulator beside the batch."""
    novelty: float | None
    imagined_per_step: float | None
    real_per_step: float | None
    mean_return: float | None
    deviation: float | None
    model_return: float | None
    mean_length: float | None
    speed: float | None
    energy_distance: float | None
    trajectory_error: float | None
    seconds: float
    diagnostics: tuple[Diagnostic, ...] = ()
    """Of the training, then of the batch, each name once."""

    def diagnostic(self, name: str) -> Diagnostic | None:
        return next((each for each in self.diagnostics if each.name == name), None)


def rows(summary: Summary) -> list[Row]:
    return [_row(item) for item in summary.deployments]


def _row(item: Deployment) -> Row:
    batch, evaluation = item.batch, item.evaluation
    episodes = evaluation.episodes if evaluation else None
    agreement = evaluation.agreement if evaluation else None
    return Row(
        deployment=item.number,
        transitions=batch.transitions,
        batch_return=batch.mean_return,
        extra_steps=batch.extra_steps,
        novelty=batch.novelty,
        imagined_per_step=item.imagined_per_step,
        real_per_step=item.real_per_step,
        mean_return=item.mean_return,
        deviation=episodes.deviation if episodes else None,
        model_return=episodes.model_return if episodes else None,
        mean_length=episodes.mean_length if episodes else None,
        speed=episodes.speed if episodes else None,
        energy_distance=agreement.energy_distance if agreement else None,
        trajectory_error=agreement.trajectory_error if agreement else None,
        seconds=item.seconds,
        diagnostics=diagnostics(item),
    )


def diagnostics(item: Deployment) -> tuple[Diagnostic, ...]:
    """Of the training, then of the batch; of two with one name, the later."""
    training = item.training.findings.diagnostics if item.training else ()
    return tuple({each.name: each for each in (*training, *item.batch.findings.diagnostics)}.values())


@dataclass(frozen=True)
class BesideRow:
    """Something that the last policy is compared with."""

    what: str
    mean_return: float
    deviation: float | None = None
    difference: float | None = None
    """Of the last policy to it."""
    error: float | None = None
    better: float | None = None


def beside(summary: Summary) -> list[BesideRow]:
    """The last policy, the one before it, and the behaviours that collected the newest and the first batch."""
    measured, start = evaluations(summary), behaviour(summary)
    if not measured:
        return []
    d, now, mean = measured[-1]
    rows = [BesideRow(f"the policy after deployment {d}", mean, now.deviation)]
    for before, episodes, value in measured[-2:-1]:
        apart = difference(now, episodes)
        own = (apart.mean, apart.error, apart.better) if apart else (mean - value, None, None)
        rows.append(BesideRow(f"the policy after deployment {before}", value, episodes.deviation, *own))
    newest = next(item.batch for item in summary.deployments if item.number == d)
    if d > 1 and newest.mean_return is not None:
        what = "the data brought" if newest.source else "the behaviour that collected the batch"
        rows.append(BesideRow(f"{what} of deployment {d}", newest.mean_return, None, mean - newest.mean_return))
    if start is not None:
        what = "the behaviour in the data" if summary.deployments[0].batch.source else "random actions"
        rows.append(BesideRow(f"{what} (deployment 1)", start, None, mean - start))
    return rows


# Columns


def model_return(own: float | None, model: float | None) -> str:
    """A dash where the model's reward is the task's own: there float32 alone makes a difference."""
    return "-" if own is None or model is None or math.isclose(own, model, rel_tol=1e-4) else number(model)


def steps(n: int) -> str:
    return f"{n:,}" if n else "-"


def _number(row: Row) -> str:
    return str(row.deployment)


OUTCOME: Columns[Row] = {
    "no.": _number,
    "transitions": lambda row: f"{row.transitions:,}",
    "batch return": lambda row: number(row.batch_return),
    "return": lambda row: with_deviation(row.mean_return, row.deviation),
    "model\nreturn": lambda row: model_return(row.mean_return, row.model_return),
    "length": lambda row: "-" if row.mean_length is None else f"{row.mean_length:.0f}",
    "time": lambda row: duration(row.seconds),
}
FORESIGHT: Columns[Row] = {
    "no.": _number,
    "speed": lambda row: number(row.speed),
    "oracle\nsteps": lambda row: steps(row.extra_steps),
    "novelty": lambda row: decimals(row.novelty),
    "energy\ndistance": lambda row: number(row.energy_distance),
    "trajectory\nerror": lambda row: number(row.trajectory_error),
}


BESIDE: Columns[BesideRow] = {
    "": lambda row: row.what,
    "return": lambda row: with_deviation(row.mean_return, row.deviation),
    "difference": lambda row: signed(row.difference) + ("" if row.error is None else f" ± {number(row.error)}"),
    "better in": lambda row: words.percent(row.better),
}


PROMISE: Columns[Row] = {
    "imagined\n/ step": lambda row: number(row.imagined_per_step),
    "real\n/ step": lambda row: number(row.real_per_step),
}


def inside(data: Sequence[Row]) -> Columns[Row]:
    """A column for every diagnostic that asks for one, and what was imagined against what came true."""
    return {"no.": _number, **_diagnostic_columns(data), **PROMISE}


def _diagnostic_columns(data: Iterable[Row]) -> Columns[Row]:
    asked = {each.name: each for row in reversed(list(data)) for each in row.diagnostics if each.column}
    found: dict[str, Callable[[Row], str]] = {}
    for name in (each.name for row in data for each in row.diagnostics):
        if name in asked:
            head = asked.pop(name).column
            found[head if head not in found else f"{head}\n({name})"] = _diagnostic_column(name)
    return found


def _diagnostic_column(name: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        found = row.diagnostic(name)
        return "-" if found is None else words.diagnostic(found)

    return text


def columns(data: Sequence[Row]) -> dict[str, Columns[Row]]:
    """By the title of each table: what came out, what went on inside, and what is known of data and models."""
    return {"deployments": OUTCOME, "training": inside(data), "data and models": FORESIGHT}


# For a terminal


def tables(summary: Summary) -> list[Table]:
    """Several tables, so that each fits a narrow terminal."""
    data = rows(summary)
    return [table for title, own in columns(data).items() for table in _fitting(title, filled(data, own))]


def _fitting(title: str, cells: dict[str, list[str]]) -> list[Table]:
    """One table or, where that would be too wide, several; imagined and real stay in the first."""
    if len(cells) < 2:  # the numbers of the deployments alone
        return []
    first, *rest = (head for head in cells if head not in PROMISE)
    last = [head for head in cells if head in PROMISE]
    drawn: list[Table] = []
    while rest or last:
        name = "(continued)" if drawn else title
        fits = [n for n in range(len(rest) + 1) if _width(_table(name, cells, [first, *rest[:n], *last])) <= WIDTH]
        n = max(fits, default=0) or (0 if last else 1)
        drawn.append(_table(name, cells, [first, *rest[:n], *last]))
        rest, last = rest[n:], []
    return drawn


def _width(table: Table) -> int:
    return Console(width=10 * WIDTH).measure(table).maximum


def _table(title: str, cells: dict[str, list[str]], heads: Sequence[str]) -> Table:
    drawn = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False,
        padding=(0, 1, 0, 0),
    )  # fmt: skip
    for head in heads:
        drawn.add_column(head, justify="right", no_wrap=True)
    for texts in zip(*(cells[head] for head in heads), strict=True):
        drawn.add_row(*texts)
    return drawn
