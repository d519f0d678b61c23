"""Damaged files: refused in one sentence or read as they were, quickly, and never as something else."""

import collections
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

import musbo
from musbo.campaign import api
from musbo.cli import main
from musbo.cluster.study import load, recorded
from musbo.core import serial
from musbo.core.errors import UserError
from musbo.data.files import batch_bytes, batch_from_bytes, read_batch
from tests.contract.test_recipes import awkward
from tests.trust import damage

PLACES = [Path(musbo.__file__).parents[1], Path(__file__).parents[2]]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, PLACES))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    damage.make(folder := tmp_path_factory.mktemp("whole"))
    return folder


def examine(whole: Path, place: Path, seed: int, flips: int, mangles: int, *kinds: str) -> list[dict[str, Any]]:
    """Damage files of these kinds and read them, in a process of its own."""
    words = ["-m", "tests.trust.damage", str(whole), str(place / "copy"), *map(str, (seed, flips, mangles)), *kinds]
    done = subprocess.run(
        [sys.executable, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=30 + damage.SLOWEST * flips
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [sum(row["found"].values()) for row in rows] == [flips, mangles] * len(kinds)
    for row in rows:
        wrong = [text for text in row["found"] if text not in ("same", "refused")]
        assert not wrong, f"{len(wrong)}: {wrong[:5]}"
        assert row["slowest"] < damage.SLOWEST, row
        assert row["peak"] is None or row["peak"] < damage.LARGEST, row
    return rows


def test_damage(whole: Path, tmp_path: Path):
    for row in examine(whole, tmp_path, 0, 40, 40, *damage.READERS):
        if row["kind"] in ("policy", "batch", "store", "study") and row["hurt"] == "flip":
            assert row["found"]["refused"] >= 20  # most of a file means something


@pytest.mark.long
@pytest.mark.parametrize("kind", damage.READERS)
def test_much_damage(whole: Path, tmp_path: Path, kind: str):
    """In all 2,100 flipped bits and 10,150 other kinds of damage."""
    examine(whole, tmp_path, 1, 300, 1450, kind)


def test_a_damaged_file_of_a_study_is_a_study_or_a_sentence(whole: Path, tmp_path: Path):
    """People write it, so it has no digest: another digit is another study."""
    data, kinds = (whole / "mine.toml").read_bytes(), collections.Counter()
    for number in range(200):
        (tmp_path / "mine.toml").write_bytes(damage.mangle(data, random.Random(number)))
        try:
            kinds[type(load(str(tmp_path / "mine.toml"))).__name__] += 1
        except UserError:
            kinds["refused"] += 1
    assert set(kinds) == {"Study", "refused"}


# What was found by hand


def test_a_policy_refuses_weights_and_observations_that_are_no_numbers(whole: Path, tmp_path: Path):
    policy = serial.load(whole / "run" / "policy.safetensors")
    leaves, form = jax.tree.flatten(eqx.filter(policy, eqx.is_inexact_array))
    broken = eqx.combine(jax.tree.unflatten(form, [leaf * np.float32("nan") for leaf in leaves]), policy)
    serial.save(tmp_path / "nan.safetensors", broken)
    with pytest.raises(UserError, match="weights that are not finite"):
        api.load_policy(tmp_path / "nan.safetensors")
    sound = api.load_policy(whole / "run" / "policy.safetensors")
    for wrong in ([0, np.nan, 0, 0], [[0, 0, 0, 0], [0, 0, np.inf, 0]]):
        with pytest.raises(UserError, match="is not a finite number"):
            sound(wrong)
    with pytest.raises(UserError, match="takes numbers"):
        sound(["a", "b", "c", "d"])


def test_a_policy_whose_arrays_do_not_fit_together_is_refused(whole: Path, tmp_path: Path):
    policy = serial.load(whole / "run" / "policy.safetensors")
    arrays, rest = eqx.partition(policy, lambda leaf: eqx.is_array(leaf) and leaf.ndim == 2)
    turned = eqx.combine(jax.tree.map(lambda leaf: leaf.T, arrays), rest)
    serial.save(tmp_path / "turned.safetensors", turned)
    with pytest.raises(UserError, match="do not fit together"):
        api.load_policy(tmp_path / "turned.safetensors")


def parquet(**columns: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def zeros(n: int) -> bytes:
    """A batch of zeros: a few hundred bytes for every million of them."""
    numbers, flags = pa.array(np.zeros(n)), pa.array(np.zeros(n, bool))
    return parquet(obs_0=numbers, act_0=numbers, reward=numbers, next_obs_0=numbers, terminated=flags, truncated=flags)


def test_a_small_file_of_very_many_numbers_is_refused():
    assert len(data := zeros(8_000_000)) < 400_000
    with pytest.raises(UserError, match="which stand for 48,000,000 numbers; musbo takes at most 20,000,000"):
        batch_from_bytes(data, "zeros.parquet")


READ = """
import sys
from pathlib import Path
from musbo.cluster.study import load
from musbo.core.errors import UserError
from musbo.data.files import read_batch
from tests.trust.damage import peak

print("begin", "nothing", peak())
for place in sys.argv[1:]:
    try:
        found = load(place) if place.endswith("toml") else len(read_batch(place))
        print(Path(place).stem, type(found).__name__, peak())
    except UserError:
        print(Path(place).stem, "refused", peak())
"""


def test_small_files_that_stand_for_much_take_no_gigabyte(tmp_path: Path):
    """Columns that are ignored are not decoded, and what would fill the memory is refused before it does."""
    batch = awkward("one episode")
    table = pq.read_table(pa.BufferReader(batch_bytes(batch))).replace_schema_metadata(None)
    table = table.append_column("note", pa.array(["x" * 1_000_000] * len(table)))  # 200 MB in a few kB
    pq.write_table(table, tmp_path / "ignored.parquet", compression="zstd")
    (tmp_path / "many.parquet").write_bytes(zeros(3_333_333))  # as many numbers as are taken
    (tmp_path / "dots.toml").write_text("a." * 20_000 + "a = 1")
    (tmp_path / "quoted.toml").write_text('"a".' * 20_000 + "a = 1")
    (tmp_path / "long.toml").write_text("k" * 400_000 + " = 1")  # to be read once, not once from every letter
    names = ("ignored.parquet", "many.parquet", "dots.toml", "quoted.toml", "long.toml")
    places = [tmp_path / name for name in names]
    assert all(path.stat().st_size < 1_500_000 for path in places)
    command = [sys.executable, "-c", READ, *map(str, places)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    rows = [line.split() for line in done.stdout.splitlines()]
    found = {name: outcome for name, outcome, _ in rows}
    wanted = ["nothing", "int", "int", "refused", "refused", "refused"]
    assert found == dict(zip(["begin", *(path.stem for path in places)], wanted, strict=True)), done
    if rows[0][2] != "None":
        kilobytes = [int(row[2]) for row in rows]
        assert kilobytes[1] - kilobytes[0] < 100_000 and max(kilobytes) < damage.LARGEST, rows


def test_headers_that_nobody_wrote(whole: Path, tmp_path: Path):
    """A version without end, and brackets without end, in every file that says what it is."""
    table = pq.read_table(whole / "run" / "data" / "deployment-1.parquet")
    sound = json.loads((whole / "study" / "study.json").read_text())
    odd = ['{"format": "%s", "version": 1e999}', '{"format": "%s", "version": "q"}', "[" * 100_000, "3"]
    for text in odd:
        pq.write_table(table.replace_schema_metadata({b"musbo": text.replace("%s", "musbo-batch")}), tmp_path / "odd")
        with pytest.raises(UserError, match="header"):
            read_batch(tmp_path / "odd")
        named = {"musbo": text.replace("%s", "musbo-tree")}
        (tmp_path / "odd").write_bytes(safetensors.numpy.save({"a": np.zeros(2)}, named))
        with pytest.raises(UserError):
            api.load_policy(tmp_path / "odd")
        (tmp_path / "study.json").write_text(text.replace("%s", sound["format"]))
        with pytest.raises(UserError):
            recorded(tmp_path)
        (tmp_path / "page").mkdir(exist_ok=True)
        (tmp_path / "page" / "report.json").write_text(text)
        with pytest.raises(UserError, match="report.json"):
            musbo.report(whole / "run", out=tmp_path / "page", film=False)


def test_a_column_name_that_is_no_text_is_a_sentence(tmp_path: Path):
    data = parquet(**{"obs_0": [0.0], "q\u00e9\u00e9\u00e9q": [1.0]})
    (tmp_path / "odd.parquet").write_bytes(data.replace("q\u00e9\u00e9\u00e9q".encode(), b"q\xff\xfe\xff\xfe\xff\xfeq"))
    with pytest.raises(UserError):
        read_batch(tmp_path / "odd.parquet")


@pytest.mark.parametrize(
    "text",
    [
        "a." * 20_000 + "a = 1",
        "tasks = " + "[" * 100_000,
        "seeds = [" + "9" * 5000 + "]",
        'tasks = ["a\\u0000b.py:T"]\nalgos = ["random"]',
        "tasks = [" + "{a = " * 5000,
        '"' + "k" * 40_000 + '" = 1',
    ],
    ids=["dotted key", "brackets", "digits", "nul", "tables", "long key"],
)
def test_a_study_that_nobody_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str):
    (tmp_path / "odd.toml").write_text(text)
    assert main(["study", str(tmp_path / "odd.toml"), "--out", str(tmp_path / "study")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_paths_and_numbers_that_nobody_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "pointmass", "--seed", "9" * 5000, "--out", str(tmp_path / "run")]) == 2
    for act in (
        lambda: musbo.load_policy("a\0b"),
        lambda: musbo.run("pointmass", out="a\0b", algo="random", preset="quick"),
        lambda: musbo.run("a\0b.py:T", out=tmp_path / "x"),
        lambda: musbo.resume("a\0b"),
        lambda: musbo.evaluate("a\0b"),
        lambda: musbo.report("a\0b"),
        lambda: musbo.run("pointmass", data=["a\0b"], out=tmp_path / "x"),
        lambda: load("a\0b.toml"),
    ):
        with pytest.raises(UserError):
            act()
    assert list(tmp_path.iterdir()) == []


def test_verify_names_what_is_damaged(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(whole / "run", run := tmp_path / "run")
    assert main(["verify", str(run)]) == 0 and "sound" in capsys.readouterr().out
    policy = run / "policy.safetensors"
    policy.write_bytes(policy.read_bytes()[:-1] + b"\0")
    assert main(["verify", str(run)]) == 2
    assert "policy.safetensors is not what this run wrote" in capsys.readouterr().out
    victim = next(path for path in (run / "store").iterdir() if path.suffix == ".parquet")
    victim.unlink()
    assert main(["verify", str(run), "--json"]) == 2
    assert victim.name in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "nothing")]) == 2
