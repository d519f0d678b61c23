"""Real returns, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from musbo.data.batch import Batch, make_batch
from musbo.gate.real import newest_batch, per_episode, real_return, tells
from tests.gate.worlds import chain, dataset

SHORT = replace(chain, episode_steps=3)


def batch(
    lengths: list[int], rewards: list[float], ended: tuple[int, ...] = (), by: dict[int, int] | None = None
) -> Batch:
    """Each episode has one reward at every step."""
    number = np.repeat(np.arange(len(lengths)), lengths)
    last = np.append(np.diff(number) != 0, True)
    terminated = last & np.isin(number, ended)
    zeros = np.zeros((len(number), 1))
    return make_batch(
        obs=zeros, act=zeros, reward=np.array(rewards)[number], next_obs=zeros, terminated=terminated,
        truncated=last & ~terminated, episode=number, by=[(by or {}).get(i, 0) for i in number.tolist()],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("made", "told", "earned"),
    [
        (batch([3, 2, 3], [1.0, 9.0, 2.0]), [0, 2], 4.5),  # one was cut
        (batch([3, 2, 3], [1.0, 9.0, 2.0], ended=(1,)), [0, 1, 2], (3 + 18 + 6) / 3),
        (batch([3, 3, 3], [1.0, 9.0, 2.0], by={1: 1}), [0, 2], 4.5),  # another policy had the second one
        (batch([3, 3, 3], [1.0, 9.0, 2.0], by={1: -2}), [0, 1, 2], 12.0),  # the fallback belongs to the policy
        (batch([2, 1], [1.0, 4.0]), [0, 1], (2 + 4) / 2 * 3 / 1.5),  # none is whole: as long as one would be
        (batch([3, 2], [1.0, 4.0], by={0: 2}), [1], 8 * 3 / 2),  # what is its own goes before what is whole
        (batch([3], [5.0], by={0: 1}), [0], 15.0),
    ],
)
def test_what_an_episode_brings(made: Batch, told: list[int], earned: float):
    assert np.flatnonzero(tells(SHORT, made)).tolist() == told
    other = batch([3, 3], [100.0, 100.0])
    assert real_return(SHORT, dataset(other, made), 2) == pytest.approx(earned)
    assert real_return(SHORT, dataset(made, other), 1) == pytest.approx(earned)


def test_the_newest_batch_is_the_last_one():
    assert newest_batch(dataset(batch([3], [1.0]), batch([3], [1.0]))) == 2


def test_only_what_the_clock_ends_is_brought_to_full_length():
    assert per_episode(100, 5.0, 50.0, 0) == 10.0
    assert per_episode(100, 5.0, 50.0, 1) == per_episode(100, 5.0, 50.0, None) == 5.0
