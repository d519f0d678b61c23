"""Two small tasks with exact dynamics in jax: a pendulum to swing up and a point to bring home.

They need no simulator package and run in milliseconds, so the tutorial, the tests and a first try of one's own idea
start here. The pendulum has the equations, bounds and 200 steps of Gymnasium's Pendulum-v1.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.tasks.task import BuiltIn, Task

# Pendulum: a rod of mass m and length l in gravity g, angle 0 upright, semi-implicit Euler steps of dt.
GRAVITY, MASS, LENGTH, STEP = 10.0, 1.0, 1.0, 0.05
MAX_SPEED, MAX_TORQUE = 8.0, 2.0


def _pendulum_cost(angle: Float[Array, ""], speed: Float[Array, ""], torque: Float[Array, ""]) -> Float[Array, ""]:
    """Of the current state, as in Gymnasium; the angle is measured from upright, in (-pi, pi]."""
    return angle**2 + 0.1 * speed**2 + 0.001 * torque**2


def _pendulum_reset(key: PRNGKeyArray) -> Float[Array, "2"]:
    return jax.random.uniform(key, (2,), minval=-1.0) * jnp.array([jnp.pi, 1.0])


def _pendulum_step(state: Float[Array, "2"], act: Float[Array, "1"]) -> tuple[Float[Array, "2"], Float[Array, ""]]:
    angle, speed = state
    torque = jnp.clip(act[0], -MAX_TORQUE, MAX_TORQUE)
    pull = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(angle) + 3 / (MASS * LENGTH**2) * torque
    next_speed = jnp.clip(speed + pull * STEP, -MAX_SPEED, MAX_SPEED)
    reward = -_pendulum_cost(jnp.atan2(jnp.sin(angle), jnp.cos(angle)), speed, torque)
    return jnp.stack([angle + next_speed * STEP, next_speed]), reward


def _pendulum_observe(state: Float[Array, "2"]) -> Float[Array, "3"]:
    angle, speed = state
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])


def pendulum_reward(obs: Float[Array, "3"], act: Float[Array, "1"], next_obs: Float[Array, "3"]) -> Float[Array, ""]:
    """-(angle^2 + 0.1 speed^2 + 0.001 torque^2), all before the step."""
    torque = jnp.clip(act[0], -MAX_TORQUE, MAX_TORQUE)
    return -_pendulum_cost(jnp.atan2(obs[1], obs[0]), obs[2], torque)


def _pendulum_initial(key: PRNGKeyArray) -> Float[Array, "3"]:
    return _pendulum_observe(_pendulum_reset(key))


pendulum = Task(
    name="pendulum",
    obs_size=3,
    act_size=1,
    act_low=(-MAX_TORQUE,),
    act_high=(MAX_TORQUE,),
    episode_steps=200,
    reward=pendulum_reward,
    simulator=BuiltIn(reset=_pendulum_reset, step=_pendulum_step, observe=_pendulum_observe),
    initial=_pendulum_initial,
    obs_names=("cosine of the angle", "sine of the angle", "angular velocity"),
    obs_units=("", "", "rad/s"),
    act_names=("torque",),
    act_units=("N m",),
)

# Point mass: p'' = force, unit mass, the force constant during a step, so that the step is exact.
POINT_STEP = 0.1


def _point_reset(key: PRNGKeyArray) -> Float[Array, "4"]:
    """Anywhere in the square [-1, 1]^2, at rest."""
    return jnp.concatenate([jax.random.uniform(key, (2,), minval=-1.0), jnp.zeros(2)])


def _point_step(state: Float[Array, "4"], act: Float[Array, "2"]) -> tuple[Float[Array, "4"], Float[Array, ""]]:
    place, velocity = state[:2], state[2:]
    force = jnp.clip(act, -1.0, 1.0)
    next_place = place + velocity * POINT_STEP + force * (POINT_STEP**2 / 2)
    next_state = jnp.concatenate([next_place, velocity + force * POINT_STEP])
    return next_state, pointmass_reward(state, act, next_state)


def _point_observe(state: Float[Array, "4"]) -> Float[Array, "4"]:
    return state


def pointmass_reward(obs: Float[Array, "4"], act: Float[Array, "2"], next_obs: Float[Array, "4"]) -> Float[Array, ""]:
    """- p.p - 0.01 a.a with the place p after the step."""
    force = jnp.clip(act, -1.0, 1.0)
    return -jnp.sum(next_obs[:2] ** 2) - 0.01 * jnp.sum(force**2)


pointmass = Task(
    name="pointmass",
    obs_size=4,
    act_size=2,
    act_low=(-1.0, -1.0),
    act_high=(1.0, 1.0),
    episode_steps=50,
    reward=pointmass_reward,
    simulator=BuiltIn(reset=_point_reset, step=_point_step, observe=_point_observe),
    initial=_point_reset,
    obs_names=("x", "y", "velocity in x", "velocity in y"),
    obs_units=("m", "m", "m/s", "m/s"),
    act_names=("force in x", "force in y"),
    act_units=("N", "N"),
)
