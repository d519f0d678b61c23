"""Uncertainty labels: a label is a function Rollout -> Rollout that says how far each imagined step may be trusted.

`Disagreement` is the paper's coefficient, U(s, a) = exp(-alpha || s'_a - s'_b ||_1) for two members a != b of the
labeler (eq. 5). `Trust` believes everything: U = 1. TRPO rescales every step to its trust region, so only the spread
of U inside a batch matters. `Continuation` lowers what a step and all that follows it are worth. `Penalty` lowers the
reward instead.

A new label is a frozen dataclass with the two methods of `Label`, stored as `label/...`. Besides the rollout it returns
signals, numbers of every imagined step by names of its own; their quantiles come back to `findings`, which says what
they are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.diagnostics import NEARLY_CONSTANT, Caution, Diagnostic, Findings, Quantiles, finite
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.learning.imagine import Rollout
from musbo.models import labeler
from musbo.models.labeler import Labeler, member_means, pair_distances
from musbo.models.mlp import count, member
from musbo.models.probabilistic import Probabilistic
from musbo.models.stochastic import Stochastic, largest_spread

BLOCK = 1000  # rows per pass through the labeler
SERIES = "improve"  # the stage whose metrics have the quantiles of the signals, update by update

Signals: TypeAlias = dict[str, Float[Array, "t b"]]
"""Numbers of every imagined step, by name."""
Seen: TypeAlias = Mapping[str, Quantiles | None]
"""Their quantiles over the steps that exist."""


@runtime_checkable
class Label(Protocol):
    """How uncertain imagined steps are treated: a function Rollout -> Rollout."""

    def __call__(self, rollout: Rollout, judge: Labeler, key: PRNGKeyArray) -> tuple[Rollout, Signals]:
        """The rollout with its weights, rewards or ends changed, and the label's signals."""
        ...

    def findings(self, judge: Labeler, seen: Seen) -> Findings:
        """What the signals of an update show."""
        ...


@stored("label/trust")
@dataclass(frozen=True)
class Trust:
    """U = 1: every imagined step has the same weight (BREMEN, ME-TRPO, and MUSBO's ablation `collection`)."""

    def __call__(self, rollout: Rollout, judge: Labeler, key: PRNGKeyArray) -> tuple[Rollout, Signals]:
        """The rollout unchanged, and the disagreement of one random pair for the log."""
        return rollout, {"disagreement": disagreement("batch", "mean", rollout, judge, key)}

    def findings(self, judge: Labeler, seen: Seen) -> Findings:
        return Findings((disagreement_shown(seen["disagreement"]),))


@stored("label/disagreement")
@dataclass(frozen=True)
class Disagreement:
    """U, the uncertainty coefficient."""

    alpha: float | Literal["auto"] = 0.028
    """alpha: temperature of U (paper: 0.028); `auto`: ln 2 over the 90th percentile of held-out disagreement."""
    pairs: Literal["batch", "trajectory", "max", "mean"] = "batch"
    """Which pairs are compared: one drawn per TRPO batch, one per trajectory, the largest, or the mean of all."""
    prediction: Literal["mean", "sample"] = "mean"
    """Compare the members' mean predictions, or samples from their distributions."""

    def __post_init__(self) -> None:
        if self.alpha != "auto" and not self.alpha >= 0:
            raise UserError(f"alpha must be at least 0 or auto, not {self.alpha}.")

    def __call__(self, rollout: Rollout, judge: Labeler, key: PRNGKeyArray) -> tuple[Rollout, Signals]:
        """The rollout weighted by U, and the disagreement behind it."""
        distance = disagreement(self.pairs, self.prediction, rollout, judge, key)
        U = jnp.exp(-temperature(self, judge) * distance)
        # Where the judge itself has left the range of numbers, nothing is trusted.
        U = jnp.where(jnp.isfinite(distance), U, 0.0)
        return replace(rollout, weight=U), {"U": U, "disagreement": distance}

    def findings(self, judge: Labeler, seen: Seen) -> Findings:
        return coefficient_findings(seen["U"], seen["disagreement"], float(temperature(self, judge)))


@stored("label/continuation")
@dataclass(frozen=True)
class Continuation:
    """Doubt shortens the future: what a step and all after it promise counts times exp(-k max(0, d / d95 - 1))."""

    k: float = 0.5
    """How fast trust falls with d, the largest disagreement of two members, beyond d95, its held-out level."""
    alpha: float | Literal["auto"] = 0.0
    """alpha: temperature of U as a weight beside it (as in `disagreement`); 0: every step has the same weight."""

    def __post_init__(self) -> None:
        if not self.k >= 0:
            raise UserError(f"k of the continuation must be at least 0, not {self.k}.")
        Disagreement(self.alpha)  # refuses what cannot be

    def __call__(self, rollout: Rollout, judge: Labeler, key: PRNGKeyArray) -> tuple[Rollout, Signals]:
        """The rollout with its trust, weighted by U, and the disagreement behind both."""
        weighted, signals = Disagreement(self.alpha, pairs="max")(rollout, judge, key)
        distance = signals["disagreement"]
        beyond = jax.nn.relu(distance / jnp.maximum(judge.levels.spread_p95, 1e-12) - 1.0)
        trust = jnp.where(jnp.isfinite(distance), jnp.exp(-self.k * beyond), 0.0)
        return replace(weighted, trust=trust), {"trust": trust, "disagreement": distance}

    def findings(self, judge: Labeler, seen: Seen) -> Findings:
        shown = Diagnostic(
            "trust",
            seen["trust"],
            "trust in the future",
            "How far an imagined step and all that follows it count, over the steps of an update: 1 is wholly.",
            column="trust at\n10/50/90 %",
            series=SERIES,
        )
        return Findings((shown, disagreement_shown(seen["disagreement"])))


def coefficient_findings(U: Quantiles | None, apart: Quantiles | None, alpha: float) -> Findings:
    """What is shown of the uncertainty coefficient."""
    shown = (
        Diagnostic(
            "U",
            U,
            "uncertainty coefficient U",
            "How far imagined steps are trusted, over the steps of an update: 1 is wholly.",
            column="U at\n10/50/90 %",
            series=SERIES,
        ),
        disagreement_shown(apart),
        Diagnostic("alpha", finite(alpha), "temperature alpha", "The temperature of U = exp(-alpha disagreement)."),
    )
    if U is None or U.range >= NEARLY_CONSTANT:
        return Findings(shown)
    if U.high < NEARLY_CONSTANT:
        text = (
            f"nothing imagined is trusted (U from {U.low:.3f} to {U.high:.3f}), so nothing can be learned from it; "
            "lower --label.alpha, or set it to auto"
        )
        return Findings(shown, (Caution("nothing trusted", text),))
    text = (
        f"the coefficient is inert (range {U.range:.2g}: U from {U.low:.3f} to {U.high:.3f}), "
        "so this is nearly U = 1; raise --label.alpha, or set it to auto"
    )
    return Findings(shown, (Caution("inert", text),))


def disagreement_shown(apart: Quantiles | None) -> Diagnostic:
    return Diagnostic(
        "disagreement",
        apart,
        "disagreement of the labeler",
        "L1 distance between the next states that two members predict, over the imagined steps of an update.",
        unit="units of the state",
        series=SERIES,
    )


@stored("settings/penalty")
@dataclass(frozen=True)
class Penalty:
    """A reward penalty where a stochastic model is uncertain (MOPO)."""

    coefficient: float = 1.0
    """lambda_p: price of one unit of the largest member's predicted standard deviation (MOPO: 1 on most data)."""

    def __post_init__(self) -> None:
        if not self.coefficient >= 0:
            raise UserError(f"the coefficient of the penalty (lambda_p) must be at least 0, not {self.coefficient}.")

    def __call__(self, rollout: Rollout, model: Stochastic, key: PRNGKeyArray) -> tuple[Rollout, Float[Array, "t b"]]:
        """The rollout with lowered rewards, and the price paid at every step."""
        t, b, _ = rollout.obs.shape
        spread = largest_spread(model, rollout.obs.reshape(t * b, -1), rollout.executed.reshape(t * b, -1))
        price = self.coefficient * spread.reshape(t, b)
        return replace(rollout, reward=rollout.reward - price, live=rollout.live & jnp.isfinite(price)), price


def penalty_findings(paid: Quantiles | None) -> Findings:
    """What is shown of the price that imagined steps paid."""
    shown = Diagnostic(
        "penalty",
        paid,
        "penalty on doubt",
        "What the reward of imagined steps is lowered by, over the newest branches.",
        unit="units of the reward",
        column="penalty at\n10/50/90 %",
        series="learn",
    )
    if paid is None or paid.high <= 0 or paid.range >= NEARLY_CONSTANT * paid.high:
        return Findings((shown,))
    text = (
        f"the penalty is nearly the same everywhere (from {paid.low:.3g} to {paid.high:.3g}), so it charges "
        "for every step and not for doubt; fit longer (--dynamics.max-steps)"
    )
    return Findings((shown,), (Caution("flat penalty", text),))


def temperature(settings: Disagreement, judge: Labeler) -> Float[Array, ""]:
    """alpha as a number."""
    if settings.alpha == "auto":
        return math.log(2) / jnp.maximum(judge.levels.pair_p90, 1e-12)
    return jnp.asarray(settings.alpha, jnp.float32)


def draw_pair(k: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Two different members of K, uniformly."""
    k_a, k_b = jax.random.split(key)
    a = jax.random.randint(k_a, (), 0, k)
    return a, (a + jax.random.randint(k_b, (), 1, k)) % k


def disagreement(
    pairs: Literal["batch", "trajectory", "max", "mean"],
    prediction: Literal["mean", "sample"],
    rollout: Rollout,
    judge: Labeler,
    key: PRNGKeyArray,
) -> Float[Array, "t b"]:
    """|| s'_a - s'_b ||_1 in raw state units at every imagined (s, executed a)."""
    k = count(judge.members)
    if k < 2:
        raise UserError(f"the labeler needs at least 2 members to disagree, not {k}.")
    t, b, _ = rollout.obs.shape
    obs, act = rollout.obs.reshape(t * b, -1), rollout.executed.reshape(t * b, -1)
    k_pair, k_sample = jax.random.split(key)

    def predictions(network: Probabilistic, k_noise: PRNGKeyArray) -> Float[Array, "n new"]:
        # In blocks: the hidden layers of all rows at once would not fit into a cache.
        mean, std = jax.lax.map(lambda row: labeler.predict(network, judge.scaling, *row), (obs, act), batch_size=BLOCK)
        return mean + std * jax.random.normal(k_noise, std.shape) if prediction == "sample" else mean

    if pairs == "batch":  # two forward passes, whichever pair is drawn
        first, second = draw_pair(k, k_pair)
        k_first, k_second = jax.random.split(k_sample)
        difference = predictions(member(judge.members, first), k_first) - predictions(
            member(judge.members, second), k_second
        )
        return jnp.sum(jnp.abs(difference), axis=1).reshape(t, b)
    if prediction == "mean":
        every = member_means(judge.members, judge.scaling, obs, act)
    else:
        every = jax.lax.map(lambda args: predictions(*args), (judge.members, jax.random.split(k_sample, k)))
    if pairs == "trajectory":
        first, second = jax.vmap(lambda one: draw_pair(k, one))(jax.random.split(k_pair, b))
        every = every.reshape(k, t, b, -1)
        lanes = jnp.arange(b)
        return jnp.sum(jnp.abs(every[first, :, lanes] - every[second, :, lanes]), axis=2).T
    distances = pair_distances(every)
    return (jnp.max(distances, axis=0) if pairs == "max" else jnp.mean(distances, axis=0)).reshape(t, b)
