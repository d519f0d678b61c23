"""Functions of JAX over many rows, a part of them at a time: memory stays small, and one program does."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

ROWS = 65_536


def in_chunks(function: Callable[..., Any], columns: Sequence[np.ndarray]) -> np.ndarray:
    """`function` of all rows. The last part overlaps the one before, so that all have one size."""
    n = len(columns[0])
    starts = [min(start, max(0, n - ROWS)) for start in range(0, n, ROWS)]
    first = np.asarray(function(*(column[:ROWS] for column in columns)))
    found = np.empty((n, *first.shape[1:]), first.dtype)
    found[:ROWS] = first
    for start in starts[1:]:
        found[start : start + ROWS] = np.asarray(function(*(column[start : start + ROWS] for column in columns)))
    return found
