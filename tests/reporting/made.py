"""Two real studies, run once for all tests of the report: three methods on one task, two cheap ones on another."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from musbo.algorithms import recipes
from musbo.campaign import api, flags
from musbo.campaign.settings import campaign
from musbo.cluster.study import Cell, Study, Variant, cells, record
from tests.stories import tiny

POINTMASS = Study(
    tasks=("pointmass",),
    methods=(Variant("small", "musbo", tuple(tiny.METHOD)), Variant("random", "random"), Variant("bc", "bc")),
    seeds=(0, 1),
    preset="quick",
    budgets=(("pointmass", 2, 100),),
    settings=("--episodes", "2"),
)
PENDULUM = replace(POINTMASS, tasks=("pendulum",), methods=POINTMASS.methods[1:], budgets=(("pendulum", 2, 400),))
MISSING = "pendulum-bc-2x400-s1"


def studies(out: Path) -> list[Path]:
    """All of it but one cell."""
    for name, study in (("first", POINTMASS), ("second", PENDULUM)):
        record(out / name, study)
        for cell in cells(study):
            if cell.folder != MISSING:
                run(cell, out / name / cell.folder)
    return [out / "first", out / "second"]


def run(cell: Cell, folder: Path) -> None:
    """What the words of a cell ask for."""
    preset: Any = cell.preset
    method = flags.parse(recipes.recipe(cell.method.algo, preset, cell.task), cell.method.settings)
    size = {"budget": cell.budget, "batch_size": cell.batch_size, "episodes": 2}
    api.resume(api.start(campaign(cell.task, cell.method.algo, preset, cell.seed, **size, method=method), (), folder))
