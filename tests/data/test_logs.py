"""From tables to transitions: by hand on small tables, and against a loop over rows on drawn ones."""

import datetime
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import musbo
from musbo.core.errors import UserError
from musbo.data import Column, Logs, from_dataframe
from musbo.data.checks import findings, require_sound
from musbo.data.preview import preview
from musbo.data.rewards import rewarded
from musbo.tasks.task import Task

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
TASK = Task(
    name="plant", obs_size=1, act_size=1, act_low=(-1.0,), act_high=(1.0,), episode_steps=10,
    reward=lambda obs, act, next_obs: obs[0] + 10 * act[0] + 100 * next_obs[0], terminated="learned",
)  # fmt: skip


def table(**columns: Any) -> pa.Table:
    """Two days of three and two hours."""
    plain = {"day": [1, 1, 1, 2, 2], "hour": [0, 1, 2, 0, 1], "temp": [10.0, 11.0, 12.0, 20.0, 21.0]}
    plain |= {"valve": [0.1, 0.2, 0.3, 0.4, 0.5], "gain": [1.0, 2.0, 3.0, 4.0, 5.0], "alarm": [0, 0, 1, 0, 0]}
    return pa.table({name: values for name, values in (plain | columns).items() if values is not None})


def read(frame: Any, **more: Any) -> Logs:
    usual: dict[str, Any] = {"obs": "temp", "act": "valve", "episode": "day"}
    return from_dataframe(frame, **(usual | more))


def rows(logs: Logs) -> list[tuple[float, ...]]:
    """obs, act, next_obs, terminated, truncated, episode, step of every transition, to one decimal."""
    batch = logs.batch
    return [
        (round(float(o[0]), 1), round(float(a[0]), 1), round(float(s[0]), 1), bool(x), bool(y), int(e), int(t))
        for o, a, s, x, y, e, t in zip(
            batch.obs, batch.act, batch.next_obs, batch.terminated, batch.truncated, batch.episode, batch.step,
            strict=True,
        )
    ]  # fmt: skip


@pytest.mark.parametrize("kind", FRAMES)
def test_the_next_observation_is_that_of_the_next_row(kind: str):
    logs = read(FRAMES[kind](table().to_pydict()), reward="gain", terminated="alarm", time="hour")
    assert rows(logs) == [
        (10.0, 0.1, 11.0, False, False, 1, 0),
        (11.0, 0.2, 12.0, True, False, 1, 1),  # the alarm was seen in the row that this leads to
        (20.0, 0.4, 21.0, False, True, 2, 0),  # the recording ends here
    ]
    assert logs.batch.reward.tolist() == [1.0, 2.0, 4.0]
    assert (logs.rows, logs.successors, logs.alone, logs.unordered, logs.gaps) == (5, 2, 0, 0, 0)
    said = "the frame: 5 rows, 2 episodes, 3 transitions, 2 last rows used only as the observation after"
    assert str(logs) == said
    assert findings(logs.batch, TASK, logs.origin) == []


def test_a_next_observation_that_is_logged_is_taken():
    logs = read(table(after=[1.0, 2.0, 3.0, 4.0, 5.0]), next_obs="after", terminated="alarm")
    assert rows(logs) == [
        (10.0, 0.1, 1.0, False, False, 1, 0),
        (11.0, 0.2, 2.0, False, False, 1, 1),
        (12.0, 0.3, 3.0, True, False, 1, 2),
        (20.0, 0.4, 4.0, False, False, 2, 0),
        (21.0, 0.5, 5.0, False, True, 2, 1),
    ]
    assert (logs.successors, logs.alone) == (0, 0)


def test_rows_are_put_in_the_order_of_their_time():
    mixed = table().take([3, 1, 0, 4, 2])
    logs = read(mixed, time="hour", terminated="alarm")
    assert rows(logs) == [
        (20.0, 0.4, 21.0, False, True, 2, 0),  # episodes stay in the order in which they begin
        (10.0, 0.1, 11.0, False, False, 1, 0),
        (11.0, 0.2, 12.0, True, False, 1, 1),
    ]
    assert logs.unordered == 1 and "1 rows out of order in time, which were sorted" in str(logs)
    assert logs.origin.rows(np.arange(3)).tolist() == [0, 2, 1]  # rows of the log, for what is said about them


def test_episodes_of_a_single_row_are_dropped_and_counted():
    logs = read(table(day=[1, 1, 1, 2, 3]))
    assert [row[0] for row in rows(logs)] == [10.0, 11.0]
    assert (logs.successors, logs.alone) == (1, 2) and "2 rows dropped that are alone in their episode" in str(logs)
    assert len(read(table(day=[1, 2, 3, 4, 5]))) == 0


def test_episodes_by_flags():
    logs = read(table(cut=[0, 1, 0, 0, 0], alarm=[0, 0, 0, 1, 0]), episode=None, terminated="alarm", truncated="cut")
    assert rows(logs) == [
        (10.0, 0.1, 11.0, False, True, 0, 0),
        (12.0, 0.3, 20.0, True, False, 1, 0),
    ]
    assert (logs.successors, logs.alone) == (2, 1)  # the last row is an episode by itself


def test_episodes_by_gaps():
    logs = read(table(hour=[0.0, 1.0, 5.0, 6.0, 9.5]), episode=None, time="hour", gap=3.0)
    assert rows(logs) == [(10.0, 0.1, 11.0, False, True, 0, 0), (12.0, 0.3, 20.0, False, True, 1, 0)]
    assert (logs.gaps, logs.alone) == (2, 1) and "2 episodes begun after a gap" in str(logs)
    within = read(table(hour=[0, 1, 8, 0, 1]), time="hour", gap=5.0)  # inside an episode too
    assert [row[-2:] for row in rows(within)] == [(0, 0), (2, 0)]
    assert len(read(table(), episode=None, gap=math.inf)) == 4  # one episode, whatever the time is


@pytest.mark.parametrize("kind", FRAMES)
def test_timestamps(kind: str):
    start = datetime.datetime(2024, 3, 30, 23, 59, 30)
    times = [start + datetime.timedelta(seconds=s) for s in (0, 30, 60.5, 200, 230)]
    logs = read(FRAMES[kind](table(hour=times).to_pydict()), episode=None, time="hour", gap=60.0)
    assert [row[0] for row in rows(logs)] == [10.0, 11.0, 20.0] and logs.gaps == 1
    assert read(FRAMES[kind](table(hour=times).to_pydict()), episode=None, time="hour", gap=140.0).gaps == 0


def test_names_of_episodes_may_be_anything():
    for day in (["a", "a", "a", "b", "b"], [-7, -7, -7, 9_000_000_000, 9_000_000_000], [0.5, 0.5, 0.5, 0.25, 0.25]):
        assert [row[-2] for row in rows(read(table(day=day)))] == [0, 0, 1]
    frame = table(day=["a", "a", "a", "b", "b"]).to_pandas().astype({"day": "category"})
    assert [row[-2] for row in rows(read(frame))] == [0, 0, 1]


def test_units():
    scaled = read(table(), obs=[Column("temp", scale=1.8, offset=32.0)], act=Column("valve", scale=2.0))
    assert [row[:3] for row in rows(scaled)][:2] == [(50.0, 0.2, 51.8), (51.8, 0.4, 53.6)]


def test_the_index_of_pandas_counts_as_a_column():
    frame = table().to_pandas().set_index(["day", "hour"])
    assert rows(read(frame, time="hour")) == rows(read(table(), time="hour"))


def test_a_step_is_checked():
    logs = read(table(hour=[0, 1, 3, 0, 1]), step="hour")
    (found,) = [finding.text for finding in findings(logs.batch, TASK, logs.origin) if "step" in finding.text] or [""]
    assert found == ""  # the row of step 3 is only a successor
    logs = read(table(hour=[1, 2, 3, 0, 1]), step="hour")
    with pytest.raises(UserError, match="step does not count the rows of an episode from 0 in 2 rows, first in row 0"):
        require_sound(logs.batch, TASK, "logs", logs.origin)


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        ({"hour": [0, 1, 1, 0, 1]}, {"time": "hour"}, "hour says the same time in rows 1 and 2 of one episode"),
        ({"hour": [0, 1, 1, 0, 1]}, {"time": "hour"}, "or correct the column of the episode"),
        ({"hour": [0, 1, 2, 0, 1]}, {"time": "hour", "episode": None, "gap": 9.0}, "or name a column as episode"),
        ({"hour": [0, 2, 1, 0, 1]}, {"time": "hour", "episode": None, "terminated": "alarm"}, "goes back in row 2"),
        ({"hour": [0, math.nan, 1, 0, 1]}, {"time": "hour"}, "hour is not a finite number in row 1"),
        ({"hour": ["8h", "9h", "10h", "8h", "9h"]}, {"time": "hour"}, "numbers or timestamps .*row 0 holds '8h'"),
        ({"day": [1, 1, None, 2, 2]}, {}, "column day has 1 empty values, first in row 2"),
        ({"day": [1.0, 1.0, math.nan, 2.0, 2.0]}, {}, "day is not a number in row 2"),
        ({"temp": ["1", "x", "3", "4", "5"]}, {}, "temp must hold numbers, but its type is string .row 1 holds 'x'"),
        ({"day": [1, 2, 1, 2, 1]}, {}, "an episode appears again in row 2, after another one: name a column as time"),
        ({"alarm": [0, 0, 2, 0, 0]}, {"terminated": "alarm"}, "alarm must be true or false .*row 2 holds 2"),
        ({}, {"obs": "tmep"}, r"no column 'tmep', which from_dataframe names in obs \(did you mean 'temp'\?\)"),
        ({}, {"reward": "Gain"}, r"names in reward \(did you mean 'gain'\?\)"),
        ({}, {"episode": None}, "does not say where episodes end"),
        ({}, {"episode": None, "gap": 3.0}, "has a gap but no time"),
        ({}, {"time": "hour", "gap": 0.0}, "gap must be above 0"),
        ({}, {"obs": []}, "must name at least one column in obs"),
        ({}, {"next_obs": ["temp", "valve"]}, "1 columns in obs and 2 in next_obs"),
        ({}, {"obs": Column("temp", scale=2.0), "act": ""}, "a column needs a name"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(columns: dict, more: dict, message: str):
    with pytest.raises(UserError, match=message):
        read(table(**columns), **more)


def test_what_is_no_frame():
    for odd, message in (
        ({"temp": [1]}, "must be a frame of pandas or polars, or a table of pyarrow, not dict"),
        (pl.DataFrame(table().to_pydict()).lazy(), r"give it as frame\.collect\(\)"),
        (pd.DataFrame({0: [1.0], "day": [1]}), "must be text, but one is 0"),
        (pd.DataFrame({"temp": [1.0, "a"], "valve": [0.0, 0.0], "day": [1, 1]}), "a column of mixed types"),
    ):
        with pytest.raises(UserError, match=message):
            read(odd)


def test_findings_speak_of_the_rows_and_columns_of_the_log():
    hot = table(temp=[10.0, 11.0, math.nan, 20.0, 21.0], valve=[0.1, 0.2, 0.3, 4.0, 0.5]).take([3, 1, 0, 4, 2])
    logs = read(hot, time="hour")
    batch = rewarded(logs.batch, TASK, "logs")
    texts = [finding.text for finding in findings(batch, TASK, logs.origin)]
    assert texts[0].startswith("temp is not a finite number in row 4 (nan)")  # the last row of day 1, a successor only
    assert texts[1].startswith("reward is not a finite number in row 1 (nan)")  # the formula, of what leads to it
    assert texts[2].startswith("valve lies outside [-1, 1] in row 0 (4)")
    assert len(texts) == 3


# Rewards


def test_a_reward_that_is_not_logged_is_the_formulas():
    logs = read(table())
    assert np.isnan(logs.batch.reward).all()
    batch = rewarded(logs.batch, TASK, "logs")
    np.testing.assert_allclose(batch.reward, [10 + 1 + 1100, 11 + 2 + 1200, 20 + 4 + 2100], rtol=1e-6)
    logged = read(table(), reward="gain").batch
    assert rewarded(logged, TASK, "logs") is logged


def test_a_learned_reward_must_be_logged(tmp_path):
    learned = Task("plant", 1, 1, (-1.0,), (1.0,), 10, reward="learned")
    with pytest.raises(UserError, match="the frame has no rewards, and task plant learns its reward from them: name"):
        musbo.run(learned, data=[read(table())], budget=1, out=tmp_path / "run", algo="bc")
    assert not (tmp_path / "run").exists()


# Against a loop over rows

DRAWN = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 60), st.booleans(), st.floats(-2, 2, width=32)), min_size=1, max_size=40
)


@given(drawn=DRAWN, gap=st.none() | st.integers(1, 30).map(float), kind=st.sampled_from(sorted(FRAMES)))
def test_any_order_of_rows(drawn: list[tuple[int, int, bool, float]], gap: float | None, kind: str):
    """Interleaved episodes, in any order, with gaps; times are made unique within an episode."""
    seen: set[tuple[int, int]] = set()
    drawn = [row for row in drawn if not (row[:2] in seen or seen.add(row[:2]))]
    frame = FRAMES[kind](
        {"run": [f"run {row[0]}" for row in drawn], "t": [row[1] for row in drawn], "x": [row[3] for row in drawn]}
        | {"u": [float(i) for i in range(len(drawn))], "r": [2.0 * i for i in range(len(drawn))]}
    )
    logs = from_dataframe(frame, obs="x", act="u", reward="r", episode="run", time="t", gap=gap)
    wanted, alone, successors, gaps = [], 0, 0, 0
    for run in dict.fromkeys(row[0] for row in drawn):
        mine = sorted((row[1], i) for i, row in enumerate(drawn) if row[0] == run)
        parts = [[mine[0]]]
        for before, after in zip(mine, mine[1:], strict=False):
            if gap is not None and after[0] - before[0] > gap:
                parts.append([])
                gaps += 1
            parts[-1].append(after)
        for part in parts:
            alone += len(part) == 1
            successors += len(part) > 1
            for step, ((_, i), (_, j)) in enumerate(zip(part, part[1:], strict=False)):
                wanted.append((drawn[i][3], float(i), 2.0 * i, drawn[j][3], step + 2 == len(part), step))
    batch = logs.batch
    columns = (batch.obs[:, 0], batch.act[:, 0], batch.reward, batch.next_obs[:, 0], batch.truncated, batch.step)
    found = list(zip(*(column.tolist() for column in columns), strict=True))
    assert found == wanted
    assert (logs.alone, logs.successors, logs.gaps) == (alone, successors, gaps)
    assert not batch.terminated.any() and len(np.unique(batch.episode)) == successors
    assert logs.origin.rows(np.arange(len(batch))).tolist() == [int(row[1]) for row in wanted]


# What is shown


def test_a_preview():
    logs = read(table(note=["a"] * 5), terminated="alarm", time="hour")
    seen = preview(logs, TASK)
    assert (seen.rows, seen.transitions, seen.episodes, seen.shortest, seen.longest) == (5, 3, 2, 1, 2)
    assert (seen.terminated, seen.successors, seen.reward) == (1, 2, "from the formula of the task")
    assert seen.ignored == ("gain", "note") and {finding.kind for finding in seen.findings} == {"unfinished episodes"}
    temp, valve = seen.ranges
    assert (temp.role, temp.column, temp.smallest, temp.largest, temp.low) == ("obs 0", "temp", 10.0, 20.0, None)
    assert temp.mean == pytest.approx((10 + 11 + 20) / 3)
    assert (valve.role, valve.low, valve.high) == ("act 0", -1.0, 1.0)
    wide = preview(logs, Task("wide", 2, 1, (-1.0,), (1.0,), 10, reward=lambda s, a, n: jnp.zeros(())))
    assert [finding.level for finding in wide.findings] == ["error", "error"]
    assert preview(logs).reward == "not logged" and preview(read(table(), reward="gain")).reward == "logged"
    empty = preview(read(table(day=[1, 2, 3, 4, 5])), TASK)
    assert (empty.transitions, empty.ranges, empty.findings[0].text[:18]) == (0, (), "the batch is empty")
