"""Freed memory goes back to the system, also that of a thread that has ended."""

import os
import sys
import threading

import pytest

from musbo.core.memory import give_back

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * PAGE


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_is_free_is_given_back():
    """Blocks of 64 kB, of which every hundredth stays: between those that stay, the C library keeps what is free."""
    kept: list[bytearray] = []

    def fill() -> None:
        blocks = [bytearray(b"x" * 65_000) for _ in range(3000)]
        kept.extend(blocks[::100])

    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    before = resident()
    give_back()
    assert before - resident() > 100e6
    assert all(block == b"x" * 65_000 for block in kept)
