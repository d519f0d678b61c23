"""The toys: the pendulum is Gymnasium's, step by step; the point mass is the textbook's double integrator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.field.worlds import make_gym
from musbo.tasks.builtin import pendulum, pointmass
from musbo.tasks.task import BuiltIn, Task


def exact(task: Task) -> BuiltIn:
    assert isinstance(task.simulator, BuiltIn)
    return task.simulator


def test_pendulum_equals_gymnasium_step_by_step():
    env, ours, rng = make_gym("Pendulum-v1"), exact(pendulum), np.random.default_rng(0)
    step = jax.jit(ours.step)
    for seed in range(5):
        env.reset(seed=seed)
        for _ in range(200):
            # From the same state at every step: both integrate the same equations, in different precision.
            state = jnp.asarray(env.unwrapped.state, jnp.float32)
            act = rng.uniform(-2.5, 2.5, 1).astype(np.float32)  # also beyond the bounds
            obs, reward, terminated, _, _ = env.step(act)
            state, our_reward = step(state, jnp.asarray(act))
            # Near the seam at the bottom the angle jumps by 2 pi; its square does not.
            np.testing.assert_allclose(ours.observe(state), obs, atol=2e-5)
            np.testing.assert_allclose(our_reward, reward, rtol=1e-5, atol=1e-4)
            assert not terminated


def test_pendulum_reward_of_observations_equals_gymnasium():
    env, rng = make_gym("Pendulum-v1"), np.random.default_rng(1)
    reward = pendulum.reward
    assert callable(reward)
    obs, _ = env.reset(seed=3)
    for _ in range(200):
        act = rng.uniform(-2.0, 2.0, 1).astype(np.float32)
        next_obs, theirs, *_ = env.step(act)
        ours = reward(jnp.asarray(obs), jnp.asarray(act), jnp.asarray(next_obs))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
        obs = next_obs


def test_pendulum_hand_numbers():
    # Hanging down (angle pi) at rest with full torque: no pull of gravity, speed 3 * 2 * 0.05 = 0.3, cost pi^2 + 0.004.
    state, reward = exact(pendulum).step(jnp.array([jnp.pi, 0.0]), jnp.array([2.0]))
    np.testing.assert_allclose(state, [np.pi + 0.015, 0.3], atol=1e-5)
    np.testing.assert_allclose(reward, -(np.pi**2 + 0.004), rtol=1e-5)


def test_pendulum_starts_where_gymnasium_does():
    states = np.asarray(jax.vmap(exact(pendulum).reset)(jax.random.split(jax.random.key(0), 4000)))
    np.testing.assert_allclose(np.abs(states).max(0), [np.pi, 1.0], rtol=0.01)
    np.testing.assert_allclose(states.std(0), np.array([np.pi, 1.0]) / np.sqrt(3), rtol=0.05)
    env = make_gym("Pendulum-v1")
    theirs = np.array([(env.reset(seed=i), env.unwrapped.state)[1] for i in range(500)])
    np.testing.assert_allclose(theirs.std(0), states.std(0), rtol=0.1)


@given(
    st.lists(st.tuples(st.floats(-1.5, 1.5), st.floats(-1.5, 1.5)), min_size=1, max_size=20),
    st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4),
)
def test_pointmass_equals_the_double_integrator(forces, start):
    """Closed form: v_n = v_0 + dt sum f_i, p_n = p_0 + n dt v_0 + dt^2 sum (n - i - 1/2) f_i, with clipped forces."""
    dt, n = 0.1, len(forces)
    f = np.clip(np.array(forces), -1, 1)
    p, v = np.array(start[:2]), np.array(start[2:])
    state = jnp.asarray(start, jnp.float32)
    for force in forces:
        state, _ = exact(pointmass).step(state, jnp.asarray(force, jnp.float32))
    weights = (n - np.arange(n) - 0.5)[:, None]
    np.testing.assert_allclose(state[:2], p + n * dt * v + dt**2 * (weights * f).sum(0), atol=2e-5)
    np.testing.assert_allclose(state[2:], v + dt * f.sum(0), atol=1e-5)


def test_pointmass_reward_hand_numbers():
    # From (1, 0) at rest, force (-1, 0.5): p = (1 - 0.005, 0.0025), reward -(p.p) - 0.01 * 1.25.
    state, reward = exact(pointmass).step(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([-1.0, 0.5]))
    np.testing.assert_allclose(state, [0.995, 0.0025, -0.1, 0.05], atol=1e-6)
    np.testing.assert_allclose(reward, -(0.995**2 + 0.0025**2) - 0.0125, rtol=1e-5)


@pytest.mark.parametrize("task", [pendulum, pointmass], ids=lambda task: task.name)
def test_model_reward_equals_the_simulators_and_the_start_states_too(task):
    keys = jax.random.split(jax.random.key(1), 100)
    ours = exact(task)
    assert callable(task.reward) and task.initial is not None
    states = jax.vmap(ours.reset)(keys)
    np.testing.assert_array_equal(jax.vmap(task.initial)(keys), jax.vmap(ours.observe)(states))
    acts = jax.random.uniform(jax.random.key(2), (100, task.act_size), minval=-3.0, maxval=3.0)
    next_states, rewards = jax.vmap(ours.step)(states, acts)
    obs, next_obs = jax.vmap(ours.observe)(states), jax.vmap(ours.observe)(next_states)
    np.testing.assert_allclose(np.asarray(jax.vmap(task.reward)(obs, acts, next_obs)), rewards, rtol=1e-4, atol=1e-5)
