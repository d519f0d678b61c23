"""Every fault that is planted in a clean log is found, at its place; clean logs have no error and no warning."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.data.batch import Batch, concatenate, rows_of
from musbo.data.checks import Origin
from musbo.data.doctor.examine import Expected, examine
from musbo.data.doctor.lag import explained
from musbo.data.finding import Finding
from musbo.data.logs import Logs, from_batch
from musbo.field.find import find_task
from musbo.field.simulate import collect
from musbo.models.actor import uniform
from musbo.tasks import builtin, paper
from musbo.tasks.find import TASKS
from musbo.tasks.task import Task

POINT = builtin.pointmass
BODIES = [name for name in TASKS if name not in ("pendulum", "pointmass")]


@cache
def clean(episodes: int = 20, steps: int = 50, seed: int = 0) -> Batch:
    """A point mass under random forces, in numpy: x' = x + v/10 + a/200, v' = v + a/10."""
    rng = np.random.default_rng(seed)
    parts = []
    for e in range(episodes):
        x, v = rng.uniform(-1, 1, 2), np.zeros(2)
        act = rng.uniform(-1, 1, (steps, 2))
        seen = [np.concatenate([x, v])]
        for a in act:
            x, v = x + v * 0.1 + a * 0.005, v + a * 0.1
            seen.append(np.concatenate([x, v]))
        obs = np.array(seen, np.float32)
        last = np.arange(steps) == steps - 1
        reward = -np.sum(obs[1:, :2] ** 2, axis=1) - 0.01 * np.sum(act.astype(np.float32) ** 2, axis=1)
        parts.append(
            Batch(
                obs=obs[:-1], act=act.astype(np.float32), reward=reward.astype(np.float32), next_obs=obs[1:],
                terminated=np.zeros(steps, bool), truncated=last, episode=np.full(steps, e, np.int32),
                step=np.arange(steps, dtype=np.int32), by=np.zeros(steps, np.int8),
            )
        )  # fmt: skip
    return concatenate(parts)


def scaled(batch: Batch, rows: np.ndarray, factor: float, offset: float = 0.0, column: int = 0) -> Batch:
    """Rows of a column in another unit."""
    obs, after = batch.obs.copy(), batch.next_obs.copy()
    for block in (obs, after):
        block[rows, column] = block[rows, column] * np.float32(factor) + np.float32(offset)
    return replace(batch, obs=obs, next_obs=after)


def kinds(found: Sequence[Finding], level: str = "") -> set[str]:
    return {finding.kind for finding in found if level in ("", finding.level)}


def the(found: Sequence[Finding], kind: str) -> Finding:
    (one,) = [finding for finding in found if finding.kind == kind]
    return one


def checked(batch: Batch, task: Task | None = None, **more: Any) -> list[Finding]:
    return examine([replace(from_batch(batch, "log"), **more)], task)


def timed(batch: Batch, time: np.ndarray) -> dict[str, Any]:
    until = np.append(time[1:], np.nan)
    return {"time": time, "until": np.where(batch.truncated, np.nan, until)}


# Clean logs


def test_a_clean_log_has_no_findings():
    assert checked(clean(), POINT) == [] and checked(clean()) == []


@given(seed=st.integers(0, 10_000), episodes=st.integers(1, 30), steps=st.integers(2, 80))
def test_clean_logs_of_any_shape_have_no_error_and_no_warning(seed: int, episodes: int, steps: int):
    found = checked(clean(episodes, steps, seed), replace(POINT, reward="learned"))
    assert kinds(found, "error") | kinds(found, "warning") == set()


@pytest.mark.parametrize("name", ["pendulum", "pointmass", pytest.param("hopper"), "Hopper-v5", "Reacher-v5"])
def test_clean_logs_of_simulators(name: str):
    check_clean(name, 1500)


@pytest.mark.long
@pytest.mark.parametrize("name", [*BODIES, "Hopper-v5", "Reacher-v5", "Swimmer-v5", "InvertedPendulum-v5"])
def test_clean_logs_of_all_bodies(name: str):
    check_clean(name, 5000)


def check_clean(name: str, size: int) -> None:
    task = find_task(name)
    batches = [concatenate([shard.batch for shard in collect(task, uniform(task), size, seed=seed)]) for seed in (1, 2)]
    found = examine([from_batch(batches[1], name)], task, batches[:1], Expected(size))
    assert kinds(found, "error") | kinds(found, "warning") == set(), found


# Sensors


@given(row=st.integers(50, 900), length=st.integers(21, 40))
def test_a_stuck_sensor(row: int, length: int):
    row = row - row % 50  # within an episode
    batch = clean()
    obs, after = batch.obs.copy(), batch.next_obs.copy()
    obs[row + 2 : row + 2 + length, 2] = obs[row + 2, 2]
    after[row + 1 : row + 1 + length, 2] = obs[row + 2, 2]
    found = the(checked(replace(batch, obs=obs, next_obs=after)), "stuck")
    assert (found.level, found.columns, found.row, found.rows) == ("warning", ("obs_2",), row + 2, length)
    assert found.episodes == (row // 50,)


def test_a_machine_at_rest_has_no_stuck_sensors():
    batch = clean()
    obs, after = batch.obs.copy(), batch.next_obs.copy()
    obs[102:140] = after[101:139] = obs[102]
    assert "stuck" not in kinds(checked(replace(batch, obs=obs, next_obs=after)))


def test_a_short_pause_is_not_stuck():
    batch = clean()
    obs, after = batch.obs.copy(), batch.next_obs.copy()
    obs[102:112, 2] = after[101:111, 2] = obs[102, 2]
    assert "stuck" not in kinds(checked(replace(batch, obs=obs, next_obs=after)))


def test_a_target_that_is_constant_in_every_episode_is_not_stuck():
    batch = clean()
    obs, after = batch.obs.copy(), batch.next_obs.copy()
    obs[:, 3] = after[:, 3] = np.random.default_rng(0).normal(size=20).astype(np.float32)[batch.episode]
    assert checked(replace(batch, obs=obs, next_obs=after)) == []


def test_a_dead_sensor_everywhere_and_on_one_machine():
    batch = clean()
    everywhere = scaled(batch, np.arange(1000), 0.0, 0.25, column=1)
    found = the(checked(everywhere), "dead")
    assert (found.level, found.columns) == ("warning", ("obs_1",)) and "0.25 in every row" in found.text
    one = scaled(batch, np.flatnonzero(batch.episode % 2 == 1), 0.0, 0.25, column=1)
    machine = (batch.episode % 2).astype(np.int64)
    found = the(checked(one, machine=machine, machines=("north", "south")), "dead")
    assert found.machines == ("south",) and found.row == 50 and found.rows == 500


@pytest.mark.parametrize(("step", "level"), [(0.3, "warning"), (0.02, "note"), (1e-5, None)])
def test_a_quantised_sensor(step: float, level: str | None):
    batch = clean(100)
    deviation = float(batch.obs[:, 0].std())
    obs, after = batch.obs.copy(), batch.next_obs.copy()
    for block in (obs, after):
        block[:, 0] = np.round(block[:, 0] / (step * deviation)) * (step * deviation)
    found = [one for one in checked(replace(batch, obs=obs, next_obs=after)) if one.kind == "quantised"]
    assert [one.level for one in found] == ([] if level is None else [level])
    assert all(one.columns == ("obs_0",) for one in found)


def test_a_sensor_at_the_end_of_its_range():
    batch = clean()
    obs, after = np.minimum(batch.obs, np.float32(0.2)), np.minimum(batch.next_obs, np.float32(0.2))
    found = the(checked(replace(batch, obs=obs, next_obs=after)), "saturated")
    share = np.mean(batch.obs[:, 0] >= np.float32(0.2))
    assert found.level == "note" and f"obs_0 is 0.2 in {share:.0%} of the rows" in found.text


# Units


@pytest.mark.parametrize(
    ("factor", "offset", "said"),
    [(1.8, 32.0, 1.8), (1000.0, 0.0, 1000), (0.0174533, 0.0, 0.0174533), (1.0, 273.15, 273.15)],
)
def test_a_jump_of_unit_between_episodes(factor: float, offset: float, said: float):
    batch = clean(100)
    # The velocity moves alike in all episodes; the place begins anywhere.
    found = the(checked(scaled(batch, np.flatnonzero(batch.episode >= 60), factor, offset, column=2)), "jump of unit")
    assert (found.level, found.columns, found.row, found.episodes) == ("warning", ("obs_2",), 3000, (60,))
    number = re.search(r"about (\S+) times|is (\S+) away", found.text)
    assert number and float(number[1] or number[2]) == pytest.approx(said, rel=0.05)


def test_a_jump_of_most_columns_may_be_another_behaviour():
    batch = clean(100)
    for column in range(4):
        batch = scaled(batch, np.flatnonzero(batch.episode >= 60), 20.0, column=column)
    found = [one for one in checked(batch) if one.kind == "jump of unit"]
    assert len(found) == 4 and {one.level for one in found} == {"note"}


def test_a_jump_of_unit_from_one_file_to_the_next():
    before, after = from_batch(clean(30), "may.csv"), clean(30, seed=1)
    every = [before, from_batch(scaled(after, np.arange(1500), 1000.0, column=3), "june.csv")]
    found = the(examine(every), "jump of unit")
    assert (found.source, found.row, found.columns) == ("june.csv", 0, ("obs_3",))
    assert examine([before, from_batch(after, "june.csv")]) == []


def test_one_file_of_three_in_another_unit():
    parts = [clean(12, seed=seed) for seed in range(3)]
    parts[1] = scaled(parts[1], np.arange(600), 0.001, column=2)
    found = the(examine([from_batch(part, f"{i}.csv") for i, part in enumerate(parts)]), "jump of unit")
    assert (found.source, found.row) == ("1.csv", 0) and "0.00" in found.text


def test_a_change_inside_an_episode_is_behaviour():
    batch = clean(2, steps=2000)
    assert "jump of unit" not in kinds(checked(scaled(batch, np.arange(3000, 4000), 0.01, column=2)))


def test_a_jump_of_unit_on_one_machine():
    batch = clean(60)
    machine = (batch.episode % 3).astype(np.int64)
    wrong = scaled(batch, np.flatnonzero(machine == 1), 57.3, column=2)
    found = the(checked(wrong, machine=machine, machines=("a", "b", "c")), "jump of unit")
    assert found.machines == ("b",) and "about 57" in found.text and "on machine b" in found.text


# Time


def test_steps_that_are_missing_and_late():
    batch = clean()
    time = batch.step * 0.5 + batch.episode * 100.0
    assert checked(batch, **timed(batch, time)) == []
    lost = time + 1.0 * ((batch.episode == 3) & (batch.step >= 20))
    found = the(checked(batch, **timed(batch, lost)), "missing steps")
    assert (found.row, found.rows, found.episodes) == (3 * 50 + 19, 1, (3,)) and found.text.startswith("2 steps")
    late = time + 0.2 * ((batch.episode == 3) & (batch.step == 20))
    found = the(checked(batch, **timed(batch, late)), "late steps")
    assert (found.level, found.row, found.rows) == ("note", 169, 2)
    jitter = time + np.random.default_rng(0).uniform(0, 0.4, len(time))
    assert the(checked(batch, **timed(batch, jitter)), "late steps").level == "warning"


def test_steps_of_another_interval_than_the_task_declares():
    batch = clean()
    half = timed(batch, batch.step * 0.5 + batch.episode * 100.0)
    for declared in (None, 0.5, 0.53):
        assert checked(batch, replace(POINT, interval=declared), **half) == []
    found = the(checked(batch, replace(POINT, interval=1.0), **half), "another interval")
    assert (found.level, found.row, found.rows) == ("warning", 0, 1000)
    assert "a step takes 0.5, and the interval of task pointmass is 1 seconds" in found.text
    assert "another interval" not in kinds(checked(batch, replace(POINT, interval=1.0)))  # nobody knows the times


def test_an_interval_that_changes_from_one_log_or_machine_to_the_next():
    batch = clean()
    even, slow = (timed(batch, batch.step * t + batch.episode * 100.0) for t in (0.5, 1.0))
    logs = [
        replace(from_batch(clean(seed=i), name), **more) for i, (name, more) in enumerate([("a", even), ("b", slow)])
    ]
    found = the(examine(logs), "another interval")
    assert found.source == "b" and "a step takes 1, and 0.5 in a" in found.text
    machine = (batch.episode % 2).astype(np.int64)
    both = timed(batch, batch.step * np.where(machine, 1.0, 0.5) + batch.episode * 100.0)
    found = the(
        checked(batch, replace(POINT, interval=1.0), **both, machine=machine, machines=("n", "s")), "another interval"
    )
    assert found.machines == ("n",) and "a step takes 0.5 on machine n" in found.text


def test_a_clock_that_goes_back():
    batch = clean()
    time = batch.step * 0.5 + batch.episode * 100.0
    back = np.where(batch.episode >= 7, time - 500.0, time)
    found = the(checked(batch, **timed(batch, back)), "clock goes back")
    assert (found.level, found.row, found.episodes) == ("warning", 350, (7,))
    anew = timed(batch, batch.step * 0.5)
    assert checked(batch, **anew) == []
    two = (batch.episode >= 7).astype(np.int64)
    assert checked(batch, **timed(batch, back), machine=two, machines=("a", "b")) == []


def test_rows_that_were_out_of_order():
    assert the(checked(clean(), unordered=4), "reordered").level == "note"


# Repeats


@given(row=st.integers(1, 998))
def test_a_repeated_row(row: int):
    batch = clean()
    if batch.truncated[row]:
        row -= 1
    twice = np.insert(np.arange(1000), row, row)
    copy = Batch(**{name: array[twice] for name, array in vars(batch).items()})
    step = np.concatenate([np.arange(n) for n in copy.lengths()]).astype(np.int32)
    found = checked(replace(copy, step=step))
    assert the(found, "repeated rows").row == row + 1
    assert the(found, "next state does not match").row == row


def test_repeated_episodes():
    batch = clean()
    again = concatenate([batch, rows_of(batch, batch.episode == 4)])
    found = the(checked(again), "repeated episodes")
    assert (found.level, found.row, found.episodes) == ("warning", 1000, (20,)) and "episode 4 of log" in found.text
    every = [from_batch(batch, "a"), from_batch(clean(seed=1), "b"), from_batch(batch, "c")]
    found = the(examine(every), "repeated episodes")
    assert found.source == "c" and found.rows == 20 and "episode 0 of a" in found.text
    found = the(examine(every[:1], earlier=[clean(seed=1), batch]), "repeated episodes")
    assert "earlier batch 2" in found.text


# Actions


def delayed(rows: int, seed: int = 0) -> Batch:
    """A clean log whose actions were written down `rows` earlier than they had their effect."""
    batch = clean(40, seed=seed)
    act = batch.act.copy()
    for start in batch.starts():
        act[start : start + 50] = np.roll(batch.act[start : start + 50], -rows, axis=0)
    return replace(batch, act=act)


@given(rows=st.integers(1, 6), seed=st.integers(0, 5))
def test_a_lag_between_action_and_effect(rows: int, seed: int):
    logs = from_batch(delayed(rows, seed), "log")
    parts = explained(logs)
    assert parts is not None and int(np.argmax(parts)) == rows
    found = the(examine([logs]), "lag")
    assert found.level == "warning" and found.columns == ("act_0", "act_1")
    assert f"the action of {rows} row" in found.text
    assert "lag" not in kinds(examine([logs], expected=Expected(lag=rows)))


@pytest.mark.parametrize(("rows", "history"), [(2, 1), (2, 2), (3, 4), (4, 3), (9, 8), (9, 9)])
def test_a_lag_that_the_history_of_the_task_covers_is_a_note(rows: int, history: int):
    task = replace(POINT, history=history)
    found = the(examine([from_batch(delayed(rows), "log")], task), "lag")
    assert f"the action of {rows} rows" in found.text
    if history >= rows:
        assert found.level == "note" and "which covers it" in found.text
    else:
        assert found.level == "warning" and f"needs history = {rows} or more" in found.text


def test_without_a_lag_a_history_says_nothing():
    assert "lag" not in kinds(examine([from_batch(clean(40), "log")], replace(POINT, history=4)))


def test_what_an_action_explains_against_least_squares():
    """The part of the variance that is lost without the action of a row, from two regressions of numpy."""
    logs = from_batch(clean(40), "log")
    parts = explained(logs)
    assert parts is not None
    batch, rows = logs.batch, np.flatnonzero(logs.batch.step >= 8)
    blocks = [batch.obs[rows], *(batch.act[rows - k] for k in range(9))]
    change = (batch.next_obs - batch.obs)[rows].astype(np.float64)

    def left(chosen: list[np.ndarray]) -> np.ndarray:
        X = np.concatenate([*chosen, np.ones((len(rows), 1))], axis=1).astype(np.float64)
        return np.var(change - X @ np.linalg.lstsq(X, change, rcond=None)[0], axis=0)

    for k in (0, 3):
        lost = (left(blocks[: k + 1] + blocks[k + 2 :]) - left(blocks)) / np.var(change, axis=0)
        assert parts[k] == pytest.approx(lost.max(), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(("share", "level"), [(0.02, None), (0.2, "note"), (1.0, "warning")])
def test_actions_at_their_bounds(share: float, level: str | None):
    batch = clean()
    act = batch.act.copy()
    chosen = np.random.default_rng(0).random(1000) < share
    act[chosen, 1] = np.where(act[chosen, 1] > 0, 1.0, -1.0)
    found = [one for one in checked(replace(batch, act=act), POINT) if one.kind == "action at bounds"]
    assert [(one.level, one.columns, one.rows) for one in found] == (
        [] if level is None else [(level, ("act_1",), int(chosen.sum()))]
    )


def test_commanded_against_executed():
    batch = clean()
    assert checked(batch, POINT, commanded=batch.act) == []
    little = batch.act.copy()
    little[30, 0] += 0.02
    found = the(checked(batch, POINT, commanded=little), "commanded and executed differ")
    assert (found.level, found.row, found.rows, found.columns) == ("note", 30, 1, ("act_0",))
    early = np.roll(batch.act, -1, axis=0)
    found = [one for one in checked(batch, POINT, commanded=early) if one.kind == "commanded and executed differ"]
    assert [one.level for one in found] == ["warning"] * 2 and "1 row later" in found[0].text


# Ends


def test_terminations_at_the_time_limit():
    batch = clean()
    ended = replace(batch, terminated=batch.truncated, truncated=np.zeros(1000, bool))
    found = the(checked(ended, replace(POINT, terminated="learned")), "terminated at the time limit")
    assert (found.level, found.rows, found.row) == ("warning", 20, 49)


def test_terminations_against_the_function_of_the_task():
    batch = clean()
    far = replace(POINT, terminated=lambda next_obs: next_obs[0] > 1e6)
    assert checked(batch, far) == []
    ended = replace(batch, terminated=batch.truncated & (batch.episode == 6))
    found = the(checked(ended, far), "terminated against the task")
    assert (found.level, found.row, found.episodes) == ("warning", 349, (6,))
    near = replace(POINT, terminated=lambda next_obs: next_obs[0] > 0.5)
    found = the(checked(batch, near), "termination missed")
    wrong = np.flatnonzero(batch.next_obs[:, 0] > 0.5)
    assert (found.row, found.rows) == (wrong[0], len(wrong))


def test_unfinished_and_long_episodes():
    batch = clean()
    found = the(checked(batch, replace(POINT, episode_steps=60)), "unfinished episodes")
    assert (found.level, found.rows, found.row) == ("note", 20, 49)
    found = the(checked(batch, replace(POINT, episode_steps=40)), "long episodes")
    assert (found.level, found.rows) == ("note", 20)


# Rewards


def test_rewards_that_disagree():
    batch = clean()
    for change, said in (
        (lambda r: 0.1 * r, "0.1 times the function"),
        (lambda r: r + 7, "the function +7"),
        (lambda r: np.roll(r, 1), "if it were not one row late"),
        (lambda r: np.roll(r, -1), "if it were not one row early"),
        (lambda r: np.random.default_rng(0).permutation(r), ""),
    ):
        wrong = replace(batch, reward=change(batch.reward).astype(np.float32))
        found = the(checked(wrong, POINT), "reward disagrees")
        assert said in found.text and found.columns == ("reward",)
    assert found.level == "warning"
    rough = replace(batch, reward=batch.reward + np.float32(0.05 * batch.reward.std()))
    assert the(checked(rough, POINT), "reward disagrees").level == "note"
    assert checked(batch, replace(POINT, reward="learned")) == []


def test_many_rows_are_worked_in_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("musbo.data.chunks.ROWS", 300)
    batch = clean()
    assert checked(batch, POINT) == []
    reward = batch.reward.copy()
    reward[700] += 50
    assert the(checked(replace(batch, reward=reward), POINT), "reward disagrees").row == 700


# Batches and machines


def test_drift_against_earlier_batches():
    batch, earlier = clean(seed=1), [clean(), clean(seed=2)]
    assert examine([from_batch(batch, "log")], POINT, earlier) == []
    moved = scaled(batch, np.arange(1000), 1.0, 1.5 * float(batch.obs[:, 0].std()))
    found = the(examine([from_batch(moved, "log")], None, earlier), "drift")
    assert (found.level, found.columns) == ("note", ("obs_0",))
    machine = (batch.episode % 2).astype(np.int64)
    gone = scaled(batch, np.flatnonzero(machine == 1), 1.0, 30.0)
    logs = replace(from_batch(gone, "log"), machine=machine, machines=("a", "b"))
    found = the(examine([logs], None, earlier), "drift")
    assert (found.level, found.machines) == ("warning", ("b",))
    assert {one.machines for one in examine([logs]) if one.kind == "machine differs"} == {("a",), ("b",)}


def test_fewer_and_more_than_planned():
    every = [from_batch(clean(), "a"), from_batch(clean(seed=1), "b")]
    assert examine(every, expected=Expected(2000)) == []
    assert kinds(examine(every, expected=Expected(2001)), "note") == {"fewer than planned"}
    assert kinds(examine(every, expected=Expected(1)), "note") == {"more than planned"}


# The rules of a batch are among the findings


def test_where_numbers_are_missing_nothing_else_is_said():
    batch = clean()
    obs = batch.obs.copy()
    obs[5, 2] = np.nan
    found = checked(replace(batch, obs=obs), POINT)
    assert kinds(found) == {"not finite"} and found[0].columns == ("obs_2",) and found[0].source == "log"
    assert kinds(checked(batch, paper.hopper), "error") == {"wrong shape"}
    assert kinds(checked(rows_of(batch, np.zeros(1000, bool)))) == {"empty"}


def test_findings_use_the_names_and_rows_of_the_log():
    batch = clean()
    names = Origin(obs=("x", "y", "vx", "vy"), act=("fx", "fy"), row=np.arange(1000) + 5000)
    act = batch.act.copy()
    act[7, 1] = 3.0
    found = the(examine([Logs("log", replace(batch, act=act), names)], POINT), "action outside bounds")
    assert (found.columns, found.row, found.rows, found.episodes) == (("fy",), 5007, 1, (0,))
    assert found.text == (
        "fy lies outside [-1, 1] in row 5007 (3): store the clipped action that was executed, in the units of the task"
    )


def test_the_gravest_come_first():
    batch = clean()
    act = batch.act.copy()
    act[7, 1] = 3.0
    wrong = replace(scaled(batch, np.arange(1000), 0.0, 0.25, column=1), act=act)
    levels = [one.level for one in checked(wrong, replace(POINT, reward="learned", episode_steps=60))]
    assert levels == ["error", "warning", "note"]


def test_a_reward_that_is_not_logged_is_not_missed():
    bare = replace(clean(), reward=np.full(1000, np.nan, np.float32))
    assert checked(bare) == [] and checked(bare, POINT) == []
    assert jnp.isnan(bare.reward[0])


# Whatever comes


NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1e-40, 1e15, -1e15, 3e38, np.nan, np.inf, 0.1, 273.15]),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)


@given(data=st.data(), lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_any_numbers_give_findings_and_no_exception(data: st.DataObject, lengths: list[int], seed: int):
    n, rng = sum(lengths), np.random.default_rng(seed)
    pool = np.array(data.draw(st.lists(NUMBERS, min_size=1, max_size=12)), np.float32)
    pool = pool if not np.isnan(pool).all() else np.append(pool, np.float32(1))
    obs, after = pool[rng.integers(0, len(pool), (2, n, 3))]
    act = pool[rng.integers(0, len(pool), (n, 2))]
    reward = pool[rng.integers(0, len(pool), n)]
    reward[0] = pool[~np.isnan(pool)][0]  # a log without any rewards is refused
    last = np.isin(np.arange(n), np.cumsum(lengths) - 1)
    batch = Batch(
        obs=obs, act=act, reward=reward, next_obs=after,
        terminated=last & (rng.random(n) < 0.5), truncated=last,
        episode=np.repeat(np.arange(len(lengths)), lengths).astype(np.int32),
        step=np.concatenate([np.arange(length) for length in lengths]).astype(np.int32), by=np.zeros(n, np.int8),
    )  # fmt: skip
    logs = replace(
        from_batch(batch, "log"), **timed(batch, np.sort(rng.normal(size=n))), commanded=act,
        machine=rng.integers(0, 2, n), machines=("a", "b"),
    )  # fmt: skip
    task = Task("any", 3, 2, (-1.0, 0.0), (1.0, 1e15), 20, reward="learned", terminated="learned")
    for found in (examine([logs, logs], task, [batch]), examine([logs])):
        assert all(finding.text and finding.source == "log" for finding in found)


def test_the_documents_list_every_kind():
    folder = Path(__file__).parents[2]
    campaign = [folder / "src/musbo/campaign" / name for name in ("homecoming.py", "folders.py")]
    places = [*sorted((folder / "src/musbo/data").rglob("*.py")), *campaign]
    source = "".join(path.read_text() for path in places)
    said = re.findall(r'Finding\(\s*"([a-z ]+)",', source)
    assert len(set(said)) > 25
    table = (folder / "docs/doctor.md").read_text().partition("## What is found")[2]
    listed = {
        kind.strip() for line in table.splitlines() if line.startswith("| ") for kind in line.split("|")[1].split(",")
    }
    others = {"drift", "machine differs", "unfinished episodes", "long episodes", "terminated against the task",
              "termination missed", "fewer than planned", "more than planned"}  # fmt: skip
    assert (set(said) | others) - listed == set()
    assert listed - {"kind", "---"} - set(said) - others == set()
