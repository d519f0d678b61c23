"""The verbs: each is found, has all that a verb has, and its help works and is quick."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import musbo
from musbo import cli
from musbo.algorithms import recipes
from musbo.campaign import flags
from musbo.campaign.folders import create
from musbo.campaign.settings import campaign
from musbo.cli import Verb, main, parser_of, verbs

SRC = Path(musbo.__file__).parents[1]
HELLO = '''
"""Says hello."""
ORDER = 15
HELP = "Say hello."
EXAMPLES = """
  musbo hello-there Ada   to somebody
"""
def arguments(parser):
    parser.add_argument("name")
def action(arguments):
    print("hello", arguments.name, *arguments.imports)
    return 3
'''


def test_a_file_is_a_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """One new file, and nothing else: it can be called, and help has it in its place."""
    before = list(verbs())
    (tmp_path / "hello_there.py").write_text(HELLO)
    (tmp_path / "_shared.py").write_text("raise AssertionError('no verb')")
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    assert list(verbs()) == [before[0], "hello-there", *before[1:]]
    assert main(["hello-there", "Ada"]) == 3
    assert capsys.readouterr().out == "hello Ada\n"
    assert main(["--help"]) == 0
    assert "hello-there" in capsys.readouterr().out
    assert main(["hello-there", "--help"]) == 0
    assert "examples:\n  musbo hello-there Ada   to somebody" in capsys.readouterr().out


def test_the_verb_of_the_page_about_verbs_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page = (SRC.parent / "docs" / "how-to" / "add-a-verb.md").read_text()
    (text,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "where.py").write_text(text)
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    create(tmp_path / "run", campaign("pointmass", "random"))
    assert main(["where", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'run' / 'policy.safetensors'}\n"
    assert main(["where", str(tmp_path)]) == 2


def test_help_begins_with_run(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f"\n    {name} ") for name in verbs()]
    assert places == sorted(places) and next(iter(verbs())) == "run"
    assert "examples:\n  musbo " in out


@pytest.mark.parametrize(("name", "verb"), verbs().items(), ids=list(verbs()))
def test_a_verb_has_all_that_a_verb_has(name: str, verb: Verb, capsys: pytest.CaptureFixture[str]):
    assert isinstance(verb, Verb) and verb.__doc__
    assert verb.HELP.endswith(".") and "\n" not in verb.HELP and len(verb.HELP) < 80
    assert all(line.startswith("  musbo ") for line in verb.EXAMPLES.partition("\n\n")[0].strip("\n").splitlines())
    for word in ("-h", "--help"):
        assert main([name, word]) == 0
        out = capsys.readouterr().out
        assert verb.HELP in out and "examples:\n  musbo " in out and "--import MODULE" in out


def test_no_two_verbs_have_the_same_place():
    assert len({verb.ORDER for verb in verbs().values()}) == len(verbs())


@pytest.mark.parametrize("name", verbs())
def test_a_word_that_means_nothing_is_refused_by_every_verb(name: str, capsys: pytest.CaptureFixture[str]):
    parser = parser_of(name, verbs()[name])
    needed = ["x" for action in parser._actions if not action.option_strings and action.nargs != "?"]
    assert main([name, *needed, "--imports", "x"]) == 2
    error = capsys.readouterr().err
    assert "the flag --imports means nothing here. Did you mean --import" in error
    assert f"`musbo {name} --help` lists every flag" in error and "Traceback" not in error


def test_a_verb_that_is_not_there_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]):
    assert main(["fly"]) == 2
    error = capsys.readouterr().err
    assert "'fly'" in error and all(name in error for name in verbs())
    assert main([]) == 2 and "COMMAND" in capsys.readouterr().err


def test_help_depends_on_words_before_and_behind_it(capsys: pytest.CaptureFixture[str]):
    for words in (["--help", "--algo", "sac"], ["--algo", "sac", "-h"]):
        assert main(["run", "pointmass", *words]) == 0
        out = capsys.readouterr().out
        assert "settings of sac, with the defaults of preset quick on pointmass" in out and "  --soft. " in out
    for words in (["--help-all", "--algo", "sac"], ["--algo", "sac", "--help-all"]):
        assert main(["run", "pointmass", *words]) == 0
        assert "--soft.batch" in capsys.readouterr().out
    assert main(["run", "--algo", "sca", "--help"]) == 2
    assert "there is no algorithm 'sca'" in capsys.readouterr().err


@pytest.mark.parametrize("algo", recipes.ALGORITHMS)
def test_help_of_run_fits_two_screens(algo: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Every setting is named, and `--help-all` says what it does; neither says twice what `-h` is."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["run", "hopper", "--algo", algo, "--help"]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 100
    assert main(["run", "hopper", "--algo", algo, "--help-all"]) == 0
    full = capsys.readouterr().out
    assert [text.count("-h, --help") for text in (short, full)] == [1, 1]
    for name, _ in flags.flat(recipes.recipe(algo, "fast", "hopper")):
        own = name.rpartition(".")[2].replace("_", "-")
        assert own in short and f"--{name.replace('_', '-')}" in full


def test_help_and_the_version_import_nothing_slow():
    """Of no verb but those whose help shows every setting of a method."""
    slow = ("jax", "numpy", "rich", "pyarrow", "tyro", "musbo.reporting", "musbo.cluster")
    quick = [[], ["--version"], *([name] for name, verb in verbs().items() if name not in ("run", "new", "study"))]
    code = f"""if True:
        import sys
        from musbo.cli import main
        for words in {quick}:
            assert main([*words, "--help"] if "--version" not in words else words) == 0
            assert not set({slow}) & set(sys.modules), (words, set({slow}) & set(sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("examples:") == len(quick) - 1


def test_a_name_that_is_no_whole_text_is_shown(tmp_path: Path):
    """A file name of bytes that are not UTF-8, as other systems write them: a sentence, and no exception of print."""
    strange = os.fsencode(tmp_path) + b"/caf\xe9.parquet"
    done = subprocess.run(
        [sys.executable.encode(), b"-m", b"musbo", b"verify", strange], capture_output=True, check=False
    )
    assert done.returncode == 2 and b"Traceback" not in done.stderr
    assert b"caf\\udce9" in done.stdout + done.stderr
