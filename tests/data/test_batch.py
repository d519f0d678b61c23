"""A batch's episodes, on hand numbers and as properties."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.data.batch import Batch, concatenate, make_batch

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=6)
HAND = {
    "obs": [[0.0], [1.0], [2.0], [5.0], [6.0]],
    "act": [[0.1], [0.2], [0.3], [0.4], [0.5]],
    "reward": [1.0, 2.0, 3.0, 10.0, 20.0],
    "next_obs": [[1.0], [2.0], [3.0], [6.0], [7.0]],
    "terminated": [False, False, True, False, False],
    "truncated": [False, False, False, False, True],
}


def arrays(batch: Batch) -> dict[str, np.ndarray]:
    return {field.name: getattr(batch, field.name) for field in fields(batch)}


def assert_same(left: Batch, right: Batch) -> None:
    for name, array in arrays(left).items():
        np.testing.assert_array_equal(array, arrays(right)[name], err_msg=name, strict=True)


def test_episodes_by_hand():
    batch = make_batch(**HAND)
    assert len(batch) == 5
    assert batch.episode.tolist() == [0, 0, 0, 1, 1]
    assert batch.step.tolist() == [0, 1, 2, 0, 1]
    assert batch.starts().tolist() == [0, 3]
    assert batch.lengths().tolist() == [3, 2]
    assert batch.returns().tolist() == [6.0, 30.0]
    assert batch.initial().tolist() == [True, False, False, True, False]


def test_an_open_last_episode_is_an_episode_of_its_own():
    batch = make_batch(**HAND | {"truncated": [False] * 5})
    assert batch.episode.tolist() == [0, 0, 0, 1, 1]


def test_given_episodes_and_steps_are_kept():
    batch = make_batch(**HAND, episode=[7, 7, 7, 9, 9], step=np.array([0.0, 1.0, 2.0, 0.0, 1.0]))
    assert batch.episode.tolist() == [7, 7, 7, 9, 9]
    assert batch.step.tolist() == [0, 1, 2, 0, 1]
    assert make_batch(**HAND, episode=[7, 7, 8, 9, 9]).step.tolist() == [0, 1, 0, 0, 1]


def test_flags_may_be_numbers():
    batch = make_batch(**HAND | {"terminated": [0, 0, 1, 0, 0], "truncated": [0.0, 0.0, 0.0, 0.0, 1.0]})
    assert_same(batch, make_batch(**HAND))


def test_an_empty_batch_has_no_episodes():
    empty = make_batch(
        obs=np.zeros((0, 3)), act=np.zeros((0, 1)), reward=[], next_obs=np.zeros((0, 3)), terminated=[], truncated=[]
    )
    assert len(empty) == 0
    assert empty.lengths().tolist() == empty.returns().tolist() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": [1.0, 2.0]}, "must have one length"),
        ({"next_obs": np.zeros((5, 2))}, "same width.* 1 and 2"),
        ({"obs": [0.0] * 5}, "obs must have 2 dimensions"),
        ({"reward": [[1.0]] * 5}, "reward must have 1 dimension,"),
        ({"reward": ["a"] * 5}, "reward must hold numbers"),
        ({"obs": [[1.0], [1.0, 2.0]]}, "obs is not a rectangular array"),
        ({"terminated": [0, 0, 2, 0, 0]}, "terminated must be true or false .*row 2 holds 2"),
        ({"truncated": [0, 0, 0, 0, np.nan]}, "truncated must be true or false .*row 4 holds nan"),
        ({"episode": [0, 0, -1, 1, 1]}, "episode must be whole numbers .*row 2 holds -1"),
        ({"episode": [0, 0, 0.5, 1, 1]}, "row 2 holds 0.5"),
        ({"step": [0, 1, 2, 0, 2**31]}, "step must be whole numbers .*row 4"),
        ({"step": [0, 1, 2, 0, np.nan]}, "step must be whole numbers .*row 4"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        make_batch(**HAND | change)


@given(lengths=LENGTHS)
def test_episodes_are_rebuilt_from_the_flags(make, lengths):
    batch = make(lengths)
    columns = arrays(batch)
    del columns["episode"], columns["step"]
    assert_same(make_batch(**columns), batch)


@given(lengths=st.lists(LENGTHS, min_size=1, max_size=4))
def test_concatenation_keeps_rows_and_numbers_episodes_anew(make, lengths):
    parts = [make(some, seed) for seed, some in enumerate(lengths)]
    whole = concatenate(parts)
    assert whole.lengths().tolist() == [length for some in lengths for length in some]
    assert whole.episode[whole.starts()].tolist() == list(range(len(whole.starts())))
    np.testing.assert_array_equal(whole.returns(), np.concatenate([part.returns() for part in parts]))
    for name in set(arrays(whole)) - {"episode"}:
        np.testing.assert_array_equal(arrays(whole)[name], np.concatenate([arrays(part)[name] for part in parts]))
    assert_same(concatenate([whole]), whole)


def test_nothing_cannot_be_concatenated():
    with pytest.raises(ValueError, match="at least one"):
        concatenate([])
