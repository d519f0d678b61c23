"""Fitting M and P on D_all: minibatch Adam, early stopping per member, best weights kept (appendix F of the paper).

All members see the same training rows and differ by initial weights and minibatch order. One call of `epochs` yields
after every epoch; what it yields holds all that is needed to go on, so that a fit may be stopped anywhere and resumed
to the same bits. Members are trained side by side, each on a core of its own: XLA gets little from a second core for
products as small as these, and a `vmap` over members is slower than one after the other. No member waits for another:
while the last of an epoch are at work, the first have begun the next one.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from musbo.core.cores import usable_cores
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.learning import optimisers as optimisers  # whose states have names from here on

ADAM = optax.scale_by_adam()


def adam(gradient: Any, moments: Any) -> tuple[Any, Any]:
    """Adam's direction (to be scaled by the learning rate and subtracted) and its new moments."""
    with jax.numpy_dtype_promotion("standard"):  # optax mixes floats and integers; our own code does not
        return ADAM.update(gradient, moments)


@stored("settings/fit")
@dataclass(frozen=True)
class FitSettings:
    """How one ensemble is shaped and trained."""

    members: int = 5
    """N for the dynamics ensemble, K for the labeler (paper: 5 and 3)."""
    hidden: tuple[int, ...] = (1024, 1024)
    """Hidden layers (paper, appendix F: two of 1024)."""
    activation: Literal["relu", "silu", "tanh"] = "relu"
    """Activation of the hidden layers (BREMEN: ReLU)."""
    learning_rate: float = 1e-3
    """Adam's step size (paper: 1e-3)."""
    batch: int = 1000
    """Minibatch size (BREMEN: 1000)."""
    epochs: int = 200
    """At most this many passes over the training rows (BREMEN: 200)."""
    max_steps: int | None = None
    """At most this many gradient steps per member and fit; `None`: as many as the epochs need."""
    passes: int | None = None
    """So many passes are enough, once `least_steps` were taken: few data are seen more often; `None`: `epochs`."""
    least_steps: int = 0
    """Gradient steps that a fit of `passes` takes at least, within `epochs` and `max_steps`."""
    patience: int = 3
    """Stop a member after this many validation checks without a new best (paper: 3)."""
    judged_by: Literal["mean", "trimmed"] = "mean"
    """What a check looks at: the mean error over held-out rows, or that without the worst tenth of the episodes."""
    decay: Literal["none", "cosine"] = "none"
    """Learning rate over the fit: constant, or a cosine down to zero."""
    weights: Literal["warm", "fresh"] = "warm"
    """Start from the last deployment's weights with a fresh optimiser (BREMEN), or from new ones."""
    bootstrap: bool = False
    """Each member draws its training rows with replacement, instead of seeing all of them; whole episodes of them,
    where the rows name theirs."""
    l2: float = 1.0
    """Coefficient of the L2 term on hidden kernels, times 1 / (number of training rows) (BREMEN: 1)."""

    def __post_init__(self) -> None:
        for name in ("members", "batch", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} of a fit must be at least 1, not {getattr(self, name)}.")
        if not self.learning_rate > 0 or not self.l2 >= 0:
            raise UserError("a fit needs a learning rate above 0 and an l2 of at least 0.")
        if not self.hidden or min(self.hidden) < 1:
            raise UserError(f"hidden layers of a fit must be positive sizes, not {self.hidden}.")
        if self.max_steps is not None and self.max_steps < 1:
            raise UserError(f"max_steps of a fit must be at least 1 or none, not {self.max_steps}.")
        if self.least_steps < 0 or (self.passes is not None and self.passes < 1):
            raise UserError("a fit needs least_steps of at least 0, and passes of at least 1 or none.")


@runtime_checkable
class Objective(Protocol):
    """A loss for one minibatch and an error for early stopping; hashable, so that it is static under jit."""

    def loss(self, network: Any, x: Float[Array, "n in"], y: Float[Array, "n out"]) -> Float[Array, ""]: ...
    def errors(self, network: Any, x: Float[Array, "n in"], y: Float[Array, "n out"]) -> Float[Array, " n"]: ...
    def kernels(self, network: Any) -> tuple[Float[Array, "_ _"], ...]: ...


@stored("state/fit")
class FitState(eqx.Module):
    """A fit under way. Everything but `epoch` has a leading axis of members, or none for a member alone."""

    networks: Any
    moments: Any
    best: Any
    best_error: Float[Array, "*k"]
    waited: Int[Array, "*k"]
    active: Bool[Array, "*k"]
    epoch: Int[Array, ""]


@dataclass(frozen=True)
class Epoch:
    """How a fit stands after an epoch."""

    number: int
    of: int
    """At most this many."""
    active: int
    """Members that go on."""
    error: float
    """Mean over members of the best error on held-out rows."""
    error_per_member: tuple[float, ...]

    def numbers(self) -> dict[str, Any]:
        """What is kept of it."""
        return {"active": self.active, "error": self.error, "error_per_member": list(self.error_per_member)}


class Rows(eqx.Module):
    """Standardised inputs and targets of D_all at full capacity, with the two sides of the split as row numbers."""

    x: Float[Array, "c in"]
    y: Float[Array, "c out"]
    train: Int[np.ndarray, " n"]
    heldout: Int[np.ndarray, " m"]
    episode: Int[np.ndarray, " m"] | None = None  # of every held-out row, as a number; None: each stands for itself
    resampled: Int[np.ndarray, " n"] | None = None  # episode of every training row, for a bootstrap; None: by rows


@jax.jit
def begin(networks: Any) -> FitState:
    k = jax.tree.leaves(networks)[0].shape[0]
    return FitState(
        networks=networks,
        moments=jax.vmap(ADAM.init)(networks),
        best=networks,
        best_error=jnp.full(k, jnp.inf, jnp.float32),  # a dtype that is not weak: one compilation, not two
        waited=jnp.zeros(k, jnp.int32),
        active=jnp.ones(k, bool),
        epoch=jnp.zeros((), jnp.int32),
    )


@jax.jit
def _alone(state: FitState, k: Int[Array, ""]) -> FitState:
    return jax.tree.map(lambda leaf: leaf[k] if leaf.ndim else leaf, state)


@jax.jit
def _together(members: list[FitState]) -> FitState:
    return replace(jax.tree.map(lambda *leaves: jnp.stack(leaves), *members), epoch=members[0].epoch)


STRETCH = 200  # minibatches per call: XLA keeps some memory for every turn of a loop until the loop is over


@partial(jax.jit, static_argnames=("objective", "batch", "cosine"))
def _train_member(
    objective: Objective,
    batch: int,
    cosine: bool,
    trained: tuple[Any, Any],
    x: Float[Array, "c in"],
    y: Float[Array, "c out"],
    order: Int[Array, " s"],
    steps: Int[Array, ""],
    before: Int[Array, ""],
    total: Int[Array, ""],
    learning_rate: Float[Array, ""],
    l2: Float[Array, ""],
) -> tuple[Any, Any]:
    """A stretch of `steps` minibatches for one member, after `before` of `total`: its network and moments."""

    def minibatch(i: Int[Array, ""], carry: tuple) -> tuple:
        network, moments = carry
        picked = jax.lax.dynamic_slice_in_dim(order, i * batch, batch)

        def loss(n: Any) -> Float[Array, ""]:
            decay = sum(jnp.sum(w**2) for w in objective.kernels(n))
            return objective.loss(n, x[picked], y[picked]) + l2 * decay

        updates, moments = adam(jax.grad(loss)(network), moments)
        done = (before + i) / total
        rate = learning_rate * (0.5 * (1 + jnp.cos(jnp.pi * done)) if cosine else 1.0)
        return jax.tree.map(lambda p, u: p - rate * u, network, updates), moments

    return jax.lax.fori_loop(0, steps, minibatch, trained)


CHUNK = 512  # rows per call of the validation loop: bounds its memory


@partial(jax.jit, static_argnames=("objective",))
def validation_error(
    objective: Objective,
    network: Any,
    x: Float[Array, "c in"],
    y: Float[Array, "c out"],
    heldout: Int[Array, " h"],
    n: Int[Array, ""],
) -> Float[Array, ""]:
    """Mean error of a member over the first n rows named in `heldout` (padded to a multiple of CHUNK)."""

    def chunk(i: Int[Array, ""], total: Float[Array, ""]) -> Float[Array, ""]:
        rows = jax.lax.dynamic_slice_in_dim(heldout, i * CHUNK, CHUNK)
        counted = i * CHUNK + jnp.arange(CHUNK) < n
        return total + jnp.sum(jnp.where(counted, objective.errors(network, x[rows], y[rows]), 0.0))

    return jax.lax.fori_loop(0, (n + CHUNK - 1) // CHUNK, chunk, jnp.zeros(())) / n


@partial(jax.jit, static_argnames=("objective",))
def row_errors(
    objective: Objective,
    network: Any,
    x: Float[Array, "c in"],
    y: Float[Array, "c out"],
    heldout: Int[Array, " h"],
    n: Int[Array, ""],
) -> Float[Array, " h"]:
    """Errors of a member on the first n rows named in `heldout` (padded to a multiple of CHUNK); then anything."""

    def chunk(i: Int[Array, ""], errors: Float[Array, " h"]) -> Float[Array, " h"]:
        rows = jax.lax.dynamic_slice_in_dim(heldout, i * CHUNK, CHUNK)
        here = objective.errors(network, x[rows], y[rows])
        return jax.lax.dynamic_update_slice_in_dim(errors, here, i * CHUNK, 0)

    return jax.lax.fori_loop(0, (n + CHUNK - 1) // CHUNK, chunk, jnp.zeros(heldout.shape[0]))


def trimmed(errors: Float[np.ndarray, " m"], episode: Int[np.ndarray, " m"]) -> float:
    """Mean of the errors without the tenth of the episodes (rounded up, of three or more) that has the largest.

    So no single episode can own it, however far out of the training rows it lies.
    """
    _, number = np.unique(episode, return_inverse=True)
    rows = np.bincount(number)
    totals = np.bincount(number, errors.astype(np.float64))
    left = len(rows) - (-(-len(rows) // 10) if len(rows) >= 3 else 0)
    kept = np.argsort(totals / rows, kind="stable")[:left]
    return float(totals[kept].sum() / rows[kept].sum())


@jax.jit
def _keep_best(
    one: FitState, network: Any, moments: Any, error: Float[Array, ""], patience: Int[Array, ""]
) -> FitState:
    """The state of a member after an epoch that it was trained in."""
    better = error < one.best_error
    waited = jnp.where(better, 0, one.waited + 1)
    return FitState(
        networks=network,
        moments=moments,
        best=jax.tree.map(lambda new, old: jnp.where(better, new, old), network, one.best),
        best_error=jnp.where(better, error, one.best_error),
        waited=waited,
        active=waited < patience,
        epoch=one.epoch + 1,
    )


def _order(settings: FitSettings, rows: Rows, key: PRNGKeyArray, epoch: int, k: int) -> Int[np.ndarray, " n"]:
    """Minibatch order of member k for one epoch."""
    seed = np.asarray(key).tolist()
    train = rows.train
    if settings.bootstrap:  # the same draw in every epoch: a property of the member
        train = _drawn(rows, np.random.default_rng([*seed, k]))
    return np.random.default_rng([*seed, k, epoch + 1]).permutation(train)


def _drawn(rows: Rows, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """As many training rows, drawn with replacement; in whole episodes, of which the last one is cut."""
    if rows.resampled is None:
        return rng.choice(rows.train, len(rows.train))
    names, number = np.unique(rows.resampled, return_inverse=True)
    members = [rows.train[number == i] for i in range(len(names))]
    drawn, size = [], 0
    while size < len(rows.train):
        drawn.append(members[rng.integers(len(members))])
        size += len(drawn[-1])
    return np.concatenate(drawn)[: len(rows.train)]


def planned_epochs(settings: FitSettings, steps: int) -> int:
    most = settings.epochs if settings.max_steps is None else min(settings.epochs, settings.max_steps // steps)
    enough = most if settings.passes is None else max(settings.passes, -(-settings.least_steps // steps))
    return max(1, min(most, enough))


def epochs(
    settings: FitSettings, objective: Objective, rows: Rows, state: FitState, key: PRNGKeyArray
) -> Iterator[tuple[FitState, Epoch]]:
    """Train until every member has stopped; yields after every epoch."""
    if len(rows.train) == 0 or len(rows.heldout) == 0:
        raise UserError("a fit needs at least one training and one held-out transition: bring a larger batch.")
    batch = min(settings.batch, len(rows.train))
    steps = len(rows.train) // batch
    total = planned_epochs(settings, steps)
    padded = -(-len(rows.x) // CHUNK) * CHUNK
    heldout = jnp.asarray(np.pad(rows.heldout, (0, padded - len(rows.heldout))).astype(np.int32))
    n = jnp.asarray(len(rows.heldout))
    rate = jnp.asarray(settings.learning_rate, jnp.float32)
    l2 = jnp.asarray(settings.l2 / len(rows.train), jnp.float32)
    cosine = settings.decay == "cosine"
    patience = jnp.asarray(settings.patience)

    def judge(network: Any) -> Float[Array, ""]:
        if settings.judged_by == "mean":
            return validation_error(objective, network, rows.x, rows.y, heldout, n)
        errors = np.asarray(row_errors(objective, network, rows.x, rows.y, heldout, n))[: len(rows.heldout)]
        each = np.arange(len(errors)) if rows.episode is None else rows.episode
        return jnp.asarray(trimmed(errors, each), jnp.float32)

    def train(k: int, before: Callable[[], FitState]) -> FitState:
        one = before()
        if not bool(one.active):  # a member that has stopped runs no minibatch at all
            return replace(one, epoch=one.epoch + 1)
        order = _order(settings, rows, key, int(one.epoch), k)
        trained = one.networks, one.moments
        for first in range(0, steps, STRETCH):
            picked = order[first * batch : min(first + STRETCH, steps) * batch]
            counts = len(picked) // batch, int(one.epoch) * steps + first, total * steps
            picked = np.pad(picked, (0, STRETCH * batch - len(picked)))  # one shape, so nothing is compiled again
            trained = _train_member(objective, batch, cosine, trained, rows.x, rows.y, picked, *counts, rate, l2)
        return jax.block_until_ready(_keep_best(one, *trained, judge(trained[0]), patience))

    pool = ThreadPoolExecutor(len(usable_cores()))

    def begin_epoch(before: Sequence[Callable[[], FitState]]) -> list[Future[FitState]]:
        return [pool.submit(train, k, one) for k, one in enumerate(before)]

    try:
        unfinished = int(state.epoch) < total and bool(state.active.any())
        begun = [partial(_alone, state, jnp.asarray(k)) for k in range(settings.members)]
        under_way = begin_epoch(begun) if unfinished else []
        while under_way:
            epoch = int(state.epoch) + 1
            # A worker waits for its member's last epoch only, which was handed out before: there is no deadlock.
            ahead = begin_epoch([one.result for one in under_way]) if epoch < total else []
            state = _together([one.result() for one in under_way])
            errors = tuple(float(e) for e in state.best_error)
            mean = float(jnp.mean(state.best_error))
            yield state, Epoch(epoch, total, int(state.active.sum()), mean, errors)
            under_way = ahead if bool(state.active.any()) else []
    finally:
        pool.shutdown(cancel_futures=True)
