"""Every fault that is planted in a sound batch is found, in the right place, and nothing else is."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.data.batch import Batch
from musbo.data.checks import findings, require_sound
from musbo.data.finding import Finding
from musbo.tasks.task import Task

TASK = Task(
    name="walk",
    obs_size=4,
    act_size=2,
    act_low=(-1.0, -1.0),
    act_high=(1.0, 1.0),
    episode_steps=10,
    reward=lambda obs, act, next_obs: jnp.zeros(()),
    terminated=lambda next_obs: next_obs[0] > 1,
)
LENGTHS = st.lists(st.integers(2, 8), min_size=2, max_size=6)


def changed(array: np.ndarray, index, value) -> np.ndarray:
    copy = array.copy()
    copy[index] = value
    return copy


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


@given(lengths=LENGTHS, seed=st.integers(0, 1000))
def test_a_sound_batch_has_no_findings(make, lengths, seed):
    assert findings(make(lengths, seed), TASK) == []
    assert require_sound(make(lengths, seed), TASK, "walk.parquet") == []


@given(
    data=st.data(),
    lengths=LENGTHS,
    name=st.sampled_from(["obs", "act", "next_obs", "reward"]),
    value=st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_numbers_that_are_not_finite(make, data, lengths, name, value):
    batch = make(lengths)
    row = data.draw(st.integers(0, len(batch) - 1))
    array = getattr(batch, name)
    column = data.draw(st.integers(0, array.shape[1] - 1)) if array.ndim == 2 else None
    index = row if column is None else (row, column)
    label = name if column is None else f"{name}_{column}"
    found = findings(replace(batch, **{name: changed(array, index, value)}), TASK)
    assert found[0].level == "error" and found[0].row == row
    assert found[0].text.startswith(f"{label} is not a finite number in row {row} ")
    # An infinite action is outside its bounds as well; nothing else is to be said.
    assert len(found) == 1 + (name == "act" and np.isinf(value))


@given(data=st.data(), lengths=LENGTHS, column=st.integers(0, 1), sign=st.sampled_from([-1, 1]))
def test_actions_outside_the_bounds(make, data, lengths, column, sign):
    batch = make(lengths)
    row = data.draw(st.integers(0, len(batch) - 1))
    for excess, wrong in ((0.0, False), (0.9e-5, False), (1.2e-5, True), (3.0, True)):
        act = changed(batch.act, (row, column), sign * (1 + excess))
        found = findings(replace(batch, act=act), TASK)
        assert bool(found) == wrong
        if wrong:
            assert only(found).row == row and only(found).level == "error"
            assert f"act_{column} lies outside [-1, 1]" in only(found).text


def test_the_tolerance_of_actions_follows_their_range(make):
    batch = make([5, 5])
    narrow = replace(TASK, act_low=(0.0, -1.0), act_high=(0.002, 1.0))
    inside = changed(np.abs(batch.act) * np.float32(0.001), (3, 0), 0.002 + 0.5e-8)
    assert findings(replace(batch, act=inside), narrow) == []
    outside = changed(inside, (3, 0), 0.002 + 2e-8)
    assert only(findings(replace(batch, act=outside), narrow)).row == 3


@given(data=st.data(), lengths=LENGTHS, name=st.sampled_from(["terminated", "truncated"]))
def test_a_flag_inside_an_episode(make, data, lengths, name):
    batch = make(lengths)
    row = data.draw(st.sampled_from(np.flatnonzero(~(batch.terminated | batch.truncated)).tolist()))
    found = only(findings(replace(batch, **{name: changed(getattr(batch, name), row, True)}), TASK))
    assert (found.level, found.row) == ("error", row)
    assert found.text.startswith(f"{name} is set before the last row of its episode")


@given(data=st.data(), lengths=LENGTHS)
def test_an_episode_without_an_end(make, data, lengths):
    batch = make(lengths)
    row = data.draw(st.sampled_from(np.flatnonzero(batch.terminated | batch.truncated).tolist()))
    open_ended = replace(
        batch, terminated=changed(batch.terminated, row, False), truncated=changed(batch.truncated, row, False)
    )
    found = only(findings(open_ended, TASK))
    assert (found.level, found.row) == ("error", row)
    assert "neither terminated nor truncated" in found.text


def test_both_flags_at_once_are_allowed(make):
    batch = make([3, 3])
    last = batch.terminated | batch.truncated
    assert findings(replace(batch, terminated=last, truncated=last), TASK) == []


@given(data=st.data(), lengths=LENGTHS)
def test_a_broken_chain_is_a_warning(make, data, lengths):
    batch = make(lengths)
    inner = np.flatnonzero(batch.step > 0)
    row = data.draw(st.sampled_from((inner - 1).tolist()))
    column = data.draw(st.integers(0, 3))
    next_obs = changed(batch.next_obs, (row, column), np.nextafter(batch.next_obs[row, column], np.float32(99)))
    found = only(findings(replace(batch, next_obs=next_obs), TASK))
    assert (found.level, found.row) == ("warning", row)
    assert f"next_obs_{column}" in found.text


@given(data=st.data(), lengths=LENGTHS)
def test_the_end_of_an_episode_is_no_link_of_the_chain(make, data, lengths):
    batch = make(lengths)
    row = data.draw(st.sampled_from(np.flatnonzero(batch.terminated | batch.truncated).tolist()))
    assert findings(replace(batch, next_obs=changed(batch.next_obs, row, 7.0)), TASK) == []


@given(data=st.data(), lengths=LENGTHS)
def test_steps_that_do_not_count(make, data, lengths):
    batch = make(lengths)
    row = data.draw(st.integers(0, len(batch) - 1))
    found = only(findings(replace(batch, step=changed(batch.step, row, batch.step[row] + 1)), TASK))
    assert (found.level, found.row) == ("error", row)
    assert f"{batch.step[row] + 1} where {batch.step[row]} is expected" in found.text


def test_an_episode_in_two_pieces(make):
    batch = make([3, 2, 4])
    found = only(findings(replace(batch, episode=np.repeat([5, 6, 5], [3, 2, 4]).astype(np.int32)), TASK))
    assert (found.level, found.row) == ("error", 5)
    assert "episode 5 appears again in row 5" in found.text


def test_episode_numbers_need_not_begin_at_0_nor_rise(make):
    batch = make([3, 2, 4])
    assert findings(replace(batch, episode=np.repeat([9, 3, 5], [3, 2, 4]).astype(np.int32)), TASK) == []


def test_shuffled_rows_are_refused(make):
    batch = make([6, 6, 6])
    order = np.random.default_rng(0).permutation(len(batch))
    shuffled = Batch(**{name: array[order] for name, array in vars(batch).items()})
    with pytest.raises(UserError, match="sort the rows"):
        require_sound(shuffled, TASK, "walk.parquet")


@pytest.mark.parametrize(("name", "column"), [("obs", 2), ("act", 1)])
def test_a_constant_column_is_a_warning(make, name, column):
    batch = make([5, 5])
    constant = replace(batch, **{name: changed(getattr(batch, name), (slice(None), column), 0.5)})
    if name == "obs":  # keep the chain whole
        constant = replace(constant, next_obs=changed(batch.next_obs, (slice(None), column), 0.5))
    found = only(findings(constant, TASK))
    assert (found.level, found.row) == ("warning", None)
    assert found.text.startswith(f"{name}_{column} is 0.5 in every row")
    assert require_sound(constant, TASK, "walk.parquet") == [found]


def test_one_row_is_not_called_constant(make):
    assert findings(make([1]), TASK) == []


def test_terminations_that_the_task_does_not_know(make):
    batch = make([5, 5])
    ended = replace(batch, terminated=batch.terminated | batch.truncated, truncated=np.zeros(10, bool))
    found = only(findings(ended, replace(TASK, terminated=None)))
    assert (found.level, found.row) == ("warning", 4)
    assert "2 rows, first in row 4" in found.text and "never terminates" in found.text


def test_an_empty_batch(make):
    empty = Batch(**{name: array[:0] for name, array in vars(make([3])).items()})
    assert only(findings(empty, TASK)).text.startswith("the batch is empty")


def test_a_batch_of_another_task(make):
    found = findings(make([3, 4], obs_size=5, act_size=1), TASK)
    assert [finding.text.split(" has ")[0] for finding in found] == ["obs", "act", "next_obs"]
    assert "(7, 5), but task walk needs (7, 4)" in found[0].text


@pytest.mark.parametrize(
    ("name", "dtype"), [("obs", np.float64), ("terminated", np.int8), ("episode", np.int64), ("reward", np.float16)]
)
def test_wrong_types(make, name, dtype):
    batch = unchecked(make([3, 4]), **{name: getattr(make([3, 4]), name).astype(dtype)})
    found = only(findings(batch, TASK))
    assert found.level == "error"
    assert f"{name} has type {np.dtype(dtype)}" in found.text


@pytest.mark.parametrize("name", ["obs", "act", "next_obs", "terminated", "truncated", "episode", "step"])
def test_columns_of_another_length(make, name):
    batch = unchecked(make([3, 4]), **{name: getattr(make([3, 4]), name)[:-1]})
    assert only(findings(batch, TASK)).text.startswith(f"{name} has shape (6")


def unchecked(batch: Batch, **arrays: np.ndarray) -> Batch:
    """A batch whose arrays do not fit, as it can arise where types are not checked at run time."""
    twisted = object.__new__(Batch)
    for name, array in (vars(batch) | arrays).items():
        object.__setattr__(twisted, name, array)
    return twisted


def test_errors_come_first_and_name_the_source(make):
    batch = make([5, 5])
    obs = changed(batch.obs, (slice(None), 1), np.nan)
    act = changed(changed(batch.act, (slice(None), 0), 0.25), (7, 1), 2.0)
    faulty = replace(batch, obs=obs, act=act, truncated=np.zeros(10, bool), terminated=np.zeros(10, bool))
    found = findings(faulty, TASK)
    assert [finding.level for finding in found] == ["error", "error", "error", "warning"]
    with pytest.raises(UserError) as caught:
        require_sound(faulty, TASK, "walk.parquet")
    message = str(caught.value)
    assert message.startswith("walk.parquet is refused as a batch of task walk; nothing of it was kept.")
    assert "obs_1 is not a finite number in 10 rows, first in row 0 (nan)" in message
    assert "act_1 lies outside [-1, 1] in row 7 (2)" in message
    assert "in every row" not in message


def test_a_long_list_is_cut(make):
    batch = make([5, 5])
    faulty = replace(batch, obs=np.full_like(batch.obs, np.nan), next_obs=np.full_like(batch.obs, np.nan))
    with pytest.raises(UserError, match="and 3 more") as caught:
        require_sound(faulty, TASK, "walk.parquet")
    assert str(caught.value).count("\n") == 6
