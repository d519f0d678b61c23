"""Batches on disk: nothing changes on the way, users' tables are understood, and broken files are named."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.data.batch import Batch, make_batch
from musbo.data.files import batch_bytes, batch_from_bytes, read_batch, write_batch

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = ("obs", "act", "reward", "next_obs", "terminated", "truncated", "episode", "step", "by")


def golden_batch(by: list[int] | None = None) -> Batch:
    """What the golden files hold, in numbers that any reader can check."""
    return make_batch(
        obs=[[0.0, 0.5], [1.0, -0.25], [10.0, 1e-20]],
        act=[[0.125], [-1.0], [1.0]],
        reward=[-1.5, 2.0, 0.1],
        next_obs=[[1.0, -0.25], [2.0, 3e20], [11.0, 0.0]],
        terminated=[False, True, False],
        truncated=[False, False, True],
        by=[0, 0, 0] if by is None else by,
    )


def user_table(**columns) -> pa.Table:
    """A table as a user would make it: wide types, no header, no episode numbers."""
    plain = {"obs_0": [0.0, 1.0, 5.0], "obs_1": [1, 2, 3], "act_0": [0.5, 0.5, -0.5], "reward": [1, 2, 3]}
    plain |= {"next_obs_0": [1.0, 2.0, 6.0], "next_obs_1": [2, 3, 4]}
    plain |= {"terminated": [False, True, False], "truncated": [0, 0, 1]}
    return pa.table({name: values for name, values in (plain | columns).items() if values is not None})


def file_of(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path)
    return path


def assert_same(left: Batch, right: Batch) -> None:
    for name in NAMES:
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name, strict=True)


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    seed=st.integers(0, 100),
    obs_size=st.integers(1, 12),
    act_size=st.integers(1, 12),
)
def test_bytes_there_and_back(make, lengths, seed, obs_size, act_size):
    batch = make(lengths, seed, obs_size, act_size)
    data = batch_bytes(batch)
    assert_same(batch_from_bytes(data), batch)
    assert batch_bytes(batch) == batch_bytes(batch_from_bytes(data)) == data


def test_bytes_do_not_depend_on_the_memory_layout(make):
    batch = make([5, 6])
    turned = make_batch(**{name: np.asfortranarray(getattr(batch, name)) for name in NAMES})
    assert batch_bytes(turned) == batch_bytes(batch)


def test_numbers_that_the_checks_refuse_survive_the_file(make):
    batch = make([4])
    batch.obs[1, 2], batch.reward[3], batch.act[0, 0] = np.nan, np.inf, -np.inf
    assert_same(batch_from_bytes(batch_bytes(batch)), batch)


def test_an_empty_batch_survives_the_file():
    empty = make_batch(
        obs=np.zeros((0, 3)), act=np.zeros((0, 1)), reward=[], next_obs=np.zeros((0, 3)), terminated=[], truncated=[]
    )
    assert_same(batch_from_bytes(batch_bytes(empty)), empty)


def test_file_there_and_back(make, tmp_path):
    path = tmp_path / "batch.parquet"
    for lengths in ([3, 4], [5]):  # the second replaces the first
        write_batch(path, make(lengths))
        assert_same(read_batch(path), make(lengths))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("version, by", [(1, None), (2, None), (3, [0, 1, -3])])
def test_golden_files(version: int, by: list[int] | None):
    """Of the older versions, all is by the policy."""
    assert_same(read_batch(GOLDEN / f"batch-v{version}.parquet"), golden_batch(by))


def test_who_chose_is_unknown_in_a_users_file(tmp_path):
    assert read_batch(file_of(user_table(), tmp_path / "logs.parquet")).by.tolist() == [-4] * 3
    assert read_batch(file_of(user_table(by=[0, -2, 3]), tmp_path / "logs.parquet")).by.tolist() == [0, -2, 3]
    for wrong in ([0, 0, -5], [0, 0, 128], [0, 0.5, 0], [0, float("nan"), 0], ["a", "b", "c"]):
        with pytest.raises(UserError, match="by"):
            read_batch(file_of(user_table(by=wrong), tmp_path / "logs.parquet"))


def test_golden_headers():
    """What other programs may rely on: the header and the flat columns with their types."""
    digest = hashlib.sha256()
    for name, array in vars(golden_batch()).items():  # by hand
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    for schema, header in (
        (pq.read_schema(GOLDEN / "batch-v1.parquet"), {"version": 1}),
        (
            pq.read_schema(pa.BufferReader(batch_bytes(golden_batch()))),
            {"version": 3, "sha256": digest.hexdigest()},
        ),
    ):
        assert json.loads(schema.metadata[b"musbo"]) == {"format": "musbo-batch", **header}
        later = {"by": "int8"} if header["version"] == 3 else {}
        assert {field.name: str(field.type) for field in schema} == later | {
            "obs_0": "float",
            "obs_1": "float",
            "act_0": "float",
            "reward": "float",
            "next_obs_0": "float",
            "next_obs_1": "float",
            "terminated": "bool",
            "truncated": "bool",
            "episode": "int32",
            "step": "int32",
        }


def test_a_users_table(tmp_path):
    batch = read_batch(file_of(user_table(note=["a", "b", "c"]), tmp_path / "logs.parquet"))
    assert batch.obs.tolist() == [[0.0, 1.0], [1.0, 2.0], [5.0, 3.0]]
    assert batch.next_obs.tolist() == [[1.0, 2.0], [2.0, 3.0], [6.0, 4.0]]
    assert batch.act.tolist() == [[0.5], [0.5], [-0.5]]
    assert batch.reward.tolist() == [1.0, 2.0, 3.0]
    assert batch.terminated.tolist() == [False, True, False]
    assert batch.truncated.tolist() == [False, False, True]
    assert batch.episode.tolist() == [0, 0, 1]
    assert batch.step.tolist() == [0, 1, 0]


def test_columns_are_ordered_by_number_and_not_by_place(make):
    batch = make([3], obs_size=12)
    table = pq.read_table(pa.BufferReader(batch_bytes(batch)))
    turned = table.select(sorted(table.column_names, reverse=True))
    sink = pa.BufferOutputStream()
    pq.write_table(turned, sink)
    assert_same(batch_from_bytes(sink.getvalue().to_pybytes()), batch)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"terminated": None, "truncated": None}, "does not say where episodes end: name a column as episode"),
        ({"next_obs_1": None}, "lacks the columns next_obs_1"),
        ({"obs_0": None}, "lacks the columns obs_0"),
        ({"obs_0": None, "obs_1": None, "next_obs_0": None, "next_obs_1": None}, "lacks the columns obs_0"),
        ({"act_0": None}, "lacks the columns act_0"),
        ({"obs_3": [1.0, 1.0, 1.0]}, "lacks the columns obs_2, next_obs_2, next_obs_3"),
        ({"obs_30": [1.0, 1.0, 1.0]}, "lacks the columns obs_2, .* and 47 more"),
        ({"act_0": ["a", "b", "c"]}, "column act_0 must hold numbers, but its type is string"),
        ({"act_0": ["1.5", "2", "none"]}, "column act_0 must hold numbers.*row 2 holds 'none'"),
        ({"reward": [1.0, None, 2.0]}, "column reward has 1 empty values, first in row 1"),
        ({"truncated": [0, 0, 3]}, "truncated must be true or false .*row 2"),
        ({"step": [0, 1, -1]}, "step must be whole numbers .*row 2"),
    ],
)
def test_a_users_table_with_a_fault(tmp_path, columns, message):
    path = file_of(user_table(**columns), tmp_path / "logs.parquet")
    with pytest.raises(UserError, match=message) as caught:
        read_batch(path)
    assert str(path) in str(caught.value)


def test_a_column_that_occurs_twice(tmp_path):
    table = user_table()
    doubled = table.append_column("reward", table.column("reward"))
    with pytest.raises(UserError, match="more than one column reward"):
        read_batch(file_of(doubled, tmp_path / "logs.parquet"))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b'{"format": "musbo-batch", "version": 4}', "it has format 4, and musbo .* reads up to 3. Upgrade musbo"),
        (b'{"format": "musbo-tree", "version": 1}', "is a 'musbo-tree' file, not a 'musbo-batch' one"),
        (b'{"version": 1}', "damaged format header"),
        (b"[]", "damaged format header"),
        (b"{", "damaged format header"),
    ],
)
def test_headers_of_other_files(tmp_path, header, message):
    path = file_of(user_table().replace_schema_metadata({b"musbo": header}), tmp_path / "logs.parquet")
    with pytest.raises(UserError, match=message):
        read_batch(path)


def test_files_that_are_no_tables(tmp_path):
    text = tmp_path / "logs.csv"
    text.write_text("obs_0,act_0\n1,2\n")
    with pytest.raises(UserError, match=r"logs\.csv does not say where episodes end"):
        read_batch(text)
    text.rename(tmp_path / "logs.parquet")
    with pytest.raises(UserError, match=r"logs\.parquet is not a readable Parquet file"):
        read_batch(tmp_path / "logs.parquet")
    (tmp_path / "logs.xlsx").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"logs\.xlsx is of no kind that musbo reads: export it as \.csv"):
        read_batch(tmp_path / "logs.xlsx")
    with pytest.raises(UserError, match="No such file"):
        read_batch(tmp_path / "nowhere.parquet")
    with pytest.raises(UserError, match="directory"):
        read_batch(tmp_path)
    with pytest.raises(UserError, match="not a readable Parquet file"):
        batch_from_bytes(b"")


@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_short_is_refused(make, share):
    data = batch_bytes(make([20, 30]))
    with pytest.raises(UserError, match="not a readable Parquet file"):
        batch_from_bytes(data[: int(share * len(data))])


@given(share=st.floats(0, 1), bit=st.integers(0, 7))
def test_a_flipped_bit_among_the_numbers_is_noticed(make, share, bit):
    data = bytearray(batch_bytes(make([20, 30])))
    group = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(0)
    column = group.column(0)
    last = column.data_page_offset + column.total_compressed_size - 1
    first = last - 99  # inside the compressed numbers, behind the page's header
    data[first + round(share * (last - first))] ^= 1 << bit
    with pytest.raises(UserError, match="not a readable Parquet file"):
        batch_from_bytes(bytes(data))


def test_a_batch_of_nearly_nothing_but_zeros_can_be_read_again(monkeypatch: pytest.MonkeyPatch):
    """Compressed it would stand for more numbers than a file of its size may."""
    monkeypatch.setattr("musbo.data.readers.table.MODEST", 1000)
    monkeypatch.setattr("musbo.data.readers.table.EXPANSION", 1)
    n = 20_000
    zeros = make_batch(
        obs=np.zeros((n, 3)), act=np.zeros((n, 1)), reward=np.zeros(n), next_obs=np.zeros((n, 3)),
        terminated=np.zeros(n, bool), truncated=np.arange(n) == n - 1,
    )  # fmt: skip
    data = batch_bytes(zeros)
    assert_same(batch_from_bytes(data), zeros)
    assert data == batch_bytes(batch_from_bytes(data))
    table = pq.read_table(pa.BufferReader(data))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    with pytest.raises(UserError, match="stand for 260,000 numbers"):
        batch_from_bytes(sink.getvalue().to_pybytes())
