"""Memory that is free, given back to the system.

The C library keeps what was freed for the thread that had it, and a campaign has many threads with large arrays: after
five deployments a quarter of a process was such leftovers.
"""

import ctypes
import sys


def give_back() -> None:
    """A second or less; the numbers stay the same. Elsewhere than on Linux with glibc it does nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
