"""The sections about what goes on inside: warnings, and the diagnostics of each task."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.reporting import compare, comparison_figures, measures, run_figures
from musbo.reporting.canvas import Figure
from musbo.reporting.compare import WarningRow
from musbo.reporting.gather import Group, Material, Run
from musbo.reporting.measures import Average, Measure
from musbo.reporting.page_comparison import average
from musbo.reporting.section import Section
from musbo.reporting.sheets import Sheet, sheet
from musbo.reporting.words import plural, spans


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
        "What goes on inside the training and the batches of one run is on a page of its own, "
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


# Warnings


def warnings(material: Material) -> Iterator[Section]:
    """Each kind once: the sentence, and where it applies."""
    rows = compare.warning_rows(material)
    if not rows:
        return
    section = Section("Warnings")
    for kind in dict.fromkeys(row.kind for row in rows):
        same = [row for row in rows if row.kind == kind]
        section.notes.append((same[0].warning, _places(material, same)))
    if len(rows) > len(section.notes):
        section.words = "The numbers are those of the first deployment that is named; the table has all of them."
    section.sheets = [sheet("warnings", "Every warning", rows, {})]
    yield section


def _places(material: Material, rows: list[WarningRow]) -> str:
    """Method by method; seeds with the same deployments share a phrase."""
    found = []
    for group in material.groups:
        for method in material.methods(group):
            runs, shared = material.of(group, method), dict[tuple[int, ...], list[int]]()
            for run in runs:
                days = tuple(row.deployment for row in rows if row.place == compare.place(run))
                shared.setdefault(days, []).append(run.seed)
            for days, seeds in shared.items():
                if days:
                    where = [f"{method} on {group.title}" if len(material.groups) > 1 else method]
                    where += [f"{plural('seed', seeds)} {spans(seeds)}"] if len(runs) > 1 else []
                    where += [f"{plural('deployment', days)} {spans(days)}"]
                    found.append(", ".join(where[material.alone :]))  # which method, the title says
    return "; ".join(found)
