"""The same study on a real Ray cluster of two nodes on this machine, one of which is lost on the way."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from musbo.campaign.events import Resumed
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.campaign.summary import read_status
from musbo.cli import INTERRUPTED, main
from musbo.cluster import on_ray
from musbo.cluster.local import log_of
from musbo.cluster.progress import Progress
from musbo.cluster.study import Cell, cells, parse
from tests.cluster.test_local import ENVIRONMENT, begun, complete, described, hashes, study
from tests.core.test_interrupt import interrupt_in_the_collector

# A node that comes before the head looks for it until it is there; ray.init does not.
BOTH_NODES = """
import sys, time, ray
while True:
    try:
        ray.init(sys.argv[1], log_to_driver=False)
        break
    except ConnectionError:
        time.sleep(0.5)
while ray.cluster_resources().get("CPU", 0) < 2:
    time.sleep(0.2)
"""
RAY = Path(sys.executable).with_name("ray")
pytest.importorskip("ray", reason='a Ray cluster needs Ray: pip install "musbo[cluster]"')


@dataclass(frozen=True)
class Cluster:
    address: str
    second: subprocess.Popen[bytes]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def node(*words: str) -> subprocess.Popen[bytes]:
    """One node, in the foreground of a process group of its own, so that it can be killed as a whole."""
    size = ["--num-cpus=1", "--object-store-memory=100000000"]
    return subprocess.Popen(
        [str(RAY), "start", "--block", "--disable-usage-stats", *size, *words],
        env=ENVIRONMENT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def bury(process: subprocess.Popen[bytes]) -> None:
    """With everything that it started: as if the machine had lost its power."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    port = free_port()
    head = node("--head", f"--port={port}", "--include-dashboard=false")
    second = None
    try:
        second = node(f"--address=127.0.0.1:{port}")
        waiting = [sys.executable, "-c", BOTH_NODES, f"127.0.0.1:{port}"]
        subprocess.run(waiting, check=True, timeout=180, capture_output=True)
        yield Cluster(f"127.0.0.1:{port}", second)
    finally:
        for process in (second, head):
            if process is not None and process.poll() is None:
                bury(process)


def under_way(out: Path) -> list[Path]:
    """The cells that have something to lose."""
    found = {folder: read_status(folder) for folder in begun(out)}
    return [folder for folder, status in found.items() if status.collected and not status.finished]


def test_a_lost_workers_cell_goes_on_elsewhere(tmp_path: Path, cluster: Cluster):
    file = str(tmp_path / "two.toml")
    Path(file).write_text(described(["pointmass"], [], [0, 1]))
    complete(study(tmp_path / "calm", file))
    wanted = hashes(tmp_path / "calm")

    out = tmp_path / "cluster"
    process = subprocess.Popen(
        [*study(out, file), "--ray", cluster.address, "--json"],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(under_way(out)) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(under_way(out)) == 2, "no two cells at once, so not both nodes at work"
    bury(cluster.second)
    printed, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    assert {row["state"] for row in json.loads(printed)["runs"]} == {"done"}
    assert hashes(out) == wanted
    resumed = []
    for folder in begun(out):
        with Ledger(folder / LEDGER) as ledger:
            resumed += [event for event in ledger.events() if isinstance(event.what, Resumed)]
    assert resumed, "the cell of the lost node was not gone on with"


def test_what_waits_for_a_worker_is_not_shown_as_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two cells that an earlier stop left unfinished; a cluster that takes up one of them, which writes its log."""
    asked = parse({"tasks": ["pointmass"], "algos": ["musbo"], "seeds": [0, 1]})
    first, second = cells(asked)
    seen: list[dict[Cell, Progress]] = []

    def wait(pending: list[Cell], timeout: float) -> tuple[list[Cell], list[Cell]]:
        log = log_of(tmp_path, first)
        busy = not log.exists()
        log.write_text("resumed")
        return ([], pending) if busy else (pending, [])

    ray = SimpleNamespace(
        init=lambda **words: None, shutdown=lambda: None, wait=wait, get=lambda cell: 0,
        remote=lambda **words: lambda work: SimpleNamespace(remote=lambda study, out, cell, imports: cell),
        exceptions=SimpleNamespace(RayError=OSError),
    )  # fmt: skip
    monkeypatch.setattr(on_ray, "look", lambda out, cell: Progress("unfinished"))
    on_ray._run(ray, asked, tmp_path, "anywhere", lambda now: seen.append(dict(now)), ())
    assert (seen[1][first].state, seen[1][second].state) == ("running", "unfinished")


@pytest.mark.long  # the same on this machine alone is in the short form: test_local
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ctrl_c_that_python_forgets_stops_it(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    file, out, look = tmp_path / "one.toml", tmp_path / "study", on_ray.look
    file.write_text(described(["pointmass"], [], [0]).replace("[2, 100]", "[20, 100]"))

    def looked(*arguments):
        interrupt_in_the_collector()
        return look(*arguments)

    monkeypatch.setattr(on_ray, "look", looked)
    assert main(["study", str(file), "--out", str(out), "--ray", cluster.address]) == INTERRUPTED
    assert not hashes(out)
