"""The process of one cell: on Linux it dies with whoever started it and keeps to its cores; it begins the campaign, or
resumes it.

    python -m musbo.cluster.cell PARENT 0,1 DIR run pendulum --out DIR ...      on these cores
    python -m musbo.cluster.cell PARENT '' DIR run pendulum --out DIR ...       anywhere, with one thread
    python -m musbo.cluster.cell PARENT '' DIR --import FILE run ...            with Python of the user's own

Without the first of these, a study that is killed would leave its campaigns running, and they would refuse to be
resumed by the next one. So it is on other systems. The new cell waits for the old one to end, for LOCK_SECONDS; then it
fails, saying which process has the campaign, and a later call of the study goes on.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SINGLE = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
PR_SET_PDEATHSIG = 1
LOCK_SECONDS = 300  # how long a campaign may stay locked by a process that was lost: network file systems take minutes


def command(cores: Sequence[int], folder: Path, words: Sequence[str], imports: Sequence[str] = ()) -> list[str]:
    """The command of a cell's process; `imports` are what `--import` names, and go along when a cell is resumed."""
    place = [str(os.getpid()), ",".join(map(str, cores)), str(folder)]
    brought = [word for name in imports for word in ("--import", name)]
    return [sys.executable, "-m", "musbo.cluster.cell", *place, *brought, *words]


def main(parent: str, cores: str, folder: str, *words: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends it at once; an exception could be lost in an import
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if cores:
            os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    if os.getppid() != int(parent):  # it died before it could be watched
        sys.exit(1)
    from musbo.campaign.places import LEDGER

    brought: tuple[str, ...] = ()
    while words[0] == "--import":
        brought, words = (*brought, *words[:2]), words[2:]
    wait_for_lock(Path(folder))
    if (Path(folder) / LEDGER).exists():  # only now: whoever was making it may have done so meanwhile
        words = ("resume", folder, "--trust-task")  # the study has asked for its tasks
    count = len(cores.split(","))
    if count == 1:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {SINGLE}".strip()
    # XLA divides its loops by the cores that it sees, which decides on rounding. A cell of a cluster has no core of its
    # own and sees them all, so XLA is told the number: the same bits wherever a cell runs.
    os.environ["NPROC"] = os.environ["OMP_NUM_THREADS"] = str(count)
    os.execv(sys.executable, [sys.executable, "-m", "musbo", words[0], *brought, *words[1:]])


def wait_for_lock(folder: Path) -> None:
    """Until whoever had the campaign, or was making it, is buried; then `musbo` itself says what is wrong."""
    from musbo.campaign.places import new_places
    from musbo.core.errors import UserError
    from musbo.core.lock import lock

    deadline = time.monotonic() + LOCK_SECONDS
    for place in (*new_places(folder), folder):
        while place.is_dir() and time.monotonic() < deadline:
            try:
                with lock(place):
                    break
            except UserError:
                time.sleep(1.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
