"""Mapping files: what they may say, what is refused, and the skeleton that is printed for a file."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.core.text import parse_toml
from musbo.data.mapping import Column, Mapping, choose, known_layout, parse_mapping, read_mapping
from musbo.data.readers.frames import open_frame
from musbo.data.skeleton import skeleton

TEXT = """
obs = ["room", { column = "psi", scale = 6894.76, offset = -1 }]
act = "valve"
reward = { column = "profit", scale = 0.01 }
episode = "day"
time = "clock"
terminated = "alarm"
truncated = "cut"
gap = 3600
"""


def test_a_file(tmp_path: Path):
    (tmp_path / "mapping.toml").write_text(TEXT)
    found = read_mapping(tmp_path / "mapping.toml")
    assert found == Mapping(
        obs=(Column("room"), Column("psi", 6894.76, -1.0)),
        act=(Column("valve"),),
        reward=Column("profit", 0.01),
        episode="day",
        time="clock",
        terminated="alarm",
        truncated="cut",
        gap=3600.0,
        source=str(tmp_path / "mapping.toml"),
    )
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_mapping(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"observations": ["a"]}, r"'observations' means nothing in a mapping; it has obs, act, reward"),
        ({"rewards": "a"}, r"'rewards' means nothing in a mapping \(did you mean 'reward'\?\)"),
        ({"act": ["a"]}, "lacks obs: write, say, obs ="),
        ({}, "lacks obs and act"),
        ({"obs": ["a"], "act": []}, "lacks act"),
        ({"obs": [1], "act": ["a"]}, "obs takes names of columns in quotes, or"),
        ({"obs": [{"column": "a", "units": "psi"}], "act": ["a"]}, "obs takes names of columns"),
        ({"obs": [{"column": "a", "unit": 1}], "act": ["a"]}, "unit of column a must be in quotes, not 1"),
        ({"obs": [{"column": "a", "scale": "x"}], "act": ["a"]}, "scale of column a must be a number"),
        ({"obs": [{"column": "a", "scale": True}], "act": ["a"]}, "scale of column a must be a number"),
        ({"obs": [{"column": "a", "scale": 0}], "act": ["a"]}, "scale not 0"),
        ({"obs": ["a"], "act": ["b"], "episode": 3}, "episode must be the name of a column in quotes, not '3'"),
        ({"obs": ["a"], "act": ["b"], "gap": "1 h"}, "gap must be a number"),
        ({"obs": ["a"], "act": ["b"]}, "does not say where episodes end"),
    ],
)
def test_what_is_refused(said: dict, message: str):
    with pytest.raises(UserError, match=message) as caught:
        parse_mapping(said, "mapping.toml")
    assert str(caught.value).startswith("mapping.toml") or "column a" in str(caught.value)


def chosen(mapping: Mapping, names: list[str]) -> tuple[list[str], list[str]]:
    found = choose(mapping, names, "logs.csv")
    return [one.column for one in found.obs], [one.column for one in found.act]


def test_a_name_stands_for_numbered_columns():
    names = ["x_1", "x_0", "x_10", "u", "day", *(f"x_{i}" for i in range(2, 10))]
    block = parse_mapping({"obs": [{"column": "x", "scale": 2}], "act": ["u"], "episode": "day"}, "mapping.toml")
    assert chosen(block, names) == ([f"x_{i}" for i in range(11)], ["u"])
    assert {one.scale for one in choose(block, names, "logs.csv").obs} == {2.0}
    assert chosen(block, ["x", "x_0", "u", "day"]) == (["x"], ["u"])  # the column itself comes first
    several = parse_mapping({"obs": ["x", "y"], "act": ["u"], "episode": "day"}, "mapping.toml")
    assert chosen(several, ["x_0", "x_1", "y", "u", "day"]) == (["x_0", "x_1", "y"], ["u"])


def test_columns_that_are_missing_or_there_twice():
    mapping = parse_mapping({"obs": ["room", "walls"], "act": ["valve"], "episode": "day"}, "mapping.toml")
    with pytest.raises(UserError) as caught:
        choose(mapping, ["Room_C", "wals", "valve", "day"], "logs.csv")
    assert str(caught.value) == (
        "logs.csv has no column 'room', which mapping.toml names in obs (did you mean 'Room_C'?) (1 more are missing). "
        "Its columns are Room_C, wals, valve, day."
    )
    with pytest.raises(UserError, match="more than one column walls: keep one"):
        choose(mapping, ["room", "walls", "walls", "valve", "day"], "logs.csv")


def test_layouts():
    ours = known_layout(["obs_0", "act_0", "terminated"], "a.parquet")
    assert (ours.obs, ours.terminated, ours.truncated, ours.reward) == ((Column("obs"),), "terminated", None, None)
    d4rl = known_layout(["observations_0", "observations_1", "actions", "terminals", "timeouts"], "a.npz")
    assert (d4rl.act, d4rl.terminated, d4rl.truncated) == ((Column("actions"),), "terminals", "timeouts")
    with pytest.raises(UserError) as caught:
        known_layout([f"c{i}" for i in range(12)], "logs.csv")
    assert str(caught.value) == (
        "logs.csv has the columns c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 and 2 more, and musbo cannot tell what they "
        "mean: write a mapping and give it with --mapping. `musbo mapping logs.csv > mapping.toml` prints one to fill "
        "in."
    )


# The skeleton


def test_a_skeleton_puts_names_where_they_belong():
    table = pa.table(
        {"Timestamp": [1.0, 2.0], "run_id": [1, 1], "room": [20.5, 21.0], "action_valve": [0, 1]}
        | {"reward": [0.5, 0.5], "note": ["a", "b"], "done": [False, True]}
    )
    text = skeleton(open_frame(table, "logs.csv"))
    found = parse_mapping(parse_toml(text, "skeleton"), "skeleton")
    assert found == Mapping(
        obs=(Column("room"),), act=(Column("action_valve"),), reward=Column("reward"), terminated="done",
        episode="run_id", time="Timestamp", source="skeleton",
    )  # fmt: skip
    assert '#   "room"          20.5 to 21\n' in text and '#   "note"          not numbers\n' in text
    assert '#   "reward"        0.5 in every row\n' in text


@pytest.mark.parametrize("name", ["batch_id", "Episode", "trajectory"])
def test_a_skeleton_finds_episodes_that_have_names(name: str):
    table = pa.table({name: ["a", "a", "b"], "minute": [0, 1, 0], "level": [0.1, 0.2, 0.3]})
    text = skeleton(open_frame(table, "logs.csv")).replace("act = []", 'act = ["level"]')
    found = parse_mapping(parse_toml(text, "skeleton"), "skeleton")
    assert (found.episode, found.time, found.gap) == (name, "minute", None)


def test_a_skeleton_suggests_a_gap_where_nothing_else_ends_an_episode():
    table = pa.table({"t": [0.0, 0.5, 1.0, 1.5, 60.0], "x": [1.0] * 5, "u": [0.0] * 5})
    found = parse_mapping(parse_toml(skeleton(open_frame(table, "logs.csv")), "skeleton"), "skeleton")
    assert (found.time, found.gap, found.act) == ("t", 5.0, (Column("u"),))


NAMES = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda name: not name.lower().startswith("next"))


@given(names=st.lists(NAMES, unique=True, max_size=8))
def test_a_skeleton_is_toml_whatever_the_columns_are_called(names: list[str]):
    text = skeleton(open_frame(pa.table({name: [1.0, 2.0] for name in names}), "odd\nname.csv"))
    said = parse_toml(text, "skeleton")
    single = [said[role] for role in ("reward", "episode", "time", "terminated", "truncated") if role in said]
    # pandas writes its index without a name, which is no observation.
    assert sorted([*said["obs"], *said["act"], *single]) == sorted(filter(None, names))


def test_a_skeleton_with_next_observations():
    columns = {name: [1.0, 2.0] for name in ("x", "y", "next_x", "next_y", "u", "run")}
    found = parse_mapping(parse_toml(skeleton(open_frame(pa.table(columns), "logs.csv")), "skeleton"), "skeleton")
    assert (found.obs, found.next_obs) == ((Column("x"), Column("y")), (Column("next_x"), Column("next_y")))
    fewer = {name: values for name, values in columns.items() if name != "next_y"}
    text = skeleton(open_frame(pa.table(fewer), "logs.csv"))
    assert parse_mapping(parse_toml(text, "skeleton"), "skeleton").next_obs == () and '#   "next_x",\n# ]' in text


def test_a_skeleton_of_a_historians_log():
    table = pa.table({"timestamp": [0, 7, 61], "machine": ["a", "b", "a"], "temp": [1.0, 2.0, 3.0], "u": [0.0] * 3})
    text = skeleton(open_frame(table.append_column("quality", pa.array([192, 192, 0])), "logs.csv"))
    assert '# quality = "quality"' in text and "# interval = 60.0" in text
    found = parse_mapping(parse_toml(text, "skeleton"), "skeleton")
    assert (found.machine, found.obs, found.quality) == ("machine", (Column("temp"),), None)
    even = parse_mapping(parse_toml(text.replace("# interval", "interval").replace("# quality", "quality"), "s"), "s")
    assert (even.interval, even.quality) == (60.0, "quality")
