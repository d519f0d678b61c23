"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the program happens to be. Inside a callback of the garbage collector, and JAX
has one, it is printed and forgotten, and the program goes on. So the command also takes a note of it, and whatever runs
for long looks at the note.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

noted = threading.Event()


@contextmanager
def noting() -> Iterator[None]:
    """Take notes while a command runs, where Ctrl-C is Python's own."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(signum: int, frame: Any) -> None:
        noted.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        noted.clear()  # what comes after the command is another matter
