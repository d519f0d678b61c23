"""What is drawn, and what is forgotten."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from musbo.data.batch import make_batch
from musbo.data.dataset import assemble
from musbo.data.scaling import Normaliser
from musbo.learning.replay import Replay, Transitions, empty, logged
from musbo.models.frame import Frame

KEY = jax.random.PRNGKey(0)


def numbered(numbers: np.ndarray) -> Transitions:
    """Rows that can be told apart: every column is the row's number."""
    column = jnp.asarray(numbers, jnp.float32)
    return Transitions(column[:, None], column[:, None], column, column[:, None], column)


def held(replay: Replay) -> set[float]:
    size = len(replay.rows.reward) // len(replay.n)
    slots = np.asarray(replay.rows.reward).reshape(-1, size)
    return {float(x) for slot, n in zip(slots, np.asarray(replay.n), strict=True) for x in slot[:n]}


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=7))
def test_a_slot_is_filled_anew_with_what_is_live(rounds: list[list[bool]]):
    """Slots taken in turn against lists in Python; the rows of a slot replace those that it held."""
    replay, wanted = empty(3, 4, 1, 1), [set[float]() for _ in range(3)]
    for i, live in enumerate(rounds):
        numbers = 1.0 + 10 * i + np.arange(4)
        replay = replay.put(jnp.asarray(i % 3), numbered(numbers), jnp.asarray(live))
        wanted[i % 3] = {float(x) for x in numbers[np.asarray(live)]}
    assert held(replay) == set().union(*wanted)
    if any(wanted):
        rows = replay.draw(200, KEY)
        assert {float(x) for x in rows.reward} <= held(replay)
        for column in (rows.x[:, 0], rows.a[:, 0], rows.next_x[:, 0], rows.goes_on):
            np.testing.assert_array_equal(column, rows.reward)  # a row stays together


def test_draws_are_uniform_over_rows_and_not_over_slots():
    replay = empty(3, 4, 1, 1)
    for slot, live in enumerate(([1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0])):
        replay = replay.put(jnp.asarray(slot), numbered(10.0 * slot + np.arange(4)), jnp.asarray(live, bool))
    drawn = np.asarray(replay.draw(50_000, KEY).reward)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [0, 3, 20, 21, 22]
    np.testing.assert_allclose(counts / len(drawn), 0.2, atol=0.01)  # five standard errors


def test_logged_rows_are_seen_through_the_frame_and_only_a_termination_ends_the_future():
    """Two batches, one episode cut by the clock and one that terminated; free rows are left at the end."""
    number = np.arange(6, dtype=np.float32)
    columns = {
        "obs": np.stack([number, 10 * number], axis=1),
        "act": 0.5 + number[:, None] / 4,
        "reward": 1 + number,
        "next_obs": np.stack([number + 1, 10 * number + 10], axis=1),
    }
    flag = np.array([False, False, True])
    parts = [{name: column[rows] for name, column in columns.items()} for rows in (slice(3), slice(3, 6))]
    cut = make_batch(**parts[0], terminated=~flag & flag, truncated=flag)
    fallen = make_batch(**parts[1], terminated=flag, truncated=~flag & flag)
    data = assemble([cut, fallen], capacity=10, seed=0)
    frame = Frame(
        Normaliser(jnp.array([1.0, 2.0]), jnp.array([2.0, 5.0])), centre=jnp.array([0.5]), half_range=jnp.array([2.0])
    )
    replay = logged(data, frame)

    assert np.asarray(replay.n).tolist() == [6]
    rows = replay.rows
    np.testing.assert_allclose(rows.x[:6], (columns["obs"] - [1, 2]) / [2, 5], rtol=1e-6)
    np.testing.assert_allclose(rows.next_x[:6], (columns["next_obs"] - [1, 2]) / [2, 5], rtol=1e-6)
    np.testing.assert_allclose(rows.a[:6], number[:, None] / 8, rtol=1e-6)
    np.testing.assert_array_equal(rows.goes_on[:6], [1, 1, 1, 1, 1, 0])
    drawn = replay.draw(2000, KEY)
    assert set(np.asarray(drawn.reward).tolist()) == {1, 2, 3, 4, 5, 6}  # a free row has 0
    np.testing.assert_array_equal(drawn.goes_on, np.asarray(drawn.reward) != 6)
