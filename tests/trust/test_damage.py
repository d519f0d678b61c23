"""Damaged files: refused in one sentence or read as they were, quickly, and never as something else."""

import collections
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import musbo
from musbo.campaign import api
from musbo.cli import main
from musbo.cluster.study import load
from musbo.core import serial
from musbo.core.errors import UserError
from musbo.data.files import batch_bytes, batch_from_bytes, read_batch
from tests.contract.test_recipes import awkward
from tests.trust import damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    damage.make(folder := tmp_path_factory.mktemp("whole"))
    return folder


def outcomes(whole: Path, place: Path, kind: str, hurt: Callable, seed: int, count: int) -> collections.Counter[str]:
    shutil.copytree(whole, place / "copy")
    found: collections.Counter[str] = collections.Counter()
    for outcome, seconds in damage.damaged(whole, place / "copy", kind, hurt, seed, count):
        found[outcome] += 1
        assert seconds < damage.SLOWEST, f"{kind}: {seconds:.1f} s"
    print(kind, hurt.__name__, dict(found))
    wrong = [text for text in found if text not in ("same", "refused")]
    assert not wrong, f"{sum(found[text] for text in wrong)} of {count}: {wrong[:5]}"
    return found


@pytest.mark.parametrize("kind", damage.READERS)
@pytest.mark.parametrize("hurt", [damage.flip, damage.mangle], ids=["flip", "mangle"])
def test_damage(whole: Path, tmp_path: Path, kind: str, hurt: Callable):
    found = outcomes(whole, tmp_path, kind, hurt, seed=0, count=40)
    if kind in ("policy", "batch", "store", "study") and hurt is damage.flip:
        assert found["refused"] >= 20  # most of a file means something


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


@pytest.mark.long
@pytest.mark.parametrize("kind", damage.READERS)
@pytest.mark.parametrize(("hurt", "count"), [(damage.flip, 300), (damage.mangle, 1450)], ids=["flip", "mangle"])
def test_much_damage(whole: Path, tmp_path: Path, kind: str, hurt: Callable, count: int):
    """In all 2,100 flipped bits and 10,150 other kinds of damage."""
    outcomes(whole, tmp_path, kind, hurt, seed=1, count=count)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1_500_000  # kilobytes, JAX's own half included


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


def test_columns_that_are_ignored_are_not_decoded():
    batch = awkward("one episode")
    table = pq.read_table(pa.BufferReader(batch_bytes(batch))).replace_schema_metadata(None)
    table = table.append_column("note", pa.array(["x" * 1_000_000] * len(table)))  # 200 MB in a few kB
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    small = sink.getvalue().to_pybytes()
    assert len(small) < 200_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = batch_from_bytes(small)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes
    np.testing.assert_array_equal(read.obs, batch.obs)


def test_a_small_file_of_very_many_numbers_is_refused():
    n = 8_000_000
    zeros = pa.array(np.zeros(n, np.float32))
    flags = pa.array(np.zeros(n, bool))
    data = parquet(obs_0=zeros, act_0=zeros, reward=zeros, next_obs_0=zeros, terminated=flags, truncated=flags)
    assert len(data) < 400_000
    with pytest.raises(UserError, match="which stand for 48,000,000 numbers; musbo takes at most 20,000,000"):
        batch_from_bytes(data, "zeros.parquet")


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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert main(["study", str(tmp_path / "odd.toml"), "--out", str(tmp_path / "study")]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


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
