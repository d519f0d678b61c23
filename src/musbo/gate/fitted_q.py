"""Fitted Q evaluation: what a policy earns, learned from logged transitions without a model.

    Q(s, a) -> r + gamma (1 - terminated) Q'(s', pi(s'))        with a slow copy Q'

Several seeds, each with a network of its own. Both policies of a comparison share everything that chance decides:
initial weights and minibatches. So their difference is a paired one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, PRNGKeyArray

from musbo.data.dataset import Dataset, rows
from musbo.data.scaling import Normaliser, observed
from musbo.learning.fit import ADAM, adam
from musbo.models.frame import AnyPolicy, Frame
from musbo.models.mlp import MLP, init_mlp
from musbo.tasks.task import Task

CHUNK = 20_000  # rows whose next actions are asked for at once
CLIP = 10.0  # of the normalised observation


@dataclass(frozen=True)
class FittedQ:
    """How Q is fitted."""

    hidden: tuple[int, ...] = (128, 128)
    seeds: int = 3
    steps: int = 6000
    """Gradient steps at most."""
    passes: int = 200
    """So many passes over the data are enough, but half of the steps are taken anyway."""
    batch: int = 256
    learning_rate: float = 1e-3
    tau: float = 0.02
    """How far the slow copy follows at every step: in all several times as far as gamma looks ahead."""
    ahead: float = 100.0
    """Steps that gamma looks ahead, at most a third of an episode."""

    def taken(self, transitions: int) -> int:
        """Gradient steps on so many transitions."""
        return min(self.steps, max(self.steps // 2, self.passes * transitions // self.batch))

    def gamma(self, task: Task) -> float:
        return 1.0 - 1.0 / max(2.0, min(self.ahead, task.episode_steps / 3))


def evaluate(
    task: Task, data: Dataset, policies: Sequence[AnyPolicy], settings: FittedQ, key: PRNGKeyArray
) -> Float64[np.ndarray, "p seeds"]:
    """What every policy earns per step, by every seed: (1 - gamma) Q at the beginnings of episodes."""
    live = rows(data.live)
    obs, act, next_obs = (np.asarray(x)[live] for x in (data.obs, data.act, data.next_obs))
    reward = np.asarray(data.reward)[live].astype(np.float64)
    gamma = settings.gamma(task)
    # Where episodes end early a reward keeps its sign: what an end cuts off must be worth what it is.
    shift = 0.0 if task.terminated is not None else reward.mean()
    unit = max(float(np.sqrt(np.mean((reward - shift) ** 2))), 1e-8)
    frame = _frame(policies[0].frame, observed(obs))
    begins = np.asarray(data.initial)[live]
    begins = obs[begins] if begins.any() else obs
    x, a, next_x = frame.see(jnp.asarray(obs)), frame.share(jnp.asarray(act)), frame.see(jnp.asarray(next_obs))
    paid = jnp.asarray((reward - shift) / unit * (1 - gamma), jnp.float32)  # Q is near 1
    goes_on = 1.0 - jnp.asarray(np.asarray(data.terminated)[live], jnp.float32)
    found = np.zeros((len(policies), settings.seeds))
    steps = jnp.asarray(settings.taken(len(live)))
    for i, policy in enumerate(policies):
        following = frame.share(jnp.asarray(_actions(policy, next_obs)))
        first = frame.share(jnp.asarray(_actions(policy, begins)))
        for seed in range(settings.seeds):
            fitted = _fit(
                settings,
                steps,
                x,
                a,
                paid,
                next_x,
                following,
                goes_on,
                jnp.asarray(gamma),
                jax.random.fold_in(key, seed),
            )
            values = _q(fitted, frame.see(jnp.asarray(begins)), first)
            found[i, seed] = shift + unit * float(jnp.mean(values))
    return found


def _frame(like: Frame, normaliser: Normaliser) -> Frame:
    return Frame(normaliser, like.centre, like.half_range)


def _actions(policy: AnyPolicy, obs: Float[np.ndarray, "n obs"]) -> Float[np.ndarray, "n act"]:
    parts = [np.asarray(_act(policy, jnp.asarray(obs[i : i + CHUNK]))) for i in range(0, len(obs), CHUNK)]
    return np.concatenate(parts)


@jax.jit
def _act(policy: AnyPolicy, obs: Float[Array, "n obs"]) -> Float[Array, "n act"]:
    return policy(obs)


def _q(network: MLP, x: Float[Array, "n obs"], a: Float[Array, "n act"]) -> Float[Array, " n"]:
    return jax.vmap(network)(jnp.concatenate([jnp.clip(x, -CLIP, CLIP), a], axis=1))[:, 0]


@partial(jax.jit, static_argnames="settings")
def _fit(
    settings: FittedQ,
    steps: Int[Array, ""],
    x: Float[Array, "n obs"],
    a: Float[Array, "n act"],
    paid: Float[Array, " n"],
    next_x: Float[Array, "n obs"],
    following: Float[Array, "n act"],
    goes_on: Float[Array, " n"],
    gamma: Float[Array, ""],
    key: PRNGKeyArray,
) -> MLP:
    k_new, k_rows = jax.random.split(key)
    sizes = (x.shape[1] + a.shape[1], *settings.hidden, 1)
    network = init_mlp(k_new, sizes, "norm_relu", last_gain=0.1)

    def step(i: Int[Array, ""], carry: tuple) -> tuple:
        q, slow, moments = carry
        picked = jax.random.randint(jax.random.fold_in(k_rows, i), (settings.batch,), 0, x.shape[0])
        target = paid[picked] + gamma * goes_on[picked] * _q(slow, next_x[picked], following[picked])

        def loss(network: MLP) -> Array:
            return jnp.mean((_q(network, x[picked], a[picked]) - target) ** 2)

        direction, moments = adam(jax.grad(loss)(q), moments)
        rate = settings.learning_rate * (1.0 - 0.9 * i.astype(jnp.float32) / steps.astype(jnp.float32))
        q = jax.tree.map(lambda p, d: p - rate * d, q, direction)
        slow = jax.tree.map(lambda s, p: (1 - settings.tau) * s + settings.tau * p, slow, q)
        return q, slow, moments

    begin = network, network, ADAM.init(network)  # type: ignore[arg-type]
    return jax.lax.fori_loop(0, steps, step, begin)[1]
