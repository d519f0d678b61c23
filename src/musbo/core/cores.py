"""The cores that this process may use, which may be fewer than the machine has, and work that is spread over them."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def usable_cores() -> list[int]:
    """Those that the system allows, and no more of them than NPROC says, where XLA looks as well."""
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    most = os.environ.get("NPROC", "")
    return mine[: int(most)] if most.isdigit() and int(most) else mine


def side_by_side(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """`map` with a thread for every core. XLA leaves Python's lock alone while it computes, so the threads do run."""
    with ThreadPoolExecutor(len(usable_cores())) as pool:
        return list(pool.map(work, items))
