"""How data are collected around a policy (line 1 of Algorithm 1).

`Seeking` is the paper's low-support behaviour (eq. 16),

    a = clip(tanh(mu(s)) + eps_const + eps_zeta),   eps_const ~ N(0, sigma^2),   eps_zeta ~ N(0, zeta(s, a)^2),

where zeta grows with the labeler's doubt about the tentative action tanh(mu(s)) + eps_const. `Plain` adds constant
noise only. A new explorer is a frozen dataclass with `actor`, stored as `explore/...`.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from musbo.core.diagnostics import NOTHING, Caution, Diagnostic, Findings, quantiles
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.models.actor import Act, Actor, Obs, Shipped, Signal
from musbo.models.dynamics import stacked_inputs
from musbo.models.labeler import Labeler, doubt, member_means, predicted, state_targets
from musbo.models.mlp import named_arrays
from musbo.models.policy import Policy

AT_CAP = 0.5
"""More than this share of the steps at the cap of zeta: the noise hardly depends on the state."""
ALONE = 0.1
"""More than this share of the steps with nothing to pool zeta with: the control seeks after all."""


@runtime_checkable
class Explore(Protocol):
    """Who collects the next batch."""

    def actor(self, policy: Policy, judge: Labeler | None) -> Actor:
        """The actor around `policy`; `judge` is the labeler, None for a method that has none."""
        ...


@stored("explore/plain")
@dataclass(frozen=True)
class Plain:
    """Constant Gaussian noise around the policy's mean."""

    sigma: float = 0.1
    """Standard deviation, as a share of the action half-range (BREMEN: 0.1)."""

    def __post_init__(self) -> None:
        if not self.sigma >= 0:
            raise UserError(f"exploration sigma must be at least 0, not {self.sigma}.")

    def actor(self, policy: Policy, judge: Labeler | None) -> "PlainActor":
        return PlainActor(policy, self)


@stored("explore/seeking")
@dataclass(frozen=True)
class Seeking:
    """Noise that grows with the disagreement of the labeler (eq. 16)."""

    sigma: float = 0.01
    """Standard deviation of eps_const, as a share of the half-range (paper: 0.01, searched over 0.01, 0.05, 0.1)."""
    zeta: Literal["disagreement", "lagged", "oracle"] = "disagreement"
    """zeta: the labeler's largest disagreement now, its error on the last step, or (simulators only) its true error."""
    zeta_scale: Literal["relative", "raw"] = "relative"
    """zeta_max * min(1, d / d95) with d95 from held-out data; or the paper's d itself, capped at zeta_max."""
    zeta_max: float | None = 0.3
    """Largest zeta, as a share of the half-range; `None`: no cap (with `raw`)."""
    pooled: bool = False
    """A control that does not seek: all lanes get the mean of their zetas, noise of the same mean size everywhere."""

    def __post_init__(self) -> None:
        if not self.sigma >= 0 or (self.zeta_max is not None and not self.zeta_max > 0):
            raise UserError("exploration needs sigma of at least 0 and zeta_max above 0 or none.")
        if self.zeta_max is None and self.zeta_scale == "relative":
            raise UserError("zeta_scale relative needs a zeta_max: give one, or choose zeta_scale raw.")

    def actor(self, policy: Policy, judge: Labeler | None) -> "SeekingActor":
        if judge is None:
            raise UserError("this method has no labeler to seek with: choose --explore plain.")
        return SeekingActor(policy, judge, self, needs_oracle=self.zeta == "oracle")


class PlainActor(eqx.Module):
    """The policy's mean with constant noise."""

    policy: Policy
    settings: Plain = eqx.field(static=True)
    needs_oracle: bool = eqx.field(static=True, default=False)

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        noise = self.settings.sigma * jax.random.normal(key, (obs.shape[0], self.policy.centre.shape[0]))
        mean = jax.vmap(self.policy.mean)(obs)
        return self.policy.clip(mean + self.policy.half_range[None] * noise), jnp.zeros(obs.shape[0])

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        return NOTHING

    def ship(self, obs: Obs, act: Act) -> Shipped:
        return Shipped("plain", {"sigma": self.settings.sigma})


class SeekingActor(eqx.Module):
    """Eq. 16. The signal is zeta, as a share of the action half-range."""

    policy: Policy
    labeler: Labeler
    settings: Seeking = eqx.field(static=True)
    needs_oracle: bool = eqx.field(static=True, default=False)

    def tentative(self, obs: Obs, key: PRNGKeyArray) -> Act:
        """tanh(mu(s)) + eps_const, before clipping."""
        noise = self.settings.sigma * jax.random.normal(key, (obs.shape[0], self.policy.centre.shape[0]))
        return jax.vmap(self.policy.mean)(obs) + self.policy.half_range[None] * noise

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        k_const, k_zeta = jax.random.split(key)
        tentative = self.tentative(obs, k_const)
        if self.settings.zeta == "lagged":
            error = largest_error(self.labeler, previous_obs, previous_act, obs)
            distance = jnp.where(has_previous, error, 0.0)
        else:
            distance = doubt(self.labeler, obs, self.policy.clip(tentative))
        return self._finish(tentative, distance, k_zeta)

    def act_oracle(self, obs: Obs, tentative: Act, next_obs: Obs, key: PRNGKeyArray) -> tuple[Act, Signal]:
        """With the true next state of the tentative action at hand (a copy of the simulator was asked)."""
        return self._finish(tentative, largest_error(self.labeler, obs, self.policy.clip(tentative), next_obs), key)

    def _finish(self, tentative: Act, distance: Float[Array, " b"], key: PRNGKeyArray) -> tuple[Act, Signal]:
        levels = self.labeler.levels
        ordinary = levels.spread_p95 if self.settings.zeta == "disagreement" else levels.error_p95
        zeta = exploration_scale(self.settings, distance, ordinary)
        if self.settings.pooled:
            zeta = jnp.full_like(zeta, jnp.mean(zeta))
        noise = zeta[:, None] * jax.random.normal(key, tentative.shape)
        return self.policy.clip(tentative + self.policy.half_range[None] * noise), zeta

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        cap = self.settings.zeta_max
        at_cap = float(np.mean(signal >= cap * (1 - 1e-6))) if cap else 0.0
        tenths = [float(q) for q in np.quantile(signal, [0.1, 0.5, 0.9])]
        return seeking_findings(tenths, at_cap, alone if self.settings.pooled else 0.0)

    def ship(self, obs: Obs, act: Act) -> Shipped:
        settings, judge = self.settings, self.labeler
        if settings.zeta == "oracle":
            return Shipped("none", why="zeta is measured in a copy of the simulator")
        if settings.pooled:
            return Shipped("none", why="zeta is pooled over lanes")
        lagged = settings.zeta == "lagged"
        numbers = {
            "sigma": settings.sigma,
            "lagged": lagged,
            "relative": settings.zeta_scale == "relative",
            "largest": settings.zeta_max,
            "ordinary": float(judge.levels.error_p95 if lagged else judge.levels.spread_p95),
            "activation": judge.members.mlp.activation,
        }
        mean, std = stacked_inputs(judge.scaling)
        target_mean, target_std = state_targets(judge.scaling, predicted(judge.members))
        arrays = {
            **named_arrays(judge.members.mlp, "labeler", len(target_mean)),  # the means: nobody asks for the variances
            "labeler.mean": mean,
            "labeler.std": std,
            "labeler.target_mean": target_mean,
            "labeler.target_std": target_std,
        }
        return Shipped("seeking", numbers, arrays, {"doubt": doubt(judge, obs, act)})


def seeking_findings(zeta: list[float] | None, at_cap: float | None, alone: float) -> Findings:
    """What is shown of zeta: its quantiles and the share of the steps at its cap."""
    diagnostics = (
        Diagnostic(
            "zeta",
            quantiles(zeta),
            "exploration scale zeta",
            "Size of the noise that seeks doubt, over the steps of the batch.",
            unit="share of the action half-range",
            column="zeta at\n10/50/90 %",
        ),
        Diagnostic(
            "zeta_at_cap",
            at_cap,
            "zeta at its cap",
            "Share of the steps whose zeta is at its largest.",
            column="zeta\nat cap",
            percent=True,
        ),
    )
    cautions = ()
    if at_cap is not None and at_cap > AT_CAP:
        cautions += (
            Caution(
                "at cap",
                f"zeta is at its cap in {at_cap:.0%} of the steps, so the noise hardly depends on the state "
                "(with --explore.zeta-scale raw: raise --explore.zeta-max, or go back to relative)",
            ),
        )
    if alone > ALONE:
        cautions += (
            Caution(
                "no control",
                f"zeta is pooled over a single lane in {alone:.0%} of the steps, so there the noise seeks after all "
                "and this is no control; raise --batch-size until it holds four full episodes",
            ),
        )
    return Findings(diagnostics, cautions)


def exploration_scale(
    settings: Seeking, distance: Float[Array, " b"], ordinary: Float[Array, ""]
) -> Float[Array, " b"]:
    """zeta, as a share of the action half-range."""
    if settings.zeta_scale == "raw":
        return distance if settings.zeta_max is None else jnp.minimum(distance, settings.zeta_max)
    assert settings.zeta_max is not None  # refused when the settings were made
    return settings.zeta_max * jnp.minimum(1.0, distance / jnp.maximum(ordinary, 1e-12))


def largest_error(labeler: Labeler, obs: Obs, act: Act, next_obs: Obs) -> Float[Array, " b"]:
    """max over members of || s' - s'_i ||_1: the paper's formula for zeta."""
    means = member_means(labeler.members, labeler.scaling, obs, act)
    return jnp.max(jnp.sum(jnp.abs(means - next_obs[None, :, : means.shape[2]]), axis=2), axis=0)
