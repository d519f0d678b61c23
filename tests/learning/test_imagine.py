"""Imagined trajectories in linear worlds whose every step is known by hand."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.learning.imagine import (
    OUTER,
    Imagine,
    Rollout,
    Starts,
    draw,
    draw_starts,
    foresee,
    imagine,
    start_states,
    trajectories,
)
from musbo.models.dynamics import Dynamics
from musbo.models.policy import Policy
from musbo.tasks.task import Task
from tests.learning.small import ACT, OBS, ending, endless, f32, linear_dynamics, linear_policy, observed

KEY, OUTER_KEY = jax.random.split(jax.random.PRNGKey(0))
STILL = ([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], [0.0, 0.0])


def run(
    task: Task,
    settings: Imagine,
    policy: Policy,
    model: Dynamics,
    start: Any,
    update: int = 0,
    key=KEY,
    outer=OUTER_KEY,
) -> Rollout:
    return jax.tree.map(np.asarray, imagine(task, settings, policy, model, f32(start), jnp.asarray(update), key, outer))


def certain(weight: Any, bias: Any) -> Policy:
    """Without noise."""
    return replace(linear_policy(weight, bias), log_sigma=jnp.full(ACT, -50.0))


def states(rollout: Rollout) -> np.ndarray:
    """All of them, the last one too: [t + 1, b, obs]."""
    return np.concatenate([rollout.obs, rollout.last_obs[None]])


def test_a_linear_world_by_hand():
    """s' = s + [s, a] W + c under a = tanh(s w + v): stepped in NumPy."""
    rng = np.random.default_rng(0)
    W, c = 0.3 * rng.normal(size=(OBS + ACT, OBS)), 0.1 * rng.normal(size=OBS)
    w, v = rng.normal(size=(OBS, ACT)), rng.normal(size=ACT)
    start = rng.normal(size=(4, OBS))
    rollout = run(endless, Imagine(4, 6), certain(w, v), linear_dynamics((W, c)), start)
    s = start
    for t in range(6):
        a = np.tanh(s @ w + v)
        after = s + np.hstack([s, a]) @ W + c
        np.testing.assert_allclose(rollout.obs[t], s, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rollout.act[t], a, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rollout.executed[t], a, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rollout.reward[t], after[:, 0] - 0.1 * a[:, 0] ** 2, rtol=1e-4, atol=1e-5)
        s = after
    np.testing.assert_allclose(rollout.last_obs, s, rtol=1e-4, atol=1e-5)
    assert rollout.live.all() and not rollout.terminated.any() and (rollout.weight == 1).all()


def test_noise_and_clipping():
    """The sampled action is kept for the density; the clipped one moves the world and is paid for."""
    policy = linear_policy(np.zeros((OBS, ACT)), [0.0], sigma=0.8)
    adds_the_action = linear_dynamics(([[0, 0], [0, 0], [0, 1]], [0, 0]))
    rollout = run(endless, Imagine(500, 6), policy, adds_the_action, np.zeros((500, OBS)))
    assert rollout.act.std() == pytest.approx(0.8, rel=0.03)
    assert abs(rollout.act.mean()) < 0.05 and np.abs(rollout.act).max() > 1.5
    np.testing.assert_array_equal(rollout.executed, np.clip(rollout.act, -1, 1))
    np.testing.assert_allclose(np.diff(states(rollout)[..., 1], axis=0), rollout.executed[..., 0], atol=1e-5)
    np.testing.assert_allclose(rollout.reward, -0.1 * rollout.executed[..., 0] ** 2, atol=1e-5)


def test_nothing_lives_after_a_termination():
    """0.3 per step: from 0 it ends with the fourth step, from 0.8 with the first, from -9 never."""
    adds = linear_dynamics((np.zeros((3, 2)), [0.3, 0.1]))
    rollout = run(ending, Imagine(3, 6), certain(np.zeros((2, 1)), [0.5]), adds, [[0, 0], [0.8, 0], [-9, 0]])
    np.testing.assert_array_equal(rollout.live.sum(axis=0), [4, 1, 6])
    np.testing.assert_array_equal(np.argmax(rollout.terminated, axis=0)[:2], [3, 0])
    np.testing.assert_array_equal(rollout.terminated.sum(axis=0), [1, 1, 0])
    assert not rollout.reward[~rollout.live].any()
    np.testing.assert_allclose(rollout.obs[4:, 0, 0], 1.2, rtol=1e-5)  # held where it ended
    np.testing.assert_allclose(rollout.last_obs[:, 0], [1.2, 1.1, -9 + 6 * 0.3], rtol=1e-5)
    np.testing.assert_allclose(
        rollout.reward[:4, 0], np.array([0.3, 0.6, 0.9, 1.2]) - 0.1 * np.tanh(0.5) ** 2, rtol=1e-5
    )


@given(st.lists(st.floats(-2, 1), min_size=5, max_size=5), st.floats(-0.5, 1.5))
def test_masks(places: list[float], speed: float):
    """Live steps come first; what terminates is live; after it nothing moves and nothing is paid."""
    adds = linear_dynamics((np.zeros((3, 2)), [speed, 0.1]))
    start = np.stack([places, np.zeros(5)], axis=1)
    rollout = run(ending, Imagine(5, 6), linear_policy(np.zeros((2, 1)), [0.0]), adds, start)
    assert (rollout.live[:-1] >= rollout.live[1:]).all()
    assert (rollout.live >= rollout.terminated).all()
    moved = np.any(np.diff(states(rollout), axis=0) != 0, axis=2)
    np.testing.assert_array_equal(moved, rollout.live)
    assert not rollout.reward[~rollout.live].any()
    ended = rollout.terminated.any(axis=0)
    np.testing.assert_array_equal(ended, ~rollout.live[-1] | rollout.terminated[-1])
    assert not (rollout.live & (rollout.obs[..., 0] > 1)).any()


def test_a_model_that_leaves_the_numbers():
    """1e20 times as far each step: past 3e38 there is no state, and the trajectory is cut before that step."""
    explodes = anywhere(linear_dynamics(([[1e20, 0], [0, 0], [0, 0]], [0, 0])))
    policy = certain([[1.0], [0.0]], [0.0])
    rollout = run(endless, Imagine(2, 5), policy, explodes, [[1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(rollout.live, [[True, True], *[[False, True]] * 4])
    for array in (rollout.obs, rollout.reward, rollout.last_obs, rollout.executed[rollout.live]):
        assert np.isfinite(array).all()
    assert not rollout.terminated.any()  # it is cut, not ended: its return is bootstrapped
    np.testing.assert_allclose(rollout.last_obs[0, 0], 1e20, rtol=1e-5)


def anywhere(model: Dynamics) -> Dynamics:
    """As if the data had been everywhere."""
    return observed(model, float(np.finfo(np.float32).max))


def test_a_model_that_runs_away():
    """Twice as far each step, from data between -1 and 1 of deviation 1: beyond 1 + 2 + 1 it is not believed."""
    doubles = observed(linear_dynamics(([[1, 0], [0, 0], [0, 0]], [0, 0])), 1.0)
    still = certain([[0.0], [0.0]], [0.0])
    rollout = run(endless, Imagine(4, 5), still, doubles, [[1.0, 0.0], [-1.0, 0.0], [0.9, 0.0], [0.1, 0.0]])
    np.testing.assert_array_equal(rollout.live.sum(axis=0), [2, 2, 2, 5])
    np.testing.assert_allclose(rollout.last_obs[:, 0], [4.0, -4.0, 3.6, 3.2], rtol=1e-5)
    assert not rollout.terminated.any()  # cut, not ended: its return is bootstrapped
    assert not rollout.reward[~rollout.live].any()
    _, lengths, _ = foresee(endless, 5, still, doubles, f32([[1.0, 0.0], [0.1, 0.0]]))
    np.testing.assert_array_equal(lengths, [2, 5])


def test_a_reward_that_is_no_number():
    def root(obs, act, next_obs):
        return jnp.sqrt(1.0 - next_obs[0])

    adds = linear_dynamics((np.zeros((3, 2)), [0.4, 0.0]))
    task = replace(endless, name="root", reward=root)
    rollout = run(task, Imagine(1, 5), certain(np.zeros((2, 1)), [0.0]), adds, [[0.0, 0.0]])
    np.testing.assert_array_equal(rollout.live[:, 0], [True, True, False, False, False])
    assert np.isfinite(rollout.reward).all()
    np.testing.assert_allclose(rollout.last_obs[0], [0.8, 0.0], rtol=1e-5)


# Which member moves the world: member i adds i + 1 to the second state.
N = 4
COUNTING = linear_dynamics(*((np.zeros((3, 2)), [0.0, i + 1.0]) for i in range(N)))


def movers(settings: Imagine, update: int = 0, key=KEY, outer=OUTER_KEY) -> np.ndarray:
    """The member that made each step: [t b]."""
    start = np.zeros((settings.rollouts, OBS))
    rollout = run(endless, settings, linear_policy(np.zeros((2, 1)), [0.0]), COUNTING, start, update, key, outer)
    return np.rint(np.diff(states(rollout)[..., 1], axis=0)).astype(int) - 1


def test_a_member_per_step():
    """One draw for the whole batch at each step, all members equally often."""
    who = movers(Imagine(8, 2000, member="per_step"))
    assert (who == who[:, :1]).all()
    shares = np.bincount(who[:, 0], minlength=N) / 2000
    np.testing.assert_allclose(shares, 1 / N, atol=0.04)
    pairs = np.bincount(N * who[:-1, 0] + who[1:, 0], minlength=N * N) / 1999
    np.testing.assert_allclose(pairs, 1 / N**2, atol=0.03)  # and independently of the last step
    other = movers(Imagine(8, 2000, member="per_step"), key=jax.random.PRNGKey(7))
    assert not np.array_equal(who, other)


def test_a_member_per_trajectory():
    who = movers(Imagine(8, 10, member="per_trajectory"))
    assert (who == who[:1]).all()
    np.testing.assert_array_equal(np.bincount(who[0]), [2, 2, 2, 2])


def test_a_trajectory_is_its_members_own():
    """Not only the shift: the states of a lane are those of its member alone."""
    rng = np.random.default_rng(0)
    moves = [(0.3 * rng.normal(size=(3, 2)), rng.normal(size=2)) for _ in range(2)]
    start = rng.normal(size=(4, OBS))
    policy = certain(rng.normal(size=(2, 1)), [0.1])
    together = run(endless, Imagine(4, 6, member="per_trajectory"), policy, linear_dynamics(*moves), start)
    alone = [run(endless, Imagine(4, 6), policy, linear_dynamics(one), start) for one in moves]
    for lane in range(4):
        fits = [np.allclose(states(together)[:, lane], states(one)[:, lane], atol=1e-4) for one in alone]
        assert sum(fits) == 1


def test_a_member_for_25_updates():
    """The paper's pseudo-code: whatever the update's own key, and all members equally often in the long run."""
    assert OUTER == 25
    settings = Imagine(8, 10, member="per_outer")
    first = movers(settings, update=0)
    assert (first == first[0, 0]).all()
    for update, key in ((1, 0), (24, 1)):
        np.testing.assert_array_equal(movers(settings, update, jax.random.PRNGKey(key)), first)
    drawn = [movers(settings, 25 * i)[0, 0] for i in range(200)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=N) / 200, 1 / N, atol=0.1)
    assert [movers(settings, 25 * i + 24)[0, 0] for i in range(5)] == drawn[:5]


def test_rollouts_must_share_out_evenly():
    with pytest.raises(UserError, match="multiple of the 4 dynamics members"):
        movers(Imagine(6, 10, member="per_trajectory"))


@pytest.mark.parametrize(("rollouts", "member"), [(1, "per_step"), (7, "per_step"), (12, "per_trajectory")])
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_halves_are_the_whole(rollouts: int, member: Any, cores: int, monkeypatch: pytest.MonkeyPatch):
    """Two halves in threads, put together, are what one pass over all trajectories gives."""
    monkeypatch.setattr("musbo.core.cores.usable_cores", lambda: list(range(cores)))
    rng = np.random.default_rng(0)
    model = linear_dynamics(*((0.3 * rng.normal(size=(3, 2)), rng.normal(size=2)) for _ in range(N)))
    policy, start = linear_policy(rng.normal(size=(2, 1)), [0.1], sigma=0.5), f32(rng.normal(size=(rollouts, OBS)))
    settings = Imagine(rollouts, 9, member=member)
    drawn = draw(settings, (rollouts, ACT), N, jnp.asarray(3), KEY, OUTER_KEY)
    whole = trajectories(ending, settings, policy, model, start, *drawn)
    halves = run(ending, settings, policy, model, start, update=3)
    assert 0 < whole.live.mean() < 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), halves, whole)


# Start states


INITIAL = Starts(f32([[1, 0], [2, 0], [0, 0], [0, 0]]), jnp.asarray(2))
ANYWHERE = Starts(f32([[3, 0], [4, 0], [5, 0], [0, 0]]), jnp.asarray(3))


def test_only_rows_that_count_are_drawn():
    drawn = np.asarray(draw_starts(ANYWHERE, 3000, KEY))[:, 0]
    values, counts = np.unique(drawn, return_counts=True)
    np.testing.assert_array_equal(values, [3, 4, 5])
    np.testing.assert_allclose(counts / 3000, 1 / 3, atol=0.03)


@pytest.mark.parametrize(
    ("starts", "wanted"), [("initial", [1, 2]), ("any", [3, 4, 5]), ("mixed", [1, 2, 3, 4, 5]), ("reset", [9])]
)
def test_starts(starts: Any, wanted: list[int]):
    task = replace(endless, name="resets", initial=lambda key: jnp.asarray([9.0, 0.0]))
    drawn = np.asarray(start_states(Imagine(starts=starts), task, INITIAL, ANYWHERE, 61, KEY))[:, 0]
    np.testing.assert_array_equal(np.unique(drawn), wanted)
    if starts == "mixed":
        assert (drawn < 3).sum() == 31


def test_a_reset_distribution_is_random():
    task = replace(endless, name="random", initial=lambda key: jax.random.normal(key, (2,)))
    drawn = np.asarray(start_states(Imagine(starts="reset"), task, INITIAL, ANYWHERE, 2000, KEY))
    np.testing.assert_allclose(drawn.std(axis=0), 1, atol=0.06)


def test_a_task_without_a_reset_distribution():
    with pytest.raises(UserError, match="no reset distribution"):
        start_states(Imagine(starts="reset"), endless, INITIAL, ANYWHERE, 4, KEY)


@pytest.mark.parametrize("wrong", [{"rollouts": 0}, {"horizon": 0}])
def test_impossible_settings(wrong: dict):
    with pytest.raises(UserError):
        Imagine(**wrong)


def test_the_foreseen_course_by_hand():
    """Two members dealt out in turn; a course ends where its state terminates, and that state still belongs to it."""
    model = linear_dynamics((np.zeros((3, 2)), [0.1, 0.0]), (np.zeros((3, 2)), [-0.2, 0.3]))
    task = replace(endless, terminated=lambda s: s[0] < -0.5)
    courses, lengths, rewards = foresee(task, 5, linear_policy([[0.0], [0.0]], [0.0]), model, jnp.zeros((3, OBS)))
    up, down = (np.outer(np.arange(1, 6), shift) for shift in ([0.1, 0.0], [-0.2, 0.3]))
    assert np.asarray(lengths).tolist() == [5, 3, 5]  # -0.2, -0.4, -0.6
    np.testing.assert_allclose(courses[0], up, atol=1e-6)
    np.testing.assert_allclose(courses[1, :3], down[:3], atol=1e-6)
    np.testing.assert_allclose(courses[2], up, atol=1e-6)
    np.testing.assert_allclose(rewards, [1.5, -1.2, 1.5], atol=1e-6)  # the first state's, and nothing after the end


def test_the_foreseen_course_follows_the_policys_mean():
    W = np.zeros((3, 2))
    W[2, 0] = 1.0  # the action moves the first state
    policy = linear_policy([[0.5], [0.0]], [0.2], sigma=3.0)
    courses, _, _ = foresee(endless, 3, policy, linear_dynamics((W, [0.0, 0.0])), jnp.zeros((1, OBS)))
    s = 0.0
    for t in range(3):
        s += np.tanh(0.5 * s + 0.2)
        assert float(courses[0, t, 0]) == pytest.approx(s, rel=1e-5)


def test_given_actions_are_replayed_whatever_is_seen():
    W = np.zeros((3, 2))
    W[2, 0] = 1.0  # the action moves the first state
    policy = linear_policy([[0.5], [0.0]], [0.2])
    actions = jnp.asarray([[[0.5], [-0.25], [1.0]], [[0.0], [0.125], [0.0]]])
    model = linear_dynamics((W, [0.0, 0.0]))
    courses, lengths, rewards = foresee(endless, 3, policy, model, jnp.zeros((2, OBS)), actions)
    np.testing.assert_allclose(courses[:, :, 0], [[0.5, 0.25, 1.25], [0.0, 0.125, 0.125]], atol=1e-6)
    assert np.asarray(lengths).tolist() == [3, 3]
    costs = 0.1 * np.array([0.25 + 0.0625 + 1.0, 0.125**2])
    np.testing.assert_allclose(rewards, np.array([2.0, 0.25]) - costs, atol=1e-6)


def stepped(speed: float, start: np.ndarray, again: np.ndarray, far: float, steps: int) -> list[np.ndarray]:
    """In NumPy, a lane at a time: states, live, terminated and the last state, of a world that adds `speed`.

    Beyond 1 a trajectory ends. What was observed lies in [-far, far] and where it began, and a state may lie outside by
    the width of that and a standard deviation of 1.
    """
    b = len(start)
    obs, live, ended = np.zeros((steps, b)), np.zeros((steps, b), bool), np.zeros((steps, b), bool)
    last = np.zeros(b)
    for lane in range(b):
        s = began = np.float32(start[lane])
        for t in range(steps):
            obs[t, lane] = s
            after = np.float32(s + np.float32(speed))
            low, high = min(-far, began), max(far, began)
            live[t, lane] = low - (high - low) - 1 <= after <= high + (high - low) + 1
            ended[t, lane] = live[t, lane] and after > 1
            if live[t, lane] and not ended[t, lane]:
                s = after
            else:
                s = began = np.float32(again[t, lane])
        last[lane] = s
    return [obs, live, ended, last]


@given(
    st.lists(st.floats(-4, 1, width=32), min_size=5, max_size=5),
    st.sampled_from([-0.9, -0.25, 0.25, 0.4, 1.3]),
    st.sampled_from([0.5, 2.0]),
    st.integers(0, 5),
)
def test_what_ends_begins_anew(places: list[float], speed: float, far: float, seed: int):
    """Against a world stepped in NumPy: every row goes on to the horizon, through ends and through cuts."""
    steps = 12
    start = np.stack([places, np.zeros(5)], axis=1)
    again = np.random.default_rng(seed).uniform(-4, 1, (steps, 5, OBS)).astype(np.float32)
    again[..., 1] = 0
    model = observed(linear_dynamics((np.zeros((3, 2)), [speed, 0.0])), far)
    settings = Imagine(5, steps, restart=True)
    policy = linear_policy(np.zeros((2, 1)), [0.0])
    got = imagine(ending, settings, policy, model, f32(start), jnp.asarray(0), KEY, OUTER_KEY, f32(again))
    obs, live, ended, last = stepped(speed, start[:, 0], again[..., 0], far, steps)
    np.testing.assert_array_equal(got.live, live)
    np.testing.assert_array_equal(got.terminated, ended)
    np.testing.assert_allclose(got.obs[..., 0], obs, atol=1e-5)
    np.testing.assert_allclose(got.last_obs[:, 0], last, atol=1e-5)
    assert not np.asarray(got.reward)[~live].any()
