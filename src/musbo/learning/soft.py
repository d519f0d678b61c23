"""One step of an actor-critic on logged transitions, whose regulariser is a value.

    critics   Q_i(s, a) -> r + gamma (1 - terminated) V(s'),   i = 1, 2, with slow target copies
    value     V(s) as the regulariser says
    actor     as the regulariser says

`Entropy` (SAC): V(s) = min Q(s, a) - alpha log pi(a|s), a ~ pi, and alpha keeps the entropy at -dim(a).
`Nearness` (BRAC, value penalty): V(s) = min Q(s, a) - coefficient (log pi(a|s) - log b(a|s)), b cloned from the data.
`Support` (BCQ): V(s) = max over m actions of a generative model of lambda min Q + (1 - lambda) max Q.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.learning.fit import ADAM, adam
from musbo.learning.replay import Replay, Transitions
from musbo.models import support
from musbo.models.frame import Frame
from musbo.models.gaussian import GaussianPolicy, sample, sample_beside
from musbo.models.mlp import MLP, init_mlp, member, rescale_inputs
from musbo.models.support import SupportPolicy, decode, latents, nudged, q_value

X = Float[Array, "n obs"]
A = Float[Array, "n act"]
Q = Callable[[X, A], Float[Array, "2 n"]]


@stored("settings/soft")
@dataclass(frozen=True)
class SoftSettings:
    """Networks and optimisation that the regularisers share."""

    actor: tuple[int, ...] = (200, 200)
    """Hidden layers of the actor (BREMEN's comparison: 200-200)."""
    critic: tuple[int, ...] = (300, 300)
    """Hidden layers of each critic (BREMEN's comparison: 300-300)."""
    normalised: bool = False
    """LayerNorm in the critics: where there are no data Q cannot run away, so that more steps can be taken (RLPD)."""
    learning_rate: float = 3e-4
    """Adam's step size, for everything (SAC: 3e-4; BCQ: 1e-3)."""
    batch: int = 256
    """Minibatch size (SAC: 256)."""
    gamma: float = 0.99
    """gamma: discount."""
    tau: float = 0.005
    """tau: how far the target networks follow at every step (SAC: 0.005)."""

    def __post_init__(self) -> None:
        if not self.actor or not self.critic or min(*self.actor, *self.critic, self.batch) < 1:
            raise UserError("actor, critic and batch of an actor-critic must be positive sizes.")
        if not self.learning_rate > 0 or not 0 <= self.gamma < 1 or not 0 < self.tau <= 1:
            raise UserError("an actor-critic needs a learning rate above 0, gamma in [0, 1) and tau in (0, 1].")


@runtime_checkable
class Regulariser(Protocol):
    """What keeps the actor where the critics have seen data. Stored as `regulariser/...`."""

    def clones(self) -> bool:
        """Whether it needs the behaviour of the newest batch, cloned."""
        ...

    def narrower(self, width: int) -> "Regulariser":
        """With networks of its own of this width, where it has any."""
        ...

    def begin(self, settings: SoftSettings, obs: int, act: int, key: PRNGKeyArray) -> Any:
        """What it trains: `parts`."""
        ...

    def value(self, parts: Any, slow: Any, q: Q, behaviour: MLP | None, x: X, key: PRNGKeyArray) -> Array:
        """V(s)."""
        ...

    def loss(self, parts: Any, q: Q, behaviour: MLP | None, x: X, taken: A, key: PRNGKeyArray) -> Array:
        """What the actor minimises."""
        ...

    def policy(self, parts: Any, critics: MLP, frame: Frame) -> GaussianPolicy | SupportPolicy:
        """The deterministic policy that is handed over."""
        ...


@stored("networks/entropic")
class Entropic(eqx.Module):
    """What Entropy trains."""

    actor: MLP
    log_alpha: Float[Array, ""]


@stored("regulariser/entropy")
@dataclass(frozen=True)
class Entropy:
    """Reward for entropy (SAC)."""

    def clones(self) -> bool:
        return False

    def narrower(self, width: int) -> "Entropy":
        return self

    def begin(self, settings: SoftSettings, obs: int, act: int, key: PRNGKeyArray) -> Entropic:
        return Entropic(_actor(settings, obs, act, key), jnp.zeros(()))

    def value(self, parts: Entropic, slow: Entropic, q: Q, behaviour: MLP | None, x: X, key: PRNGKeyArray) -> Array:
        a, logp = sample(parts.actor, x, key)
        return jnp.min(q(x, a), axis=0) - jnp.exp(parts.log_alpha) * logp

    def loss(self, parts: Entropic, q: Q, behaviour: MLP | None, x: X, taken: A, key: PRNGKeyArray) -> Array:
        a, logp = sample(parts.actor, x, key)
        alpha = jax.lax.stop_gradient(jnp.exp(parts.log_alpha))
        surplus = jax.lax.stop_gradient(-jnp.mean(logp)) + a.shape[1]  # entropy above its target, -dim(a)
        return jnp.mean(alpha * logp - jnp.min(q(x, a), axis=0)) + parts.log_alpha * surplus

    def policy(self, parts: Entropic, critics: MLP, frame: Frame) -> GaussianPolicy:
        return GaussianPolicy(parts.actor, frame)


@stored("regulariser/nearness")
@dataclass(frozen=True)
class Nearness:
    """Cost for leaving the behaviour that made the newest batch (BRAC, value penalty, KL)."""

    coefficient: float = 0.1
    """Weight of the divergence in value and actor (BREMEN's comparison: 0.1)."""

    def __post_init__(self) -> None:
        if not self.coefficient >= 0:
            raise UserError(f"the coefficient of nearness must be at least 0, not {self.coefficient}.")

    def clones(self) -> bool:
        return True

    def narrower(self, width: int) -> "Nearness":
        return self

    def begin(self, settings: SoftSettings, obs: int, act: int, key: PRNGKeyArray) -> MLP:
        return _actor(settings, obs, act, key)

    def _penalised(self, actor: MLP, q: Q, behaviour: MLP | None, x: X, key: PRNGKeyArray) -> Array:
        assert behaviour is not None
        a, apart = sample_beside(actor, behaviour, x, key)
        return jnp.min(q(x, a), axis=0) - self.coefficient * apart

    def value(self, parts: MLP, slow: MLP, q: Q, behaviour: MLP | None, x: X, key: PRNGKeyArray) -> Array:
        return self._penalised(parts, q, behaviour, x, key)

    def loss(self, parts: MLP, q: Q, behaviour: MLP | None, x: X, taken: A, key: PRNGKeyArray) -> Array:
        return -jnp.mean(self._penalised(parts, q, behaviour, x, key))

    def policy(self, parts: MLP, critics: MLP, frame: Frame) -> GaussianPolicy:
        return GaussianPolicy(parts, frame)


@stored("regulariser/support")
@dataclass(frozen=True)
class Support:
    """Only actions that a generative model of the data proposes (BCQ)."""

    reach: float = 0.15
    """Phi: largest perturbation of a proposed action, as a share of the half-range (BREMEN's comparison: 0.15)."""
    candidates: int = 10
    """Proposed actions of which the best is taken, in the target (BCQ: 10) and when acting (BCQ: 100)."""
    caution: float = 0.75
    """lambda: weight of the smaller critic in the value (BCQ: 0.75)."""
    generator: tuple[int, ...] = (750, 750)
    """Hidden layers of the VAE (BCQ: 750-750); its latent has 2 dim(a)."""

    def __post_init__(self) -> None:
        if not self.reach >= 0 or self.candidates < 1 or not 0 <= self.caution <= 1 or min(self.generator) < 1:
            raise UserError(
                "support needs reach >= 0, candidates >= 1, caution in [0, 1] and a generator of size >= 1."
            )

    def clones(self) -> bool:
        return False

    def narrower(self, width: int) -> "Support":
        # The generator is applied to ten candidates per row: of BCQ's width it would cost ten times the rest.
        return replace(self, generator=(width, width))

    def begin(self, settings: SoftSettings, obs: int, act: int, key: PRNGKeyArray) -> support.Support:
        k_encoder, k_decoder, k_nudge = jax.random.split(key, 3)
        z = 2 * act
        return support.Support(
            init_mlp(k_encoder, (obs + act, *self.generator, 2 * z), "relu"),
            init_mlp(k_decoder, (obs + z, *self.generator, act), "relu"),
            init_mlp(k_nudge, (obs + act, *settings.actor, act), "relu", last_gain=0.01),
        )

    def value(
        self, parts: support.Support, slow: support.Support, q: Q, behaviour: MLP | None, x: X, key: PRNGKeyArray
    ) -> Array:
        n, m = x.shape[0], self.candidates
        many = jnp.repeat(x, m, axis=0)
        z = latents(key, (n * m, _latent(parts)))
        both = q(many, nudged(slow.nudge, self.reach, many, decode(parts.decoder, many, z)))
        mixed = self.caution * jnp.min(both, axis=0) + (1 - self.caution) * jnp.max(both, axis=0)
        return jnp.max(mixed.reshape(n, m), axis=1)

    def loss(self, parts: support.Support, q: Q, behaviour: MLP | None, x: X, taken: A, key: PRNGKeyArray) -> Array:
        k_code, k_propose = jax.random.split(key)
        mean, log_spread = jnp.split(jax.vmap(parts.encoder)(jnp.concatenate([x, taken], axis=1)), 2, axis=1)
        log_spread = jnp.clip(log_spread, -4.0, 15.0)
        z = mean + jnp.exp(log_spread) * jax.random.normal(k_code, mean.shape)
        rebuilt = jnp.mean((decode(parts.decoder, x, z) - taken) ** 2)
        divergence = -0.5 * jnp.mean(1 + 2 * log_spread - mean**2 - jnp.exp(2 * log_spread))
        # The perturbation climbs Q from proposed actions; the generator itself learns from the data alone.
        proposed = jax.lax.stop_gradient(decode(parts.decoder, x, latents(k_propose, z.shape)))
        climbed = jnp.mean(q(x, nudged(parts.nudge, self.reach, x, proposed))[0])
        return rebuilt + 0.5 * divergence - climbed

    def policy(self, parts: support.Support, critics: MLP, frame: Frame) -> SupportPolicy:
        fixed = latents(jax.random.PRNGKey(0), (self.candidates, _latent(parts)))
        return SupportPolicy(parts, critics, fixed, frame, self.reach)


def _actor(settings: SoftSettings, obs: int, act: int, key: PRNGKeyArray) -> MLP:
    return init_mlp(key, (obs, *settings.actor, 2 * act), "relu", last_gain=0.01)


def _latent(parts: support.Support) -> int:
    return parts.encoder.biases[-1].shape[0] // 2


@stored("state/soft")
class Soft(eqx.Module):
    """Actor parts and twin critics, their slow copies and their optimiser's moments."""

    parts: Any
    slow_parts: Any
    critics: MLP
    slow_critics: MLP
    part_moments: Any
    critic_moments: Any


@partial(jax.jit, static_argnames=("settings", "regulariser", "obs", "act"))
def begin(settings: SoftSettings, regulariser: Regulariser, obs: int, act: int, key: PRNGKeyArray) -> Soft:
    k_parts, k_critics = jax.random.split(key)
    parts = regulariser.begin(settings, obs, act, k_parts)
    sizes = (obs + act, *settings.critic, 1)
    activation = "norm_relu" if settings.normalised else "relu"
    critics = jax.vmap(lambda k: init_mlp(k, sizes, activation))(jax.random.split(k_critics, 2))
    return fresh(parts, parts, critics, critics)


def fresh(parts: Any, slow_parts: Any, critics: MLP, slow_critics: MLP) -> Soft:
    """These networks with a new optimiser."""
    return Soft(parts, slow_parts, critics, slow_critics, ADAM.init(parts), ADAM.init(critics))  # type: ignore[arg-type]


@jax.jit
def renormalise(soft: Soft, old: Frame, new: Frame) -> Soft:
    """The same functions of the raw observation under another normaliser: every network reads it first."""

    def one(mlp: MLP) -> MLP:
        other = mlp.weights[0].shape[-2] - old.normaliser.mean.shape[0]  # what follows the observation has no scale
        mean = [jnp.concatenate([frame.normaliser.mean, jnp.zeros(other)]) for frame in (old, new)]
        std = [jnp.concatenate([frame.normaliser.std, jnp.ones(other)]) for frame in (old, new)]
        rescale = partial(rescale_inputs, mean=(mean[0], mean[1]), std=(std[0], std[1]))
        return jax.vmap(rescale)(mlp) if mlp.weights[0].ndim == 3 else rescale(mlp)

    def is_network(leaf: Any) -> bool:
        return isinstance(leaf, MLP)

    networks = (soft.parts, soft.slow_parts, soft.critics, soft.slow_critics)
    return fresh(*jax.tree.map(lambda leaf: one(leaf) if is_network(leaf) else leaf, networks, is_leaf=is_network))


def twin(critics: MLP) -> Q:
    return lambda x, a: jnp.stack([q_value(member(critics, i), x, a) for i in range(2)])


def soft_step(
    settings: SoftSettings, regulariser: Regulariser, soft: Soft, behaviour: Any, rows: Transitions, key: PRNGKeyArray
) -> tuple[Soft, Float[Array, " 2"]]:
    """One minibatch: critics, then actor, then the slow copies. Returns the mean squared error and the mean of Q."""
    k_value, k_loss = jax.random.split(key)
    after = regulariser.value(
        soft.parts,
        soft.slow_parts,
        twin(soft.slow_critics),
        behaviour,
        rows.next_x,
        k_value,
    )
    wanted = rows.reward + settings.gamma * rows.goes_on * after
    if rows.trust is not None:  # what is in doubt is worth less, never more
        wanted = wanted - (1 - rows.trust) * jax.nn.relu(wanted)

    def critic_loss(critics: MLP) -> tuple[Array, Array]:
        q = twin(critics)(rows.x, rows.a)
        error = jnp.mean((q - wanted[None]) ** 2)
        return 2.0 * error, jnp.stack([error, jnp.mean(q)])

    gradient, seen = jax.grad(critic_loss, has_aux=True)(soft.critics)
    critics, critic_moments = _adam(settings, soft.critics, gradient, soft.critic_moments)

    def actor_loss(parts: Any) -> Array:
        return regulariser.loss(parts, twin(critics), behaviour, rows.x, rows.a, k_loss)

    parts, part_moments = _adam(settings, soft.parts, jax.grad(actor_loss)(soft.parts), soft.part_moments)

    def follow(slow: Any, quick: Any) -> Any:
        return jax.tree.map(lambda s, q: (1 - settings.tau) * s + settings.tau * q, slow, quick)

    slow_parts, slow_critics = follow(soft.slow_parts, parts), follow(soft.slow_critics, critics)
    return Soft(parts, slow_parts, critics, slow_critics, part_moments, critic_moments), seen


def _adam(settings: SoftSettings, networks: Any, gradient: Any, moments: Any) -> tuple[Any, Any]:
    updates, moments = adam(gradient, moments)
    return jax.tree.map(lambda p, u: p - settings.learning_rate * u, networks, updates), moments


@partial(jax.jit, static_argnames=("settings", "regulariser", "steps", "shares"))
def soft_steps(
    settings: SoftSettings,
    regulariser: Regulariser,
    steps: int,
    shares: tuple[int, ...],
    soft: Soft,
    behaviour: Any,
    sources: tuple[Replay, ...],
    key: PRNGKeyArray,
) -> tuple[Soft, Float[Array, " 2"]]:
    """Many steps in one call, each on rows drawn anew, shares[i] of them from sources[i]; the numbers are means."""

    def one(i: Int[Array, ""], carry: tuple) -> tuple:
        soft, total = carry
        k_rows, k_step = jax.random.split(jax.random.fold_in(key, i))
        keys = jax.random.split(k_rows, len(sources))
        drawn = [source.draw(size, k) for source, size, k in zip(sources, shares, keys, strict=True)]
        rows = jax.tree.map(lambda *columns: jnp.concatenate(columns), *drawn)
        soft, seen = soft_step(settings, regulariser, soft, behaviour, rows, k_step)
        return soft, total + seen / steps

    return jax.lax.fori_loop(0, steps, one, (soft, jnp.zeros(2)))
