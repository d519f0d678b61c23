"""Advantages by GAE and the value baseline.

The baseline is a ridge regression on [o, o^2, t, t^2, t^3, 1] of the normalised, clipped observation, fitted on
lambda-returns (or a small MLP on the same input, or the networks of `value.py`). At the end of an imagined trajectory
the return is bootstrapped with the baseline; only `terminated` cuts it.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.scaling import Normaliser
from musbo.learning.fit import ADAM, adam
from musbo.learning.imagine import Rollout, clock
from musbo.models.mlp import MLP, init_mlp

CLIP = 10.0  # of the normalised observation: an outlier must not own the regression


@runtime_checkable
class Value(Protocol):
    """V: a function of features."""

    def __call__(self, features: Float[Array, "n f"]) -> Float[Array, " n"]: ...


@runtime_checkable
class Baseline(Protocol):
    """How V is made and fitted. A new baseline is a frozen dataclass with these methods, stored as `baseline/...`."""

    def begin(self, obs_size: int, key: PRNGKeyArray) -> Value: ...
    def fit(
        self,
        value: Any,
        features: Float[Array, "n f"],
        wanted: Float[Array, " n"],
        live: Float[Array, " n"],
        key: PRNGKeyArray,
        limits: tuple[Float[Array, ""], Float[Array, ""]],
    ) -> Value:
        """V after the returns `wanted`, which the rewards allow to lie between the two `limits`."""
        ...


@stored("baseline/ridge")
@dataclass(frozen=True)
class Ridge:
    """V: ridge regression."""

    strength: float = 1e-5
    """Ridge penalty, relative to the mean square of each feature."""

    def __post_init__(self) -> None:
        if not self.strength >= 0:
            raise UserError(f"strength of the ridge baseline must be at least 0, not {self.strength}.")

    def begin(self, obs_size: int, key: PRNGKeyArray) -> "RidgeValue":
        return RidgeValue(jnp.zeros(2 * obs_size + 4))

    def fit(
        self,
        value: "RidgeValue",
        features: Float[Array, "n f"],
        wanted: Float[Array, " n"],
        live: Float[Array, " n"],
        key: PRNGKeyArray,
        limits: tuple[Float[Array, ""], Float[Array, ""]],
    ) -> "RidgeValue":
        """Weighted least squares; columns are first scaled to unit mean square, so that float32 can solve it."""
        n = jnp.maximum(jnp.sum(live), 1.0)
        size = jnp.sqrt(live @ features**2 / n) + 1e-8
        x = features / size[None]
        gram = (x * live[:, None]).T @ x / n + self.strength * jnp.eye(x.shape[1])
        weights = jax.scipy.linalg.solve(gram, x.T @ (live * wanted) / n, assume_a="pos") / size
        return RidgeValue(jnp.where(jnp.all(jnp.isfinite(weights)), weights, value.weights))


@stored("baseline/small_mlp")
@dataclass(frozen=True)
class SmallMLP:
    """V: a small MLP on the same features."""

    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    steps: int = 40
    """Minibatch steps per TRPO update."""
    batch: int = 1000
    """Minibatch size."""

    def __post_init__(self) -> None:
        if not self.hidden or min(*self.hidden, self.steps, self.batch) < 1 or not self.learning_rate > 0:
            raise UserError(
                "the baseline needs hidden layers, steps and batch of at least 1, and a learning rate above 0."
            )

    def begin(self, obs_size: int, key: PRNGKeyArray) -> "MLPValue":
        mlp = init_mlp(key, (2 * obs_size + 4, *self.hidden, 1), "tanh", last_gain=0.01)
        return MLPValue(mlp, ADAM.init(mlp), jnp.zeros(()), jnp.ones(()))  # type: ignore[arg-type]

    def fit(
        self,
        value: "MLPValue",
        features: Float[Array, "n f"],
        wanted: Float[Array, " n"],
        live: Float[Array, " n"],
        key: PRNGKeyArray,
        limits: tuple[Float[Array, ""], Float[Array, ""]],
    ) -> "MLPValue":
        n = jnp.maximum(jnp.sum(live), 1.0)
        shift = live @ wanted / n
        scale = jnp.sqrt(live @ (wanted - shift) ** 2 / n) + 1e-6
        # The network predicts the standardised target: when the targets move as a whole, its predictions do too.
        target = (wanted - shift) / scale

        def minibatch(carry: tuple, k: PRNGKeyArray) -> tuple:
            mlp, moments = carry
            rows = jax.random.randint(k, (self.batch,), 0, len(target))

            def loss(m: MLP) -> Float[Array, ""]:
                error = jax.vmap(m)(features[rows])[:, 0] - target[rows]
                return jnp.sum(live[rows] * error**2) / jnp.maximum(jnp.sum(live[rows]), 1.0)

            updates, moments = adam(jax.grad(loss)(mlp), moments)
            return (jax.tree.map(lambda p, u: p - self.learning_rate * u, mlp, updates), moments), None

        (mlp, moments), _ = jax.lax.scan(minibatch, (value.mlp, value.moments), jax.random.split(key, self.steps))
        return MLPValue(mlp, moments, shift, scale)


@stored("value/ridge")
class RidgeValue(eqx.Module):
    weights: Float[Array, " f"]

    def __call__(self, features: Float[Array, "n f"]) -> Float[Array, " n"]:
        return features @ self.weights


@stored("value/mlp")
class MLPValue(eqx.Module):
    mlp: MLP
    moments: object
    shift: Float[Array, ""]
    scale: Float[Array, ""]

    def __call__(self, features: Float[Array, "n f"]) -> Float[Array, " n"]:
        return self.shift + self.scale * jax.vmap(self.mlp)(features)[:, 0]


@stored("settings/discounting")
@dataclass(frozen=True)
class Discounting:
    """Discount and GAE."""

    gamma: float = 0.99
    """gamma: discount (paper: 0.99)."""
    lam: float = 0.95
    """lambda of GAE (paper: 0.95, Ant 0.97)."""

    def __post_init__(self) -> None:
        if not (0 <= self.gamma < 1 and 0 <= self.lam <= 1):
            raise UserError(f"gamma must be in [0, 1) and lambda in [0, 1], not {self.gamma} and {self.lam}.")


def features(obs: Float[Array, "t b obs"], normaliser: Normaliser, time: Float[Array, "t b"]) -> Float[Array, "t b f"]:
    """[o, o^2, t, t^2, t^3, 1] with o normalised and clipped, t in hundreds of steps."""
    o = jnp.clip((obs - normaliser.mean[None, None]) / normaliser.std[None, None], -CLIP, CLIP)
    t = (time / 100)[:, :, None]
    return jnp.concatenate([o, o**2, t, t**2, t**3, jnp.ones_like(t)], axis=2)


def rollout_features(rollout: Rollout, normaliser: Normaliser) -> Float[Array, "t1 b f"]:
    """Features of every state of a rollout, the last one included; time is counted in its trajectory."""
    obs = jnp.concatenate([rollout.obs, rollout.last_obs[None]])
    return features(obs, normaliser, clock(rollout).astype(jnp.float32))


def gae(settings: Discounting, rollout: Rollout, values: Float[Array, "t1 b"]) -> Float[Array, "t b"]:
    """A_t = sum_l (gamma lambda)^l delta_{t+l}; values[t] is V(s_t), values[-1] that of the last state.

    The sum ends where the trajectory does: nothing of the next one in its row is in it. Where a rollout says how far a
    step is trusted, what the step and all after it are worth counts so much, as far as that is a gain.
    """
    goes_on = 1.0 - rollout.terminated.astype(jnp.float32)
    if rollout.trust is not None:
        return _doubted(settings, rollout, rollout.trust, goes_on, values)
    delta = rollout.reward + settings.gamma * goes_on * values[1:] - values[:-1]

    def backward(after: Float[Array, " b"], xs: tuple) -> tuple:
        d, on, live = xs
        now = jnp.where(live, d + settings.gamma * settings.lam * on * after, 0.0)
        return now, now

    _, advantages = jax.lax.scan(backward, jnp.zeros_like(delta[0]), (delta, goes_on, rollout.live), reverse=True)
    return advantages


def _doubted(
    settings: Discounting,
    rollout: Rollout,
    trust: Float[Array, "t b"],
    goes_on: Float[Array, "t b"],
    values: Float[Array, "t1 b"],
) -> Float[Array, "t b"]:
    """A_t = x - (1 - trust) max(x, 0) - V(s_t) with x = r + gamma (V(s_{t+1}) + lambda A_{t+1})."""

    def backward(after: Float[Array, " b"], xs: tuple) -> tuple:
        reward, on, sure, now, then, live = xs
        x = reward + settings.gamma * on * (then + settings.lam * after)
        advantage = jnp.where(live, x - (1 - sure) * jax.nn.relu(x) - now, 0.0)
        return advantage, advantage

    steps = (rollout.reward, goes_on, trust, values[:-1], values[1:], rollout.live)
    return jax.lax.scan(backward, jnp.zeros_like(values[0]), steps, reverse=True)[1]


def limits(settings: Discounting, rollout: Rollout) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Between which returns can lie: the worst or the best reward of the batch for ever, or an end at once."""
    reward = jnp.where(rollout.live, rollout.reward, 0.0)
    for_ever = 1 / (1 - settings.gamma)
    return for_ever * jnp.minimum(jnp.min(reward), 0.0), for_ever * jnp.maximum(jnp.max(reward), 0.0)


def discounted_returns(settings: Discounting, rollout: Rollout) -> Float[Array, "t b"]:
    """Rewards to go without any baseline: what the first baseline of a deployment is fitted on."""
    plain = Discounting(settings.gamma, 1.0)
    return gae(plain, rollout, jnp.zeros((rollout.reward.shape[0] + 1, rollout.reward.shape[1])))


def standardise(advantages: Float[Array, "t b"], live: Float[Array, "t b"]) -> Float[Array, "t b"]:
    """Zero mean and unit deviation over the steps that exist."""
    n = jnp.maximum(jnp.sum(live), 1.0)
    mean = jnp.sum(live * advantages) / n
    deviation = jnp.sqrt(jnp.sum(live * (advantages - mean) ** 2) / n)
    return live * (advantages - mean) / (deviation + 1e-8)
