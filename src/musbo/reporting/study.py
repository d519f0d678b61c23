"""The live table of a study: a row per task, budget and method, a column per seed."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from musbo.cluster.progress import Progress, look, seconds_left
from musbo.cluster.study import Cell, Study, cells
from musbo.reporting import words
from musbo.reporting.gather import names

Seen: TypeAlias = dict[Cell, Progress]


def table(seen: Seen) -> Table:
    """Task and budget have lines of their own: so five seeds find room in the 80 columns of a terminal."""
    seeds = list(dict.fromkeys(cell.seed for cell in seen))
    shown = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column("method", no_wrap=True)
    for seed in seeds:
        shown.add_column(f"seed\n{seed}", justify="right", no_wrap=True)
    rows: dict[tuple[str, str], dict[str, dict[int, str]]] = {}
    named = names(cell.task for cell in seen)
    for cell, progress in seen.items():
        task, budget, method = cell.row
        rows.setdefault((named[task], budget), {}).setdefault(method, {})[cell.seed] = entry(cell, progress)
    for place, methods in rows.items():
        shown.add_row(", ".join(place), style="bold")
        for method, entries in methods.items():
            shown.add_row(f"  {method}", *(entries.get(seed, "") for seed in seeds))
    return shown


def entry(cell: Cell, progress: Progress) -> str:
    """The return so far, and how many of the deployments it took."""
    last = progress.last_return
    value = f"{last:.0f}" if last is not None and 100 <= abs(last) < math.inf else words.number(last)
    if progress.state == "done":
        return value
    if progress.state == "failed":
        return "failed"
    if progress.state == "waiting":
        return "·"
    return f"{value} {progress.evaluated}/{cell.budget}"


def line(seen: Seen) -> str:
    """Where the study stands, in one line."""
    done, running, failed = (sum(p.state == state for p in seen.values()) for state in ("done", "running", "failed"))
    text = f"{done} of {words.count(len(seen), 'run')} done, {running} running"
    text += f", {failed} failed" if failed else ""
    left = seconds_left(seen)
    return text + (f", about {words.duration(left)} left" if left and done < len(seen) else "")


def opening(study: Study, before: Study | None, out: Path) -> str:
    """What a call is about to run, next to what the study was `before`: one task more may be many runs more."""
    every = cells(study)
    done = sum(look(out, cell).state == "done" for cell in every)
    new = len(set(every) - set(cells(before) if before else ()))
    return f"the study {out} has {words.count(len(every), 'run')}: {done} done, {new} new"


@contextmanager
def watch(console: Console) -> Iterator[Callable[[Seen], None]]:
    """A table that is always current on a terminal; elsewhere one line whenever a run begins or ends."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=2) as live:

            def show(seen: Seen) -> None:
                live.update(Group(line(seen), table(seen)))  # what a low terminal cuts off is the end

            yield show
        return
    before: dict[Cell, str] = {}

    def tell(seen: Seen) -> None:
        named = names(cell.task for cell in seen)
        for cell, progress in seen.items():
            if before.get(cell) not in (None, progress.state) and progress.state in ("running", "done", "failed"):
                name = " ".join((named[cell.task], *cell.row[1:], f"seed {cell.seed}"))
                ended = f"return {entry(cell, progress)}" if progress.state == "done" else progress.state
                console.print(f"{name}: {ended}; {line(seen)}", highlight=False, soft_wrap=True)
            before[cell] = progress.state

    yield tell
