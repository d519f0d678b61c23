"""Six of the ten tasks of the bench, declared as a user would declare a task of one's own; the others come with musbo.

Where a simulator is all that one has, the reward is learned; termination is learned where episodes end. The mountain
car is written out, because its reward is ours, and has one of both kinds of formula that a user may bring.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from musbo.tasks.task import BuiltIn, DmControl, Gym, Task

# --- the mountain car: equations, bounds and goal of Gymnasium's MountainCarContinuous-v0, with a shaped reward ---

POWER, GRAVITY = 0.0015, 0.0025
LOWEST, HIGHEST, FASTEST = -1.2, 0.6, 0.07
GOAL = 0.45
GAIN = 60_000.0
"""What a unit of energy is worth: with it, the way from the bottom to the goal is worth about as much as the goal."""


def _car_reset(key: PRNGKeyArray) -> Float[Array, "2"]:
    """At rest near the bottom of the valley."""
    return jnp.stack([jax.random.uniform(key, minval=-0.6, maxval=-0.4), jnp.zeros(())])


def _car_step(state: Float[Array, "2"], act: Float[Array, "1"]) -> tuple[Float[Array, "2"], Float[Array, ""]]:
    place, speed = state
    force = jnp.clip(act[0], -1.0, 1.0)
    speed = jnp.clip(speed + POWER * force - GRAVITY * jnp.cos(3 * place), -FASTEST, FASTEST)
    place = jnp.clip(place + speed, LOWEST, HIGHEST)
    speed = jnp.where((place <= LOWEST) & (speed < 0), 0.0, speed)
    next_state = jnp.stack([place, speed])
    return next_state, mountain_car_reward(state, act, next_state)


def _car_observe(state: Float[Array, "2"]) -> Float[Array, "2"]:
    return state


def mountain_car_energy(obs: Float[Array, "2"]) -> Float[Array, ""]:
    """Of height and speed; without a force it hardly changes."""
    return GRAVITY / 3 * jnp.sin(3 * obs[0]) + obs[1] ** 2 / 2


def mountain_car_terminated(next_obs: Float[Array, "2"]) -> Bool[Array, ""]:
    """At the goal, not rolling back."""
    return (next_obs[0] >= GOAL) & (next_obs[1] >= 0)


def mountain_car_reward(
    obs: Float[Array, "2"], act: Float[Array, "1"], next_obs: Float[Array, "2"]
) -> Float[Array, ""]:
    """100 at the goal - 0.1 force^2 + 60,000 times the energy gained.

    The first two are Gymnasium's own. The engine is weaker than the slope, so energy can only be gained by swinging.
    """
    force = jnp.clip(act[0], -1.0, 1.0)
    gained = mountain_car_energy(next_obs) - mountain_car_energy(obs)
    return jnp.where(mountain_car_terminated(next_obs), 100.0, 0.0) - 0.1 * force**2 + GAIN * gained


mountain_car = Task(
    name="mountain-car",
    obs_size=2,
    act_size=1,
    act_low=(-1.0,),
    act_high=(1.0,),
    episode_steps=200,  # not 999: a batch of 2,000 would be two episodes
    reward=mountain_car_reward,
    terminated=mountain_car_terminated,
    simulator=BuiltIn(reset=_car_reset, step=_car_step, observe=_car_observe),
    initial=_car_reset,
)

# --- simulators of which only the simulator is known ---

double_pendulum = Task(
    name="double-pendulum",
    obs_size=9,
    act_size=1,
    act_low=(-1.0,),
    act_high=(1.0,),
    episode_steps=1000,
    reward="learned",
    terminated="learned",
    simulator=Gym("InvertedDoublePendulum-v5"),
)

reacher = Task(
    name="reacher",
    obs_size=10,
    act_size=2,
    act_low=(-1.0,) * 2,
    act_high=(1.0,) * 2,
    episode_steps=50,
    reward="learned",
    simulator=Gym("Reacher-v5"),
)

swimmer = Task(
    name="swimmer",
    obs_size=8,
    act_size=2,
    act_low=(-1.0,) * 2,
    act_high=(1.0,) * 2,
    episode_steps=1000,
    reward="learned",
    simulator=Gym("Swimmer-v5"),
)

cartpole_swingup = Task(
    name="cartpole-swingup",
    obs_size=5,
    act_size=1,
    act_low=(-1.0,),
    act_high=(1.0,),
    episode_steps=1000,
    reward="learned",
    simulator=DmControl("cartpole", "swingup"),
)

walker_walk = Task(
    name="walker-walk",
    obs_size=24,
    act_size=6,
    act_low=(-1.0,) * 6,
    act_high=(1.0,) * 6,
    episode_steps=1000,
    reward="learned",
    simulator=DmControl("walker", "walk"),
)
