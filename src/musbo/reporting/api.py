"""Reports from Python: the same as `musbo report`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from musbo.core.inside import given
from musbo.reporting import page, tensorboard
from musbo.reporting.gather import gather
from musbo.reporting.page import Written


def report(
    *folders: str | Path,
    out: str | Path | None = None,
    scores: Mapping[str, float] | None = None,
    film: bool = True,
    tensorboard_logs: bool = False,
    trust_task: bool = False,
) -> Written:
    """One page about runs or studies, with figures and tables as files beside it.

    `out` is by default the directory `report` in the run or study, if there is only one. `scores` maps tasks to
    returns: the page counts the deployments until they are reached. `film` renders the last policy in the
    simulator; if the task is a Python file that only the run names, this needs `trust_task`.
    """
    places = [given(folder) for folder in folders]
    if tensorboard_logs:
        tensorboard.require()
    where = given(out) if out is not None else places[0] / "report" if len(places) == 1 else Path("report")
    material = gather(places, scores)
    written = page.write(material, where, film=film, trust_task=trust_task)
    if not tensorboard_logs:
        return written
    return replace(written, tensorboard=tensorboard.write(material.runs, where / "tensorboard"))
