"""A study on a Ray cluster whose nodes share a file system: every cell is a task, and a lost worker's cell goes on
elsewhere from where its ledger stands.
"""

import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from musbo.campaign.folders import LEDGER
from musbo.campaign.ledger import lock
from musbo.cluster.cell import command
from musbo.cluster.local import LOOK_SECONDS, Observe, log_of, words_of
from musbo.cluster.progress import Progress, look
from musbo.cluster.study import Cell, Study, cells
from musbo.core.errors import UserError

LOCK_SECONDS = 60  # how long a cell may stay locked by a process that was lost


def run(study: Study, out: Path, address: str, observe: Observe) -> dict[Cell, Progress]:
    """Every cell that is not done, one core each; returns how each ended."""
    try:
        import ray
    except ImportError as error:
        raise UserError('a Ray cluster needs Ray: pip install "musbo[cluster]".') from error
    with redirect_stdout(sys.stderr):  # Ray reports lost workers there, and standard output is ours
        return _run(ray, study, out.resolve(), address, observe)


def _run(ray: Any, study: Study, out: Path, address: str, observe: Observe) -> dict[Cell, Progress]:
    seen = {cell: look(out, cell) for cell in cells(study)}
    observe(seen)
    try:
        ray.init(address=address, log_to_driver=False)
    except ConnectionError as error:
        raise UserError(f"there is no Ray cluster at {address}: start one with `ray start --head`.") from error
    try:
        task = ray.remote(num_cpus=1, max_retries=-1)(perform)
        pending: dict[Any, Cell] = {
            task.remote(study, str(out), cell): cell for cell in seen if seen[cell].state != "done"
        }
        while pending:
            ended, _ = ray.wait(list(pending), timeout=LOOK_SECONDS)
            for reference in ended:
                cell = pending.pop(reference)
                try:
                    code = ray.get(reference)
                except ray.exceptions.RayError:
                    code = 1
                after = look(out, cell)
                good = code == 0 and after.state == "done"
                seen[cell] = after if good else Progress("failed", after.deployments, after.last_return, after.seconds)
            for cell in pending.values():
                now = look(out, cell)
                state = "running" if now.state == "unfinished" else now.state
                seen[cell] = Progress(state, now.deployments, now.last_return, now.seconds)
            observe(seen)
    finally:
        ray.shutdown()
    return seen


def perform(study: Study, out: str, cell: Cell) -> int:
    """On a worker: the cell as a process of its own, which dies with the worker."""
    folder = Path(out) / cell.folder
    deadline = time.monotonic() + LOCK_SECONDS
    while (folder / LEDGER).exists():
        try:
            with lock(folder):
                break
        except UserError:  # whoever had it is being buried
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
    with log_of(Path(out), cell).open("ab") as log:
        # No cores are named: where the worker runs is Ray's affair, and one thread is enough.
        return subprocess.run(command([], words_of(study, Path(out), cell)), stdout=log, stderr=log).returncode
