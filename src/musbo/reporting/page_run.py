"""The sections about one run: its result, where its model is unsure, and its policy at work."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from musbo.campaign import api
from musbo.campaign.places import STORE
from musbo.core.diagnostics import NEARLY_CONSTANT
from musbo.core.errors import UserError
from musbo.reporting import run_figures, run_tables
from musbo.reporting.film import LARGEST, film
from musbo.reporting.gather import Run
from musbo.reporting.insight import Doubts, doubts
from musbo.reporting.section import Section
from musbo.reporting.sheets import Sheet, sheet
from musbo.reporting.words import count, duration, with_deviation

BESIDE_NOTE = (
    "The difference is that of the last policy to each of the others, ± the standard error where both were measured "
    "from the same start states; 'better in' is the share of those episodes in which the last policy earned more. "
    "Batches have start states of their own, and the noise of collecting."
)
MODEL_RETURN = "'Model return' is that of the same episodes under the reward that imagination uses."
FILM_STEPS = 200


def result(run: Run) -> Section:
    """What came out, and the tables of the run."""
    summary, data = run.summary, run_tables.rows(run.summary)
    scored = [row for row in data if row.mean_return is not None]
    section = Section("Result")
    if not run.finished:
        section.words = f"This run is not finished: {summary.deployed} of {run.settings.budget} batches."
    final = with_deviation(scored[-1].mean_return, scored[-1].deviation) if scored else "-"
    section.facts = [
        (f"return of the last policy, mean ± deviation over {count(run.settings.episodes, 'episode')}", final),
        ("transitions", f"{summary.transitions:,}"),
        ("deployments", f"{summary.deployed} of {run.settings.budget}"),
        ("time", duration(summary.seconds)),
    ]
    beside = run_tables.beside(summary)
    section.sheets = [sheet("beside", "The last policy beside others", beside, run_tables.BESIDE, BESIDE_NOTE)] * bool(
        beside
    )
    section.figures = [figure for figure in (run_figures.returns(run), run_figures.imagined(run)) if figure]
    titled = run_tables.columns(data).items()
    every = [sheet(title.replace(" ", "-"), title.capitalize(), data, of) for title, of in titled]
    every = [replace(table, note=MODEL_RETURN if "model return" in table.heads else "") for table in every]
    section.sheets += [table for table in every if len(table.heads) > 1]
    return section


def named(run: Run) -> str:
    return f"{run.method}, seed {run.seed}"


# Where its model is unsure


def uncertainty(runs: Iterable[Run], place: str = "") -> Iterator[Section]:
    """Of the first run whose method has a model; `place` ends the title."""
    for run in runs:
        section = Section(f"Where the model is uncertain{place}")
        try:
            _require_kept(run)
            found = doubts(run.folder)
        except UserError as error:
            section.words = f"Not shown: {error}"
            yield section
            return
        if found is not None:
            section.words = (
                f"The states that {named(run)}, met in deployment {found.deployment}, and how far the members of its "
                "model disagree about what follows each. The last training has seen this batch."
            ) + flat_doubt(found)
            slug = run.group.slug
            section.figures = [run_figures.uncertain_places(found, slug), run_figures.uncertain_times(found, slug)]
            section.sheets = [_typical(found, slug, run.summary.task.obs_labels)]
            yield section
            return


def flat_doubt(found: Doubts) -> str:
    """A sentence where colours and curves would show differences that hardly exist."""
    low, high = np.quantile(found.doubt, [0.1, 0.9])
    if high - low >= NEARLY_CONSTANT * high:
        return ""
    return f" They disagree nearly as much everywhere: 80 % of the steps lie between {low:.4g} and {high:.4g}."


@dataclass(frozen=True)
class TypicalRow:
    """One observation of the states that the models disagree about most."""

    observation: str
    deviations: float
    """From the mean of the batch."""


def _typical(found: Doubts, slug: str, named: Sequence[str]) -> Sheet:
    order = np.argsort(-np.abs(found.typical))[:8]
    rows = [TypicalRow(named[int(i)], float(found.typical[i])) for i in order]
    columns = {
        "observation": lambda row: row.observation,
        "deviations from the mean": lambda row: f"{row.deviations:+.2f}",
    }
    note = "The mean over the tenth of the steps with the most disagreement, in standard deviations of the whole batch."
    return sheet(f"uncertain-{slug}", "What is special about these states", rows, columns, note)


def _require_kept(run: Run) -> None:
    """Records of a run may be its ledger alone."""
    if not (run.folder / STORE).is_dir():
        raise UserError(f"the networks and data of {named(run)}, were not kept here.")


# Its policy at work


def film_of(run: Run, trust_task: bool = False, largest: int = LARGEST, place: str = "") -> Section:
    """`largest` is in bytes, and `place` ends the title."""
    section = Section(f"The last policy at work{place}")
    try:
        _require_kept(run)
        section.film = film(list(api.film(run.folder, steps=FILM_STEPS, trust_task=trust_task)), largest)
    except UserError as error:
        section.words = f"No pictures: {error}"
        return section
    cut = section.film.steps[-1] == FILM_STEPS < run.summary.task.episode_steps
    steps = f"the first {FILM_STEPS} steps" if cut else "the whole"
    shown = f"{steps} of" if section.film.moving else f"steps {', '.join(map(str, section.film.steps))} of"
    section.words = f"{named(run)}: {shown} the first episode of its evaluation."
    return section
