"""What a user can get wrong: one clear sentence, exit code 2, no traceback, and nothing written."""

from pathlib import Path

import numpy as np
import pytest

from musbo.cli import main
from musbo.data.batch import make_batch
from musbo.data.files import write_batch

TASK = """
from dataclasses import replace
from musbo.tasks.builtin import pointmass

LOGS = replace(pointmass, name="logs", simulator=None)
NUMBER = 3
"""


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says when it refuses."""
    try:
        code = main(words)
    except SystemExit as left:  # argparse and tyro leave by themselves
        code = left.code
    out, error = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert error.strip() and "Traceback" not in error
    return " ".join(error.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("pendulumm", "There is no task 'pendulumm'. Did you mean pendulum or Pendulum-v1?"),
        ("nowhere.py:TASK", "nowhere.py; a task of your own is named as path/to/file.py:NAME"),
        ("nowhere.at.all:TASK", "cannot be imported"),
        ("pointmass --algo musboo", "there is no algorithm 'musboo': choose one of musbo,"),
        ("pointmass --preset slow", "argument --preset: invalid choice: 'slow'"),
        ("pointmass --budget 0", "a campaign needs a budget of at least 1 deployment, not 0"),
        ("pointmass --budget -3", "a campaign needs a budget of at least 1 deployment, not -3"),
        ("pointmass --batch-size 0", "a batch needs at least 2 transitions"),
        ("pointmass --batch-size 1", "a batch needs at least 2 transitions"),
        ("pointmass --episodes 0", "evaluation needs at least 1 episode"),
        ("pointmass --seed -1", "the seed must be at least 0"),
        ("pointmass --seed 4294967296", "the seed must be at least 0 and below 4294967296"),
        ("pointmass --seed one", "argument --seed: invalid int value: 'one'"),
        ("pointmass --label.alpha -1", "alpha must be at least 0 or auto, not -1.0"),
        ("pointmass --label.alpha much", "--label.alpha"),
        ("pointmass --imagine.horizon 0", "a horizon H of at least 1"),
        ("pointmass --imagine.rollouts 0", "imagination needs at least 1 rollout"),
        ("pointmass --updates 0", "updates (L) must be at least 1"),
        ("pointmass --trpo.delta 0", "delta must be above 0"),
        ("pointmass --labeler.members 1", "the labeler needs at least 2 members (K)"),
        ("pointmass --explore.zeta-max None", "zeta_scale relative needs a zeta_max"),
        ("pointmass --label doubt", "argument --label: invalid choice: 'doubt'"),
        ("pointmass --alpha 1", "the flag --alpha means nothing here. Did you mean --label.alpha?"),
        ("pointmass --sed 1", "the flag --sed means nothing here. Did you mean --seed"),
        ("pointmass hopper", "the word hopper means nothing here"),
        ("pointmass --algo bremen --label.alpha 1", "--label.alpha is a setting of --label disagreement"),
        ("pointmass --data nowhere.parquet", "nowhere.parquet cannot be read"),
        ("pointmass --checkpoint-seconds -1", "argument --checkpoint-seconds: must be at least 0"),
    ],
)
def test_run_refuses(words, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(["run", *words.split(), "--out", "run"], capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(TASK)
    return tmp_path / "own.py"


def logs(path: Path, **changes: np.ndarray) -> str:
    """Two episodes of ten steps, in a file."""
    rng = np.random.default_rng(0)
    columns = {
        "obs": rng.normal(size=(20, 4)),
        "act": rng.uniform(-1, 1, size=(20, 2)),
        "reward": rng.normal(size=20),
        "next_obs": rng.normal(size=(20, 4)),
        "terminated": np.zeros(20, bool),
        "truncated": np.arange(20) % 10 == 9,
    }
    write_batch(path, make_batch(**(columns | changes)))
    return str(path)


def test_bad_data_are_refused_whole(tmp_path, capsys):
    wrong = np.zeros((20, 4))
    wrong[7, 2] = np.nan
    path = logs(tmp_path / "nan.parquet", obs=wrong)
    said = refused(["run", "pointmass", "--data", path, "--out", str(tmp_path / "run")], capsys)
    assert "nan.parquet" in said and "obs_2 is not a finite number in row 7" in said
    path = logs(tmp_path / "wide.parquet", act=np.full((20, 2), 3.0))
    said = refused(["run", "pointmass", "--data", path, "--out", str(tmp_path / "run")], capsys)
    assert "act_0 lies outside [-1, 1]" in said
    path = logs(tmp_path / "size.parquet", act=np.zeros((20, 3)))
    refused(["run", "pointmass", "--data", path, "--out", str(tmp_path / "run")], capsys)
    (tmp_path / "text.parquet").write_text("obs_0,obs_1\n1,2\n")
    said = refused(
        ["run", "pointmass", "--data", str(tmp_path / "text.parquet"), "--out", str(tmp_path / "run")], capsys
    )
    assert "is not a readable Parquet file" in said
    assert not (tmp_path / "run").exists()


def test_more_batches_than_deployments(tmp_path, capsys):
    path = logs(tmp_path / "logs.parquet")
    words = ["run", "pointmass", "--data", path, path, "--budget", "1", "--out", str(tmp_path / "run")]
    assert "2 batches were given for a budget of 1" in refused(words, capsys)


def test_a_task_of_ones_own_that_is_none(task_file, tmp_path, capsys):
    out = ["--out", str(tmp_path / "run")]
    assert "it must be a musbo Task" in refused(["run", f"{task_file}:NUMBER", *out], capsys)
    assert "the tasks in it are: pointmass, LOGS" in refused(["run", f"{task_file}:NOTHING", *out], capsys)


def test_no_reset_distribution_to_imagine_from(task_file, tmp_path, capsys):
    task_file.write_text(TASK + "NO_RESET = replace(pointmass, name='plain', initial=None)\n")
    words = ["run", f"{task_file}:NO_RESET", "--imagine.starts", "reset", "--out", str(tmp_path / "run")]
    assert "task 'plain' has no reset distribution" in refused(words, capsys)
    assert not (tmp_path / "run").exists()


def test_no_simulator_and_not_enough_data(task_file, tmp_path, capsys):
    words = ["run", f"{task_file}:LOGS", "--budget", "2", "--out", str(tmp_path / "run")]
    said = refused([*words, "--data", logs(tmp_path / "logs.parquet")], capsys)
    assert "1 of 2 deployments would have to be collected here, but task logs has no simulator" in said
    assert "Bring a batch for each with --data" in said
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_left_alone(tmp_path, capsys):
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter.tex").write_text("years of work")
    assert "is not empty" in refused(["run", "pointmass", "--out", str(thesis)], capsys)
    assert [path.name for path in thesis.iterdir()] == ["chapter.tex"]
    assert (thesis / "chapter.tex").read_text() == "years of work"
    assert "is a file" in refused(["run", "pointmass", "--out", str(thesis / "chapter.tex")], capsys)


def test_a_folder_with_another_run_is_left_alone(tmp_path, capsys):
    from musbo.campaign import folders
    from tests.stories import tiny

    folders.create(tmp_path / "run", tiny.settings())
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    said = refused(["run", "pointmass", "--seed", "1", "--out", str(tmp_path / "run")], capsys)
    assert "already holds a run: continue it with `musbo resume" in said
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize("command", ["resume", "status", "evaluate", "play"])
def test_where_no_run_is(command, tmp_path, capsys):
    assert "holds no run" in refused([command, str(tmp_path)], capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_policy_yet(tmp_path, capsys):
    from musbo.campaign import folders
    from tests.stories import tiny

    folders.create(tmp_path / "run", tiny.settings())
    for command in ("evaluate", "play"):
        assert "has no trained policy yet" in refused([command, str(tmp_path / "run")], capsys)
    assert "end its name in .gif or .mp4" in refused(
        ["play", str(tmp_path / "run"), "--out", str(tmp_path / "film.txt")], capsys
    )


@pytest.mark.parametrize("words", [[], ["fly"], ["status"], ["tasks", "--what"]])
def test_words_that_are_no_command(words, capsys):
    assert "musbo" in refused(words, capsys)
