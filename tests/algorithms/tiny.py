"""One tiny setting of Algorithm 1 on the point mass, shared by the tests so that it compiles once.

The world here is stepped by these few lines, not by `field`: what is learned is judged by something else.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.data.batch import Batch, make_batch
from musbo.learning.advantage import Discounting
from musbo.learning.explore import Plain, PlainActor
from musbo.learning.fit import FitSettings
from musbo.learning.handover import BestImagined, Check
from musbo.learning.imagine import Imagine
from musbo.learning.label import Disagreement
from musbo.learning.start import Clone
from musbo.learning.trpo import TRPO
from musbo.models.actor import Actor, Sharing
from musbo.models.policy import Policy, PolicySettings
from musbo.tasks.builtin import pointmass
from musbo.tasks.task import BuiltIn

FIT = FitSettings(
    members=2,
    hidden=(32,),
    activation="silu",
    batch=100,
    epochs=100,
    patience=100,
    learning_rate=3e-3,
    decay="cosine",
)
TINY = ImaginedTRPO(
    label=Disagreement(alpha="auto"),
    start=Clone(epochs=3),
    dynamics=FIT,
    labeler=FIT,
    policy=PolicySettings(hidden=(16,), activation="tanh", sigma=0.3),
    imagine=Imagine(30, 50),
    discount=Discounting(0.97, 0.95),
    trpo=TRPO(delta=0.05),
    updates=30,
    handover=BestImagined(),
    check=Check(every=5, rollouts=10),
)


@eqx.filter_jit
def _episodes(actor: Actor, starts: Float[Array, "b obs"], key: PRNGKeyArray) -> tuple:
    world = pointmass.simulator
    assert isinstance(world, BuiltIn)

    def one_step(carry: tuple, k: PRNGKeyArray) -> tuple:
        state, before, acted, begun = carry
        act, _ = actor.act(state, k, before, acted, jnp.full(len(state), begun))
        after, reward = jax.vmap(world.step)(state, act)
        return (after, state, act, jnp.ones((), bool)), (state, act, reward, after)

    first = (starts, starts, jnp.zeros((len(starts), pointmass.act_size)), jnp.zeros((), bool))
    return jax.lax.scan(one_step, first, jax.random.split(key, pointmass.episode_steps))[1]


def batch(actor: Actor, episodes: int, seed: int) -> Batch:
    """Whole episodes of an actor in the true world."""
    k_start, k_act = jax.random.split(jax.random.PRNGKey(seed))
    assert pointmass.initial is not None
    starts = jax.vmap(pointmass.initial)(jax.random.split(k_start, episodes))
    rows = [np.asarray(x).swapaxes(0, 1) for x in _episodes(actor, starts, k_act)]
    obs, act, reward, next_obs = (x.reshape(-1, *x.shape[2:]) for x in rows)
    last = np.tile(np.arange(pointmass.episode_steps) == pointmass.episode_steps - 1, episodes)
    lanes = np.arange(episodes)
    by = actor.by(lanes) if isinstance(actor, Sharing) else np.zeros_like(lanes)
    return make_batch(
        obs=obs,
        act=act,
        reward=reward,
        next_obs=next_obs,
        terminated=np.zeros_like(last),
        truncated=last,
        by=np.repeat(by, pointmass.episode_steps),
    )


def true_return(policy: Policy) -> float:
    """Mean return of the policy's mean over 20 fixed starts."""
    return float(batch(PlainActor(policy, Plain(0.0)), 20, seed=1000).returns().mean())


def leaves(tree: object) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a: object, b: object) -> bool:
    """Bit for bit."""
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(leaves(a), leaves(b), strict=True))
