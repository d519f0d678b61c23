"""A run that is killed at a random moment, or stopped with Ctrl-C, and resumed: the same bits as an uninterrupted one.

Each process compiles nothing that another one has compiled before, thanks to the cache, so a visit takes seconds.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import musbo
from tests.stories import tiny

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(musbo.__file__).parents[1])}
QUICK = ["run", "pointmass", "--preset", "quick"]
OFTEN = ["--checkpoint-seconds", "0.2", "--json"]


def start(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "musbo", *words, *OFTEN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def finish(words: list[str]) -> dict:
    process = start(words)
    out, error = process.communicate()
    assert process.returncode == 0, error
    return json.loads(out)


@dataclass(frozen=True)
class Whole:
    """An uninterrupted run: how to begin it, the hash of its policy, and how long it takes from beginning to end."""

    words: list[str]
    hash: str
    seconds: float


def whole(words: list[str], folder: Path) -> Whole:
    first = finish([*words, "--out", str(folder / "first")])  # compiles
    began = time.monotonic()
    result = finish([*words, "--out", str(folder / "second")])
    assert result["policy_sha256"] == first["policy_sha256"]
    return Whole(words, result["policy_sha256"], time.monotonic() - began)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole([*QUICK, *tiny.FLAGS], tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole(QUICK, tmp_path_factory.mktemp("quick"))


def kill_and_resume(run: Whole, folder: Path, moment: float) -> None:
    """Kill with -9 at a share of the run's duration. A machine that is faster than it was gets another try."""
    for attempt in range(10):
        out = folder / f"run{attempt}"
        process = start([*run.words, "--out", str(out)])
        time.sleep(moment * run.seconds)
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            break
        moment *= 0.8
    else:
        pytest.fail("every run was over before it could be killed")
    # Killed before there was a run: nothing is there, and it can be begun in the same place.
    words = ["resume", str(out)] if out.exists() else [*run.words, "--out", str(out)]
    assert finish(words)["policy_sha256"] == run.hash
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".run")) == []


@pytest.mark.parametrize("number", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (0, 2))])
def test_kill_9_at_a_random_moment(small, tmp_path, number):
    kill_and_resume(small, tmp_path, random.Random(number).uniform(number / 3, (number + 1) / 3))


@pytest.mark.long
@pytest.mark.parametrize("number", range(20))
def test_kill_9_at_a_random_moment_of_a_quick_run(quick, tmp_path, number):
    kill_and_resume(quick, tmp_path, random.random())


def test_ctrl_c_stops_and_says_how_to_go_on(small, tmp_path):
    process = start([*small.words, "--out", str(tmp_path / "run")])
    assert process.stderr is not None
    said = ""
    for line in process.stderr:  # until training is under way
        said += line
        if line.startswith("  collected"):
            break
    process.send_signal(signal.SIGINT)
    out, error = process.communicate()
    assert process.returncode == 130, said + error
    assert out == ""
    assert f"Go on with: musbo resume {tmp_path / 'run'}" in error
    assert "Traceback" not in error
    assert finish(["resume", str(tmp_path / "run")])["policy_sha256"] == small.hash


def test_two_processes_cannot_run_the_same_campaign(small, tmp_path):
    process = start([*small.words, "--out", str(tmp_path / "run")])
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("  collected"):
            break
    second = start(["resume", str(tmp_path / "run")])
    _, error = second.communicate()
    assert second.returncode == 2
    assert f"another process (pid {process.pid}) is running this campaign" in error
    out, error = process.communicate()
    assert json.loads(out)["policy_sha256"] == small.hash
