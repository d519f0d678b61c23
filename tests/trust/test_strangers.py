"""What is not ours is not touched, and not run: files of others, links, and Python that a run brings along."""

import json
import os
from pathlib import Path

import pytest

import musbo
from musbo.campaign import folders, runner
from musbo.campaign.places import new_place
from musbo.campaign.settings import campaign
from musbo.cli import main
from musbo.cluster.study import Study, Variant, record
from musbo.core.errors import UserError
from musbo.core.lock import lock
from musbo.reporting.api import report

SHORT = ["--algo", "random", "--budget", "1", "--batch-size", "100", "--episodes", "1"]


def begin(folder: Path) -> Path:
    folders.create(folder, campaign("pointmass", "random", "quick", 0, 1, 100, 1))
    return folder


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    runner.advance(begin(tmp_path / "run"))
    return tmp_path / "run"


# Files of others


def test_a_link_beside_a_new_run_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`.v.new` was once the place where a run called v is made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "letter").write_text("x")
    (tmp_path / ".v.new").symlink_to(tmp_path / "p")
    (tmp_path / ".mine.new").mkdir()
    (tmp_path / ".mine.new" / "letter").write_text("y")
    assert main(["run", "pointmass", *SHORT, "--out", "v"]) == 0
    assert main(["run", "pointmass", *SHORT, "--out", "mine"]) == 0
    assert (tmp_path / "p" / "letter").read_text() == "x" and (tmp_path / ".v.new").is_symlink()
    assert (tmp_path / ".mine.new" / "letter").read_text() == "y"


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path):
    places = [new_place(tmp_path / "run") for _ in range(4)]
    for place in places[:3]:
        place.mkdir()
        (place / "lock").write_text("1 host")
    (places[1] / "letter").write_text("x")  # somebody else's
    (places[2] / "store").mkdir()
    (places[2] / "store" / "letter").write_text("y")
    (places[2] / "store" / ("a" * 64 + ".parquet")).write_text("of ours")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ("b" * 64 + ".parquet")).write_text("not of this run")
    places[3].symlink_to(tmp_path / "elsewhere")
    begin(tmp_path / "run")
    assert not places[0].exists()
    assert (places[1] / "letter").read_text() == "x"
    assert [path.name for path in (places[2] / "store").iterdir()] == ["letter"]
    assert (tmp_path / "elsewhere" / ("b" * 64 + ".parquet")).exists()


def test_a_run_that_is_being_made_is_left_alone(tmp_path: Path):
    other = new_place(tmp_path / "run")
    other.mkdir()
    with lock(other):  # of this process, as it would be of another
        begin(tmp_path / "run")
        assert other.is_dir()


# Links out of a run


def linked(run: Path, name: str, target: Path) -> Path:
    place = run / name
    if place.is_dir():
        place.rename(run / f"{name}-before")
    place.unlink(missing_ok=True)
    place.symlink_to(target)
    return target


def test_a_linked_lock_is_refused(tmp_path: Path):
    target = linked(begin(tmp_path / "run"), "lock", tmp_path / "important")
    target.write_text("years of work")
    with pytest.raises(UserError, match="lock is a link"):
        runner.advance(tmp_path / "run")
    assert target.read_text() == "years of work"
    (tmp_path / "run" / "lock").unlink()
    os.link(target, tmp_path / "run" / "lock")
    with pytest.raises(UserError, match="also a file elsewhere"):
        runner.advance(tmp_path / "run")
    assert target.read_text() == "years of work"


def test_a_linked_store_is_refused(tmp_path: Path, finished: Path):
    names = sorted(path.name for path in (finished / "store").iterdir())
    linked(begin(tmp_path / "other"), "store", finished / "store")
    with pytest.raises(UserError, match="store is a link"):
        runner.advance(tmp_path / "other")
    assert sorted(path.name for path in (finished / "store").iterdir()) == names


def test_a_linked_artefact_is_refused(tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]):
    (policy,) = [path for path in (finished / "store").iterdir() if path.suffix == ".safetensors"][:1]
    policy.rename(tmp_path / "moved")
    policy.symlink_to(tmp_path / "moved")
    assert main(["verify", str(finished)]) == 2
    assert f"{policy.name} is a link" in capsys.readouterr().out


def test_a_linked_data_folder_is_refused(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "deployment-1.parquet").write_text("my own")
    linked(begin(tmp_path / "run"), "data", tmp_path / "mine")
    with pytest.raises(UserError, match="data is a link"):
        runner.advance(tmp_path / "run")
    assert (tmp_path / "mine" / "deployment-1.parquet").read_text() == "my own"


@pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.sqlite-journal"])
def test_a_linked_ledger_is_refused(tmp_path: Path, finished: Path, name: str):
    other = begin(tmp_path / "other")
    (finished / "ledger.sqlite-journal").write_bytes(b"")
    linked(other, name, finished / name)
    before = (finished / "ledger.sqlite").read_bytes()
    with pytest.raises(UserError, match="is a link"):
        runner.advance(other)
    assert (finished / "ledger.sqlite").read_bytes() == before


def test_a_report_follows_no_link(tmp_path: Path, finished: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "figures").symlink_to(tmp_path / "mine")
    (tmp_path / "report" / "report.json").write_text("[]")
    with pytest.raises(UserError, match="figures is a link"):
        report(finished, out=tmp_path / "report", film=False)
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_run_that_is_itself_behind_a_link_works(tmp_path: Path, finished: Path):
    (tmp_path / "latest").symlink_to(finished)
    assert main(["status", str(tmp_path / "latest")]) == 0
    assert main(["verify", str(tmp_path / "latest")]) == 0


# Python of others


EVIL = """
from pathlib import Path
Path({mark!r}).write_text("it ran")
from musbo.tasks.builtin import pointmass as TASK
"""


def renamed(run: Path, task: str) -> None:
    """The ledger of a run with another task in it, its hashes made anew, as its author could."""
    from tests.campaign.test_ledger import rewritten

    rewritten(
        run / "ledger.sqlite", lambda payload: payload.replace('"task": "pointmass"', f'"task": {json.dumps(task)}')
    )


@pytest.mark.parametrize("task", ["evil/t.py:TASK", "os:abort", "antigravity:fly"])
def test_a_downloaded_run_runs_no_code(tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str], task: str):
    mark = tmp_path / "mark"
    (finished / "evil").mkdir()
    (finished / "evil" / "t.py").write_text(EVIL.format(mark=str(mark)))
    renamed(finished, task)
    for words in (["evaluate", str(finished)], ["resume", str(finished)], ["play", str(finished)]):
        assert main(words) == 2
        assert "not run without your word" in capsys.readouterr().err
    assert main(["report", str(finished), "--out", str(tmp_path / "page")]) == 0
    assert "not run without your word" in (tmp_path / "page" / "index.html").read_text()
    assert not mark.exists()


def test_with_the_users_word_it_runs(tmp_path: Path, finished: Path):
    mark = tmp_path / "mark"
    (finished / "evil").mkdir()
    (finished / "evil" / "t.py").write_text(EVIL.format(mark=str(mark)))
    renamed(finished, "evil/t.py:TASK")
    assert main(["evaluate", str(finished), "--task", "pointmass"]) == 0 and not mark.exists()
    assert main(["evaluate", str(finished), "--trust-task"]) == 0 and mark.exists()


def test_a_task_of_ones_own_goes_on_in_the_same_command_and_by_ones_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("from musbo.tasks.builtin import pointmass as TASK")
    assert main(["run", "own.py:TASK", *SHORT, "--out", "run"]) == 0
    assert "musbo report run --trust-task" in capsys.readouterr().out
    assert main(["resume", "run"]) == 2
    assert main(["resume", "run", "--trust-task"]) == 0
    assert main(["resume", "run", "--task", "own.py:TASK"]) == 0
    assert musbo.evaluate("run", trust_task=True).episodes == musbo.evaluate("run", task="own.py:TASK").episodes


def test_a_downloaded_study_runs_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("from musbo.tasks.builtin import pointmass as TASK")
    words = ["study", "--tasks", "own.py:TASK", "--algos", "random", "--seeds", "0", *SHORT[2:], "--out", "s"]
    assert main(words) == 0
    (tmp_path / "own.py").write_text("raise SystemExit('it ran')")
    capsys.readouterr()
    assert main(["study", "--out", "s", "--seeds", "1"]) == 2
    assert "not run without your word" in capsys.readouterr().err
    assert main(["study", "--out", "s"]) == 2


def test_the_record_of_a_study_leads_no_run_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    study = Study(("pointmass",), (Variant("random", "random", ("--out", str(tmp_path / "elsewhere"))),), (0,))
    record(tmp_path / "s", study)
    assert main(["study", "--out", str(tmp_path / "s")]) == 2
    assert "are the study's own and cannot be among its settings" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()
