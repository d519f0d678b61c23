"""A directory belongs to one process at a time, and a dead one lets go of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import musbo
from musbo.core.errors import UserError
from musbo.core.lock import lock

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(musbo.__file__).parents[1])}


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    child = [sys.executable, "-c", script, *arguments]
    return subprocess.run(child, env=ENVIRONMENT, capture_output=True, text=True, check=False)


HOLDER = """
import sys
from pathlib import Path
from musbo.core.lock import lock

with lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_run_one_campaign_and_a_dead_one_lets_go(tmp_path: Path) -> None:
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path)],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        with child, child.stdout:
            assert child.stdout.readline() == "held\n"
            for _ in range(2):  # to be refused does not disturb the lock
                with (
                    pytest.raises(UserError, match=rf"another process \(pid {child.pid}\) is running this campaign"),
                    lock(tmp_path),
                ):
                    pass
            child.kill()
        with lock(tmp_path):
            pass


def test_a_lock_is_for_one_holder_in_a_process_too(tmp_path: Path) -> None:
    with lock(tmp_path):
        with pytest.raises(UserError, match="already"), lock(tmp_path / "." / ""):
            pass
        refused = run(HOLDER, str(tmp_path))
        assert f"another process (pid {os.getpid()})" in refused.stderr
    assert run(HOLDER, str(tmp_path)).returncode == 0
    with pytest.raises(UserError, match="cannot lock"), lock(tmp_path / "none"):
        pass
    with pytest.raises(KeyError), lock(tmp_path):
        raise KeyError
    with lock(tmp_path):
        pass
