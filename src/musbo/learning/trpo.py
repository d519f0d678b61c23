"""The uncertainty-regularised trust-region step (eq. 6 of the paper).

    maximise E[ratio * A * U]   subject to   E[KL(pi || pi_k)] <= delta

Natural gradient by conjugate gradients, scaled to delta, then a backtracking line search. The policy's mean is
linearised once per update; with a Gaussian of state-independent sigma the Fisher matrix is J' diag(1 / sigma^2) J
exactly (plus 2 on a learned log sigma), so every product is one push forward and one pull back.

A KL counts how far the mean moves in units of sigma, so with a tenth of the noise the same delta allows a tenth of the
way. With `at_sigma` the way is measured in units of that sigma, whatever the policy's own is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.models.policy import Policy


@stored("settings/trpo")
@dataclass(frozen=True)
class TRPO:
    """The trust-region step."""

    delta: float = 0.05
    """delta: bound on the mean KL per update (paper: 0.05, halfcheetah 0.1; at which scale: `literal_delta`)."""
    literal_delta: bool = True
    """Apply delta as it is; off: apply delta / 220, the paper's travel per update at an honest sigma."""
    cg_iterations: int = 10
    """Conjugate-gradient iterations (BREMEN: 10)."""
    damping: float = 0.1
    """Added to the Fisher matrix's diagonal (BREMEN: 0.1)."""
    fisher_stride: int = 1
    """Fisher products use every n-th state."""
    backtracks: int = 10
    """Tries of the line search."""
    shrink: float = 0.7
    """Step length from one try to the next."""
    at_sigma: float | None = None
    """Measure how far the mean moves in units of this sigma (share of the half-range); `None`: the policy's own."""

    def __post_init__(self) -> None:
        if not self.delta > 0:
            raise UserError(f"delta must be above 0, not {self.delta}.")
        if not self.damping >= 0 or not 0 < self.shrink < 1:
            raise UserError("damping must be at least 0 and shrink between 0 and 1.")
        if self.at_sigma is not None and not self.at_sigma > 0:
            raise UserError(f"at_sigma must be above 0 or none, not {self.at_sigma}.")
        for name in ("cg_iterations", "fisher_stride", "backtracks"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}.")

    @property
    def applied_delta(self) -> float:
        return self.delta if self.literal_delta else self.delta / 220


class StepInfo(eqx.Module):
    accepted: Bool[Array, ""]
    kl: Float[Array, ""]
    gain: Float[Array, ""]  # of the surrogate
    fraction: Float[Array, ""]  # of the full step that was taken
    tries: Int[Array, ""]


def trainable(policy: Policy, learned_sigma: bool) -> tuple:
    return (policy.mlp, policy.log_sigma) if learned_sigma else (policy.mlp,)


def with_trainable(policy: Policy, parts: tuple) -> Policy:
    return replace(policy, mlp=parts[0], log_sigma=parts[1] if len(parts) == 2 else policy.log_sigma)


def log_ratio(
    old: tuple[Float[Array, "n act"], Float[Array, " act"]],
    new: tuple[Float[Array, "n act"], Float[Array, " act"]],
    act: Float[Array, "n act"],
) -> Float[Array, " n"]:
    """log pi(a|s) - log pi_k(a|s) for (mean, log sigma) of both; the density is that of the unclipped action."""
    (m0, l0), (m1, l1) = old, new
    z0, z1 = (act - m0) / jnp.exp(l0)[None], (act - m1) / jnp.exp(l1)[None]
    return jnp.sum(0.5 * (z0**2 - z1**2) + (l0 - l1)[None], axis=1)


def gaussian_kl(
    new: tuple[Float[Array, "n act"], Float[Array, " act"]],
    old: tuple[Float[Array, "n act"], Float[Array, " act"]],
    unit: Float[Array, " act"] | None = None,
) -> Float[Array, " n"]:
    """KL(pi || pi_k) between diagonal Gaussians given as (mean, log sigma).

    With `unit`, another log sigma, means are as far apart as they would be if that were the old one.
    """
    (m1, l1), (m0, l0) = new, old
    inner = (jnp.exp(2 * (l1 - l0)))[None] + ((m1 - m0) / jnp.exp(l0 if unit is None else unit)[None]) ** 2
    return jnp.sum((l0 - l1)[None] + 0.5 * (inner - 1.0), axis=1)


def conjugate_gradients(
    product: Callable[[Float[Array, " p"]], Float[Array, " p"]], b: Float[Array, " p"], iterations: int
) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """x with A x = b for a positive definite A, searched from 0 with one product each, and what is left, b - A x."""

    def iterate(carry: tuple) -> tuple:
        i, x, left, search, square = carry
        image = product(search)
        step = square / (search @ image)
        x, left = x + step * search, left - step * image
        smaller = left @ left
        return i + 1, x, left, left + smaller / square * search, smaller

    def unsolved(carry: tuple) -> Bool[Array, ""]:
        i, _, _, _, square = carry
        return (i < iterations) & (square > 1e-20 * (b @ b))

    start = (jnp.zeros((), jnp.int32), jnp.zeros_like(b), b, b, b @ b)
    _, x, left, _, _ = jax.lax.while_loop(unsolved, iterate, start)
    return x, left


BLOCK = 5000  # rows per pass through the policy: hidden layers of all rows at once would not fit into a cache


def _in_blocks(rows: tuple[Array, ...]) -> tuple[Array, ...]:
    """Rows [n ...] as [blocks, n / blocks, ...]; what is missing in the last block is 0."""
    n = len(rows[0])
    blocks = -(-n // BLOCK)
    size = -(-n // blocks)
    filled = (jnp.concatenate([x, jnp.zeros((blocks * size - n, *x.shape[1:]), x.dtype)]) for x in rows)
    return tuple(x.reshape(blocks, size, *x.shape[1:]) for x in filled)


def trpo_step(
    settings: TRPO,
    learned_sigma: bool,
    policy: Policy,
    obs: Float[Array, "n obs"],
    act: Float[Array, "n act"],
    weighted_advantage: Float[Array, " n"],
    live: Float[Array, " n"],
    share_of_delta: Float[Array, ""] | float = 1.0,
) -> tuple[Policy, StepInfo]:
    """One step on the samples where live = 1. A step that fails its line search changes nothing."""
    delta = settings.applied_delta
    unit = policy.log_sigma if settings.at_sigma is None else jnp.log(settings.at_sigma * policy.half_range)
    # What does not exist may hold any number, and 0 * inf is not 0: it is taken out, not only weighted by 0.
    exists = live > 0
    obs, act = (jnp.where(exists[:, None], x, 0.0) for x in (obs, act))
    weighted_advantage = jnp.where(exists, weighted_advantage, 0.0)
    theta, unravel = ravel_pytree(trainable(policy, learned_sigma))
    share = live / jnp.maximum(jnp.sum(live), 1.0)

    def distribution(parameters: Float[Array, " p"], states: Float[Array, "m obs"]) -> tuple:
        new = with_trainable(policy, unravel(parameters))
        return jax.vmap(new.mean)(states), new.log_sigma

    samples = _in_blocks((obs, act, weighted_advantage, share))

    def slope(block: tuple) -> tuple:
        """The surrogate of a block at theta, where the ratio is 1, with its gradient and the means."""
        states, actions, advantage, part = block

        def surrogate(parameters: Float[Array, " p"]) -> tuple:
            new = distribution(parameters, states)
            ratio = jnp.exp(log_ratio(jax.tree.map(jax.lax.stop_gradient, new), new, actions))
            return part @ (ratio * advantage), new[0]

        return jax.value_and_grad(surrogate, has_aux=True)(theta)

    (before, old), gradient = jax.lax.map(slope, samples)
    before, gradient = jnp.sum(before), jnp.sum(gradient, axis=0)

    def surrogate_and_kl(parameters: Float[Array, " p"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Both from one forward pass."""

        def inside(block: tuple) -> tuple:
            (states, actions, advantage, part), mean = block
            new, old = distribution(parameters, states), (mean, policy.log_sigma)
            return part @ (jnp.exp(log_ratio(old, new, actions)) * advantage), part @ gaussian_kl(new, old, unit)

        after, kl = jax.lax.map(inside, (samples, old))
        return jnp.sum(after), jnp.sum(kl)

    states, some = obs[:: settings.fisher_stride], live[:: settings.fisher_stride]
    some = some / jnp.maximum(jnp.sum(some), 1.0)
    _, push = jax.linearize(lambda p: distribution(p, states), theta)
    pull = jax.linear_transpose(push, theta)
    precision = jnp.exp(-2 * unit)

    def fisher(v: Float[Array, " p"]) -> Float[Array, " p"]:
        mean, log_sigma = push(v)
        (product,) = pull((some[:, None] * mean * precision[None], 2 * log_sigma))
        return product + settings.damping * v

    direction, left = conjugate_gradients(fisher, gradient, settings.cg_iterations)
    curvature = direction @ (gradient - left)  # direction' F direction, without another product
    full = jnp.sqrt(2 * delta * share_of_delta / jnp.maximum(curvature, 1e-30)) * direction
    usable = jnp.all(jnp.isfinite(full)) & (curvature > 0)

    def attempt(carry: tuple) -> tuple:
        tries, _, _, _, _ = carry
        fraction = settings.shrink ** tries.astype(jnp.float32)
        after, kl = surrogate_and_kl(theta + fraction * full)
        good = (after > before) & (kl <= 1.5 * delta * share_of_delta)
        return tries + 1, good, fraction, after - before, kl

    def searching(carry: tuple) -> Bool[Array, ""]:
        tries, good, _, _, _ = carry
        return usable & ~good & (tries < settings.backtracks)

    zero = jnp.zeros(())
    tries, accepted, fraction, gain, kl = jax.lax.while_loop(
        searching, attempt, (jnp.zeros((), jnp.int32), jnp.zeros((), bool), zero, zero, zero)
    )
    new = jnp.where(accepted, theta + fraction * full, theta)
    info = StepInfo(
        accepted,
        jnp.where(accepted, kl, 0.0),
        jnp.where(accepted, gain, 0.0),
        jnp.where(accepted, fraction, 0.0),
        tries,
    )
    return with_trainable(policy, unravel(new)), info
