"""A task of your own, with a simulator in a few lines of jax.numpy: a diving float that has to hold its depth.

python examples/own_task.py
musbo run examples/own_task.py:TASK --preset quick      the same from the command line
"""

import jax
import jax.numpy as jnp
import numpy as np

import musbo

STEP = 0.2  # seconds


# All functions are for ONE float; musbo maps them over many.


def reset(key):
    """State: depth relative to the wanted one (m), and velocity (m/s)."""
    return jax.random.uniform(key, (2,), minval=-1.0) * jnp.array([2.0, 0.5])


def step(state, act):
    """The pump pushes, the water drags; returns the next state and the reward."""
    depth, velocity = state
    velocity = velocity + STEP * (2.0 * act[0] - 0.5 * velocity * jnp.abs(velocity))
    after = jnp.stack([depth + STEP * velocity, velocity])
    return after, reward(state, act, after)


def observe(state):
    return state


def reward(obs, act, next_obs):
    """Near the wanted depth, and with little pumping."""
    return 1.0 - next_obs[0] ** 2 - 0.05 * act[0] ** 2


def terminated(next_obs):
    """Too far away: the float is lost."""
    return jnp.abs(next_obs[0]) > 4.0


TASK = musbo.Task(
    name="float",
    obs_size=2,
    act_size=1,
    act_low=(-1.0,),
    act_high=(1.0,),
    episode_steps=100,
    reward=reward,
    terminated=terminated,
    simulator=musbo.BuiltIn(reset, step, observe),
)


def main(budget: int = 3, batch_size: int = 1000, **settings) -> musbo.Result:
    result = musbo.run(TASK, preset="quick", budget=budget, batch_size=batch_size, **settings)
    print("return after each deployment:", result.returns)
    print("one metre too deep, at rest: pump", result.policy(np.array([1.0, 0.0])))
    print("everything about the run:", result.folder)
    return result


if __name__ == "__main__":
    main()
