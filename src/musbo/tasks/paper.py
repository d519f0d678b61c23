"""The paper's tasks on Mujoco: model rewards and terminations of the locomotion bodies.

Velocity and height are read from the next state. The model reward is for training in imagination; the score that is
reported is the simulator's own return. Observations leave out the horizontal position, so o[0] is the height z and
o[1] the pitch on hopper and walker2d.
"""

from typing import TypedDict

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from musbo.tasks.task import DmControl, Gym, Task

EPISODE_STEPS = 1000

# --- rewards: functions of (obs, act, next_obs) ---


def halfcheetah_reward(
    obs: Float[Array, "17"], act: Float[Array, "6"], next_obs: Float[Array, "17"]
) -> Float[Array, ""]:
    return next_obs[8] - 0.1 * jnp.sum(act**2)


def cheetah_run_reward(
    obs: Float[Array, "17"], act: Float[Array, "6"], next_obs: Float[Array, "17"]
) -> Float[Array, ""]:
    return jnp.clip(next_obs[8] / 10, 0.0, 1.0)


def ant_reward(obs: Float[Array, "27"], act: Float[Array, "8"], next_obs: Float[Array, "27"]) -> Float[Array, ""]:
    return next_obs[13] - 0.1 * jnp.sum(act**2) - 3 * (next_obs[0] - 0.57) ** 2 + 1


def hopper_reward(obs: Float[Array, "11"], act: Float[Array, "3"], next_obs: Float[Array, "11"]) -> Float[Array, ""]:
    return next_obs[5] - 0.001 * jnp.sum(act**2) + 1


def walker2d_reward(obs: Float[Array, "17"], act: Float[Array, "6"], next_obs: Float[Array, "17"]) -> Float[Array, ""]:
    return next_obs[8] - 0.001 * jnp.sum(act**2) + 1


# --- terminations: functions of next_obs; a value that is not a number is not healthy either ---


def hopper_terminated(next_obs: Float[Array, "11"]) -> Bool[Array, ""]:
    """Fallen: not (z > 0.7, |angle| < 0.2, |o[1:]| < 100)."""
    healthy = (next_obs[0] > 0.7) & (jnp.abs(next_obs[1]) < 0.2) & jnp.all(jnp.abs(next_obs[1:]) < 100)
    return ~healthy


def walker2d_terminated(next_obs: Float[Array, "17"]) -> Bool[Array, ""]:
    """Fallen or thrown up: not (0.8 < z < 2, |angle| < 1)."""
    healthy = (next_obs[0] > 0.8) & (next_obs[0] < 2.0) & (jnp.abs(next_obs[1]) < 1.0)
    return ~healthy


# --- reset distributions over observations, as Gymnasium's v5 bodies draw them ---


def _halfcheetah_initial(key: PRNGKeyArray) -> Float[Array, "17"]:
    place_key, speed_key = jax.random.split(key)
    place = jax.random.uniform(place_key, (8,), minval=-0.1, maxval=0.1)
    return jnp.concatenate([place, 0.1 * jax.random.normal(speed_key, (9,))])


def _ant_initial(key: PRNGKeyArray) -> Float[Array, "27"]:
    place_key, speed_key = jax.random.split(key)
    rest = jnp.zeros(13).at[0].set(0.75).at[1].set(1.0)  # height, quaternion (its noise is not normalised), 8 joints
    place = rest + jax.random.uniform(place_key, (13,), minval=-0.1, maxval=0.1)
    return jnp.concatenate([place, 0.1 * jax.random.normal(speed_key, (14,))])


def _hopper_initial(key: PRNGKeyArray) -> Float[Array, "11"]:
    return jax.random.uniform(key, (11,), minval=-0.005, maxval=0.005).at[0].add(1.25)


def _walker2d_initial(key: PRNGKeyArray) -> Float[Array, "17"]:
    return jax.random.uniform(key, (17,), minval=-0.005, maxval=0.005).at[0].add(1.25)


# --- what the numbers are: places in the order of the body's joints, then velocities ---


class Named(TypedDict):
    """These fields of a Task."""

    obs_names: tuple[str, ...]
    obs_units: tuple[str, ...]
    act_names: tuple[str, ...]


def _planar(joints: tuple[str, ...]) -> Named:
    """A body in a plane: height and pitch of its torso, and these joints; its horizontal place is not observed."""
    body = ("forward velocity", "vertical velocity", "pitch velocity")
    return {
        "obs_names": ("height", "pitch", *joints, *body, *(f"{joint} velocity" for joint in joints)),
        "obs_units": ("m", *("rad",) * (1 + len(joints)), "m/s", "m/s", *("rad/s",) * (1 + len(joints))),
        "act_names": tuple(f"{joint} torque" for joint in joints),
    }


CHEETAH = _planar(("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot"))
HOPPER = _planar(("thigh", "leg", "foot"))
WALKER = _planar(("right thigh", "right leg", "right foot", "left thigh", "left leg", "left foot"))

_LEGS = ("front left", "front right", "back left", "back right")
_ANT_JOINTS = tuple(f"{leg} {joint}" for leg in _LEGS for joint in ("hip", "ankle"))
ANT: Named = {
    "obs_names": (
        "height", "quaternion w", "quaternion x", "quaternion y", "quaternion z", *_ANT_JOINTS,
        "forward velocity", "sideways velocity", "vertical velocity", "roll velocity", "pitch velocity", "yaw velocity",
        *(f"{joint} velocity" for joint in _ANT_JOINTS),
    ),
    "obs_units": ("m", *("",) * 4, *("rad",) * 8, *("m/s",) * 3, *("rad/s",) * 11),
    "act_names": tuple(f"{joint} torque" for joint in (*_ANT_JOINTS[6:], *_ANT_JOINTS[:6])),
}  # fmt: skip

# --- the tasks ---


halfcheetah = Task(
    name="halfcheetah",
    obs_size=17,
    act_size=6,
    act_low=(-1.0,) * 6,
    act_high=(1.0,) * 6,
    episode_steps=EPISODE_STEPS,
    reward=halfcheetah_reward,
    simulator=Gym("HalfCheetah-v5"),
    speed=8,
    initial=_halfcheetah_initial,
    **CHEETAH,
)

cheetah_run = Task(
    name="cheetah-run",
    obs_size=17,
    act_size=6,
    act_low=(-1.0,) * 6,
    act_high=(1.0,) * 6,
    episode_steps=EPISODE_STEPS,
    reward=cheetah_run_reward,
    simulator=DmControl("cheetah", "run"),
    speed=8,
    **CHEETAH,
)  # no initial: dm_control lets the body settle for 200 physics steps, which no formula can write down

ant = Task(
    name="ant",
    obs_size=27,
    act_size=8,
    act_low=(-1.0,) * 8,
    act_high=(1.0,) * 8,
    episode_steps=EPISODE_STEPS,
    reward=ant_reward,
    simulator=Gym(
        "Ant-v5",
        (
            ("include_cfrc_ext_in_observation", False),
            ("contact_cost_weight", 0.0),
            ("terminate_when_unhealthy", False),  # Ant never ends here
        ),
    ),
    speed=13,
    initial=_ant_initial,
    **ANT,
)

hopper = Task(
    name="hopper",
    obs_size=11,
    act_size=3,
    act_low=(-1.0,) * 3,
    act_high=(1.0,) * 3,
    episode_steps=EPISODE_STEPS,
    reward=hopper_reward,
    terminated=hopper_terminated,
    simulator=Gym("Hopper-v5"),
    speed=5,
    initial=_hopper_initial,
    **HOPPER,
)

walker2d = Task(
    name="walker2d",
    obs_size=17,
    act_size=6,
    act_low=(-1.0,) * 6,
    act_high=(1.0,) * 6,
    episode_steps=EPISODE_STEPS,
    reward=walker2d_reward,
    terminated=walker2d_terminated,
    simulator=Gym("Walker2d-v5"),
    speed=8,
    initial=_walker2d_initial,
    **WALKER,
)

cheetah_run_gym = Task(
    name="cheetah-run-gym",
    obs_size=17,
    act_size=6,
    act_low=(-1.0,) * 6,
    act_high=(1.0,) * 6,
    episode_steps=EPISODE_STEPS,
    reward=cheetah_run_reward,
    simulator=Gym("HalfCheetah-v5"),
    speed=8,
    initial=_halfcheetah_initial,
    **CHEETAH,
)
