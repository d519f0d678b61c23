"""The first section of a page: what came out, in words, and what to do about it."""

from musbo.reporting import compare
from musbo.reporting.advice import Advice, baseline_better, in_order
from musbo.reporting.compare import AdviceRow, MethodRow
from musbo.reporting.gather import Group, Material
from musbo.reporting.section import Section
from musbo.reporting.sheets import sheet
from musbo.reporting.verdict import verdict
from musbo.reporting.words import count, number, plural, sentence, spans, with_deviation


def verdict_of(material: Material) -> Section:
    """Each kind of advice once: the sentence, and where it applies."""
    section = Section("Verdict")
    rows = compare.advice_rows(material)
    if material.alone:
        section.words = verdict(material.runs[0].summary)
    else:
        section.words = " ".join(_compared(material, group) for group in material.groups)
    beside = [advice for group in material.groups if (advice := _baseline(material, group))]
    for advice in in_order([*_each_kind_once(rows), *beside]):
        same = [row for row in rows if row.kind == advice.kind]
        section.notes.append((sentence(advice.text), _places(material, same)))
    if rows and not material.alone:
        section.sheets = [sheet("advice", "All advice", rows, {})]
    return section


def _each_kind_once(rows: list[AdviceRow]) -> list[Advice]:
    first: dict[str, AdviceRow] = {}
    for row in rows:
        first.setdefault(row.kind, row)
    return [Advice(kind, row.advice) for kind, row in first.items()]


def _baseline(material: Material, group: Group) -> Advice | None:
    first, *others = compare.standings(material, group) or [None]
    return baseline_better(first, others, group.title) if first else None  # type: ignore[arg-type]


def _compared(material: Material, group: Group) -> str:
    """Which method is best on a task, and how sure that is."""
    rows = sorted(compare.method_rows(material, group), key=lambda row: -row.mean)
    if not rows:
        return f"On {group.title}, no run has finished with a return yet."
    best, *others = rows
    text = f"On {group.title}, {best.method} earns {with_deviation(best.mean, best.deviation)} per episode"
    text += f" ({count(best.runs, 'run')})"
    if not others:
        return f"{text}."
    text += f", the most of {count(len(rows), 'method')}; the next is {others[0].method} with {number(others[0].mean)}."
    return f"{text} {_sure(best, others[0])}"


def _sure(best: MethodRow, second: MethodRow) -> str:
    if min(best.runs, second.runs) < 2:
        return "With one run of a method, differences may be chance."
    apart = (second.mean - best.mean) / max(_error(best) + _error(second), 1e-12)
    return "That difference is larger than chance." if apart < -2 else "That difference may be chance."


def _error(row: MethodRow) -> float:
    """Standard error of the mean over seeds."""
    return (row.deviation or 0.0) / row.runs**0.5


def _places(material: Material, rows: list[AdviceRow]) -> str:
    """Method by method; seeds with the same deployments share a phrase."""
    found = []
    for group in material.groups:
        for method in material.methods(group):
            runs, shared = material.of(group, method), dict[tuple[int, ...], list[int]]()
            for run in runs:
                days = tuple(
                    d for row in rows if row.place == compare.place(run) for d in map(int, row.deployments.split())
                )
                shared.setdefault(days, []).append(run.seed)
            for days, seeds in shared.items():
                if days:
                    where = [f"{method} on {group.title}" if len(material.groups) > 1 else method]
                    where += [f"{plural('seed', seeds)} {spans(seeds)}"] if len(runs) > 1 else []
                    where += [f"{plural('deployment', days)} {spans(days)}"]
                    found.append(", ".join(where[material.alone :]))  # which method, the title says
    return "; ".join(found)
