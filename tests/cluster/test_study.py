"""What a study is: its cells, its files, and what may be added to it later."""

import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from musbo.algorithms.recipes import ALGORITHMS, PRESETS, Preset, scale
from musbo.cluster.study import VERSION, Study, Variant, cells, load, merge, parse, ready, record, recorded, to_toml
from musbo.core.errors import UserError
from musbo.tasks.find import TASKS

SMALL = parse({"tasks": ["pendulum", "pointmass"], "algos": ["musbo", "bremen"], "seeds": [0, 1]})
FILE = """
tasks = ["halfcheetah", "hopper"]
algos = ["bremen"]
seeds = [3, 4]
preset = "fast"
settings = ["--episodes", 10]

[budgets]
halfcheetah = [[5, 50_000], [5, 100_000]]

[variants.musbo-hot]
algo = "musbo"
settings = ["--label.alpha", "0.1"]
"""


def test_one_seed_of_everything_before_the_second():
    found = cells(SMALL)
    assert [cell.seed for cell in found] == [0] * 4 + [1] * 4
    assert {(cell.task, cell.method.name) for cell in found[:4]} == {
        (task, algo) for task in ("pendulum", "pointmass") for algo in ("musbo", "bremen")
    }
    assert len({cell.folder for cell in found}) == 8
    assert [(c.budget, c.batch_size, c.preset) for c in found[:1]] == [(4, 400, "quick")]  # the task's own


def test_a_file(tmp_path: Path):
    (tmp_path / "mine.toml").write_text(FILE)
    study = load(str(tmp_path / "mine.toml"))
    hot = Variant("musbo-hot", "musbo", ("--label.alpha", "0.1"))
    assert study.methods == (Variant("bremen", "bremen"), hot)
    of_three = [cell for cell in cells(study) if cell.seed == 3]
    assert [(c.task, c.budget, c.batch_size) for c in of_three if c.method != hot] == [
        ("halfcheetah", 5, 50_000),
        ("halfcheetah", 5, 100_000),
        ("hopper", 10, 25_000),
    ]
    words = next(c for c in of_three if c.method == hot).words(Path("out"), study.settings)
    assert " ".join(words) == (
        "run halfcheetah --algo musbo --preset fast --seed 3 --budget 5 --batch-size 50000 "
        "--out out/halfcheetah-musbo-hot-5x50000-s3 --episodes 10 --label.alpha 0.1"
    )


@pytest.mark.parametrize("name", ready())
def test_the_ready_studies_are_the_papers(name: str):
    study = load(name)
    assert set(study.tasks) <= set(TASKS) and {m.algo for m in study.methods} <= set(ALGORITHMS)
    assert ready()[name]
    preset: Preset = study.preset  # type: ignore[assignment]
    assert preset == name.rpartition("-")[2]
    total = 250_000 if "250k" in name or (name == "novelty-fast") else 500_000
    assert {cell.budget * cell.batch_size for cell in cells(study)} == {total}
    halved_or_doubled = name in ("figure-250k-paper", "figure-500k-fast", "ablation-fast")
    for cell in cells(study):
        usual = scale(preset, cell.task)
        assert cell.budget == usual.budget
        assert halved_or_doubled or cell.batch_size == usual.batch_size
    for other in PRESETS:  # the name says the size, whichever preset it is run with
        sizes = [(cell.row, cell.seed) for cell in cells(replace(study, preset=other))]
        assert sizes == [(cell.row, cell.seed) for cell in cells(study)]
    if preset == "paper":
        assert len(study.seeds) == 5  # "averaged over 5 random seeds"


@pytest.mark.parametrize("name", ready())
def test_a_study_as_a_file_is_the_same_study(name: str):
    whole = load(name)
    hot = Variant("hot", "musbo", ("--label.alpha", "0.1"))
    behind = replace(whole, methods=(hot, *whole.methods), settings=("--episodes", "3"), preset=None)
    for one in (whole, replace(whole, methods=(*whole.methods, hot)), behind):
        assert parse(tomllib.loads(to_toml(one))) == one


def test_more_of_the_same_is_added_and_anything_else_refused(tmp_path: Path):
    out = tmp_path / "study"
    assert record(out, SMALL) == SMALL == record(out, None)
    more = replace(SMALL, seeds=(1, 2), tasks=("pendulum",), methods=(Variant("sac", "sac"),))
    whole = record(out, more)
    assert whole.seeds == (0, 1, 2) and whole.tasks == SMALL.tasks
    assert [m.name for m in whole.methods] == ["musbo", "bremen", "sac"]
    assert record(out, None) == whole
    others: list[Study] = [
        replace(SMALL, preset="fast"),
        replace(SMALL, settings=("--updates", "3")),
        replace(SMALL, methods=(Variant("musbo", "musbo", ("--updates", "3")),)),
        replace(SMALL, budgets=(("pendulum", 1, 100),)),
    ]
    for other in others:
        with pytest.raises(UserError, match="another"):
            merge(whole, other)
    assert record(out, None) == whole  # nothing was overwritten


GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_golden_studies(tmp_path: Path, version: int):
    """A study's file and its records say what they said; `tests/golden/make_study.py` made them."""
    hot = Variant("musbo-hot", "musbo", ("--label.alpha", "0.1"))
    wanted = Study(
        tasks=("pendulum", "pointmass"),
        methods=(Variant("bremen", "bremen"), hot),
        seeds=(3, 4),
        preset="fast",
        budgets=(("pointmass", 5, 100), ("pointmass", 2, 1000)),
        settings=("--episodes", "10"),
    )
    shutil.copy(GOLDEN / f"study-v{version}.json", tmp_path / "study.json")
    assert recorded(tmp_path) == wanted == load(str(GOLDEN / "study.toml"))


def test_the_presets_budget_written_out_is_the_same_budget():
    usual = scale("quick", "pendulum")
    written = replace(SMALL, budgets=(("pendulum", usual.budget, usual.batch_size),))
    for one, other in ((SMALL, written), (written, SMALL)):
        assert cells(merge(one, other)) == cells(SMALL)


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(UserError, match="not empty"):
        record(tmp_path, SMALL)
    with pytest.raises(UserError, match="holds no study"):
        record(tmp_path / "nowhere", None)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_place_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nope/x"), tmp_path / "loop"):
        with pytest.raises(UserError, match=f"{out}.*choose another"):
            record(out, SMALL)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "wrong",
    [
        {"tasks": []},
        {"tasks": ["pendulum"], "algos": []},
        {"tasks": ["pendulum"], "algos": ["musbo"], "seeds": []},
        {"tasks": ["pendulum"], "algos": ["musbo"], "seeds": ["first"]},
        {"tasks": ["pendulum"], "algos": ["musbo"], "seeds": [0, -1]},
        {"tasks": ["pendulum"], "algos": ["musbo"], "seeds": [0, 0]},
        {"tasks": ["pendulum"], "algos": ["musbo"], "seeds": [0.7]},
        {"tasks": ["pendulum"], "algos": ["musbo"], "seeds": "12"},
        {"tasks": "pendulum", "algos": ["musbo"]},
        {"tasks": ["pendulum"], "algos": "musbo"},
        {"tasks": ["pendulum"], "algos": ["musbo"], "settings": "--episodes 10"},
        {"tasks": ["pendulum"], "algos": ["musbo"], "preset": "slow"},
        {"tasks": ["pendulum"], "algos": ["musbo", "musbo"]},
        {"tasks": ["pendulum"], "algos": ["musbo"], "budgets": {"hopper": [1, 2]}},
        {"tasks": ["pendulum"], "algos": ["musbo"], "budgets": {"pendulum": [1]}},
        {"tasks": ["pendulum"], "algos": ["musbo"], "methods": ["sac"]},
        {"tasks": ["a.py:T", "b.py:T"], "algos": ["musbo"]},
        {"tasks": ["pendulum"], "variants": {"hot": {"settings": []}}},
    ],
)
def test_what_is_no_study(wrong: dict[str, Any]):
    with pytest.raises(UserError):
        parse(wrong)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"variants": {"hot": {"algo": "musbo", "setting": ["--label.alpha", "1"]}}}, "variants.hot.*algo, setting:"),
        ({"variants": {"hot": {"algo": "musbo", "settings": "--updates 3"}}}, "variants.hot.*list"),
        ({"variants": {"hot": "musbo"}}, "variants.hot.*'musbo'"),
        ({"budgets": {"pendulum": [2.9, 100.7]}}, "pendulum.*whole numbers"),
        ({"budgets": {"pendulum": [[2, 100], [True, 100]]}}, "pendulum.*whole numbers"),
        ({"budgets": {"pendulum": []}}, "pendulum.*whole numbers"),
        ({"seeds": [True]}, "seed.*True"),
    ],
)
def test_what_would_be_another_study_than_was_meant(wrong: dict[str, Any], why: str):
    with pytest.raises(UserError, match=why):
        parse({"tasks": ["pendulum"], "algos": ["musbo"], **wrong})


def test_files_that_cannot_be_read(tmp_path: Path):
    (tmp_path / "broken.toml").write_text("tasks = [")
    (tmp_path / "latin.toml").write_bytes('tasks = ["état"]'.encode("latin-1"))
    for name, why in (
        ("broken.toml", "not TOML"),
        ("latin.toml", "not UTF-8"),
        ("missing.toml", "cannot read"),
        ("nothing", "there is no study"),
    ):
        with pytest.raises(UserError, match=why):
            load(str(tmp_path / name) if name.endswith("toml") else name)


@pytest.mark.parametrize("text", ["{", "5", "[]", '{"seeds": [0]}'])
def test_a_damaged_record_is_named(tmp_path: Path, text: str):
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(UserError, match="study.json .*(restore it from a copy|make or copy the file again)"):
        recorded(tmp_path)
