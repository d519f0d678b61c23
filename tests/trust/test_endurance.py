"""Kills, races and full disks by the hundred, and memory over many deployments: nothing is lost, nothing grows."""

import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

import musbo
from musbo.campaign.news import News
from musbo.campaign.summary import read_status, summary
from musbo.campaign.verify import verify
from tests.contract.test_recipes import brief, method
from tests.stories import tiny

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(musbo.__file__).parents[1])}
RUN = ["run", "pointmass", "--preset", "quick", *tiny.FLAGS, "--checkpoint-seconds", "0"]


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "musbo", *words]
    return subprocess.Popen(
        command, cwd=cwd, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def done(*words: str, cwd: Path) -> str:
    process = start(*words, cwd=cwd)
    out, error = process.communicate()
    assert process.returncode == 0, error
    return out


# Memory


class Compilations(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if (text := record.getMessage()).startswith("Compiling"):
            self.names.append(text[:100])


@pytest.mark.parametrize("name", ["musbo", "mopo", "sac"])
def test_nothing_is_compiled_after_the_second_deployment(tmp_path: Path, name: str):
    seen, later = Compilations(), []
    log = logging.getLogger("jax._src.interpreters.pxla")
    level, spread = log.level, log.propagate

    def observe(news: News) -> None:
        if getattr(news, "deployment", 0) > 2:
            later.extend(seen.names)
        seen.names.clear()

    log.addHandler(seen)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        with jax.log_compiles(True):
            musbo.run(
                "pointmass", algo=name, method=brief(method(name)), budget=4, batch_size=200, episodes=2,
                out=tmp_path / "run", observe=observe,
            )  # fmt: skip
    finally:
        log.removeHandler(seen)
        log.setLevel(level)
        log.propagate = spread
    assert later == []


GROWTH = """
import sys
from musbo.campaign import folders, runner
from musbo.campaign.events import Evaluated
from musbo.campaign.news import Completed
from dataclasses import replace
from pathlib import Path
from tests.stories import tiny

def observe(news):
    if isinstance(news, Completed) and isinstance(news.what, Evaluated):
        rss = int(Path("/proc/self/statm").read_text().split()[1]) * 4
        print(news.deployment, rss, flush=True)

settings = replace(tiny.settings(), budget=24)
folders.create(Path(sys.argv[1]), settings)
runner.advance(Path(sys.argv[1]), observe)
"""


@pytest.mark.long
def test_memory_is_flat_over_24_deployments(tmp_path: Path):
    places = os.pathsep.join(map(str, (Path(musbo.__file__).parents[1], Path(__file__).parents[2])))
    found = subprocess.run(
        [sys.executable, "-c", GROWTH, str(tmp_path / "run")], env=os.environ | {"PYTHONPATH": places},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    sizes = [int(line.split()[1]) for line in found.stdout.splitlines()]
    print("kilobytes after each deployment:", sizes)
    assert len(sizes) == 24 and max(sizes[12:]) < 1.05 * max(sizes[2:12])


# Kills


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """The policy of an undisturbed run, and the seconds that it takes."""
    folder = tmp_path_factory.mktemp("whole")
    done(*RUN, "--out", "first", cwd=folder)
    began = time.monotonic()
    done(*RUN, "--out", "second", cwd=folder)
    policy = summary(folder / "second").policy_sha256
    assert policy is not None and summary(folder / "first").policy_sha256 == policy
    return policy, time.monotonic() - began


@pytest.mark.long
@pytest.mark.parametrize("number", range(20))
def test_a_run_that_is_killed_ten_times(whole: tuple[str, float], tmp_path: Path, number: int):
    """Killed at ten random instants, in the creation too: the same policy, and a sound run."""
    policy, seconds = whole
    rng, run = random.Random(number), tmp_path / "run"
    for _ in range(10):
        words = ["resume", "run", "--checkpoint-seconds", "0"] if run.exists() else [*RUN, "--out", "run"]
        process = start(*words, cwd=tmp_path)
        time.sleep(rng.uniform(0, 0.5 * seconds))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if run.exists():
            assert not verify(run).problems
    done(*(["resume", "run"] if run.exists() else [*RUN, "--out", "run"]), cwd=tmp_path)
    assert summary(run).policy_sha256 == policy and not verify(run).problems
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.long
@pytest.mark.parametrize("number", range(10))
def test_a_report_that_is_killed(whole: tuple[str, float], tmp_path: Path, number: int):
    done("run", "pointmass", "--algo", "random", *tiny.BUDGET, "--out", "run", cwd=tmp_path)
    rng = random.Random(number)
    for _ in range(2):
        process = start("report", "run", cwd=tmp_path)
        time.sleep(rng.uniform(0, 6.0))
        process.kill()
        process.communicate()
    done("report", "run", cwd=tmp_path)
    assert (tmp_path / "run" / "report" / "index.html").read_text().rstrip().endswith("</html>")


# Races


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 25))])
def test_four_processes_begin_the_same_run(tmp_path: Path, number: int):
    """One makes it and goes on; the others are told that it is there."""
    words = ["run", "pointmass", "--algo", "random", *tiny.BUDGET, "--out", "run"]
    processes = [start(*words, cwd=tmp_path) for _ in range(4)]
    said = [process.communicate()[1] for process in processes]
    codes = sorted(process.returncode for process in processes)
    assert codes == [0, 2, 2, 2], said
    assert not any("Traceback" in text for text in said)
    assert summary(tmp_path / "run").finished and not verify(tmp_path / "run").problems
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# A full disk


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from musbo.cli import main
sys.exit(main(sys.argv[2:]))
"""


def limited(size: int, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """With no file longer than `size` bytes, which the kernel refuses as it refuses a full disk."""
    quiet = ENVIRONMENT | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-c", LIMITED, str(size), *words]
    return subprocess.run(command, cwd=cwd, env=quiet, capture_output=True, text=True)


SIZES = [0, 1, 1000, 20_000]
MORE = [round(10 * 1.25**n) for n in range(46)]


@pytest.mark.parametrize(
    "size", [*SIZES[::3], *(pytest.param(n, marks=pytest.mark.long) for n in (*SIZES[1:3], *MORE))]
)
def test_a_full_disk_is_a_sentence_and_the_run_goes_on_afterwards(tmp_path: Path, size: int):
    words = ["run", "pointmass", "--algo", "bc", *tiny.BUDGET, "--out", "run"]
    first = limited(size, *words, cwd=tmp_path)
    assert first.returncode in (0, 2) and "Traceback" not in first.stderr, first.stderr
    done(*(["resume", "run"] if (tmp_path / "run").exists() else words), cwd=tmp_path)
    assert summary(tmp_path / "run").finished and not verify(tmp_path / "run").problems


def test_a_lock_that_cannot_be_written_is_a_sentence(tmp_path: Path):
    """No byte is free: the file of the lock can be made, and not written."""
    done("run", "pointmass", "--algo", "random", *tiny.BUDGET, "--out", "run", cwd=tmp_path)
    (tmp_path / "run" / "lock").unlink(missing_ok=True)
    seen = limited(0, "resume", "run", cwd=tmp_path)
    assert seen.returncode == 2 and "Traceback" not in seen.stderr
    assert "cannot write" in seen.stderr and read_status(tmp_path / "run").finished
