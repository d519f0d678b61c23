"""The stochastic ensemble against NumPy: predictions and doubt in raw units, and the distribution of its steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.models.probabilistic import Probabilistic
from musbo.models.stochastic import Stochastic, largest_spread, predict, step
from tests.learning.small import ACT, OBS, endless, f32
from tests.models.test_dynamics import random_scaling
from tests.models.test_labeler import clamped
from tests.models.test_mlp import forward, random_mlp

KEY = jax.random.PRNGKey(0)
OUT = OBS + 1  # with the reward


def some_model(members: int = 4, elites: tuple[int, ...] = (1, 3), outputs: int = OUT) -> Stochastic:
    rng = np.random.default_rng(1)
    nets = [
        Probabilistic(random_mlp(rng, "silu", (OBS + ACT, 5, 2 * outputs)), f32([0.5] * outputs), f32([-8.0] * outputs))
        for _ in range(members)
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *nets)
    return Stochastic(stacked, random_scaling(rng, OUT), jnp.asarray(elites))


def by_hand(model: Stochastic, obs: np.ndarray, act: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations of every member in raw units, [k out]."""
    s = model.scaling
    x = np.concatenate([(obs - s.obs_mean) / s.obs_std, (act - s.act_mean) / s.act_std])
    means, stds = [], []
    for i in range(len(model.members.max_logvar)):
        out = forward(jax.tree.map(lambda leaf, i=i: leaf[i], model.members.mlp), x)
        half = len(out) // 2
        means.append(np.asarray(s.target_mean) + np.asarray(s.target_std) * out[:half][:OUT])
        stds.append(np.asarray(s.target_std) * np.exp(clamped(out[half:], -8.0, 0.5) / 2)[:OUT])
    return np.stack(means), np.stack(stds)


def test_prediction_and_doubt_in_raw_units():
    model, rng = some_model(), np.random.default_rng(2)
    obs, act = rng.normal(size=(6, OBS)), rng.normal(size=(6, ACT))
    doubt = largest_spread(model, f32(obs), f32(act))
    for row in range(6):
        means, stds = by_hand(model, obs[row], act[row])
        for i in range(4):
            net = jax.tree.map(lambda leaf, i=i: leaf[i], model.members)
            mean, std = predict(net, model.scaling, f32(obs[row]), f32(act[row]))
            np.testing.assert_allclose(mean, means[i], rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(std, stds[i], rtol=1e-4)
        # over all members, elite or not, and over state and reward
        assert float(doubt[row]) == pytest.approx(np.linalg.norm(stds, axis=1).max(), rel=1e-4)


def test_a_step_is_a_mixture_of_the_elites():
    """Mean and variance of many draws against those of the mixture of two Gaussians."""
    model, n = some_model(), 200_000
    obs, act = np.full(OBS, 0.3), np.full(ACT, -0.2)
    next_obs, reward, ended = step(
        endless, model, f32(np.tile(obs, (n, 1))), f32(np.tile(act, (n, 1))), jax.random.PRNGKey(4)
    )
    assert not np.asarray(ended).any()
    drawn = np.concatenate([np.asarray(next_obs) - f32(obs)[None], np.asarray(reward)[:, None]], axis=1)
    means, stds = (each[[1, 3]] for each in by_hand(model, obs, act))
    centre = means.mean(0)
    variance = (stds**2 + means**2).mean(0) - centre**2
    np.testing.assert_allclose(drawn.mean(0), centre, atol=float(5 * np.sqrt(variance.max() / n)))
    np.testing.assert_allclose(drawn.var(0), variance, rtol=0.03)


def test_terminations_given_and_learned():
    from dataclasses import replace

    obs, act = f32(np.random.default_rng(0).normal(size=(50, OBS))), f32(np.zeros((50, ACT)))
    given = replace(endless, terminated=lambda s: s[0] > 0)
    next_obs, _, ended = step(given, some_model(), obs, act, KEY)
    np.testing.assert_array_equal(ended, np.asarray(next_obs)[:, 0] > 0)
    assert 0 < int(np.sum(ended)) < 50

    model = some_model(outputs=OUT + 1)
    last = model.members.mlp.biases[-1].at[:, OUT].set(jnp.asarray([9.0, 9.0, 9.0, -9.0]))  # member 1 says yes, 3 no
    mlp = replace(model.members.mlp, biases=(*model.members.mlp.biases[:-1], last))
    model = replace(model, members=replace(model.members, mlp=mlp))
    learned = replace(endless, terminated="learned")
    ended = np.asarray(step(learned, model, jnp.zeros((2000, OBS)), jnp.zeros((2000, ACT)), KEY)[2])
    assert ended.mean() == pytest.approx(0.5, abs=0.06)
    # the flag's own spread costs nothing
    wide = replace(model.members, max_logvar=model.members.max_logvar.at[:, OUT].set(40.0))
    np.testing.assert_array_equal(
        largest_spread(model, obs, act), largest_spread(replace(model, members=wide), obs, act)
    )
