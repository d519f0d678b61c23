"""Kills, races and full disks by the hundred, and memory over many deployments: nothing is lost, nothing grows."""

import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import pytest

import musbo
from musbo.campaign import folders
from musbo.campaign.news import News
from musbo.campaign.settings import campaign
from musbo.campaign.summary import read_status, summary
from musbo.campaign.verify import verify
from tests.cluster.test_local import alive, begun, children_of, described, hashes
from tests.contract.test_recipes import brief, method
from tests.stories import tiny

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(musbo.__file__).parents[1])}
RUN = ["run", "pointmass", "--preset", "quick", *tiny.FLAGS, "--checkpoint-seconds", "0"]
CLONE = ["run", "pointmass", "--algo", "bc", *tiny.BUDGET, "--out", "run"]
STUDY = described(["pointmass"], ["bc"], [0, 1])


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


@pytest.mark.parametrize("name", ["musbo", *(pytest.param(n, marks=pytest.mark.long) for n in ("mopo", "sac"))])
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


@dataclass(frozen=True)
class Calm:
    """What comes out when nobody disturbs it, and the seconds that it takes."""

    outcome: Any
    seconds: float


def timed(*words: str, cwd: Path) -> float:
    began = time.monotonic()
    done(*words, cwd=cwd)
    return time.monotonic() - began


def killed(*words: str, cwd: Path, after: float) -> bool:
    """Start a process and kill it so many seconds later, with those that it started; whether it was still there."""
    process = start(*words, cwd=cwd)
    time.sleep(after)
    children = children_of(process.pid)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in children):
        assert time.monotonic() < deadline, "a run goes on without its study"
        time.sleep(0.01)
    return process.returncode == -signal.SIGKILL


def sound(*runs: Path) -> bool:
    return not any(verify(run).problems for run in runs)


@pytest.fixture(scope="module")
def calm_run(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    folder = tmp_path_factory.mktemp("run")
    done(*RUN, "--out", "first", cwd=folder)  # compiles
    seconds = timed(*RUN, "--out", "second", cwd=folder)
    policy = summary(folder / "second").policy_sha256
    assert policy is not None and summary(folder / "first").policy_sha256 == policy
    return Calm(policy, seconds)


@pytest.mark.long
@pytest.mark.parametrize("number", range(12))
def test_a_run_that_is_killed_ten_times(calm_run: Calm, tmp_path: Path, number: int):
    """Killed at ten random instants, in the creation too: the same policy, and a sound run."""
    rng, kills, over, runs = random.Random(number), 0, True, []
    while kills < 10 or not over:
        if over:  # with kills to spare: another one
            runs.append(tmp_path / f"run{len(runs)}")
        run = runs[-1]
        words = ["resume", run.name, *RUN[-2:]] if run.exists() else [*RUN, "--out", run.name]
        if kills < 10:
            over = not killed(*words, cwd=tmp_path, after=rng.uniform(0, 0.5 * calm_run.seconds))
            kills += not over
        else:
            done(*words, cwd=tmp_path)
            over = True
        assert sound(*(run for run in runs if run.exists()))
    assert {summary(run).policy_sha256 for run in runs} == {calm_run.outcome}
    assert sorted(tmp_path.iterdir()) == sorted(runs)  # nothing is left of those that were being made


@pytest.fixture(scope="module")
def calm_study(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    folder = tmp_path_factory.mktemp("study")
    (folder / "two.toml").write_text(STUDY)
    done("study", "two.toml", "--out", "first", cwd=folder)
    seconds = timed("study", "two.toml", "--out", "second", cwd=folder)
    policies = hashes(folder / "second")
    assert len(policies) == 4 and hashes(folder / "first") == policies
    return Calm(policies, seconds)


@pytest.mark.long
@pytest.mark.parametrize("number", range(6))
def test_a_study_that_is_killed_ten_times(calm_study: Calm, tmp_path: Path, number: int):
    """Killed with its runs: those that were done stay, the others go on, and all have the same policies."""
    (tmp_path / "two.toml").write_text(STUDY)
    rng, kills, over, studies = random.Random(number), 0, True, []
    while kills < 10 or not over:
        if over:
            studies.append(tmp_path / f"study{len(studies)}")
        words, before = ["study", "two.toml", "--out", studies[-1].name], hashes(studies[-1])
        if kills < 10:
            over = not killed(*words, cwd=tmp_path, after=rng.uniform(0, 0.5 * calm_study.seconds))
            kills += not over
        else:
            done(*words, cwd=tmp_path)
            over = True
        assert before.items() <= hashes(studies[-1]).items() <= calm_study.outcome.items()
        assert sound(*begun(studies[-1]))
    for study in studies:
        assert hashes(study) == calm_study.outcome
        assert [path for path in study.iterdir() if path.name.startswith(".")] == []


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def calm_report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Calm]:
    """A run without its report, and what the report is."""
    folder = tmp_path_factory.mktemp("report")
    done("run", "pointmass", "--algo", "random", *tiny.BUDGET, "--out", "run", cwd=folder)
    done("report", "run", "--out", "first", cwd=folder)
    seconds = timed("report", "run", "--out", "second", cwd=folder)
    assert contents(folder / "first") == contents(folder / "second")
    return folder / "run", Calm(contents(folder / "second"), seconds)


@pytest.mark.long
@pytest.mark.parametrize("number", range(10))
def test_a_report_that_is_killed_twice(calm_report: tuple[Path, Calm], tmp_path: Path, number: int):
    """The next one is the same, byte for byte, and the run is what it was."""
    run, calm = calm_report
    shutil.copytree(run, tmp_path / "run")
    rng, kills = random.Random(number), 0
    while kills < 2:
        kills += killed("report", "run", cwd=tmp_path, after=rng.uniform(0, calm.seconds))
    done("report", "run", cwd=tmp_path)
    assert contents(tmp_path / "run" / "report") == calm.outcome
    shutil.rmtree(tmp_path / "run" / "report")
    assert contents(tmp_path / "run") == contents(run)


# Races


RACER = """
import sys
from musbo.campaign import runner  # what is slow to import is there before the start
from musbo.cli import main
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main(sys.argv[1:]))
"""


def race(*words: str, cwd: Path) -> list[tuple[int, str]]:
    """Two processes that do the same at the same moment: how each ended, in order, and what it said."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, *words], cwd=cwd, env=ENVIRONMENT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    said = [racer.communicate()[1] for racer in racers]
    return sorted(zip((racer.returncode for racer in racers), said, strict=True))


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 50))])
def test_two_processes_begin_the_same_run(tmp_path: Path, number: int):
    """One makes it and goes on; the other is told that it is there."""
    (won, _), (lost, said) = race(
        "run", "pointmass", "--algo", "random", *tiny.BUDGET, "--out", "run", cwd=tmp_path
    )  # fmt: skip
    assert (won, lost) == (0, 2) and "Traceback" not in said and "choose another --out" in said, said
    assert summary(tmp_path / "run").finished and sound(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.fixture(scope="module")
def begun_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run with nothing but its settings, and the policy that it ends with."""
    folder = tmp_path_factory.mktemp("race")
    folders.create(folder / "run", campaign("pointmass", "bc", "quick", 0, 2, 100, 2))
    shutil.copytree(folder / "run", folder / "calm")
    done("resume", "calm", cwd=folder)
    policy = summary(folder / "calm").policy_sha256
    assert policy is not None
    return folder / "run", policy


@pytest.mark.long
@pytest.mark.parametrize("number", range(50))
def test_two_processes_resume_the_same_run(begun_run: tuple[Path, str], tmp_path: Path, number: int):
    """One goes on; the other is told so, or comes so late that there is nothing left to do."""
    run, policy = begun_run
    shutil.copytree(run, tmp_path / "run")
    (won, _), (other, said) = race("resume", "run", cwd=tmp_path)
    assert won == 0 and "Traceback" not in said, said
    assert other == 0 or (other == 2 and "is running this campaign" in said), said
    assert summary(tmp_path / "run").policy_sha256 == policy and sound(tmp_path / "run")


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
def test_no_file_may_be_longer_and_the_run_goes_on_afterwards(tmp_path: Path, size: int):
    first = limited(size, *CLONE, cwd=tmp_path)
    assert first.returncode in (0, 2) and "Traceback" not in first.stderr, first.stderr
    done(*(["resume", "run"] if (tmp_path / "run").exists() else CLONE), cwd=tmp_path)
    assert summary(tmp_path / "run").finished and sound(tmp_path / "run")


DISK = 2**20
FREE = [8192 * n for n in range(50)]
"""Bytes that are free: from none to more than the run takes, with its journal and what is written before a rename."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a file system can be mounted by root only, and not in every container")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def free(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


@pytest.mark.long
@pytest.mark.parametrize("size", FREE)
def test_a_full_disk_is_a_sentence_and_the_run_goes_on_afterwards(disk: Path, size: int):
    (disk / "others").write_bytes(bytes(free(disk) - size))
    assert free(disk) == size
    first = start(*CLONE, cwd=disk)
    _, said = first.communicate()
    assert first.returncode in (0, 2) and "Traceback" not in said, said
    if size in (FREE[0], FREE[-1]):
        assert first.returncode == (2 if size == 0 else 0), said
    (disk / "others").unlink()
    done(*(["resume", "run"] if (disk / "run").exists() else CLONE), cwd=disk)
    assert summary(disk / "run").finished and sound(disk / "run")
    assert [path.name for path in disk.iterdir()] == ["run"]


def test_a_lock_that_cannot_be_written_is_a_sentence(tmp_path: Path):
    """No byte is free: the file of the lock can be made, and not written."""
    done("run", "pointmass", "--algo", "random", *tiny.BUDGET, "--out", "run", cwd=tmp_path)
    (tmp_path / "run" / "lock").unlink(missing_ok=True)
    seen = limited(0, "resume", "run", cwd=tmp_path)
    assert seen.returncode == 2 and "Traceback" not in seen.stderr
    assert "cannot write" in seen.stderr and read_status(tmp_path / "run").finished
