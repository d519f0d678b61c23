"""Actors that need no explorer: uniformly random actions, and samples of a stochastic policy."""

import jax
import jax.numpy as jnp
import numpy as np

from musbo.core.diagnostics import NOTHING
from musbo.models.actor import Actor, SampleActor, UniformActor, uniform
from musbo.models.frame import Frame
from musbo.models.gaussian import GaussianPolicy
from musbo.models.mlp import init_mlp
from musbo.tasks.builtin import pendulum
from tests.learning.small import OBS, f32, plain_normaliser

B = 20_000
KEY = jax.random.PRNGKey(0)


def act(actor: Actor, n_act: int) -> tuple[np.ndarray, np.ndarray]:
    obs = jnp.zeros((B, OBS))
    got, signal = actor.act(obs, KEY, obs, jnp.zeros((B, n_act)), jnp.zeros(B, bool))
    return np.asarray(got), np.asarray(signal)


def test_uniform():
    actor = UniformActor(f32([-1.0, 0.0]), f32([3.0, 0.5]))
    got, signal = act(actor, n_act=2)
    assert got.dtype == np.float32 and not signal.any()
    assert (got >= [-1.0, 0.0]).all() and (got <= [3.0, 0.5]).all()
    np.testing.assert_allclose(got.mean(axis=0), [1.0, 0.25], atol=0.03)
    np.testing.assert_allclose(got.std(axis=0), np.array([4.0, 0.5]) / np.sqrt(12), rtol=0.02)


def test_the_uniform_actor_of_a_task_has_its_bounds():
    actor = uniform(pendulum)
    np.testing.assert_array_equal(actor.low, pendulum.low)
    np.testing.assert_array_equal(actor.high, pendulum.high)


def sampler() -> SampleActor:
    """Actions between 1 and 5."""
    frame = Frame(plain_normaliser(), centre=f32([3.0]), half_range=f32([2.0]))
    return SampleActor(GaussianPolicy(init_mlp(KEY, (OBS, 4, 2), "tanh"), frame))


def test_samples_of_a_policy():
    """What its `draw` gives with the same key: spread out, and inside the bounds."""
    got, signal = act(sampler(), n_act=1)
    np.testing.assert_array_equal(got, sampler().policy.draw(jnp.zeros((B, OBS)), KEY))
    assert got.std() > 0.1 and got.min() >= 1 and got.max() <= 5 and not signal.any()


def test_they_are_actors_and_have_nothing_to_say():
    for actor in (uniform(pendulum), sampler()):
        assert isinstance(actor, Actor) and not actor.needs_oracle
        assert actor.findings(np.zeros(3, np.float32), 0.5) == NOTHING
