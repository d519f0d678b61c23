"""Standard output for one JSON object alone."""

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_ours: TextIO | None = None
"""Where the object goes while standard output is reserved."""


@contextmanager
def reserved() -> Iterator[None]:
    """Whatever writes to standard output meanwhile, in Python or in C, writes to standard error: simulators do."""
    global _ours
    before = sys.stdout
    before.flush()
    try:
        number = before.fileno()
        kept = os.dup(number)
        os.dup2(sys.stderr.fileno(), number)
    except (OSError, ValueError):  # it is no file: a program has replaced it
        number = kept = None
    stream = _ours = before if kept is None else os.fdopen(kept, "w", encoding="utf-8")
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = before
        if number is not None and kept is not None:
            ctypes.CDLL(None).fflush(None)  # what C has not written yet
            os.dup2(kept, number)
            stream.close()
        _ours = None


def print_json(value: Any) -> None:
    """The object."""
    print(json.dumps(value), file=_ours or sys.stdout, flush=True)
