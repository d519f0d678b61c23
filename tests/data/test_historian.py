"""Logs at uneven times: by hand on small tables, and against a loop over steps and rows on drawn ones."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.data import Column, Logs, from_dataframe, read_logs, read_mapping
from musbo.data.doctor.examine import examine
from musbo.data.finding import Finding


def read(columns: dict[str, Any], **more: Any) -> Logs:
    usual: dict[str, Any] = {"obs": "temp", "act": "valve", "time": "t", "interval": 10.0, "gap": 60.0}
    return from_dataframe(pa.table(columns), **(usual | more))


def steps(logs: Logs) -> list[tuple[float, float, float, int]]:
    """obs, act, next_obs and episode of every transition."""
    batch = logs.batch
    return [
        (round(float(o), 4), round(float(a), 4), round(float(s), 4), int(e))
        for o, a, s, e in zip(batch.obs[:, 0], batch.act[:, 0], batch.next_obs[:, 0], batch.episode, strict=True)
    ]


def the(found: list[Finding], kind: str) -> Finding:
    (one,) = [finding for finding in found if finding.kind == kind]
    return one


UNEVEN = {
    "t": [0.0, 4.0, 9.0, 21.0, 30.0, 38.0],
    "temp": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "valve": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
}


def test_the_last_value_up_to_each_step():
    logs = read(UNEVEN)  # steps at 0, 10, 20 and 30
    assert steps(logs) == [(1.0, 0.1, 3.0, 0), (3.0, 0.3, 3.0, 0), (3.0, 0.3, 5.0, 0)]
    assert logs.origin.rows(np.arange(3)).tolist() == [0, 2, 2]
    assert logs.time is not None and logs.time.tolist() == [0.0, 10.0, 20.0]
    assert logs.resampled is not None and (logs.resampled.steps, logs.rows) == (4, 6)
    assert logs.batch.truncated.tolist() == [False, False, True]


def test_the_mean_since_the_step_before_and_the_next_value_in_the_step():
    logs = read(UNEVEN, obs=Column("temp", align="mean"), act=Column("valve", align="next"))
    # 20 has no value since 10: no step there. The mean at 10 is that of 2 and 3, at 30 that of 4 and 5.
    assert steps(logs) == []
    logs = read(UNEVEN | {"t": [0.0, 4.0, 9.0, 20.0, 30.0, 38.0]}, obs=Column("temp", align="mean"),
                act=Column("valve", align="next"))  # fmt: skip
    # The next value at 10 would be that of 20, which is of the next step.
    assert logs.resampled is not None and logs.resampled.lost == {"valve": 1}
    assert steps(logs) == [(4.0, 0.4, 5.0, 1)]


def test_a_value_of_bad_quality_is_not_bridged():
    table = UNEVEN | {"quality": ["Good", "Good", "Bad", "Good", "good", "GOOD"]}
    logs = read(table, quality="quality")
    assert steps(logs) == []  # 10 and 20 rest on row 2: nothing is left beside single steps
    long = {
        "t": np.arange(10) * 10.0,
        "temp": np.arange(10.0),
        "valve": np.arange(10) / 10,
        "q": [192, 192, 192, 0, 192, 192, 192, 192, 64, 192],
    }
    logs = read(long, quality="q")
    assert [(o, e) for o, _, _, e in steps(logs)] == [(0.0, 0), (1.0, 0), (4.0, 1), (5.0, 1), (6.0, 1)]
    assert logs.gaps == 2
    found = examine([logs])
    assert the(found, "bad quality").rows == 4  # two rows of two values
    assert the(found, "no value").level == "note"
    one = read(long, obs=Column("temp", quality="q"))
    assert one.resampled is not None and one.resampled.lost == {"temp": 2}
    assert len(read(long, quality="q", good=["192", "0", "64"])) == 9


def test_a_value_counts_for_as_long_as_it_is_held():
    sparse = {"t": np.arange(6) * 10.0, "temp": np.arange(6.0), "valve": [0.5, None, None, None, 0.7, None]}
    assert [a for _, a, _, _ in steps(read(sparse))] == [0.5, 0.5, 0.5, 0.5, 0.7]
    logs = read(sparse, act=Column("valve", hold=20.0))
    assert [(o, a, e) for o, a, _, e in steps(logs)] == [(0.0, 0.5, 0), (1.0, 0.5, 0), (4.0, 0.7, 1)]


def test_machines_and_pauses_are_episodes_of_their_own():
    table = {
        "t": [0, 5, 10, 15, 20, 25, 200, 210, 220, 230],
        "unit": ["a", "b", "a", "b", "a", "b", "a", "a", "a", "a"],
        "temp": [0.0, 100, 1, 101, 2, 102, 3, 4, 5, 6],
        "valve": [0.0] * 10,
    }
    logs = read(table, machine="unit")
    assert [(o, s, e) for o, _, s, e in steps(logs)] == [
        (0, 1, 0), (1, 2, 0), (3, 4, 1), (4, 5, 1), (5, 6, 1), (100, 101, 2), (101, 102, 2)
    ]  # fmt: skip
    assert logs.machines == ("a", "b") and logs.machine is not None
    assert [logs.machines[i] for i in logs.machine] == ["a"] * 5 + ["b"] * 2
    assert logs.gaps == 1


def test_machines_without_even_steps():
    table = {"t": [0, 0, 1, 1, 2, 2], "unit": [7, 8, 7, 8, 7, 8], "temp": [0.0, 10, 1, 11, 2, 12], "valve": [0.0] * 6}
    logs = read(table, machine="unit", interval=None, gap=5.0)
    assert [(o, s, e) for o, _, s, e in steps(logs)] == [(0, 1, 0), (1, 2, 0), (10, 11, 1), (11, 12, 1)]
    assert logs.machines == ("7", "8")
    # The flags of one machine do not cut the other's episodes, and their clocks may begin anew.
    flags = {"t": [0, 0, 1, 1, 0, 2], "cut": [0, 0, 1, 0, 0, 1]}
    logs = read(table | flags, machine="unit", interval=None, gap=None, truncated="cut")
    assert [(o, s, e) for o, _, s, e in steps(logs)] == [(0, 1, 0), (10, 11, 2), (11, 12, 2)]
    # The same episode number on two machines is two episodes.
    logs = read(table | {"ep": [1] * 6}, machine="unit", interval=None, gap=None, episode="ep")
    assert len(np.unique(logs.batch.episode)) == 2 and len(logs) == 4


def test_values_that_are_there_twice():
    table = {"t": [0.0, 10, 10, 20, 20], "temp": [0.0, 1, 1, 2, 3], "valve": [0.0] * 5}
    logs = read(table)
    assert [(o, s) for o, _, s, _ in steps(logs)] == [(0.0, 1.0), (1.0, 3.0)]
    found = examine([logs])
    assert the(found, "conflicting rows").rows == 1 and the(found, "conflicting rows").level == "warning"
    assert the(found, "duplicated steps").rows == 3


def test_rows_out_of_order_are_sorted_and_counted():
    order = [3, 0, 1, 2, 4, 5]
    logs = read({name: [values[i] for i in order] for name, values in UNEVEN.items()})
    assert steps(logs) == steps(read(UNEVEN)) and logs.unordered == 1


def test_flags_end_an_episode():
    table = {"t": np.arange(6) * 10.0, "temp": np.arange(6.0), "valve": [0.0] * 6, "trip": [0, 0, 1, 0, 0, 0]}
    logs = read(table, terminated="trip")
    assert [(o, s, e) for o, _, s, e in steps(logs)] == [(0, 1, 0), (1, 2, 0), (3, 4, 1), (4, 5, 1)]
    assert logs.batch.terminated.tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("times", "more"),
    [
        (["2024-05-31T12:00:00Z", "2024-05-31T12:00:10Z", "2024-05-31T12:00:20.5Z"], ""),
        (["2024-05-31 12:00:00", "2024-05-31 12:00:10", "2024-05-31 12:00:20"], ""),
        ([1717156800, 1717156810, 1717156820], ""),
        ([1717156800000, 1717156810000, 1717156820250], 'time_unit = "ms"'),
        (["31.05.2024 12:00:00", "31.05.2024 12:00:10", "31.05.2024 12:00:20"], 'time_format = "%d.%m.%Y %H:%M:%S"'),
    ],
)
def test_times_of_all_kinds_from_a_file(times: list[Any], more: str, tmp_path: Path):
    lines = [f"{t},{temp},0.5,Good" for t, temp in zip(times, (1, 2, 3), strict=True)]
    (tmp_path / "plant.csv").write_text("\n".join(["stamp,temp,valve,q", *lines]) + "\n")
    said = 'obs = [{ column = "temp", align = "last", hold = 15 }]\nact = ["valve"]\ntime = "stamp"\n'
    said += f'interval = 10\ngap = 60\nquality = "q"\ngood = ["Good"]\n{more}\n'
    (tmp_path / "mapping.toml").write_text(said)
    logs = read_logs(tmp_path / "plant.csv", read_mapping(tmp_path / "mapping.toml"))
    assert [(o, s) for o, _, s, _ in steps(logs)][0] == (1.0, 2.0)
    assert logs.time is not None and logs.time[0] == 0.0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"interval": 0.0}, "interval must be a number of seconds above 0"),
        ({"time": None, "gap": None, "episode": "e"}, "has an interval but no time"),
        ({"next_obs": "after"}, "leave next_obs and step out"),
        ({"interval": None, "quality": "q"}, "give interval, in seconds"),
        ({"interval": None, "obs": Column("temp", align="mean")}, "align, hold and quality .column temp."),
        ({"time_unit": "days"}, "time_unit is one of s, ms"),
        ({"time_format": "%Y"}, "does not hold times as time_format"),
        ({"commanded": ["a", "b"]}, "1 columns in act and 2 in commanded"),
        ({"interval": 1e-6}, "give gap in the mapping"),
    ],
)
def test_refused(more: dict[str, Any], said: str):
    with pytest.raises(UserError, match=said):
        read(UNEVEN | {"q": ["Good"] * 6, "e": [1] * 6, "after": [0.0] * 6}, **more)


def test_tables_without_values():
    empty = {"t": pa.array([], pa.float64()), "temp": pa.array([], pa.float64()), "valve": pa.array([], pa.float64())}
    assert len(read(empty)) == 0
    assert len(read(UNEVEN | {"temp": pa.array([None] * 6, pa.float64())})) == 0
    with pytest.raises(UserError, match="column temp must hold numbers.*row 1 holds 'off'"):
        read(UNEVEN | {"temp": ["1", "off", None, "2", "3", "4"]})


@pytest.mark.parametrize(("name", "value"), [("align", "linear"), ("hold", 0.0)])
def test_columns_that_are_refused(name: str, value: Any):
    with pytest.raises(UserError, match=f"column temp: {name}"):
        Column("temp", **{name: value})


# Against a loop


ROW = st.tuples(
    st.integers(0, 1),  # machine
    st.integers(0, 400),  # time in tenths of a second
    st.one_of(st.none(), st.integers(-5, 5)),  # a value, or an empty cell
    st.booleans(),  # its quality
)


@given(rows=st.lists(ROW, min_size=1, max_size=40), align=st.sampled_from(["last", "mean", "next"]),
       hold=st.sampled_from([math.inf, 3.0]), gap=st.sampled_from([5.0, math.inf]))  # fmt: skip
def test_steps_agree_with_a_loop(rows: list[tuple[int, int, int | None, bool]], align: Any, hold: float, gap: float):
    table = {
        "unit": [row[0] for row in rows],
        "t": [row[1] / 10 for row in rows],
        "temp": pa.array([row[2] for row in rows], pa.float64()),
        "valve": [0.0] * len(rows),
        "q": [int(row[3]) for row in rows],
    }
    column = Column("temp", align=align, hold=hold, quality="q")
    logs = from_dataframe(
        pa.table(table), obs=column, act="valve", time="t", machine="unit", interval=2.0, gap=gap, good=["1"]
    )
    wanted: list[tuple[float, float]] = []
    for machine in dict.fromkeys(sorted(row[0] for row in rows)):
        mine = sorted((row for row in rows if row[0] == machine), key=lambda row: row[1])
        parts: list[list[tuple[int, int, int | None, bool]]] = [[]]
        for row in mine:
            if parts[-1] and (row[1] - parts[-1][-1][1]) / 10 > gap:
                parts.append([])
            parts[-1].append(row)
        for part in parts:
            values = [_value(part, time, align, hold) for time in range(part[0][1], part[-1][1] + 1, 20)]
            wanted += [(a, b) for a, b in zip(values, values[1:], strict=False) if a is not None and b is not None]
    found = [(float(o), float(s)) for o, s in zip(logs.batch.obs[:, 0], logs.batch.next_obs[:, 0], strict=True)]
    np.testing.assert_allclose(np.array(sorted(found)), np.array(sorted(wanted)), rtol=1e-6)


def _value(part: list[Any], time: int, align: str, hold: float) -> float | None:
    """What a step at a time, in tenths of a second, has."""
    there = [row for row in part if row[2] is not None]
    if align == "mean":
        since = [row for row in there if time - 20 < row[1] <= time]
        return float(np.mean([row[2] for row in since])) if since and all(row[3] for row in since) else None
    if align == "next":
        first = [row for row in there if time <= row[1] < time + 20][:1]
        return float(first[0][2]) if first and first[0][3] else None
    before = [row for row in there if row[1] <= time][-1:]
    if not before or not before[0][3] or (time - before[0][1]) / 10 > hold:
        return None
    return float(before[0][2])
