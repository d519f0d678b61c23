"""The ensemble of value networks: on values that are known, and where a regression on the same data runs away."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.learning.advantage import Baseline, Discounting, Ridge, gae, limits, rollout_features
from musbo.learning.imagine import Rollout
from musbo.learning.value import Ensemble, observation
from tests.learning.small import OBS, f32, plain_normaliser, rollout_of

KEY = jax.random.PRNGKey(0)
SMALL = Ensemble(hidden=(32, 32), learning_rate=3e-3, steps=20, batch=100)


@cache
def improved(baseline: Baseline) -> Any:
    """One update of V on lambda-returns that are bootstrapped with it, as an update of the policy does it."""

    @jax.jit
    def once(value: Any, rollout: Rollout, key: Any) -> Any:
        settings = Discounting(0.95, 0.5)
        phi = rollout_features(rollout, plain_normaliser())
        values = value(phi.reshape(-1, phi.shape[2])).reshape(phi.shape[:2])
        wanted = gae(settings, rollout, values) + values[:-1]
        flat, live = phi[:-1].reshape(-1, phi.shape[2]), rollout.live.reshape(-1).astype(jnp.float32)
        return baseline.fit(value, flat, wanted.reshape(-1), live, key, limits(settings, rollout))

    return once


def learned(baseline: Baseline, rollout: Rollout, updates: int) -> Any:
    value = baseline.begin(OBS, KEY)
    for key in jax.random.split(KEY, updates):
        value = improved(baseline)(value, rollout, key)
    return value


def at(value: Any, place: Any) -> np.ndarray:
    """V where the first coordinate is `place`, and the second 0."""
    obs = np.stack([place, np.zeros_like(place)], axis=1)
    return np.asarray(value(f32(np.hstack([obs, obs**2, np.zeros((len(obs), 3)), np.ones((len(obs), 1))]))))


def explained(got: np.ndarray, true: np.ndarray) -> float:
    return 1 - float(np.mean((got - true) ** 2) / np.var(true))


def leaping() -> Rollout:
    """One step each, from [-1, 1] to three times as far: where nothing is fitted, and the return is bootstrapped."""
    start = np.linspace(-1, 1, 200)
    obs = np.zeros((2, 200, OBS))
    obs[0, :, 0], obs[1, :, 0] = start, 3 * start
    return rollout_of(start[None] ** 2, obs=obs)


def test_it_cannot_run_away_where_a_regression_does():
    """A square that is read off at three times the distance is nine times as large: times 0.95, at every update."""
    far = np.linspace(-10, 10, 41)
    ridge = np.abs(at(learned(Ridge(), leaping(), 12), far)).max()
    assert ridge > 1e6
    seen = [np.abs(at(learned(SMALL, leaping(), updates), far)).max() for updates in (1, 12, 60)]
    assert max(seen) <= 1 / (1 - 0.95) + 1e-3  # a reward of at most 1, for ever


def walking(pays: float, every: float) -> Rollout:
    """From many places in [-1, 1] by 0.1 a step; beyond 1 it ends, and that pays. What has ended begins anew."""
    t, b = 40, 30
    rng = np.random.default_rng(0)
    place = rng.uniform(-1, 1, b)
    obs, reward, ended = np.zeros((t + 1, b, OBS)), np.full((t, b), every), np.zeros((t, b), bool)
    for i in range(t):
        obs[i, :, 0] = place
        place = place + 0.1
        ended[i] = place > 1
        reward[i] += pays * ended[i]
        place = np.where(ended[i], rng.uniform(-1, 1, b), place)
    obs[t, :, 0] = place
    return rollout_of(reward, ended, obs=obs)


def worth(place: np.ndarray, pays: float, every: float) -> np.ndarray:
    """In closed form: n steps are left, the last of which pays."""
    n = np.floor(np.round((1 - place) / 0.1, 6)) + 1
    return 0.95 ** (n - 1) * pays + every * (1 - 0.95**n) / (1 - 0.95)


@pytest.mark.parametrize(("pays", "every"), [(1.0, 0.0), (-100.0, 0.0), (0.0, 1.0), (-5.0, 0.3)])
def test_it_learns_what_states_are_worth(pays: float, every: float):
    """Also where nothing but an end pays."""
    place = np.linspace(-0.95, 0.95, 20)
    true = worth(place, pays, every)
    assert explained(at(learned(SMALL, walking(pays, every), 60), place), true) > 0.9


def test_nothing_that_does_not_exist_is_learned():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 8))
    live = rng.random(300) < 0.5
    wanted = np.where(live, x[:, 0], 1e3)
    anything = f32(-2e3), f32(2e3)
    value = SMALL.begin(2, KEY)
    for i in range(3):
        value = SMALL.fit(value, f32(x), f32(wanted), f32(live), jax.random.PRNGKey(i), anything)
    assert explained(np.asarray(value(f32(x)))[live], wanted[live]) > 0.9
    bad = np.where(live, x[:, 0], np.nan)
    assert np.isfinite(SMALL.fit(value, f32(x), f32(bad), f32(live), KEY, anything)(f32(x))).all()


def test_new_statistics_do_not_change_what_it_says():
    """With a learning rate of nearly nothing, V before and after other returns is the same function."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 8)), rng.normal(size=200)
    wide, all_of_them = (f32(-1e4), f32(1e4)), f32(np.ones(200))
    before = SMALL.fit(SMALL.begin(2, KEY), f32(x), f32(y), all_of_them, KEY, wide)
    still = Ensemble(hidden=(32, 32), learning_rate=1e-12, steps=1, batch=10)
    after = still.fit(before, f32(x), f32(500 + 30 * y), all_of_them, KEY, wide)
    np.testing.assert_allclose(after(f32(x)), before(f32(x)), atol=1e-3)
    assert float(after.shift) == pytest.approx(0.8 * y.mean() + 0.2 * (500 + 30 * y).mean(), rel=1e-3)
    assert float(after.scale) == pytest.approx(0.8 * y.std() + 0.2 * 30 * y.std(), rel=1e-3)


def test_it_sees_the_observation_alone():
    assert observation(jnp.arange(20.0).reshape(2, 10)).tolist() == [[0, 1, 2], [10, 11, 12]]


def test_its_networks_differ():
    """And V is their mean."""
    value = learned(SMALL, walking(1.0, 0.1), 3)
    x = np.random.default_rng(0).normal(size=(5, 8))
    each = [value.shift + value.scale * np.asarray(jax.vmap(net)(f32(x[:, :2])))[:, 0] for net in _members(value)]
    assert np.abs(each[0] - each[1]).max() > 1e-3
    np.testing.assert_allclose(value(f32(x)), np.clip(np.mean(each, axis=0), value.low, value.high), rtol=1e-4)


def _members(value: Any) -> list[Any]:
    return [jax.tree.map(lambda leaf, i=i: leaf[i], value.networks) for i in range(2)]


@pytest.mark.parametrize(
    "wrong", [{"members": 0}, {"hidden": ()}, {"steps": 0}, {"batch": 0}, {"learning_rate": 0.0}, {"memory": 1.0}]
)
def test_impossible_settings(wrong: dict):
    with pytest.raises(UserError):
        Ensemble(**wrong)
