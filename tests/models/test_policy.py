"""The policy against NumPy: squashing to any action range, clipping, and the normaliser that travels with it."""

import jax
import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.data.scaling import Normaliser
from musbo.models.policy import Policy, PolicySettings, init_policy, renormalise
from musbo.tasks.task import Task
from tests.learning.small import f32, reward
from tests.models.test_mlp import forward, random_mlp

TASK = Task("wide", 3, 2, (-1.0, 0.0), (3.0, 0.5), 10, reward)


def random_policy(rng: np.random.Generator) -> Policy:
    normaliser = Normaliser(f32(rng.normal(size=3)), f32(rng.uniform(0.3, 3, 3)))
    return Policy(random_mlp(rng, "tanh"), f32([0.1, 0.2]), normaliser, f32(TASK.centre), f32(TASK.half_range))


def test_mean_against_numpy():
    rng = np.random.default_rng(0)
    policy = random_policy(rng)
    obs = 3 * rng.normal(size=(50, 3))
    normalised = (obs - np.asarray(policy.normaliser.mean)) / np.asarray(policy.normaliser.std)
    wanted = np.array([1.0, 0.25]) + np.array([2.0, 0.25]) * np.tanh(forward(policy.mlp, normalised))
    np.testing.assert_allclose(policy(f32(obs)), wanted, rtol=1e-3, atol=1e-4)


def test_clipping_is_to_the_bounds():
    policy = random_policy(np.random.default_rng(0))
    act = f32([[-9.0, -9.0], [9.0, 9.0], [2.0, 0.1]])
    np.testing.assert_allclose(policy.clip(act), [[-1.0, 0.0], [3.0, 0.5], [2.0, 0.1]], atol=1e-6)
    np.testing.assert_allclose(policy.clip(act[0]), [-1.0, 0.0], atol=1e-6)


def test_a_new_policy():
    """Near the middle of the range wherever it is; sigma is a share of the half-range."""
    policy = init_policy(jax.random.PRNGKey(0), TASK, PolicySettings(hidden=(32, 32), sigma=0.3))
    acts = np.asarray(policy(f32(np.random.default_rng(0).normal(size=(100, 3)))))
    assert np.abs((acts - TASK.centre) / TASK.half_range).max() < 0.1
    np.testing.assert_allclose(np.exp(policy.log_sigma), 0.3 * TASK.half_range, rtol=1e-5)


def test_another_normaliser_same_policy():
    rng = np.random.default_rng(0)
    before = random_policy(rng)
    normaliser = Normaliser(f32(rng.normal(size=3)), f32(rng.uniform(0.3, 3, 3)))
    after = renormalise(before, normaliser)
    np.testing.assert_array_equal(after.normaliser.std, normaliser.std)
    assert not np.allclose(after.mlp.weights[0], before.mlp.weights[0])
    obs = f32(rng.normal(size=(50, 3)))
    np.testing.assert_allclose(after(obs), before(obs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrong", [{"sigma": 0.0}, {"sigma": float("nan")}, {"hidden": ()}, {"hidden": (5, 0)}])
def test_impossible_settings(wrong: dict):
    with pytest.raises(UserError):
        PolicySettings(**wrong)
