"""Two real studies, run once for all tests of the report: three methods on one task, two cheap ones on another."""

from dataclasses import replace
from pathlib import Path

from musbo.cli import main
from musbo.cluster.study import Study, Variant, cells, record
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
                assert main([*cell.words(out / name, study.settings), "--json"]) == 0
    return [out / "first", out / "second"]
