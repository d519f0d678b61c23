"""A Ctrl-C that Python forgets is remembered."""

import gc
import os
import signal
from pathlib import Path

import pytest

from musbo import cli
from musbo.campaign import api
from musbo.campaign.summary import read_status
from musbo.core.interrupt import noted, noting


def interrupt_in_the_collector() -> None:
    """Ctrl-C inside a callback of the garbage collector, where Python prints the exception and goes on."""

    def callback(phase: str, info: object) -> None:
        gc.callbacks.remove(callback)
        os.kill(os.getpid(), signal.SIGINT)

    gc.callbacks.append(callback)
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_it_is_noted_where_it_is_forgotten():
    before = signal.getsignal(signal.SIGINT)
    with noting():
        interrupt_in_the_collector()
        assert noted.is_set()
    assert signal.getsignal(signal.SIGINT) is before and not noted.is_set()


def test_elsewhere_it_is_pythons_own():
    with pytest.raises(KeyboardInterrupt), noting():
        os.kill(os.getpid(), signal.SIGINT)
        signal.sigtimedwait([], 1)  # a moment for it to arrive
    assert not noted.is_set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_that_was_interrupted_before_it_was_ready_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    start = api.start

    def interrupted(*arguments):
        folder = start(*arguments)
        interrupt_in_the_collector()
        return folder

    monkeypatch.setattr(api, "start", interrupted)
    out = tmp_path / "run"
    code = cli.main(["run", "pointmass", "--preset", "quick", "--out", str(out)])
    assert code == cli.INTERRUPTED
    assert read_status(out).stopped and not read_status(out).collected
