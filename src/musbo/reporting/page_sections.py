"""What the page says: its title, and its sections in order."""

from collections.abc import Iterator

from musbo.reporting.gather import Material
from musbo.reporting.overall import overall
from musbo.reporting.page_comparison import comparison, every_run, together
from musbo.reporting.page_diagnostics import diagnostics, warnings
from musbo.reporting.page_run import film_of, result, uncertainty
from musbo.reporting.page_settings import again, settings
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
    """All of them; with `film`, pictures of a policy on each task."""
    if material.alone:
        yield result(material.runs[0])
    else:
        if found := overall(material):
            yield together(found, material)
        for group in material.groups:
            yield comparison(material, group)
    yield from warnings(material)
    for group in material.groups:
        yield from diagnostics(material, group)
    for group in material.groups:
        yield from uncertainty(material.in_order(group))
    if film:
        for group in material.groups:
            yield from (film_of(run, trust_task) for run in material.in_order(group)[:1])
    if not material.alone:
        yield every_run(material)
    yield settings(material)
    yield again(material)
