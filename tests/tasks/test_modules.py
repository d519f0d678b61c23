"""Python of one's own: loaded once, and what is wrong with it is said in one sentence."""

from pathlib import Path

import pytest

from musbo.core.errors import UserError
from musbo.tasks import modules


def test_a_file_is_loaded_once_and_a_folder_may_have_another_of_its_name(tmp_path: Path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in ("a", "b"):
        (tmp_path / name / "own.py").write_text(f"WHERE = {name!r}\n")
    monkeypatch.chdir(tmp_path / "a")
    one = modules.load("own.py", "")
    assert modules.load(str(tmp_path / "a" / "own.py"), "") is one and one.WHERE == "a"
    assert modules.load("../b/own.py", "").WHERE == "b"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero; correct it"),
        ("def (", "SyntaxError"),
        ("import sys; sys.exit('no')", "SystemExit: no;"),
        ("from musbo import UserError; raise UserError('the name is taken.')", "failed: the name is taken; correct"),
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ],
)
def test_a_file_that_cannot_be_loaded(tmp_path: Path, text: str, why: str):
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(UserError, match=why) as caught:
        modules.load(str(tmp_path / "own.py"), "")
    assert str(tmp_path / "own.py") in str(caught.value)


def test_a_module_that_is_not_there_or_needs_what_is_not_there(tmp_path: Path, monkeypatch):
    (tmp_path / "needs_something.py").write_text("import nothing_of_that_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="'nowhere.at.all' cannot be imported.*PYTHONPATH: say it so."):
        modules.load("nowhere.at.all", "say it so")
    with pytest.raises(UserError, match="'needs_something' failed: No module named 'nothing_of.*install what it needs"):
        modules.load("needs_something", "")
