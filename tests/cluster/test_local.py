"""A study on this machine: killed twice and resumed, with a cell that fails, with seeds that come later."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import musbo
from musbo.campaign.summary import read_status, summary
from musbo.cli import INTERRUPTED, main
from musbo.cluster import cell, local
from musbo.cluster.progress import Progress, seconds_left
from musbo.cluster.study import Cell, Variant, recorded
from musbo.core.cores import usable_cores
from musbo.core.errors import UserError
from tests.core.test_interrupt import interrupt_in_the_collector
from tests.stories import tiny

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(musbo.__file__).parents[1])}
BUDGET = ["--budget", "2", "--batch-size", "100", "--episodes", "2"]
FILE = f"""
settings = ["--episodes", 2]
[variants.small]
algo = "musbo"
settings = {json.dumps(tiny.METHOD)}
"""


def described(tasks: list[str], algos: list[str], seeds: list[int]) -> str:
    """The file of a study with these methods and the small one."""
    budgets = "\n".join(f"{task} = [2, 100]" for task in tasks)
    return f"tasks = {json.dumps(tasks)}\nalgos = {json.dumps(algos)}\nseeds = {seeds}\n{FILE}\n[budgets]\n{budgets}\n"


def study(out: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "musbo", "study", "--out", str(out), *words]


def complete(words: list[str]) -> dict[str, Any]:
    done = subprocess.run([*words, "--json"], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def begun(out: Path) -> list[Path]:
    """A run that is still being made has a hidden name, and is none yet."""
    return sorted(path.parent for path in out.glob("[!.]*/ledger.sqlite"))


def hashes(out: Path) -> dict[str, str | None]:
    return {folder.name: summary(folder).policy_sha256 for folder in begun(out) if summary(folder).finished}


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(word) for word in found]


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.parametrize(
    ("tasks", "seeds"),
    [(["pointmass"], [0]), pytest.param(["pointmass", "pendulum"], [0, 1], marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_killed_twice_and_resumed(tmp_path: Path, tasks: list[str], seeds: list[int]):
    """Two methods: the same policies as in a study that nobody disturbed; then a seed more."""
    file, n = str(tmp_path / "two.toml"), 2 * len(tasks) * len(seeds)
    Path(file).write_text(described(tasks, ["bc"], seeds))
    undisturbed = complete(study(tmp_path / "calm", file))
    assert {row["state"] for row in undisturbed["runs"]} == {"done"} and len(undisturbed["runs"]) == n
    wanted = hashes(tmp_path / "calm")
    assert len(wanted) == n and len(set(wanted.values())) == n

    out, orphans = tmp_path / "killed", []
    for kill in range(2):
        process = subprocess.Popen(study(out, *([file] if kill == 0 else [])), env=ENVIRONMENT, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 120
        while len(begun(out)) < kill + 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert time.monotonic() < deadline, "no cell began"
        time.sleep(1.0)
        orphans += children_of(process.pid)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in orphans) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert orphans and not any(alive(pid) for pid in orphans)  # no campaign goes on without its study
    assert len(hashes(out)) < n
    resumed = complete(study(out))
    assert hashes(out) == wanted
    returns = [{row["folder"]: row["final_return"] for row in found["runs"]} for found in (undisturbed, resumed)]
    assert returns[0] == returns[1]

    stamps = {path: path.stat().st_mtime_ns for path in out.glob("[!.]*/ledger.sqlite")}
    more = complete(study(out, file, "--seeds", "2"))
    assert len(more["runs"]) == n + n // len(seeds)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())  # what was there is reused


@pytest.mark.long
def test_a_cell_has_the_same_bits_with_and_without_a_core_of_its_own(tmp_path: Path):
    """As on this machine, and as on a cluster, where a cell sees every core; tiny networks would agree anyhow."""
    short = ["--preset", "quick", "--budget", "1", "--updates", "3", "--episodes", "1"]
    short += ["--dynamics.epochs", "2", "--labeler.epochs", "2"]
    for name, cores in (("own", usable_cores()[:1]), ("any", [])):
        words = ["run", "pointmass", *short, "--out", str(tmp_path / name)]
        subprocess.run(cell.command(cores, tmp_path / name, words), env=ENVIRONMENT, check=True, capture_output=True)
    assert summary(tmp_path / "own").policy_sha256 == summary(tmp_path / "any").policy_sha256


def test_ctrl_c_stops_the_runs_and_says_how_to_go_on(tmp_path: Path):
    file, out = tmp_path / "one.toml", tmp_path / "study"
    # So many deployments that it cannot be over before it is stopped.
    file.write_text(described(["pointmass"], [], [0]).replace("[2, 100]", "[50, 100]"))
    process = subprocess.Popen(study(out, str(file)), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not begun(out) and time.monotonic() < deadline:
        time.sleep(0.05)
    runs = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130 and f"Go on with: musbo study --out {out}" in error
    assert runs and not any(alive(pid) for pid in runs)
    assert not read_status(begun(out)[0]).finished


def test_a_second_study_in_the_same_place_is_refused_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file, out = tmp_path / "one.toml", tmp_path / "study"
    file.write_text(described(["pointmass"], [], [0]).replace("[2, 100]", "[50, 100]"))
    first = subprocess.Popen(study(out, str(file)), env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not begun(out) and time.monotonic() < deadline:
            time.sleep(0.05)
        before = recorded(out)
        assert main(["study", str(file), "--seeds", "1", "--out", str(out)]) == 2
        assert f"pid {first.pid}" in capsys.readouterr().err
        assert recorded(out) == before and first.poll() is None
    finally:
        first.send_signal(signal.SIGINT)
        first.wait(timeout=120)


def test_a_cell_does_without_jax_until_it_is_musbo():
    """JAX has a callback in the garbage collector, where a Ctrl-C is lost; a cell does not note it yet."""
    words = "import sys, musbo.cluster.cell as cell; cell.wait_for_lock(cell.Path('none')); print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_cell_goes_on_with_what_another_has_begun(tmp_path: Path):
    """A lost worker can still be making a campaign when the cell is begun elsewhere, with the words to make it."""
    folder = tmp_path / "run"
    words = ["run", "pointmass", "--algo", "random", *BUDGET, "--out", str(folder)]
    assert main(words) == 0
    done = summary(folder).policy_sha256
    subprocess.run(cell.command([], folder, words), env=ENVIRONMENT, check=True, capture_output=True)
    assert summary(folder).policy_sha256 == done


def test_the_page_about_clusters_says_how_long_a_lock_is_waited_for():
    page = Path(__file__).parents[2] / "docs" / "how-to" / "run-on-a-cluster.md"
    assert cell.LOCK_SECONDS == 5 * 60 and "A run waits up to five minutes" in page.read_text()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ctrl_c_that_python_forgets_stops_the_runs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file, out = tmp_path / "one.toml", tmp_path / "study"
    file.write_text(described(["pointmass"], [], [0]).replace("[2, 100]", "[20, 100]"))
    start, children = local._start, []

    def started(*arguments: Any) -> subprocess.Popen:
        children.append(start(*arguments))
        interrupt_in_the_collector()
        return children[-1]

    monkeypatch.setattr(local, "_start", started)
    assert main(["study", str(file), "--out", str(out)]) == INTERRUPTED
    assert len(children) == 1 and children[0].returncode not in (None, 0)
    assert not hashes(out)


def test_a_cell_that_fails_is_reported_and_does_not_stop_the_rest(tmp_path: Path):
    out = tmp_path / "study"
    words = ["--tasks", "pointmass", "--algos", "random", "--seeds", "0", *BUDGET]
    complete(study(out, *words))
    broken = out / "pointmass-random-2x100-s1"
    broken.mkdir()
    (broken / "ledger.sqlite").write_text("this is no database")
    more = ["--tasks", "pointmass", "--algos", "random", "--seeds", "1", "2", *BUDGET]
    done = subprocess.run([*study(out, *more), "--json"], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 1
    rows = {row["seed"]: row for row in json.loads(done.stdout)["runs"]}
    assert {seed: row["state"] for seed, row in rows.items()} == {0: "done", 1: "failed", 2: "done"}
    assert "ledger.sqlite is damaged" in rows[1]["reason"] and rows[2]["reason"] is None
    assert "pointmass-random-2x100-s1 failed" in done.stderr and "Try again" in done.stderr
    assert "Traceback" not in done.stderr


def test_cores_are_divided(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {2, 3, 5, 7, 8})
    assert local.share_cores(None) == [[2], [3], [5], [7], [8]]
    assert local.share_cores(2) == [[2, 3], [5, 7]]
    for wrong in (0, 6):
        with pytest.raises(UserError, match="--jobs"):
            local.share_cores(wrong)


def test_time_left_by_hand():
    cells = [Cell("pendulum", Variant(name, name), 4, 100, seed, "quick") for name in ("a", "b") for seed in (0, 1)]
    assert seconds_left(dict.fromkeys(cells, Progress("waiting"))) is None
    seen = dict(zip(cells, [Progress("done", 4, 1.0, 40.0), Progress("running", 1, 0.0, 30.0),
                            Progress("waiting"), Progress("failed", 2, 0.0, 2.0)], strict=True))  # fmt: skip
    a, b = (40 + 30) / 5, 2 / 2  # per deployment of each method
    assert seconds_left(seen) == pytest.approx(3 * a + 4 * b)  # one at a time
    seen[cells[2]] = Progress("running")
    assert seconds_left(seen) == pytest.approx((3 * a + 4 * b) / 2)
