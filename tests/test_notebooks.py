"""The tutorials run. In short with the smallest method, all in one process; in long as notebooks, as they are."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import musbo
from tests.stories import tiny
from tests.test_site import load

ROOT = Path(__file__).parents[1]
NOTEBOOKS: dict[Path, str] = load("notebooks").notebooks()


def code(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def test_the_notebooks_are_those_of_the_tutorials():
    """If not: python docs/_site/notebooks.py"""
    assert len(NOTEBOOKS) >= 4
    assert {path: path.read_text() for path in (ROOT / "examples").glob("*.ipynb")} == NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_block_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[musbo.Result | musbo.Campaign] = []

    def run(task: str | musbo.Task, **settings: Any) -> musbo.Result:
        simulated = isinstance(task, str) or task.simulator is not None
        small: dict[str, Any] = {"batch_size": 400, "episodes": 2} if simulated else {}
        made.append(result := whole(task, **{**settings, **small, "method": tiny.method()}))
        return result

    def new(task: musbo.Task, **settings: Any) -> musbo.Campaign:
        made.append(campaign := begin(task, **{**settings, "method": tiny.method()}))
        return campaign

    whole, begin = musbo.run, musbo.Campaign.new
    monkeypatch.setattr(musbo, "run", run, raising=False)
    monkeypatch.setattr(musbo.Campaign, "new", new)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a block may add the folder of a bundle, whose runtime is loaded
    monkeypatch.delitem(sys.modules, "runtime", raising=False)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    for block in code(path.read_text()):
        exec(block, names)
    assert len(made) == 1 and made[0].folder.exists()
    assert all(each.next.verb == "done" for each in made if isinstance(each, musbo.Campaign))


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_as_it_is(path: Path, tmp_path: Path):
    pytest.importorskip("nbclient")
    words = [sys.executable, "-m", "jupyter", "execute", str(path), "--output", str(tmp_path / path.name)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    subprocess.run(words, cwd=tmp_path, env=env, check=True, capture_output=True)
    cells = json.loads((tmp_path / path.name).read_text())["cells"]
    ran = [cell for cell in cells if cell["cell_type"] == "code"]
    assert ran and all(cell["execution_count"] for cell in ran)
