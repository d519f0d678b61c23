"""The squashed Gaussian against numerical integration and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from musbo.data.scaling import Normaliser
from musbo.models.frame import Frame
from musbo.models.gaussian import GaussianPolicy, head, log_density, sample
from musbo.models.mlp import MLP, init_mlp

KEY = jax.random.PRNGKey(0)


def network(obs: int = 3, act: int = 2) -> MLP:
    return init_mlp(KEY, (obs, 8, 2 * act), "tanh", last_gain=2.0)


def test_the_density_integrates_to_one():
    net, x = network(act=1), jax.random.normal(KEY, (1, 3))
    grid = np.tanh(np.linspace(-9, 9, 40_001))
    logp = log_density(net, jnp.repeat(x, len(grid), axis=0), jnp.asarray(grid[:, None], jnp.float32))
    inside = np.abs(grid) < 1 - 1e-5  # nearer to the bound float32 has no digits left
    assert np.trapezoid(np.exp(np.asarray(logp, float))[inside], grid[inside]) == pytest.approx(1.0, abs=5e-3)


def test_against_scipy():
    net, x = network(), jax.random.normal(KEY, (50, 3))
    a, logp = sample(net, x, jax.random.PRNGKey(1))
    ordinary = (np.abs(a) < 0.99).all(axis=1)
    assert ordinary.sum() > 10
    x, a, logp = x[ordinary], a[ordinary], logp[ordinary]
    mean, log_spread = (np.asarray(part, float) for part in head(net, x))
    u = np.arctanh(np.asarray(a, float))
    wanted = (stats.norm.logpdf(u, mean, np.exp(log_spread)) - np.log(1 - np.asarray(a, float) ** 2)).sum(1)
    np.testing.assert_allclose(logp, wanted, atol=2e-3)
    np.testing.assert_allclose(log_density(net, x, a), logp, atol=2e-2)


def test_the_density_is_finite_on_the_bound():
    on_bound = jnp.asarray([[1.0, -1.0]])
    assert np.isfinite(log_density(network(), jnp.ones((1, 3)), on_bound)).all()
    gradient = jax.grad(lambda net: log_density(net, jnp.ones((1, 3)), on_bound)[0])(network())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_policy_knows_its_frame():
    """Raw observations in, raw actions out; the mean is the middle of many draws."""
    frame = Frame(Normaliser(jnp.array([1.0, 2.0, 3.0]), jnp.array([2.0, 1.0, 0.5])), jnp.array([1.0, 0.0]),
                  jnp.array([3.0, 0.5]))  # fmt: skip
    policy = GaussianPolicy(network(), frame)
    obs = jax.random.normal(KEY, (4, 3))
    seen = (np.asarray(obs) - np.array([1.0, 2.0, 3.0])) / np.array([2.0, 1.0, 0.5])
    mean = np.tanh(np.asarray(head(policy.network, jnp.asarray(seen, jnp.float32))[0]))
    np.testing.assert_allclose(policy(obs), np.array([1.0, 0.0]) + np.array([3.0, 0.5]) * mean, rtol=1e-5, atol=1e-6)
    draws = np.asarray(jax.vmap(lambda k: policy.draw(obs, k))(jax.random.split(KEY, 2000)))
    np.testing.assert_allclose(np.median(draws, axis=0), policy(obs), atol=0.35)
    assert (draws >= [-2.0, -0.5]).all() and (draws <= [4.0, 0.5]).all()
