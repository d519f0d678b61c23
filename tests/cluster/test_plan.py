"""What a call of `musbo study` asks for: on its own, or on top of what a study was."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from musbo.algorithms.recipes import ALGORITHMS
from musbo.campaign import command
from musbo.campaign.folders import create
from musbo.cli import main
from musbo.cluster import local
from musbo.cluster.study import cells, recorded, together
from tests.cluster.test_local import BUDGET, ENVIRONMENT, described, study


def test_settings_are_checked_before_anything_runs(tmp_path: Path):
    words = ["--tasks", "pointmass", "--algos", "musbo", "sac", "--label.alpha", "1"]
    done = subprocess.run(study(tmp_path / "s", *words), env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2 and "sac on pointmass" in done.stderr and not (tmp_path / "s").exists()


def test_what_is_not_said_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two seeds more, fewer tasks of a ready study, zeros and typos: what is recorded, without running anything."""
    monkeypatch.setattr(local, "run", lambda *arguments: {})
    out = tmp_path / "study"
    assert main(["study", "--tasks", "pointmass", "--algos", "bremen", "--updates", "3", "--out", str(out)]) == 0
    assert main(["study", "--seeds", "3", "4", "--out", str(out)]) == 0
    found = recorded(out)
    assert found is not None and found.seeds == (0, 3, 4) and found.settings == ("--updates", "3")
    assert [cell.folder for cell in cells(found)][0] == "pointmass-bremen-2x1000-s0" and len(cells(found)) == 3
    assert main(["study", "figure-500k-fast", "--tasks", "hopper", "--out", str(tmp_path / "ready")]) == 0
    ready = recorded(tmp_path / "ready")
    assert ready is not None and ready.tasks == ("hopper",) and ready.budgets == (("hopper", 10, 50_000),)
    for wrong in (
        ["--seeds", "5", "--updates", "4", "--out", str(out)],
        ["--tasks", "pendulmu", "--algos", "musbo"],
        ["--tasks", "pointmass"],
        ["--tasks", "pointmass", "--algos", "musbo", "--episodes", "0"],
        ["--tasks", "pointmass", "--algos", "musbo", "--budget", "0"],
        ["--tasks", "pointmass", "--algos", "musbo", "--jobs", "1", "--ray", "auto"],
        ["--tasks", "pointmass", "--algos", "musbo", "--jobs", "1000"],
    ):
        words = wrong if "--out" in wrong else [*wrong, "--out", str(tmp_path / "wrong")]
        assert main(["study", *words]) == 2
    for setting in (["--out", "X"], ["--data", "x.parquet"], ["--preset", "paper"], ["--help"]):
        file = tmp_path / "wrong.toml"
        file.write_text(f'tasks = ["pointmass"]\nalgos = ["random"]\nsettings = {setting}\n')
        assert main(["study", str(file), "--out", str(tmp_path / "wrong")]) == 2
    assert recorded(out) == found and not (tmp_path / "wrong").exists()


def test_nothing_is_added_to_a_study_that_nobody_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(local, "run", lambda *arguments: {})
    monkeypatch.chdir(tmp_path)
    words = ["study", "--tasks", "pointmass", "--algos", "random", "--seeds"]
    assert main([*words, "0", "1"]) == 0
    assert "the study studies/study has 2 runs: 0 done, 2 new" in capsys.readouterr().err
    found = recorded(Path("studies/study"))
    assert main([*words, "5"]) == 2
    assert "--out studies/study" in capsys.readouterr().err and recorded(Path("studies/study")) == found
    assert main(["study"]) == 0  # goes on with it
    assert "2 runs: 0 done, 0 new" in capsys.readouterr().err
    assert main(["run", "pointmass", "--algo", "random", "--out", "studies/study/pointmass-random-2x1000-s0"]) == 0
    assert main([*words, "5", "--out", "studies/study"]) == 0
    assert "3 runs: 1 done, 1 new" in capsys.readouterr().err


def test_a_task_that_comes_later_has_the_budget_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(local, "run", lambda *arguments: {})
    out = ["--out", str(tmp_path / "study")]
    assert main(["study", "--tasks", "pointmass", "--algos", "random", *BUDGET, *out]) == 0
    assert main(["study", "--tasks", "pendulum", *out]) == 0
    found = recorded(tmp_path / "study")
    assert found is not None and found.budgets == (("pointmass", 2, 100), ("pendulum", 2, 100))
    file = tmp_path / "two.toml"
    file.write_text(described(["pointmass", "pendulum"], ["random"], [0]).replace("pendulum = [2", "pendulum = [3"))
    other = ["study", str(file), "--tasks", "pointmass", "halfcheetah", "--algos", "random", "--out"]
    assert main([*other, str(tmp_path / "other")]) == 2
    assert "halfcheetah needs one too: give --budget and --batch-size" in capsys.readouterr().err
    assert main([*other, str(tmp_path / "other"), "--budget", "5", "--batch-size", "60"]) == 0
    found = recorded(tmp_path / "other")
    assert found is not None and set(found.budgets) == {("pointmass", 5, 60), ("halfcheetah", 5, 60)}


def test_seeds_are_not_added_to_runs_of_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A preset of a later version: the report would refuse to put them together, after hours."""
    monkeypatch.setattr(local, "run", lambda *arguments: {})
    out = tmp_path / "study"
    words = ["study", "--tasks", "pointmass", "--algos", "bremen", "random", "--out", str(out)]
    assert main(words) == 0
    for one in cells(together(out, None)):
        create(out / one.folder, command.read(one.words(out, ())[1:])[0])
    assert main(["study", "--seeds", "1", "--out", str(out)]) == 0
    found, recipe = recorded(out), ALGORITHMS["bremen"]
    changed = replace(recipe, make=lambda preset, task: replace(recipe.make(preset, task), updates=7))  # type: ignore[call-arg]
    monkeypatch.setitem(ALGORITHMS, "bremen", changed)
    for more in (["--seeds", "2"], []):  # what was asked for before it changed is not begun either
        capsys.readouterr()
        assert main(["study", *more, "--out", str(out)]) == 2
        error = capsys.readouterr().err
        assert "pointmass-bremen-2x1000-s0" in error and "--updates (" in error and " and 7)" in error
        assert "settings differ, so the runs cannot be averaged" in error
        assert recorded(out) == found
