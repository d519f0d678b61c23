"""A process that was told to keep to some cores does, wherever it runs."""

import os

import pytest

from musbo.core.cores import usable_cores


@pytest.mark.parametrize(("told", "most"), [("1", 1), ("10000", None), ("", None), ("0", None), ("many", None)])
def test_no_more_cores_than_told(monkeypatch: pytest.MonkeyPatch, told: str, most: int | None):
    monkeypatch.setenv("NPROC", told)
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    assert usable_cores() == allowed[:most]
