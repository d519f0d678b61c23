"""The sections about one run: its result, where its model is unsure, and its policy at work."""

import base64
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from musbo.campaign import api
from musbo.campaign.places import STORE
from musbo.core.diagnostics import NEARLY_CONSTANT
from musbo.core.errors import UserError
from musbo.reporting import run_figures, run_tables
from musbo.reporting.gather import Run
from musbo.reporting.insight import Doubts, doubts
from musbo.reporting.section import Section
from musbo.reporting.sheets import Sheet, sheet
from musbo.reporting.words import count, duration, with_deviation

MODEL_RETURN = "'Model return' is that of the same episodes under the reward that imagination uses."
FRAMES, FILM_STEPS, FRAME_SIDE = 8, 200, 240


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
    section.figures = [figure for figure in (run_figures.returns(run), run_figures.imagined(run)) if figure]
    titled = run_tables.columns(data).items()
    every = [sheet(title.replace(" ", "-"), title.capitalize(), data, of) for title, of in titled]
    every = [replace(table, note=MODEL_RETURN if "model return" in table.heads else "") for table in every]
    section.sheets = [table for table in every if len(table.heads) > 1]
    return section


def named(run: Run) -> str:
    return f"{run.method}, seed {run.seed}"


# Where its model is unsure


def uncertainty(runs: Iterable[Run]) -> Iterator[Section]:
    """Of the first run whose method has a model."""
    for run in runs:
        section = Section(f"Where the policy is uncertain: {run.group.title}")
        try:
            _require_kept(run)
            found = doubts(run.folder)
        except UserError as error:
            section.words = f"Not shown: {error}"
            yield section
            return
        if found is not None:
            section.words = (
                f"The states that {named(run)}, met in deployment {found.deployment}, and how unsure the model is of "
                "what follows each. That batch was collected before the last training, and is part of its data."
            ) + flat_doubt(found)
            place = run.group.slug
            section.figures = [run_figures.uncertain_places(found, place), run_figures.uncertain_times(found, place)]
            section.sheets = [_typical(found, place)]
            yield section
            return


def flat_doubt(found: Doubts) -> str:
    """A sentence where colours and curves would show differences that hardly exist."""
    low, high = np.quantile(found.doubt, [0.1, 0.9])
    if high - low >= NEARLY_CONSTANT * high:
        return ""
    return f" The doubt is nearly the same everywhere: 80 % of it lies between {low:.4g} and {high:.4g}."


@dataclass(frozen=True)
class TypicalRow:
    """One observation of the doubtful states."""

    observation: int
    deviations: float
    """From the mean of the batch."""


def _typical(found: Doubts, place: str) -> Sheet:
    order = np.argsort(-np.abs(found.typical))[:8]
    rows = [TypicalRow(int(i), float(found.typical[i])) for i in order]
    columns = {
        "observation": lambda row: str(row.observation),
        "deviations from the mean": lambda row: f"{row.deviations:+.2f}",
    }
    note = "The mean over the most doubtful tenth of the steps, in deviations of the whole batch; the largest eight."
    return sheet(f"uncertain-{place}", "What is special about the doubtful states", rows, columns, note)


def _require_kept(run: Run) -> None:
    """Records of a run may be its ledger alone."""
    if not (run.folder / STORE).is_dir():
        raise UserError(f"the networks and data of {named(run)}, were not kept here.")


# Its policy at work


def film_of(run: Run, trust_task: bool = False) -> Section:
    section = Section(f"The last policy at work: {run.group.title}")
    try:
        _require_kept(run)
        frames = list(api.film(run.folder, steps=FILM_STEPS, trust_task=trust_task))
    except UserError as error:
        section.words = f"No pictures: {error}"
        return section
    chosen = np.unique(np.linspace(0, len(frames) - 1, FRAMES).astype(int))
    section.words = f"{named(run)}: steps {', '.join(map(str, chosen))} of the first episode of its evaluation."
    section.pictures = [_png(frames[i]) for i in chosen]
    return section


def _png(frame: np.ndarray) -> str:
    from matplotlib.image import imsave

    step = max(1, min(frame.shape[:2]) // FRAME_SIDE)
    image = io.BytesIO()
    imsave(image, np.ascontiguousarray(frame[::step, ::step]), format="png")
    return "data:image/png;base64," + base64.b64encode(image.getvalue()).decode()
