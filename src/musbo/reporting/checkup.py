"""The doctor's findings as one self-contained page, with a picture of each where there is something to see."""

from collections.abc import Sequence
from pathlib import Path

from musbo import __version__
from musbo.core.durable import write_whole
from musbo.core.errors import UserError
from musbo.data.finding import LEVELS, Finding
from musbo.data.logs import Logs
from musbo.data.preview import Preview, Range
from musbo.reporting import glossary
from musbo.reporting.checkup_figures import figure_of, overview
from musbo.reporting.page import template
from musbo.reporting.section import Section
from musbo.reporting.sheets import sheet
from musbo.reporting.words import count, sentence

MOST = 24
"""Pictures of findings: of very many columns with a fault the first are shown."""


def write_page(
    out: Path, every: Sequence[Logs], seen: Sequence[Preview], refused: Sequence[Finding], task: object
) -> None:
    """The page into the file `out`; `refused` says why other logs could not be read.

    `task` is the name of a task, or the directory of a campaign, that they were compared with.
    """
    page = template()  # what is missing is said before anything is drawn
    sections = [_verdict(seen, refused, task)]
    sections += [_log(logs, each, i) for i, (logs, each) in enumerate(zip(every, seen, strict=True))]
    sections.append(Section("Glossary", terms=glossary.used([text for section in sections for text in section.texts])))
    sources = [each.source for each in seen] + [finding.source for finding in refused]
    title = "Check of " + (Path(sources[0]).name if len(sources) == 1 else count(len(sources), "log"))
    subtitle = ", ".join(Path(source).name for source in sources) + (f", for {task}" if task else "")
    text = page.render(title=title, subtitle=subtitle, sections=sections, version=__version__, files=False)
    try:
        write_whole(out, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another --page.") from error


def _verdict(seen: Sequence[Preview], refused: Sequence[Finding], task: object) -> Section:
    found = [*refused, *(finding for each in seen for finding in each.findings)]
    levels = [finding.level for finding in found]
    if "error" in levels:
        words = "These data would be refused: there are errors to correct first."
    elif "warning" in levels:
        words = "These data can be used, but look at the warnings before you do."
    else:
        words = "Nothing wrong was found."
    if task is None:
        words += " They were not compared with a task; --task does that."
    return Section(
        "Verdict",
        words,
        facts=[(f"{level}s", str(levels.count(level))) for level in LEVELS],
        notes=[(f"{finding.text}.", about(finding)) for finding in found if finding.level != "note"],
    )


def about(finding: Finding) -> str:
    """Level, kind and place of a finding."""
    parts = [f"{finding.level}, {finding.kind}"]
    if finding.source:
        parts.append(Path(finding.source).name)
    if finding.columns:
        parts.append("columns " + ", ".join(finding.columns[:8]) + (", ..." if len(finding.columns) > 8 else ""))
    if finding.row is not None:
        parts.append(f"row {finding.row:,}" + (f" and {finding.rows - 1:,} more" if finding.rows > 1 else ""))
    if finding.episodes:
        parts.append("episodes " + ", ".join(map(str, finding.episodes)))
    if finding.machines:
        parts.append("machines " + ", ".join(finding.machines))
    return "; ".join(parts)


def _log(logs: Logs, seen: Preview, number: int) -> Section:
    drawn = [figure_of(logs, finding, f"finding-{number}-{i}") for i, finding in enumerate(seen.findings[:MOST])]
    figures = [figure for figure in drawn if figure is not None]
    facts = [("rows", f"{seen.rows:,}"), ("transitions", f"{seen.transitions:,}"), ("episodes", f"{seen.episodes:,}")]
    if logs.machines:
        facts.append(("machines", str(len(logs.machines))))
    columns = {
        "role": lambda row: row.role,
        "column": lambda row: row.column,
        "smallest": lambda row: f"{row.smallest:.5g}",
        "mean": lambda row: f"{row.mean:.5g}",
        "largest": lambda row: f"{row.largest:.5g}",
        "bounds": lambda row: "-" if row.low is None else f"{row.low:g} to {row.high:g}",
    }
    rows: Sequence[Range] = seen.ranges
    return Section(
        f"Log {number + 1}: {Path(seen.source).name}",
        sentence(seen.said),
        facts=facts,
        notes=[(f"{finding.text}.", about(finding)) for finding in seen.findings],
        figures=[*figures, *overview(logs, f"overview-{number}")],
        sheets=[sheet(f"ranges-{number}", "Ranges of the columns", rows, columns)] if rows else [],
    )
