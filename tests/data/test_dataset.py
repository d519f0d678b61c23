"""D_all: where the rows lie, and a split that later batches never change."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.data.dataset import Dataset, assemble, rows, split

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12)
SEEDS = st.integers(0, 2**63)
CAPACITY = 2000  # one shape for all examples: a new one is compiled anew


def host(data: Dataset) -> SimpleNamespace:
    """The arrays of a data set in numpy."""
    return SimpleNamespace(**{name: np.asarray(array) for name, array in vars(data).items()})


def by_episode(batch, mask) -> list[set[bool]]:
    """For each episode the values that a mask takes in it."""
    return [
        set(mask[start : start + length].tolist())
        for start, length in zip(batch.starts(), batch.lengths(), strict=True)
    ]


@given(lengths=st.lists(LENGTHS, min_size=1, max_size=4), seed=SEEDS)
def test_rows_are_the_batches_and_then_zeros(make, lengths, seed):
    batches = [make(some, number) for number, some in enumerate(lengths)]
    total = sum(map(len, batches))
    data = host(assemble(batches, CAPACITY, seed))
    for name in ("obs", "act", "reward", "next_obs", "terminated"):
        expected = np.concatenate([getattr(batch, name) for batch in batches])
        np.testing.assert_array_equal(getattr(data, name)[:total], expected, strict=True)
    np.testing.assert_array_equal(data.live, np.arange(CAPACITY) < total)
    np.testing.assert_array_equal(data.initial[:total], np.concatenate([batch.initial() for batch in batches]))
    numbers = [number for number, batch in enumerate(batches, start=1) for _ in range(len(batch))]
    np.testing.assert_array_equal(data.deployment[:total], numbers)
    for leaf in vars(data).values():
        assert len(leaf) == CAPACITY and not np.any(leaf[total:])


def test_a_full_data_set(make):
    data = assemble([make([4, 3]), make([2])], 9, 0)
    assert data.capacity == 9
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(data))
    assert np.asarray(data.deployment).tolist() == [1] * 7 + [2] * 2
    assert np.all(data.live)
    np.testing.assert_array_equal(data.training, ~np.asarray(data.heldout))
    assert np.asarray(assemble([make([4])], 6, 0).training).tolist() == [True] * 3 + [False] * 3


@given(lengths=st.lists(LENGTHS, min_size=2, max_size=4), seed=SEEDS)
def test_a_later_batch_changes_no_earlier_split(make, lengths, seed):
    batches = [make(some, number) for number, some in enumerate(lengths)]
    whole = host(assemble(batches, CAPACITY, seed))
    for count in range(1, len(batches)):
        early = host(assemble(batches[:count], CAPACITY, seed))
        np.testing.assert_array_equal(early.heldout[early.live], whole.heldout[early.live])


@given(lengths=LENGTHS.filter(lambda lengths: len(lengths) > 1), seed=SEEDS, share=st.floats(0.01, 0.99))
def test_whole_episodes_near_the_share(make, lengths, seed, share):
    batch = make(lengths)
    heldout = split(batch, seed, 1, share)
    sides = by_episode(batch, heldout)
    assert all(len(values) == 1 for values in sides)
    assert {True} in sides and {False} in sides
    gap = abs(np.sum(heldout) - share * len(batch))
    # Half of the longest episode is what a rounding to whole episodes costs at most, unless a side would stay empty.
    forced = sides.count({True}) == 1 or sides.count({False}) == 1
    assert forced or gap <= max(lengths) / 2


@given(episodes=st.integers(4, 200), length=st.integers(1, 5), seed=SEEDS)
def test_equal_episodes_come_as_near_as_possible(make, episodes, length, seed):
    heldout = split(make([length] * episodes), seed, 1)
    best = min(abs(count * length - 0.15 * episodes * length) for count in range(1, episodes))
    assert abs(np.sum(heldout) - 0.15 * episodes * length) == pytest.approx(best)


@given(length=st.integers(2, 500), seed=SEEDS)
def test_a_single_episode_keeps_its_end_apart(make, length, seed):
    heldout = split(make([length]), seed, 1)
    count = int(np.sum(heldout))
    assert 1 <= count < length and abs(count - 0.15 * length) <= 1
    assert heldout.tolist() == [False] * (length - count) + [True] * count


def test_a_single_row_is_for_training(make):
    assert split(make([1]), 0, 1).tolist() == [False]


def test_of_two_long_episodes_the_shorter_is_held_out(make):
    for seed in range(5):
        assert by_episode(make([30, 20]), split(make([30, 20]), seed, 1)) == [{False}, {True}]


def test_every_episode_has_the_same_chance(make):
    batch = make([3] * 20)
    chosen = np.stack([split(batch, seed, 1)[batch.starts()] for seed in range(1000)])
    # 3 of 20 episodes are held out each time; five standard errors of a share over 1000 draws.
    np.testing.assert_allclose(chosen.mean(axis=0), 0.15, atol=5 * np.sqrt(0.15 * 0.85 / 1000))


def test_seeds_and_deployments_draw_differently(make):
    batch = make([3] * 100)
    draws = {split(batch, seed, deployment).tobytes() for seed in range(4) for deployment in range(1, 5)}
    assert len(draws) == 16


def test_the_split_is_the_same_for_years(make):
    # The six smallest of the SHA-256 of "split 7 2 0" to "split 7 2 39": a campaign begun with this must find it again.
    assert rows(split(make([1] * 40), seed=7, deployment=2)).tolist() == [7, 14, 17, 23, 24, 26]


def test_rows_of_a_mask():
    assert rows(np.array([False, True, False, True])).tolist() == [1, 3]
    assert rows(jax.numpy.array([False, False])).tolist() == []


def test_refusals(make):
    with pytest.raises(UserError, match="Batches 1 to 2 hold 8 transitions, but the budget of this campaign is 7"):
        assemble([make([5]), make([3])], 7, 0)
    with pytest.raises(UserError, match="no data yet"):
        assemble([], 7, 0)
    with pytest.raises(UserError, match="Batch 2 has 3 observation and 2 action columns, but batch 1 has 4 and 2"):
        assemble([make([5]), make([3], obs_size=3)], 10, 0)
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(UserError, match="held-out share must lie between 0 and 1"):
            assemble([make([5])], 10, 0, share)
