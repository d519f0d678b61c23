"""Actors that need no explorer: random actions, and samples of a stochastic policy."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from musbo.core.diagnostics import NOTHING
from musbo.models.actor import Actor, SampleActor, UniformActor, for_lanes, held, uniform
from musbo.models.frame import Frame
from musbo.models.gaussian import GaussianPolicy
from musbo.models.mlp import init_mlp
from musbo.tasks.builtin import pendulum, pointmass
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


def test_held_actions_last_as_long_as_their_lane_says():
    lanes, steps = 6, 4000
    actor = held(replace(pointmass, act_low=(-2.0, 0.0), act_high=(-1.0, 3.0)))
    obs, act = jnp.zeros((lanes, pointmass.obs_size)), jnp.zeros((lanes, 2))

    def step(last: tuple, key: jax.Array) -> tuple:
        act, _ = actor.act(obs, key, obs, last[0], last[1])
        return (act, jnp.ones(lanes, bool)), act

    _, acts = jax.lax.scan(step, (act, jnp.zeros(lanes, bool)), jax.random.split(jax.random.key(0), steps))
    acts = np.asarray(acts)
    assert (acts >= [-2, 0]).all() and (acts <= [-1, 3]).all()
    assert (acts[0] != 0).all()  # nothing came before the first
    changes = (acts[1:] != acts[:-1]).all(axis=2).mean(axis=0)
    np.testing.assert_allclose(1 / changes, [1, 4, 16] * 2, rtol=0.2)
    np.testing.assert_allclose(acts[:, 0].mean(axis=0), [-1.5, 1.5], atol=0.1)


def test_held_lanes_are_those_that_they_are_told():
    actor = for_lanes(held(pointmass), np.asarray([2, 2, 2]))
    obs, last = jnp.zeros((3, pointmass.obs_size)), jnp.full((3, pointmass.act_size), 0.25)
    kept = [
        np.asarray(actor.act(obs, key, obs, last, jnp.ones(3, bool))[0] == last).all(axis=1)
        for key in jax.random.split(jax.random.key(1), 200)
    ]
    assert 0.88 < np.mean(kept) < 0.98  # 15 of 16
