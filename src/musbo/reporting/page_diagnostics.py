"""The sections about what is measured besides return: the diagnostics of each task."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.reporting import comparison_figures, measures, run_figures
from musbo.reporting.canvas import Figure
from musbo.reporting.gather import Group, Material, Run
from musbo.reporting.measures import Average, Measure
from musbo.reporting.page_comparison import average
from musbo.reporting.section import Section
from musbo.reporting.sheets import Sheet, sheet


def diagnostics(material: Material, group: Group) -> Iterator[Section]:
    """What is measured besides return, on one task and budget."""
    section = Section(f"Diagnostics: {group.title}" if len(material.groups) > 1 else "Diagnostics")
    section.figures = comparison_figures.diagnostics(material, group)
    if material.alone:
        section.figures += _inner_figures(material.runs[0])
    else:
        section.figures += comparison_figures.method_curves(material, group)
        section.sheets = diagnostic_sheets(material, group)
        section.words = _inside(material.in_order(group)[0])
    if section.figures:
        yield section


def _inside(run: Run) -> str:
    place = "/".join(run.folder.resolve().parts[-2:])
    return (
        "The training and the batches of one run are on a page of its own, "
        f"for example: {shlex.join(['musbo', 'report', place])}"
    )


def _inner_figures(run: Run) -> list[Figure]:
    with Ledger(run.folder / LEDGER) as ledger:
        metrics = ledger.metrics()
    return run_figures.diagnostics(run, metrics)


@dataclass(frozen=True)
class DiagnosticRow:
    """One measure of one method: mean ± deviation over seeds after each deployment."""

    diagnostic: str
    name: str
    unit: str
    about: str
    method: str
    runs: int
    after: tuple[Average, ...]


def diagnostic_sheets(material: Material, group: Group) -> list[Sheet]:
    """What the figures show, as numbers."""
    every = {method: material.comparable(group, method) for method in material.methods(group)}
    texts: dict[str, Callable[[float | None], str]] = {}
    rows = []
    for measure in measures.measures([run for runs in every.values() for run in runs]):
        texts[measure.name] = measure.text
        rows += [row for method, runs in every.items() if (row := _row(measure, method, runs))]
    columns: dict[str, Callable[[DiagnosticRow], str]] = {
        "diagnostic": lambda row: row.diagnostic,
        "method": lambda row: row.method,
    }
    for d in range(group.budget):
        columns[str(d + 1)] = lambda row, d=d: average(row.after, d, texts[row.name])
    note = "Mean ± deviation over the seeds that have the number; what it is, and its unit, stand below the figures."
    return [sheet(f"diagnostics-{group.slug}", "Diagnostics of each deployment", rows, columns, note)] if rows else []


def _row(measure: Measure, method: str, runs: list[Run]) -> DiagnosticRow | None:
    values = measures.values(runs, measure)
    if not np.isfinite(values).any():
        return None
    after = measures.averages(values)
    return DiagnosticRow(measure.title, measure.name, measure.unit, measure.about, method, len(runs), after)
