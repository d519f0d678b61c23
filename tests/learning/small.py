"""Small things to test with: networks without hidden layers are linear, so that everything can be computed by hand."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from musbo.data.batch import Batch, make_batch
from musbo.data.scaling import Normaliser, Scaling
from musbo.learning.imagine import Rollout
from musbo.models.dynamics import Dynamics
from musbo.models.labeler import Labeler, Levels
from musbo.models.mlp import MLP
from musbo.models.policy import Policy
from musbo.models.probabilistic import Probabilistic
from musbo.tasks.task import Task

OBS, ACT = 2, 1


def reward(obs: Array, act: Array, next_obs: Array) -> Array:
    return next_obs[0] - 0.1 * act[0] ** 2


def beyond_one(next_obs: Array) -> Array:
    return next_obs[0] > 1.0


endless = Task("endless", OBS, ACT, (-1.0,), (1.0,), 20, reward)
ending = Task("ending", OBS, ACT, (-1.0,), (1.0,), 20, reward, beyond_one)


def f32(values: object) -> Array:
    return jnp.asarray(np.asarray(values, np.float32))


def stack(*trees: object):
    """Several networks as one ensemble."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def linear(weight: object, bias: object) -> MLP:
    """x -> x @ weight + bias."""
    return MLP((f32(weight),), (f32(bias),), "tanh")


def plain_scaling(obs: int = OBS, act: int = ACT, target: int | None = None) -> Scaling:
    target = obs if target is None else target
    moments = [f(n) for n in (obs, act, target) for f in (jnp.zeros, jnp.ones)]
    return Scaling(*[*moments, jnp.full(obs, -1e6), jnp.full(obs, 1e6)])


def plain_normaliser(obs: int = OBS) -> Normaliser:
    return Normaliser(jnp.zeros(obs), jnp.ones(obs))


def linear_dynamics(*moves: tuple[object, object]) -> Dynamics:
    """Members that add [s, a] @ weight + bias to the state."""
    return Dynamics(stack(*(linear(weight, bias) for weight, bias in moves)), plain_scaling())


def observed(model: Dynamics, far: float) -> Dynamics:
    """As if the data had been between -far and far."""
    return replace(model, scaling=replace(model.scaling, obs_low=jnp.full(OBS, -far), obs_high=jnp.full(OBS, far)))


def linear_policy(weight: object, bias: object, sigma: float = 0.1) -> Policy:
    """tanh(s @ weight + bias) with bounds -1 and 1."""
    mlp = linear(weight, bias)
    n_obs, n_act = mlp.weights[0].shape
    return Policy(mlp, jnp.full(n_act, np.log(sigma)), plain_normaliser(n_obs), jnp.zeros(n_act), jnp.ones(n_act))


def shifting_labeler(
    shifts: Sequence[Sequence[float]], logvar: float = -8.0, levels: tuple[float, ...] = (1, 1, 1, 1)
) -> Labeler:
    """Members that add a constant to the state, each its own, with the same constant log-variance."""

    def one(shift: Sequence[float]) -> Probabilistic:
        n = len(shift)
        mlp = linear(np.zeros((n + ACT, 2 * n)), [*shift, *[logvar] * n])
        return Probabilistic(mlp, jnp.full(n, 20.0), jnp.full(n, -20.0))

    members = stack(*(one(shift) for shift in shifts))
    return Labeler(members, plain_scaling(len(shifts[0])), Levels(*(f32(level) for level in levels)))


def acting_labeler() -> Labeler:
    """Two members that differ by |a| in the first state: one adds the action, the other does not."""

    def one(slope: float) -> Probabilistic:
        weight = np.zeros((OBS + 1, 2 * OBS))
        weight[OBS, 0] = slope
        return Probabilistic(linear(weight, np.zeros(2 * OBS)), f32([9.0, 9.0]), f32([-9.0, -9.0]))

    return Labeler(stack(one(0.0), one(1.0)), plain_scaling(), Levels(*(f32(1.0) for _ in range(4))))


def rollout_of(
    reward: object, terminated: object | None = None, live: object | None = None, obs: object | None = None
) -> Rollout:
    """A rollout with the given rewards [t b]; the rest is plain where it is not given."""
    r = np.asarray(reward, np.float32)
    t, b = r.shape
    states = np.zeros((t + 1, b, OBS), np.float32) if obs is None else np.asarray(obs, np.float32)
    act = jnp.zeros((t, b, ACT))
    return Rollout(
        f32(states[:-1]),
        act,
        act,
        f32(r),
        jnp.asarray(np.zeros((t, b), bool) if terminated is None else np.asarray(terminated, bool)),
        jnp.asarray(np.ones((t, b), bool) if live is None else np.asarray(live, bool)),
        jnp.ones((t, b)),
        f32(states[-1]),
    )


def batch_of(obs: np.ndarray, act: np.ndarray, next_obs: np.ndarray, episode_steps: int, **columns: object) -> Batch:
    """Unchained transitions as episodes of `episode_steps` rows, none of which terminates."""
    n = len(obs)
    last = (np.arange(n) + 1) % episode_steps == 0
    last[-1] = True
    whole = {"reward": np.zeros(n), "terminated": np.zeros(n, bool), "truncated": last, **columns}
    return make_batch(obs=obs, act=act, next_obs=next_obs, **whole)  # type: ignore[arg-type]
