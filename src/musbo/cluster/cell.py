"""The process of one cell: it dies with whoever started it, keeps to its cores, and becomes `musbo run` or `resume`.

    python -m musbo.cluster.cell 0,1 run pendulum --out DIR ...      on these cores
    python -m musbo.cluster.cell '' run pendulum --out DIR ...       anywhere, with one thread

Without the first of these, a study that is killed would leave its campaigns running, and they would refuse to be
resumed by the next one.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

SINGLE = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
PR_SET_PDEATHSIG = 1


def command(cores: Sequence[int], words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "musbo.cluster.cell", ",".join(map(str, cores)), *words]


def main(cores: str, *words: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if cores:
            os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    count = len(cores.split(","))
    if count == 1:  # one thread, and the same bits wherever a cell runs
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {SINGLE}".strip()
    os.environ["OMP_NUM_THREADS"] = str(count)
    os.execv(sys.executable, [sys.executable, "-m", "musbo", *words])


if __name__ == "__main__":
    main(*sys.argv[1:])
