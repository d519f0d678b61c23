"""The shape of the code, checked: imports point one way, and nothing is ever unpickled."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
UNPICKLERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def lint_imports(src: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts in pyproject.toml against the package musbo inside ``src``."""
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()"]
        + ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "--no-logo"],
        # PYTHONSAFEPATH keeps the working directory out, so that ``src`` is the only place to find musbo in first.
        env=os.environ | {"PYTHONPATH": str(src), "PYTHONSAFEPATH": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


def test_imports_point_one_way():
    result = lint_imports(ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("core/bad.py", "import musbo.campaign", "Imports point one way"),
        ("field/bad.py", "from musbo import algorithms", "Imports point one way"),
        ("surprise/__init__.py", "", "Imports point one way"),
        ("tasks/bad.py", "def later():\n    import gymnasium.spaces", "Only musbo.field imports a simulator"),
        ("campaign/bad.py", "from matplotlib import pyplot", "Only musbo.reporting imports matplotlib"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, path: str, line: str, contract: str):
    shutil.copytree(ROOT / "src" / "musbo", tmp_path / "musbo", ignore=shutil.ignore_patterns("__pycache__"))
    bad = tmp_path / "musbo" / path
    bad.parent.mkdir(exist_ok=True)
    bad.write_text(line + "\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout


def unpickling(tree: ast.AST) -> Iterator[int]:
    """Lines that import something that can unpickle, or that let numpy do it."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if UNPICKLERS & {name.name.split(".")[0] for name in names}:
                yield node.lineno
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in UNPICKLERS:
                yield node.lineno
            case ast.keyword(arg="allow_pickle", value=value) if not (
                isinstance(value, ast.Constant) and value.value is False
            ):
                yield node.lineno


def test_nothing_is_unpickled():
    found = [f"{path.relative_to(ROOT)}:{n}" for path in SOURCES for n in unpickling(ast.parse(path.read_text()))]
    assert SOURCES
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["import os, pickle", "from pickle import loads", "import joblib.memory", "np.load(f, allow_pickle=True)"],
)
def test_unpickling_is_found(line: str):
    assert list(unpickling(ast.parse(f"if True:\n    {line}"))) == [2]
    assert list(unpickling(ast.parse("import json\nnp.load(f, allow_pickle=False)"))) == []
