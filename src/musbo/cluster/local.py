"""A study on this machine: as many cells at once as there are jobs, with the cores divided between them.

Children are started by the main thread and, on Linux, die with it (`cell`), so a study that is killed leaves nothing
behind that would keep a campaign locked. A cell that fails is reported and does not stop the rest.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from musbo.cluster.cell import command
from musbo.cluster.progress import Progress, look
from musbo.cluster.study import Cell, Study, cells
from musbo.core.cores import usable_cores
from musbo.core.errors import UserError
from musbo.core.interrupt import noted

POLL_SECONDS = 0.5
LOOK_SECONDS = 5.0
Observe = Callable[[dict[Cell, Progress]], None]


def share_cores(jobs: int | None) -> list[list[int]]:
    """The cores of each job; by default every core is a job of its own."""
    mine = usable_cores()
    jobs = len(mine) if jobs is None else jobs
    if not 1 <= jobs <= len(mine):
        raise UserError(f"--jobs must lie between 1 and the {len(mine)} cores of this machine, not {jobs}.")
    each = len(mine) // jobs
    return [mine[i * each : (i + 1) * each] for i in range(jobs)]


def run(
    study: Study, out: Path, jobs: int | None, observe: Observe, imports: Sequence[str] = ()
) -> dict[Cell, Progress]:
    """Every cell that is not done; returns how each ended. Ctrl-C stops the cells cleanly and then raises.

    `imports`: what every cell imports first, as `--import` takes it.
    """
    places = share_cores(jobs)
    seen = {cell: look(out, cell) for cell in cells(study)}
    waiting = [cell for cell in seen if seen[cell].state != "done"]
    running: dict[int, tuple[Cell, subprocess.Popen]] = {}
    looked = 0.0
    observe(seen)
    try:
        while waiting or running:
            for place, cores in enumerate(places):
                if place not in running and waiting:
                    cell = waiting.pop(0)
                    running[place] = cell, _start(study, out, cell, cores, imports)
                    seen[cell] = replace(look(out, cell), state="running")
                    observe(seen)
            time.sleep(POLL_SECONDS)
            if noted.is_set():
                raise KeyboardInterrupt
            for place, (cell, child) in list(running.items()):
                if child.poll() is not None:
                    del running[place]
                    seen[cell] = ended(out, cell, child.returncode)
                    observe(seen)
            if time.monotonic() - looked > LOOK_SECONDS:
                seen |= {cell: replace(look(out, cell), state="running") for cell, _ in running.values()}
                observe(seen)
                looked = time.monotonic()
    except KeyboardInterrupt:
        for _, child in running.values():
            child.send_signal(signal.SIGINT)  # each writes down where it is
        for _, child in running.values():
            child.wait()
        raise
    return seen


def ended(out: Path, cell: Cell, code: int) -> Progress:
    """What became of a cell whose process is over."""
    after = look(out, cell)
    if code == 0 and after.state == "done":
        return after
    reason = f"killed by signal {-code}" if code < 0 else last_words(out, cell)
    return replace(after, state="failed", reason=reason)


def _start(study: Study, out: Path, cell: Cell, cores: list[int], imports: Sequence[str]) -> subprocess.Popen:
    with log_of(out, cell).open("ab") as log:
        words = command(cores, out / cell.folder, cell.words(out, study.settings), imports)
        # A group of its own: Ctrl-C reaches the study alone, which passes it on once.
        return subprocess.Popen(words, stdout=log, stderr=log, process_group=0)


def log_of(out: Path, cell: Cell) -> Path:
    return out / f"{cell.folder}.log"


def last_words(out: Path, cell: Cell) -> str:
    """The last line that a cell wrote."""
    lines = log_of(out, cell).read_text(errors="replace").strip().splitlines() if log_of(out, cell).exists() else []
    return lines[-1] if lines else "it wrote nothing"
