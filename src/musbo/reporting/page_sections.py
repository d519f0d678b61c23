"""What the page says: its title, and its sections in order."""

from collections.abc import Iterator

from musbo.reporting import glossary
from musbo.reporting.film import LARGEST
from musbo.reporting.gather import Material
from musbo.reporting.overall import overall
from musbo.reporting.page_comparison import comparison, every_run, together
from musbo.reporting.page_diagnostics import diagnostics
from musbo.reporting.page_run import film_of, result, uncertainty
from musbo.reporting.page_settings import again, settings
from musbo.reporting.page_verdict import verdict_of
from musbo.reporting.rounds import rounds
from musbo.reporting.section import Section
from musbo.reporting.words import count


def title(material: Material) -> str:
    if material.alone:
        run = material.runs[0]
        return f"{run.method} on {run.task}"
    names = list(dict.fromkeys(path.resolve().name for path, _ in material.studies))
    return " and ".join(names) if names else "A comparison"


def subtitle(material: Material) -> str:
    if material.alone:
        run = material.runs[0]
        brought = f", data for {len(run.brought)} brought" if run.brought else ""
        return (
            f"{count(run.settings.budget, 'deployment')} of {run.batch_size:,} transitions{brought}, "
            f"preset {run.settings.preset}, seed {run.seed}"
        )
    done = sum(run.finished for run in material.runs)
    methods = {run.method for run in material.runs} | {item.cell.method.name for item in material.missing}
    groups = "; ".join(group.title for group in material.groups)
    text = f"{count(len(methods), 'method')} on {groups}: {count(done, 'finished run')}"
    return text + (f", {len(material.missing)} missing" if material.missing else "")


def sections(material: Material, film: bool, trust_task: bool = False) -> Iterator[Section]:
    """All of them, with the glossary of what they say."""
    every = list(_sections(material, film, trust_task))
    yield from every
    yield Section("Glossary", terms=glossary.used([text for section in every for text in section.texts]))


def _sections(material: Material, film: bool, trust_task: bool) -> Iterator[Section]:
    """With `film`, a policy at work on each task."""
    yield verdict_of(material)
    if material.alone:
        (run,) = material.runs
        yield result(run)
        yield from rounds(run)
        if film:
            yield film_of(run, trust_task)
        yield from diagnostics(material, run.group)
        yield from uncertainty([run])
    else:
        yield from _compared(material, film, trust_task)
    yield settings(material)
    yield again(material)


def _compared(material: Material, film: bool, trust_task: bool) -> Iterator[Section]:
    """Of several runs: what is shown of one of them is of the first method and seed on each task."""
    if found := overall(material):
        yield together(found, material)
    for group in material.groups:
        yield comparison(material, group)
    for group in material.groups:
        yield from diagnostics(material, group)
    for group in material.groups:
        yield from uncertainty(material.in_order(group), f": {group.title}")
    if film:
        largest = LARGEST // len(material.groups)
        for group in material.groups:
            yield from (film_of(run, trust_task, largest, f": {group.title}") for run in material.in_order(group)[:1])
    yield every_run(material)
