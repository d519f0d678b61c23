"""GAE against a sum over all later steps, and the baseline against NumPy's least squares."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from musbo.core.errors import UserError
from musbo.data.scaling import Normaliser
from musbo.learning.advantage import (
    Discounting,
    Ridge,
    RidgeValue,
    SmallMLP,
    discounted_returns,
    features,
    gae,
    limits,
    rollout_features,
    standardise,
)
from musbo.learning.imagine import clock, trajectory_count
from tests.learning.small import f32, rollout_of

T, B = 7, 4
KEY = jax.random.PRNGKey(0)
NUMBERS = st.floats(-10, 10, width=32)
ANY = (f32(-np.inf), f32(np.inf))  # limits of returns, for what does not ask


def oracle(gamma: float, lam: float, reward, values, length, ended) -> np.ndarray:
    """A_t as it is written: a sum of (gamma lambda)^l delta_{t+l} over the steps that are left, O(t^2)."""
    A = np.zeros_like(reward, dtype=np.float64)
    for lane in range(reward.shape[1]):
        for t in range(length[lane]):
            for later in range(t, length[lane]):
                over = ended[lane] and later == length[lane] - 1
                after = 0.0 if over else values[later + 1, lane]
                delta = reward[later, lane] + gamma * after - values[later, lane]
                A[t, lane] += (gamma * lam) ** (later - t) * delta
    return A


# A trajectory lives for some steps; then it has ended, or was cut (at the horizon, or where numbers end).
LENGTHS = st.lists(st.integers(0, T), min_size=B, max_size=B)
ENDED = st.lists(st.booleans(), min_size=B, max_size=B)


def shaped(reward: np.ndarray, length: list[int], ended: list[bool]):
    live = np.arange(T)[:, None] < np.array(length)
    last = np.arange(T)[:, None] == np.array(length) - 1
    return rollout_of(np.where(live, reward, 0), last & np.array(ended), live)


@given(
    arrays(np.float32, (T, B), elements=NUMBERS),
    arrays(np.float32, (T + 1, B), elements=NUMBERS),
    LENGTHS,
    ENDED,
    st.sampled_from([(0.99, 0.95), (0.9, 1.0), (0.5, 0.0), (0.0, 0.5)]),
)
def test_gae(reward, values, length, ended, discount: tuple[float, float]):
    got = gae(Discounting(*discount), shaped(reward, length, ended), f32(values))
    np.testing.assert_allclose(got, oracle(*discount, reward, values, length, ended), rtol=1e-3, atol=1e-3)


# Rows that hold several trajectories: after every step one goes on, has ended, or the step does not exist at all.
ON, END, CUT = 0, 1, 2
EVENTS = arrays(np.int8, (T, B), elements=st.sampled_from([ON, ON, ON, END, CUT]))


def several(reward: np.ndarray, events: np.ndarray, obs: np.ndarray | None = None):
    live = events != CUT
    return rollout_of(np.where(live, reward, 0), events == END, live, obs)


def pieces(events: np.ndarray) -> list[tuple[int, int, int, bool]]:
    """Lane, first step, number of steps and whether it ended, of every trajectory."""
    found = []
    for lane in range(B):
        first = 0
        for t in range(T):
            if events[t, lane] == END:
                found.append((lane, first, t + 1 - first, True))
                first = t + 1
            elif events[t, lane] == CUT:
                found.append((lane, first, t - first, False))
                first = t + 1
        found.append((lane, first, T - first, False))
    return found


@given(
    arrays(np.float32, (T, B), elements=NUMBERS),
    arrays(np.float32, (T + 1, B), elements=NUMBERS),
    EVENTS,
    st.sampled_from([(0.99, 0.95), (0.9, 1.0), (0.5, 0.0)]),
)
def test_gae_of_rows_that_begin_anew(reward, values, events, discount: tuple[float, float]):
    """Every trajectory by itself: nothing comes from the one after it, and the last state of each is bootstrapped."""
    got = np.asarray(gae(Discounting(*discount), several(reward, events), f32(values)))
    wanted = np.zeros((T, B))
    for lane, first, length, ended in pieces(events):
        here = slice(first, first + length)
        alone = reward[here, lane : lane + 1], values[first : first + length + 1, lane : lane + 1]
        wanted[here, lane] = oracle(*discount, *alone, [length], [ended])[:, 0]
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


@given(EVENTS)
def test_the_clock_counts_in_its_trajectory(events):
    rollout = several(np.zeros((T, B)), events)
    got = np.asarray(clock(rollout))
    for lane, first, length, ended in pieces(events):
        # The state that a cut trajectory is bootstrapped with still belongs to it; that after an end to the next.
        states = length if ended else length + 1
        np.testing.assert_array_equal(got[first : first + states, lane], np.arange(states))
    begun = sum(length > 0 for _, first, length, _ in pieces(events) if first)
    assert int(trajectory_count(rollout)) == B + begun


@given(arrays(np.float32, (T, B), elements=NUMBERS), arrays(np.float32, (T + 1, B), elements=NUMBERS), EVENTS)
def test_whole_trust_changes_nothing(reward, values, events):
    rollout = several(reward, events)
    trusted = replace(rollout, trust=jnp.ones((T, B)))
    discount = Discounting(0.9, 0.95)
    np.testing.assert_allclose(
        gae(discount, trusted, f32(values)), gae(discount, rollout, f32(values)), rtol=1e-4, atol=1e-4
    )


@given(
    arrays(np.float32, (T, B), elements=st.floats(0, 10, width=32)),
    arrays(np.float32, (T, B), elements=st.floats(0, 1, width=32)),
    EVENTS,
)
def test_trust_is_a_continuation(reward, trust, events):
    """What is gained l steps later counts times the trust of all steps on the way; what is lost counts wholly."""
    plain = Discounting(0.9, 1.0)
    nothing = jnp.zeros((T + 1, B))
    rollout = several(reward, events)
    got = np.asarray(gae(plain, replace(rollout, trust=f32(trust)), nothing))
    costs = replace(rollout, reward=-rollout.reward)
    doubted = gae(plain, replace(costs, trust=f32(trust)), nothing)
    np.testing.assert_allclose(doubted, gae(plain, costs, nothing), rtol=1e-4, atol=1e-4)
    for lane, first, length, _ in pieces(events):
        for t in range(first, first + length):
            later = range(t, first + length)
            wanted = sum(0.9 ** (s - t) * trust[t : s + 1, lane].prod() * reward[s, lane] for s in later)
            assert got[t, lane] == pytest.approx(wanted, rel=1e-3, abs=1e-3)


def test_limits_of_returns():
    """Rewards between -1 and 3 are worth -10 to 30 for ever at gamma 0.9; an end is worth 0."""
    live = np.array([[1, 1, 1], [1, 1, 0]], bool)
    reward = np.array([[3.0, -1.0, 2.0], [0.5, 1.0, 99.0]])
    low, high = limits(Discounting(0.9, 0.95), rollout_of(reward, live=live))
    assert float(low) == pytest.approx(-10, rel=1e-5) and float(high) == pytest.approx(30, rel=1e-5)
    assert [float(x) for x in limits(Discounting(0.9, 0.95), rollout_of(np.ones((2, 2))))] == pytest.approx([0, 10])


@given(arrays(np.float32, (T, B), elements=NUMBERS), LENGTHS, ENDED)
def test_discounted_returns(reward, length, ended):
    """Rewards to go, nothing bootstrapped, whatever lambda is."""
    got = np.asarray(discounted_returns(Discounting(0.9, 0.3), shaped(reward, length, ended)))
    for lane in range(B):
        for t in range(length[lane]):
            wanted = sum(0.9 ** (later - t) * reward[later, lane] for later in range(t, length[lane]))
            assert got[t, lane] == pytest.approx(wanted, rel=1e-3, abs=1e-3)


def test_with_the_true_values_nothing_is_an_advantage():
    """Reward 1 for ever is worth 1 / (1 - gamma): a horizon that bootstraps does not change that."""
    values = f32(np.full((T + 1, B), 10.0))
    assert np.abs(gae(Discounting(0.9, 0.95), rollout_of(np.ones((T, B))), values)).max() < 1e-4
    ended = np.zeros((T, B), bool)
    ended[-1] = True
    assert np.asarray(gae(Discounting(0.9, 0.95), rollout_of(np.ones((T, B)), ended), values))[-1].max() == -9


def test_standardise_over_live_steps():
    rng = np.random.default_rng(0)
    advantages, live = 5 + 3 * rng.normal(size=(T, B)), rng.random((T, B)) < 0.6
    got = np.asarray(standardise(f32(advantages), f32(live)))
    wanted = (advantages[live] - advantages[live].mean()) / advantages[live].std()
    np.testing.assert_allclose(got[live], wanted, rtol=1e-4, atol=1e-5)
    assert not got[~live].any()
    changed = np.where(live, advantages, 1e6)
    np.testing.assert_allclose(standardise(f32(changed), f32(live)), got, rtol=1e-5)


@pytest.mark.parametrize("live", [np.ones((T, B)), np.zeros((T, B))])
def test_standardise_without_any_spread(live: np.ndarray):
    assert not np.asarray(standardise(jnp.full((T, B), 3.0), f32(live))).any()


def test_features():
    """[o, o^2, t, t^2, t^3, 1]: o normalised and clipped at 10, t in hundreds of steps."""
    rng = np.random.default_rng(0)
    obs = 30 * rng.normal(size=(T, B, 2))
    mean, std = np.array([1.0, 2.0]), np.array([2.0, 0.5])
    o = np.clip((obs - mean) / std, -10, 10)
    t = np.broadcast_to(np.arange(T)[:, None, None] / 100, (T, B, 1))
    wanted = np.concatenate([o, o**2, t, t**2, t**3, np.ones_like(t)], axis=2)
    normaliser = Normaliser(f32(mean), f32(std))
    np.testing.assert_allclose(features(f32(obs), normaliser, f32(t[..., 0] * 100)), wanted, rtol=1e-4, atol=1e-5)
    rollout = rollout_of(np.zeros((T - 1, B)), obs=obs)
    np.testing.assert_allclose(rollout_features(rollout, normaliser), wanted, rtol=1e-4, atol=1e-5)


def regression(n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features as they come: of very different sizes, one column constant; some rows are dead and wrong."""
    rng = np.random.default_rng(0)
    o = rng.normal(size=(n, 2))
    t = np.tile(np.arange(50) / 100, n // 50)[:, None]
    x = np.hstack([o, np.zeros((n, 1)), o**2, np.zeros((n, 1)), t, t**2, t**3, np.ones((n, 1))])
    y = 100 + 30 * o[:, 0] - 20 * o[:, 1] ** 2 + 50 * t[:, 0] + 5 * rng.normal(size=n)
    live = (rng.random(n) < 0.7).astype(np.float64)
    return x, np.where(live == 1, y, 1e4), live


@pytest.mark.parametrize("strength", [1e-5, 1e-2, 1.0])
def test_ridge_against_lstsq(strength: float):
    """The penalty is on columns of unit mean square: as further rows of a least-squares problem, in float64."""
    x, y, live = regression()
    n = live.sum()
    size = np.sqrt(live @ x**2 / n) + 1e-8
    rows = np.vstack([(x / size) * np.sqrt(live / n)[:, None], np.sqrt(strength) * np.eye(x.shape[1])])
    wanted = np.linalg.lstsq(rows, np.concatenate([y * np.sqrt(live / n), np.zeros(x.shape[1])]), rcond=None)[0] / size
    value = Ridge(strength).fit(RidgeValue(jnp.zeros(x.shape[1])), f32(x), f32(y), f32(live), KEY, ANY)
    alive = live == 1
    got = np.asarray(value(f32(x)))[alive]
    assert np.abs(got - (x @ wanted)[alive]).max() < 1e-3 * np.std(y[alive])


def test_ridge_explains_what_it_can():
    x, y, live = regression()
    value = Ridge().fit(RidgeValue(jnp.zeros(x.shape[1])), f32(x), f32(y), f32(live), KEY, ANY)
    error = (np.asarray(value(f32(x))) - y)[live == 1]
    assert error.std() == pytest.approx(5, rel=0.15)  # the noise of the targets


def test_ridge_keeps_its_old_weights_when_it_cannot_be_solved():
    old = RidgeValue(jnp.arange(10.0))
    x, y, live = regression()
    for broken in (np.full_like(y, np.nan), np.full_like(y, np.inf)):
        new = Ridge().fit(old, f32(x), f32(broken), f32(live), KEY, ANY)
        np.testing.assert_array_equal(new.weights, old.weights)


def test_a_small_mlp_learns():
    """What a ridge on these features cannot: a product. The dead rows are elsewhere."""
    rng = np.random.default_rng(0)
    o = rng.normal(size=(2000, 2))
    rest = np.zeros((2000, 3))
    x = np.hstack([o, o**2, rest, np.ones((2000, 1))])
    live = (rng.random(2000) < 0.7).astype(np.float64)
    y = np.where(live == 1, 500 + 20 * o[:, 0] * o[:, 1], -1e3)
    settings = SmallMLP(hidden=(32, 32), learning_rate=3e-3, steps=300, batch=200)
    fit = jax.jit(settings.fit)
    value = settings.begin(2, KEY)
    for i in range(3):
        value = fit(value, f32(x), f32(y), f32(live), jax.random.PRNGKey(i), ANY)
    alive = live == 1
    assert np.mean((np.asarray(value(f32(x))) - y)[alive] ** 2) < 0.1 * np.var(y[alive])


def test_a_small_mlp_moves_with_its_targets():
    """It predicts standardised targets: before it has learned anything it has the mean and the spread of new ones."""
    settings = SmallMLP(hidden=(4,), learning_rate=1e-12, steps=3, batch=10)
    before = settings.begin(2, KEY)
    x, y = np.random.default_rng(0).normal(size=(50, 8)), np.random.default_rng(1).normal(size=50)
    live = (np.arange(50) < 40).astype(np.float64)
    after = settings.fit(before, f32(x), f32(1000 * y - 500), f32(live), KEY, ANY)
    wanted = (1000 * y - 500)[:40]
    np.testing.assert_allclose(after(f32(x)), wanted.mean() + wanted.std() * np.asarray(before(f32(x))), rtol=1e-4)


@pytest.mark.parametrize(
    "wrong", [{"hidden": ()}, {"hidden": (0,)}, {"steps": 0}, {"batch": 0}, {"learning_rate": 0.0}]
)
def test_impossible_baselines(wrong: dict):
    with pytest.raises(UserError):
        SmallMLP(**wrong)
    with pytest.raises(UserError):
        Ridge(-1.0)


@pytest.mark.parametrize("wrong", [{"gamma": 1.0}, {"gamma": -0.1}, {"lam": 1.1}, {"lam": -0.1}])
def test_impossible_settings(wrong: dict):
    with pytest.raises(UserError):
        Discounting(**wrong)
