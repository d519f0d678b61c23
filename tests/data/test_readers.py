"""Formats of logs: the same transitions come out of each, and what is no such file is refused in a sentence."""

import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import musbo
from musbo.core.errors import UserError
from musbo.data.batch import UNKNOWN, Batch
from musbo.data.mapping import parse_mapping
from musbo.data.readers.choose import open_table
from tests.data.test_batch_files import NAMES, assert_same

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import minari
    from minari.data_collector import EpisodeBuffer

D4RL = {"obs": "observations", "act": "actions", "reward": "rewards", "next_obs": "next_observations"}
D4RL |= {"terminated": "terminals", "truncated": "timeouts"}
MAPPING = parse_mapping(
    {"obs": ["x"], "act": ["u"], "reward": "r", "next_obs": ["y"], "terminated": "end", "truncated": "cut"}, "m.toml"
)


def arrays(batch: Batch) -> dict[str, Any]:
    return {name: getattr(batch, ours) for ours, name in D4RL.items()}


def flat(batch: Batch) -> dict[str, Any]:
    """One column per number, called as MAPPING calls them."""
    columns = {f"x_{i}": column for i, column in enumerate(batch.obs.T)}
    columns |= {f"u_{i}": column for i, column in enumerate(batch.act.T)}
    columns |= {f"y_{i}": column for i, column in enumerate(batch.next_obs.T)}
    return columns | {"r": batch.reward, "end": batch.terminated, "cut": batch.truncated}


def write_csv(path: Path, batch: Batch, separator: str = ",", decimal: str = ".") -> None:
    """By hand, with as many digits as a float32 has."""
    columns = flat(batch)
    lines = [separator.join(columns)]
    for row in zip(*columns.values(), strict=True):
        words = [str(value) if value.dtype == bool else f"{value:.9g}".replace(".", decimal) for value in row]
        lines.append(separator.join(words))
    path.write_text("\n".join(lines) + "\n")


def write_hdf5(path: Path, batch: Batch) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays(batch).items():
            file.create_dataset(name, data=array, compression="gzip", shuffle=True)
        file.create_dataset("infos/qpos", data=np.zeros((3, 2)))
        file["metadata/algorithm"] = "SAC"


def of_somebody(batch: Batch) -> Batch:
    """Without what a file of others does not say: who chose the actions."""
    return replace(batch, by=np.full(len(batch), UNKNOWN, np.int8))


WRITERS: dict[str, Callable[[Path, Batch], Any]] = {
    "logs.csv": write_csv,
    "logs.tsv": lambda path, batch: write_csv(path, batch, "\t"),
    "semicolons.csv": lambda path, batch: write_csv(path, batch, ";", ","),
    "polars.csv": lambda path, batch: pl.DataFrame(flat(batch)).write_csv(path),
    "flat.parquet": lambda path, batch: pq.write_table(pa.table(flat(batch)), path),
    "plain.npz": lambda path, batch: np.savez(path, **arrays(batch)),
    "small.npz": lambda path, batch: np.savez_compressed(path, **arrays(batch)),
    "fortran.npz": lambda path, batch: np.savez(path, **{k: v.copy(order="F") for k, v in arrays(batch).items()}),
    "big.npz": lambda path, batch: np.savez(path, **{k: v.astype(">f8") for k, v in arrays(batch).items()}),
    "d4rl.hdf5": write_hdf5,
    "ours.parquet": musbo.write_batch,
}


@pytest.mark.parametrize("name", WRITERS)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 99), obs=st.integers(1, 11))
def test_there_and_back(make, tmp_path_factory, name: str, lengths: list[int], seed: int, obs: int):
    batch = make(lengths, seed, obs_size=obs)
    path = tmp_path_factory.mktemp("logs") / name
    WRITERS[name](path, batch)
    mapping = MAPPING if name.endswith(("csv", "tsv")) or name == "flat.parquet" else None
    if obs == 1 and mapping is not None:
        mapping = parse_mapping({**SINGLE, "obs": ["x_0"], "next_obs": ["y_0"]}, "m.toml")
    assert_same(musbo.read_batch(path, mapping), batch if name == "ours.parquet" else of_somebody(batch))


SINGLE = {"act": ["u"], "reward": "r", "terminated": "end", "truncated": "cut"}


def derived(batch: Batch) -> dict[str, Any]:
    """The rows of a log without next observations: an episode has one row more, of the state in which it ends."""
    rows = {name: [] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
    for i in range(len(batch)):
        last = batch.terminated[i] | batch.truncated[i]
        rows["observations"] += [batch.obs[i], *([batch.next_obs[i]] if last else [])]
        rows["actions"] += [batch.act[i], *([np.zeros(batch.act.shape[1])] if last else [])]
        rows["rewards"] += [batch.reward[i], *([0.0] if last else [])]
        rows["terminals"] += [False, *([batch.terminated[i]] if last else [])]
        rows["timeouts"] += [False, *([batch.truncated[i]] if last else [])]
    return {name: np.asarray(values) for name, values in rows.items()}


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_d4rl_dictionary_without_next_observations(make, tmp_path_factory, lengths: list[int], seed: int):
    batch = make(lengths, seed)
    np.savez(path := tmp_path_factory.mktemp("logs") / "d4rl.npz", **derived(batch))
    logs = musbo.data.read_logs(path)
    assert_same(logs.batch, of_somebody(batch))
    assert (logs.rows, logs.successors, logs.alone) == (sum(lengths) + len(lengths), len(lengths), 0)


# CSV


def csv(tmp_path: Path, text: str | bytes) -> Path:
    (tmp_path / "logs.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return tmp_path / "logs.csv"


CSV = parse_mapping({"obs": ["room temp"], "act": ["valve"], "episode": "day", "time": "clock"}, "m.toml")


@pytest.mark.parametrize(
    "text",
    [
        "day,clock,room temp,valve\n1,0,10,0.5\n1,1,11,0.25\n1,2,12.5,1\n",
        "\ufeffday, clock, room temp, valve\r\n1, 0, 10, .5\r\n1, 1, 11, .25\r\n1, 2, 12.5, 1\r\n",
        'day;clock;"room temp";valve\nA;2024-01-01 00:00:00;10;0,5\nA;2024-01-01 00:00:01;11;0,25\n'
        "A;2024-01-01 00:00:03;12,5;1\n",
        "valve\tnote\troom temp\tclock\tday\n0.25\tx\t11\t1\t1\n0.5\t\t10\t0\t1\n1\t\t12.5\t2\t1",
    ],
    ids=["plain", "Windows", "European", "tabs, other order"],
)
def test_kinds_of_csv(tmp_path: Path, text: str):
    batch = musbo.read_batch(csv(tmp_path, text), CSV)
    assert batch.obs.tolist() == [[10.0], [11.0]] and batch.next_obs.tolist() == [[11.0], [12.5]]
    assert batch.act.tolist() == [[0.5], [0.25]] and batch.truncated.tolist() == [False, True]


@pytest.mark.parametrize(("late", "wrong"), [("12.5", None), ("off", "must hold numbers")])
def test_a_csv_whose_end_shows_another_type(tmp_path: Path, late: str, wrong: str | None):
    """A file is read a part at a time, and its first megabyte holds whole numbers alone."""
    rows = "".join(f"1,{i},{i % 7},{i % 2}\n" for i in range(120_000))
    path = csv(tmp_path, f"day,clock,room temp,valve\n{rows}1,120000,{late},0\n")
    if wrong is None:
        batch = musbo.read_batch(path, CSV)
        assert (len(batch), batch.obs[8, 0], batch.next_obs[-1, 0]) == (120_000, 1.0, 12.5)
        return
    with pytest.raises(UserError, match=wrong):
        musbo.read_batch(path, CSV)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has the columns|no column"),
        ("day,clock,room temp,valve\n", None),
        ("day,clock,room temp,valve\n1,0,10\n", r"not a readable CSV file \(.*Expected 4 columns, got 3"),
        ("day,clock,room temp,valve\n1,0,10,0.5\n1,1,,0.5\n1,2,9,1\n", "room temp has 1 empty values, first in row 1"),
        ("day,clock,room temp,valve\n1,0,10,0.5\n1,1,off,0.5\n", "room temp must hold numbers.*row 1 holds 'off'"),
        ("day,clock,room temp,valve\n,0,10,0.5\nA,1,11,0.5\n", "day has 1 empty values, first in row 0"),
        ("day,clock,roomtemp,valve\n1,0,10,0.5\n", r"'room temp'.*did you mean 'roomtemp'"),
        (b"day,clock,room temp\xb0,valve\n1,0,10,0.5\n", "first line is not UTF-8"),
        ("day,clock,room temp,valve\n1,0,10,0.5\n".encode("utf-16"), "UTF-8"),
        ("a" * 1_000_001, "first line of more than 1,000,000 bytes"),
        ("," * 20_000 + "\n", "has 20,001 columns; musbo reads files of at most 10,000"),
    ],
)
def test_csv_that_cannot_be_read(tmp_path: Path, text: str | bytes, message: str | None):
    path = csv(tmp_path, text)
    if message is None:
        assert len(musbo.read_batch(path, CSV)) == 0  # the checks say that it is empty
        return
    with pytest.raises(UserError, match=message) as caught:
        musbo.read_batch(path, CSV)
    assert str(path) in str(caught.value)


# npz


def test_arrays_that_are_refused(tmp_path: Path, make):
    sound = arrays(make([5, 4]))
    for name, change, message in (
        (
            "objects",
            {"rewards": np.array([{}] * 9, object)},
            "rewards holds Python objects, and musbo unpickles nothing",
        ),
        ("text", {"rewards": np.array(["a"] * 9)}, "rewards must hold numbers, but its type is <U1"),
        ("complex", {"rewards": np.ones(9, complex)}, "rewards must hold numbers, but its type is complex128"),
        ("long", {"rewards": np.ones(9, np.longdouble)}, "rewards must hold numbers, but its type is float128"),
        ("short", {"rewards": np.ones(8)}, "must have one length, but observations has 9.* rewards has 8"),
        ("deep", {"observations": np.ones((9, 2, 2))}, r"observations has the shape \(9, 2, 2\); musbo needs one row"),
        ("scalar", {"rewards": np.float64(1)}, r"rewards has the shape \(\)"),
    ):
        np.savez(path := tmp_path / f"{name}.npz", allow_pickle=True, **(sound | change))
        with pytest.raises(UserError, match=message):
            musbo.read_batch(path)
    np.savez(path := tmp_path / "beside.npz", **sound, infos=np.array([{}], object))  # never loaded
    assert len(musbo.read_batch(path)) == 9


def test_parquet_of_text_that_is_none_and_of_lists_is_refused(tmp_path: Path, make):
    table = pa.table(flat(make([5, 4])))
    half = pa.array(["\ud800".encode("utf-8", "surrogatepass")] * 9, pa.binary()).view(pa.string())
    names = parse_mapping({"obs": ["x"], "act": ["u"], "reward": "r", "next_obs": ["y"], "episode": "e"}, "m.toml")
    for column, message in (
        (half, "is not a readable Parquet file"),
        (pa.array([[i] for i in range(9)]), "column e must hold one value in a row, but its type is list"),
        (pa.array([{"a": i} for i in range(9)]), "column e must hold one value in a row, but its type is struct"),
    ):
        pq.write_table(table.append_column("e", column), path := tmp_path / "odd.parquet")
        with pytest.raises(UserError, match=message):
            musbo.read_batch(path, names)


# HDF5


def test_hdf5_follows_no_link(tmp_path: Path, make):
    batch = make([6, 3])
    write_hdf5(tmp_path / "other.hdf5", batch)
    for kind in ("external", "soft", "virtual"):
        with h5py.File(tmp_path / f"{kind}.hdf5", "w") as file:
            for name, array in arrays(batch).items():
                if name != "rewards":
                    file[name] = array
            if kind == "external":
                file["rewards"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "rewards")
            elif kind == "soft":
                file["here"] = batch.reward
                file["rewards"] = h5py.SoftLink("/here")
            else:
                layout = h5py.VirtualLayout((9,), "f4")
                layout[:] = h5py.VirtualSource(str(tmp_path / "other.hdf5"), "rewards", (9,))
                file.create_virtual_dataset("rewards", layout)
        assert "rewards" not in open_table(tmp_path / f"{kind}.hdf5").names
        assert np.isnan(musbo.read_batch(tmp_path / f"{kind}.hdf5").reward).all()


def test_hdf5_by_a_mapping_with_groups(tmp_path: Path, make):
    batch = make([6, 3])
    with h5py.File(tmp_path / "lab.h5", "w") as file:
        file["robot/pose"], file["robot/torque"], file["run"] = batch.obs, batch.act, batch.episode
    said = {"obs": ["robot/pose"], "act": ["robot/torque"], "episode": "run"}
    found = musbo.data.read_logs(tmp_path / "lab.h5", parse_mapping(said, "m.toml"))
    np.testing.assert_array_equal(found.batch.obs, batch.obs[[0, 1, 2, 3, 4, 6, 7]])


# Minari


@pytest.fixture
def minari_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def minari_set(batch: Batch, name: str, parts: bool = False) -> Any:
    """A dataset as Minari makes it from buffers; `parts` makes the observations a dictionary."""
    box = gymnasium.spaces.Box
    width = batch.obs.shape[1]
    space = box(-np.inf, np.inf, (width,), np.float32)
    if parts:
        space = gymnasium.spaces.Dict(
            {"goal": box(-9, 9, (1,), np.float32), "arm": box(-9, 9, (width - 1,), np.float32)}
        )
    buffers = []
    for start, length in zip(batch.starts(), batch.lengths(), strict=True):
        rows = slice(start, start + length)
        seen = np.concatenate([batch.obs[rows], batch.next_obs[rows][-1:]])
        names = list(space.spaces) if isinstance(space, gymnasium.spaces.Dict) else []
        cut = {"arm": seen[:, : width - 1] if names[:1] == ["arm"] else seen[:, 1:]}
        cut["goal"] = seen[:, width - 1 :] if names[:1] == ["arm"] else seen[:, :1]
        buffers.append(
            EpisodeBuffer(
                id=len(buffers), observations=cut if parts else seen, actions=batch.act[rows],  # pyright: ignore
                rewards=list(batch.reward[rows]), terminations=list(batch.terminated[rows]),
                truncations=list(batch.truncated[rows]),
            )
        )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about authors and code that are not named
        return minari.create_dataset_from_buffers(
            name, buffers, observation_space=space, action_space=box(-1, 1, batch.act.shape[1:], np.float32)
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("parts", [False, True], ids=["vector", "dictionary"])
def test_minari(minari_home: Path, make, parts: bool):
    batch = make([5, 1, 7], obs_size=3)
    dataset = minari_set(batch, "mine/walk-v0", parts)
    for logs in (
        musbo.data.from_minari(dataset),
        musbo.data.from_minari("mine/walk-v0"),
        musbo.data.read_logs("minari:mine/walk-v0"),
    ):
        assert logs.source == "minari:mine/walk-v0" and (logs.rows, logs.successors) == (13, 0)
        for name in set(NAMES):
            np.testing.assert_array_equal(getattr(logs.batch, name), getattr(of_somebody(batch), name), err_msg=name)


@pytest.mark.filterwarnings("ignore")
def test_what_minari_does_not_have(minari_home: Path, make):
    with pytest.raises(UserError, match=r"no dataset 'pen/human-v2' on this machine \(it has none\): `minari download"):
        musbo.read_batch("minari:pen/human-v2")
    minari_set(make([3]), "mine/walk-v0")
    with pytest.raises(UserError, match=r"it has mine/walk-v0"):
        musbo.read_batch("minari:mine/walk-v1")
    steps = {"rewards": [0.0], "terminations": [True], "truncations": [False]}
    buffer = EpisodeBuffer(id=0, observations=np.zeros((2, 1), np.float32), actions=np.zeros(1, int), **steps)  # pyright: ignore
    box, few = gymnasium.spaces.Box(-1, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)
    minari.create_dataset_from_buffers("mine/keys-v0", [buffer], observation_space=box, action_space=few)
    with pytest.raises(UserError, match=r"actions is Discrete\(2\); musbo needs vectors of continuous numbers"):
        musbo.read_batch("minari:mine/keys-v0")


@pytest.mark.filterwarnings("ignore")
def test_batches_become_datasets_of_minari_and_come_back(minari_home: Path, make):
    """The package itself loads them: what it holds is compared with the batch by hand, and then what is read back."""
    batch = make([5, 1, 7], obs_size=3)
    batch.by[:] = np.arange(13) % 6 - 4
    task = musbo.Task("walk", 3, 2, (-1.0, 0.0), (1.0, 2.0), 9, reward="learned")
    musbo.data.to_minari(batch, "mine/walk-v0", task)
    dataset = minari.load_dataset("mine/walk-v0")
    assert (dataset.total_steps, dataset.total_episodes) == (13, 3)
    assert isinstance(space := dataset.action_space, gymnasium.spaces.Box) and space.high.tolist() == [1, 2]
    second, third = dataset[1], dataset[2]
    assert (len(second.observations), len(second.actions)) == (2, 1)
    np.testing.assert_array_equal(third.observations[1:], batch.next_obs[6:])
    np.testing.assert_array_equal(third.actions, batch.act[6:])
    assert third.terminations.tolist() == batch.terminated[6:].tolist()
    for back in (musbo.data.from_minari("mine/walk-v0").batch, musbo.read_batch("minari:mine/walk-v0")):
        for column in fields(Batch):
            one, other = getattr(back, column.name), getattr(batch, column.name)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other, err_msg=column.name)
    unrewarded = replace(batch, reward=np.full(13, np.nan, np.float32))
    musbo.data.to_minari(musbo.data.from_minari("mine/walk-v0"), "mine/walk-v1")
    assert np.isnan(musbo.data.from_minari(musbo.data.to_minari(unrewarded, "mine/bare-v0")).batch.reward).all()


@pytest.mark.filterwarnings("ignore")
def test_what_a_dataset_of_minari_cannot_hold(minari_home: Path, make):
    batch = make([4, 4])
    musbo.data.to_minari(batch, "mine/walk-v0")
    with pytest.raises(UserError, match=r"does not make a dataset 'mine/walk-v0'.*choose another name"):
        musbo.data.to_minari(batch, "mine/walk-v0")
    for name in ("../outside", "../outside-v0", "/outside-v0", "a\0b-v0", "walk"):
        with pytest.raises(UserError, match="is no name of a dataset"):
            musbo.data.to_minari(batch, name)
    batch.next_obs[1, 0] += 1
    with pytest.raises(UserError, match="next_obs differs from obs of the following row in row 1 .*is not made"):
        musbo.data.to_minari(batch, "mine/other-v0")
    assert sorted(minari.list_local_datasets()) == ["mine/walk-v0"] and not (minari_home.parent / "outside").exists()
