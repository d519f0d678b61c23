"""P: the soft clamp and the prediction against NumPy, and members that predict the same under another scaling."""

from functools import partial

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from musbo.models import labeler
from musbo.models.mlp import member
from musbo.models.probabilistic import Probabilistic
from tests.learning.small import ACT, OBS, endless, f32, linear
from tests.models.test_dynamics import random_scaling
from tests.models.test_mlp import forward, random_mlp


def softplus(x: np.ndarray | float) -> np.ndarray:
    return np.logaddexp(0, x)


def clamped(raw: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    below = high - softplus(high - raw)
    return low + softplus(below - low)


def test_log_variance_against_numpy():
    rng = np.random.default_rng(0)
    mlp = random_mlp(rng, "silu", (3, 5, 4))
    network = Probabilistic(mlp, f32([0.5, 1.0]), f32([-10.0, -2.0]))
    for _ in range(20):
        x = 5 * rng.normal(size=3)
        mean, logvar = network(f32(x))
        out = forward(mlp, x)
        np.testing.assert_allclose(mean, out[:2], rtol=1e-4, atol=1e-5)
        wanted = clamped(out[2:], np.array([-10.0, -2.0]), np.array([0.5, 1.0]))
        np.testing.assert_allclose(logvar, wanted, rtol=1e-4, atol=1e-5)


@given(st.floats(-1000, 1000))
def test_log_variance_stays_inside(raw: float):
    """And is the raw value well inside."""
    network = Probabilistic(linear([[0.0, 1.0]], [0.0, 0.0]), f32([0.5]), f32([-10.0]))
    logvar = float(network(f32([raw]))[1][0])
    assert -10.0001 <= logvar <= 0.5 + 1e-4
    if -6 < raw < -4:
        assert abs(logvar - raw) < 0.03


def test_prediction_in_raw_units():
    rng = np.random.default_rng(0)
    scaling = random_scaling(rng, OBS + 1)  # a learned reward is in the scaling, and P never predicts it
    network = Probabilistic(random_mlp(rng, "tanh", (OBS + ACT, 5, 2 * OBS)), f32([0.5, 0.5]), f32([-10.0, -10.0]))
    obs, act = rng.normal(size=OBS), rng.normal(size=ACT)
    x = np.concatenate([(obs - scaling.obs_mean) / scaling.obs_std, (act - scaling.act_mean) / scaling.act_std])
    out = forward(network.mlp, x)
    mean, std = labeler.predict(network, scaling, f32(obs), f32(act))
    target_mean, target_std = (np.asarray(a)[:OBS] for a in (scaling.target_mean, scaling.target_std))
    np.testing.assert_allclose(mean, obs + target_mean + target_std * out[:OBS], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std, target_std * np.exp(clamped(out[OBS:], -10, 0.5) / 2), rtol=1e-4)


def test_another_scaling_same_distribution():
    rng = np.random.default_rng(0)
    members = labeler.init_members(jax.random.PRNGKey(0), endless, (5,), "silu", 3)
    before = jax.tree.map(lambda leaf: leaf + f32(rng.normal(size=leaf.shape)), members)
    for target in (OBS, OBS + 1):
        old, new = (random_scaling(rng, target) for _ in range(2))
        after = labeler.rescale(before, old, new)
        obs, act = f32(rng.normal(size=(20, OBS))), f32(rng.uniform(-1, 1, (20, ACT)))
        for i in range(3):
            one, two = (
                jax.vmap(partial(labeler.predict, member(m, i), s))(obs, act) for m, s in ((before, old), (after, new))
            )
            np.testing.assert_allclose(two[0], one[0], rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(two[1], one[1], rtol=1e-3)


def test_bounds_start_where_the_lineage_has_them():
    members = labeler.init_members(jax.random.PRNGKey(0), endless, (5,), "silu", 3)
    np.testing.assert_array_equal(members.max_logvar, np.full((3, OBS), 0.5, np.float32))
    np.testing.assert_array_equal(members.min_logvar, np.full((3, OBS), -10.0, np.float32))
