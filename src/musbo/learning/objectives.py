"""What M and P learn from D_all: their objectives (eq. of section 3.1, and eq. 17) and the start of their fits."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.diagnostics import Curve, curve, finite
from musbo.data.dataset import Dataset, episodes, rows
from musbo.data.scaling import Scaling
from musbo.learning.fit import FitSettings, FitState, Rows, begin
from musbo.learning.foresight import rank_correlation, reliability
from musbo.models import dynamics, labeler
from musbo.models.dynamics import Dynamics
from musbo.models.labeler import Labeler, Levels
from musbo.models.mlp import MLP
from musbo.models.probabilistic import Probabilistic
from musbo.tasks.history import newest
from musbo.tasks.task import Task

BOUND_WEIGHT = 0.01  # pulls the learned bounds of the log-variance together (BREMEN)


@dataclass(frozen=True)
class SquaredError:
    """|| y - f(x) ||^2, summed over dimensions, averaged over samples; a termination logit by cross-entropy.

    With `huber` the loss of a column grows linearly beyond that many standard deviations. Impacts change a state more
    than anything else and are hardly predictable; squared, they would decide the fit. Errors stay squared.
    """

    logit: bool = False
    huber: float | None = None

    def errors(self, network: MLP, x: Float[Array, "n in"], y: Float[Array, "n out"]) -> Float[Array, " n"]:
        return self._of_rows(network, x, y, None)

    def loss(self, network: MLP, x: Float[Array, "n in"], y: Float[Array, "n out"]) -> Float[Array, ""]:
        return jnp.mean(self._of_rows(network, x, y, self.huber))

    def _of_rows(
        self, network: MLP, x: Float[Array, "n in"], y: Float[Array, "n out"], huber: float | None
    ) -> Float[Array, " n"]:
        out = jax.vmap(network)(x)
        regress = out[:, :-1] if self.logit else out
        wanted = y[:, :-1] if self.logit else y
        off = jnp.abs(regress - wanted)
        each = off**2 if huber is None else jnp.where(off < huber, off**2, huber * (2 * off - huber))
        error = jnp.sum(each, axis=1)
        return error + optax.sigmoid_binary_cross_entropy(out[:, -1], y[:, -1]) if self.logit else error

    def kernels(self, network: MLP) -> tuple[Float[Array, "_ _"], ...]:
        return network.weights[:-1]


@dataclass(frozen=True)
class GaussianLikelihood:
    """Eq. 17: (mu - y)' Sigma^-1 (mu - y) + log det Sigma; early stopping looks at the error of the mean alone."""

    def errors(self, network: Probabilistic, x: Float[Array, "n in"], y: Float[Array, "n out"]) -> Float[Array, " n"]:
        return jnp.sum((jax.vmap(network)(x)[0] - y) ** 2, axis=1)

    def loss(self, network: Probabilistic, x: Float[Array, "n in"], y: Float[Array, "n out"]) -> Float[Array, ""]:
        mean, logvar = jax.vmap(network)(x)
        likelihood = jnp.mean(jnp.sum((mean - y) ** 2 * jnp.exp(-logvar) + logvar, axis=1))
        return likelihood + BOUND_WEIGHT * (jnp.sum(network.max_logvar) - jnp.sum(network.min_logvar))

    def kernels(self, network: Probabilistic) -> tuple[Float[Array, "_ _"], ...]:
        return network.mlp.weights[:-1]


def _rows(data: Dataset, x: Float[Array, "c in"], y: Float[Array, "c out"]) -> Rows:
    live, heldout = np.asarray(data.live), np.asarray(data.heldout)
    return Rows(x, y, rows(live & ~heldout), rows(heldout), episodes(data)[heldout])


@partial(jax.jit, static_argnames="task")
def _dynamics_arrays(task: Task, data: Dataset, scaling: Scaling) -> tuple[Float[Array, "c in"], Float[Array, "c out"]]:
    x = jax.vmap(lambda s, a: dynamics.inputs(scaling, s, a))(data.obs, data.act)
    target = newest(task, data.next_obs) - newest(task, data.obs)
    if task.reward == "learned":
        target = jnp.concatenate([target, data.reward[:, None]], axis=1)
    y = (target - scaling.target_mean[None]) / scaling.target_std[None]
    if task.terminated == "learned":
        y = jnp.concatenate([y, data.terminated[:, None].astype(jnp.float32)], axis=1)
    return x, y


def dynamics_rows(task: Task, data: Dataset, scaling: Scaling) -> Rows:
    return _rows(data, *_dynamics_arrays(task, data, scaling))


def steadied(task: Task, rows: Rows, scaling: Scaling, noise: float, key: PRNGKeyArray) -> Rows:
    """The rows and a copy of the training rows that begin a little beside the truth and end where it ended.

    What is fitted on them leads back: an imagined trajectory does not drift away from what states can be. `noise` is a
    share of one step's ordinary change.
    """
    size = task.predicted
    step = noise * jax.random.normal(key, (rows.x.shape[0], size))
    x = rows.x.at[:, :size].add(step * (scaling.target_std[:size] / scaling.obs_std[:size])[None])
    y = rows.y.at[:, :size].add(-step)
    both = jnp.concatenate([rows.x, x]), jnp.concatenate([rows.y, y])
    train = np.concatenate([rows.train, rows.train + np.int32(rows.x.shape[0])])
    return Rows(*both, train, rows.heldout, rows.episode)


@partial(jax.jit, static_argnames="task")
def _labeler_arrays(task: Task, data: Dataset, scaling: Scaling) -> tuple[Float[Array, "c in"], Float[Array, "c out"]]:
    x = jax.vmap(lambda s, a: dynamics.inputs(scaling, s, a))(data.obs, data.act)
    mean, std = labeler.state_targets(scaling, task.predicted)
    return x, (newest(task, data.next_obs) - newest(task, data.obs) - mean[None]) / std[None]


def labeler_rows(task: Task, data: Dataset, scaling: Scaling) -> Rows:
    return _rows(data, *_labeler_arrays(task, data, scaling))


def begin_dynamics(
    task: Task, settings: FitSettings, old: Dynamics | None, scaling: Scaling, key: PRNGKeyArray
) -> FitState:
    if old is None or settings.weights == "fresh":
        return begin(dynamics.init_members(key, task, settings.hidden, settings.activation, settings.members))
    return begin(dynamics.rescale(old.members, old.scaling, scaling))


def begin_labeler(
    task: Task, settings: FitSettings, old: Labeler | None, scaling: Scaling, key: PRNGKeyArray
) -> FitState:
    if old is None or settings.weights == "fresh":
        return begin(labeler.init_members(key, task, settings.hidden, settings.activation, settings.members))
    return begin(labeler.rescale(old.members, old.scaling, scaling))


LEVEL_ROWS = 20_000  # held-out rows that the levels are measured on, at most
LEVEL_BLOCK = 1000  # of them per call: one shape from the first deployment to the last, so nothing is compiled again


@jax.jit
def _level_values(
    members: Probabilistic,
    scaling: Scaling,
    obs: Float[Array, "n obs"],
    act: Float[Array, "n act"],
    next_obs: Float[Array, "n obs"],
) -> tuple[Float[Array, "pairs n"], Float[Array, " n"], Float[Array, " n"]]:
    """Distances of all pairs, the error of the worst member, and the error of what the members say on average."""
    predictions = labeler.member_means(members, scaling, obs, act)
    came = next_obs[:, : predictions.shape[2]]
    worst = jnp.max(jnp.sum(jnp.abs(predictions - came[None]), axis=2), axis=0)
    average = jnp.sum(jnp.abs(jnp.mean(predictions, axis=0) - came), axis=1)
    return labeler.pair_distances(predictions), worst, average


def _heldout_values(
    members: Probabilistic, scaling: Scaling, data: Dataset
) -> tuple[Float[np.ndarray, "pairs n"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    heldout = rows(np.asarray(data.heldout))
    heldout = heldout[:: -(-len(heldout) // LEVEL_ROWS)]
    columns = [np.asarray(column) for column in (data.obs, data.act, data.next_obs)]
    found = []
    for first in range(0, len(heldout), LEVEL_BLOCK):
        some = heldout[first : first + LEVEL_BLOCK]
        padded = np.resize(some, LEVEL_BLOCK)
        values = _level_values(members, scaling, *(column[padded] for column in columns))
        found.append([np.asarray(value)[..., : len(some)] for value in values])
    pairs, worst, average = (np.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
    return pairs, worst, average


class Calibration(NamedTuple):
    """Whether doubt goes with error on held-out data."""

    rank_correlation: float | None
    reliability: Curve | None
    """Mean doubt and mean error in ten groups, from the least doubtful steps to the most."""


def calibration(judge: Labeler, data: Dataset) -> Calibration:
    """Whether doubt goes with error on held-out data: the largest disagreement against the error of the average.

    Not against the error of the worst member: two members that are far apart cannot both be near the truth, so that
    one goes with disagreement even where disagreement tells nothing.
    """
    pairs, _, error = _heldout_values(judge.members, judge.scaling, data)
    doubt = np.max(pairs, axis=0)
    groups = reliability(doubt, error, min(10, len(doubt)))
    shown = curve(
        (doubtful for doubtful, _ in groups),
        (wrong for _, wrong in groups),
        "disagreement of the labeler",
        "error of its members' mean",
    )
    return Calibration(finite(rank_correlation(doubt, error)), shown)


def measure_levels(members: Probabilistic, scaling: Scaling, data: Dataset) -> Levels:
    """What disagreement and error of P are ordinary on held-out data."""
    pairs, error, _ = _heldout_values(members, scaling, data)

    def level(value: np.floating) -> Float[Array, ""]:
        return jnp.asarray(value, jnp.float32)

    return Levels(
        pair_p90=level(np.quantile(pairs, 0.9)),
        spread_p95=level(np.quantile(np.max(pairs, axis=0), 0.95)),
        error_p95=level(np.quantile(error, 0.95)),
        pair_mean=level(np.mean(pairs, dtype=np.float64)),
    )
