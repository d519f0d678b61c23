"""What a study shows while it runs, from the progress of its cells alone."""

import io

from rich.console import Console

from musbo.cluster.progress import Progress
from musbo.cluster.study import Cell, Variant
from musbo.reporting.study import Seen, table, watch

METHODS = [Variant(name, name) for name in ("musbo-constant-noise", "bremen")]


def under_way(tasks: tuple[str, ...] = ("halfcheetah",), seeds: tuple[int, ...] = (200, 201, 202, 203, 204)) -> Seen:
    cells = [Cell(task, method, 5, 100_000, seed, "fast") for seed in seeds for task in tasks for method in METHODS]
    return dict.fromkeys(cells, Progress("running", 4, -12345.6789, 60.0))


def printed(seen: Seen) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(table(seen))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_five_seeds_fit_into_80_columns():
    text = printed(under_way())
    assert "…" not in text and "halfcheetah, 5 x 100,000" in text and "musbo-constant-noise" in text
    assert text.count("-12346 4/5") == 10
    cells = list(under_way())
    ends = [
        Progress("done", 5, 99.95, 1.0),
        Progress("done", 5, float("nan"), 1.0),
        Progress("failed"),
        Progress("waiting"),
    ]
    row = printed(dict(zip([c for c in cells if c.method == METHODS[1]], ends, strict=False))).splitlines()[-1]
    assert row.split() == ["bremen", "100", "-", "failed", "·"]


def test_a_task_of_ones_own_has_a_short_name():
    text = printed(under_way(("/projects/[old]/cart.py:CART", "/projects/[old]/pole.py:POLE")))
    assert "\nCART, 5 x 100,000" in text and "\nPOLE, 5 x 100,000" in text and "projects" not in text


def test_a_low_terminal_shows_where_the_study_stands():
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80, height=5)
    with watch(console) as show:
        show(under_way(("ant", "halfcheetah", "hopper")))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert -1 < text.find("0 of 30 runs done, 30 running, about") < text.find("method")  # its end is cut off


def test_elsewhere_a_line_per_run():
    console = Console(file=io.StringIO(), width=80)
    seen = under_way(("/projects/[old]/cart.py:[CART]",), (0,))
    with watch(console) as tell:
        tell(seen)
        tell({cell: Progress("done", 5, 1.0, 60.0) for cell in seen})
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == "CART 5 x 100,000 musbo-constant-noise seed 0: return 1; 2 of 2 runs done, 0 running"
