"""How a changed ledger is noticed: hashes of everything in it, which whoever reads it computes again.

Events are chained: the digest of one covers its own row and the digest of the one before. What may be replaced, the
metrics and the checkpoint, is covered by the seal, a row that every transaction writes: the number of events and the
last digest, the number of metrics and the sum of their marks (so that one row can change without reading the others),
and the digest of the checkpoint. It shows damage and careless edits; it cannot show who wrote a row.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

Value: TypeAlias = int | float | str | bytes | None

FIRST = "0" * 64
"""What the first event follows."""
_MARKS = 2**256


class Seal(NamedTuple):
    """The row of the table `seal`."""

    events: int = 0
    chain: str = FIRST
    """The digest of the last event."""
    metrics: int = 0
    total: str = FIRST
    """The sum of the marks of all metrics."""
    checkpoint: str = ""
    """The digest of the checkpoint; empty where there is none."""


def is_sound(found: Seal) -> bool:
    """Whether it has the form of a seal."""
    counts = all(isinstance(value, int) for value in (found.events, found.metrics))
    return counts and all(
        isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) for value in (found.chain, found.total)
    )


def digest(row: Sequence[Value]) -> str:
    """SHA-256 of a row."""
    # Numbers as Python writes them: a float keeps every bit, and 1 is not "1". A damaged file may hold bytes.
    return hashlib.sha256(json.dumps(list(row), default=repr).encode()).hexdigest()


def chained(before: str, row: Sequence[Value]) -> str:
    """The digest of an event that follows the one whose digest is `before`."""
    return digest([before, *row])


def added(total: str, new: Iterable[Sequence[Value]], old: Iterable[Sequence[Value]] = ()) -> str:
    """`total` with the marks of new rows, and without those of rows that they replace."""
    marks = sum(int(digest(row), 16) for row in new) - sum(int(digest(row), 16) for row in old)
    return f"{(int(total, 16) + marks) % _MARKS:064x}"
