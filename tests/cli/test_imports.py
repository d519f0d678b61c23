"""`--import`: methods of one's own, from a file or a module, in every verb and in every cell of a study."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from musbo.algorithms.recipes import ALGORITHMS
from musbo.campaign.folders import create
from musbo.campaign.settings import campaign
from musbo.campaign.summary import read_status
from musbo.cli import main, verbs
from musbo.cluster import cell, on_ray
from musbo.cluster.study import cells, parse
from musbo.core.errors import UserError
from tests.cluster.test_local import BUDGET, ENVIRONMENT, complete, study

# It gives a known method another name, and keeps a log of the commands that have imported it.
OWN = """
import pathlib, sys
from dataclasses import replace
from musbo.algorithms.recipes import ALGORITHMS

ALGORITHMS["mine"] = replace(ALGORITHMS["random"], line="a method of my own")
with pathlib.Path(__file__).with_suffix(".log").open("a") as log:
    print(*sys.argv[1:], file=log)
"""
RUN = ["pointmass", "--algo", "mine", *BUDGET]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with such a file, called `my_own.py`; nothing of it stays."""
    (tmp_path / "my_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    ALGORITHMS.pop("mine", None)
    for name in set(sys.modules) - known:
        if "my_own" in name:
            del sys.modules[name]


def commands(here: Path) -> list[str]:
    log = here / "my_own.log"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("words", [["--import", "my_own.py"], ["--import=./my_own.py"], ["--import", "my_own"]])
def test_a_method_of_ones_own(here: Path, words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["run", *RUN, "--out", "run"]) == 2
    assert "there is no algorithm 'mine'" in capsys.readouterr().err
    assert main(["run", *RUN, *words, "--out", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["algorithm"] == "mine"
    assert len(commands(here)) == 1
    assert main(["algos", *words]) == 0
    assert "a method of my own" in capsys.readouterr().out


def test_what_is_imported_is_known_before_the_other_words_are_read(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--algo", "mine", "--help", "--import", "my_own.py"]) == 0
    out = capsys.readouterr().out
    assert "random, mine (default: musbo)" in out and "mine has no settings of its own" in out


@pytest.mark.parametrize("name", verbs())
def test_every_verb_imports_first_and_says_what_is_wrong(name: str, here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "broken.py").write_text("import sys\nimport nothing_of_that_name")
    for place, why in (
        ("absent.py", "There is no file absent.py; --import takes package.module or path/to/file.py."),
        ("absent.at.all", "'absent.at.all' cannot be imported; install it or set PYTHONPATH: --import takes"),
        ("broken.py", "Loading broken.py failed: ModuleNotFoundError: No module named 'nothing_of_that_name'; correct"),
        ("broken", "Importing 'broken' failed: No module named 'nothing_of_that_name'; install what it needs"),
    ):
        assert main([name, "--import", "my_own.py", "--import", place]) == 2
        out, error = capsys.readouterr()
        assert out == "" and why in error and error.startswith("musbo: ") and error.count("\n") == 1
    assert len(commands(here)) == 1


def test_an_import_that_is_not_named(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "pointmass", "--import"]) == 2
    assert "argument --import: expected one argument" in capsys.readouterr().err


def test_the_command_to_go_on_has_the_imports(here: Path, capsys: pytest.CaptureFixture[str]):
    create(here / "run", campaign("pointmass", "random"))
    assert main(["status", "run", "--import", "my_own.py"]) == 0
    assert "go on with: musbo resume run --import my_own.py\n" in capsys.readouterr().out


def test_a_study_hands_it_on_to_every_cell_and_does_not_record_it(here: Path):
    """A relative path, to processes that could have another working directory; and again when cells are resumed."""
    out = here / "study"
    asked = ["--tasks", "pointmass", "--algos", "mine", "--seeds", "0", "1", *BUDGET]
    refused = subprocess.run(study(out, *asked), env=ENVIRONMENT, capture_output=True, text=True)
    assert refused.returncode == 2 and "there is no algorithm 'mine'" in refused.stderr and not out.exists()
    done = complete(study(out, *asked, "--import", "my_own.py"))
    assert [row["state"] for row in done["runs"]] == ["done", "done"]
    brought = f"--import {here}/my_own.py"
    assert [line.partition(" --algo")[0] for line in sorted(commands(here))[:2]] == [f"run {brought} pointmass"] * 2
    assert "my_own" not in (out / "study.json").read_text()


@pytest.mark.parametrize("where", ["here", "ray"])
def test_a_cell_that_is_resumed_imports_too(here: Path, where: str):
    """As a process of this machine, and as a worker of a cluster starts it; one that was begun elsewhere."""
    asked = parse({"tasks": ["pointmass"], "algos": ["random"], "budgets": {"pointmass": [1, 100]}})
    (one,) = cells(asked)
    create(here / one.folder, campaign("pointmass", "random", budget=1, batch_size=100, episodes=1))
    imports = [str(here / "my_own.py"), "json"]
    if where == "ray":
        assert on_ray.perform(asked, str(here), one, imports) == 0
    else:
        words = cell.command([], here / one.folder, one.words(here, ()), imports)
        subprocess.run(words, env=ENVIRONMENT, check=True, capture_output=True)
    assert read_status(here / one.folder).finished
    assert commands(here) == [f"resume --import {here}/my_own.py --import json {here / one.folder} --trust-task"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"settings": ["--import", "my_own.py"]},
        {"settings": ["--import=my_own.py"]},
        {"tasks": ["--import=my_own.py"]},
        {"algos": ["random"], "variants": {"other": {"algo": "--import=my_own.py"}}},
        {"variants": {"other": {"algo": "random", "settings": ["--import", "my_own.py"]}}},
    ],
)
def test_no_file_chooses_what_is_imported(here: Path, wrong: dict, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(UserError, match="--import among its words"):
        parse({"tasks": ["pointmass"], "algos": ["random"], **wrong})
    assert commands(here) == []


def test_nor_does_a_record_that_somebody_has_changed(here: Path, capsys: pytest.CaptureFixture[str]):
    complete(study(here / "study", "--tasks", "pointmass", "--algos", "random", *BUDGET))
    record = here / "study" / "study.json"
    changed = record.read_text().replace('"--episodes"', f'"--import={here}/my_own.py", "--episodes"')
    assert changed != record.read_text()
    record.write_text(changed)
    assert main(["study", "--out", "study"]) == 2
    assert "not what its digest says" in capsys.readouterr().err
    tree = json.loads(changed)["study"]
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()  # as whoever changed it could
    record.write_text(json.dumps({**json.loads(changed), "sha256": digest}))
    assert main(["study", "--out", "study"]) == 2
    assert "--import among its words" in capsys.readouterr().err and commands(here) == []
