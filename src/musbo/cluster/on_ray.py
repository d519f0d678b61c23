"""A study on a Ray cluster whose nodes share a file system: every cell is a task, and a lost worker's cell goes on
elsewhere from where its ledger stands.
"""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from musbo.cluster.cell import command
from musbo.cluster.local import LOOK_SECONDS, Observe, ended, log_of
from musbo.cluster.progress import Progress, look
from musbo.cluster.study import Cell, Study, cells
from musbo.core.errors import UserError
from musbo.core.interrupt import noted

RETRIES = 20  # of a cell whose worker was lost; one that loses every worker is not tried for ever


def run(study: Study, out: Path, address: str, observe: Observe, imports: Sequence[str] = ()) -> dict[Cell, Progress]:
    """Every cell that is not done, one core each; returns how each ended.

    `imports`: what every cell imports first, as `--import` takes it; every node has to find it.
    """
    try:
        import ray
    except ImportError as error:
        raise UserError('a Ray cluster needs Ray: pip install "musbo[cluster]".') from error
    with redirect_stdout(sys.stderr):  # Ray reports lost workers there, and standard output is ours
        return _run(ray, study, out.resolve(), address, observe, imports)


def _run(
    ray: Any, study: Study, out: Path, address: str, observe: Observe, imports: Sequence[str]
) -> dict[Cell, Progress]:
    seen = {cell: look(out, cell) for cell in cells(study)}
    observe(seen)
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            f"there is no usable Ray cluster at {address} ({error}): start one with `ray start --head`, of this Ray."
        ) from error
    try:
        before = {cell: _written(out, cell) for cell in seen}
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(perform)
        pending: dict[Any, Cell] = {
            task.remote(study, str(out), cell, imports): cell for cell in seen if seen[cell].state != "done"
        }
        while pending:
            over, _ = ray.wait(list(pending), timeout=LOOK_SECONDS)
            if noted.is_set():
                raise KeyboardInterrupt
            for reference in over:
                cell = pending.pop(reference)
                try:
                    seen[cell] = ended(out, cell, ray.get(reference))
                except ray.exceptions.RayError as error:
                    seen[cell] = replace(look(out, cell), state="failed", reason=str(error).strip().splitlines()[-1])
            for cell in pending.values():
                now = look(out, cell)
                # What an earlier stop left unfinished may still wait for a worker: whoever is at work writes its log.
                seen[cell] = replace(now, state="running") if _written(out, cell) > before[cell] else now
            observe(seen)
    finally:
        ray.shutdown()
    return seen


def _written(out: Path, cell: Cell) -> int:
    """The length of what the cell has said."""
    log = log_of(out, cell)
    return log.stat().st_size if log.exists() else 0


def perform(study: Study, out: str, cell: Cell, imports: Sequence[str]) -> int:
    """On a worker: the cell as a process of its own, which dies with the worker."""
    with log_of(Path(out), cell).open("ab") as log:
        # No cores are named: where the worker runs is Ray's affair, and one thread is enough.
        words = command([], Path(out) / cell.folder, cell.words(Path(out), study.settings), imports)
        return subprocess.run(words, stdout=log, stderr=log).returncode
