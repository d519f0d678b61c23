"""From the evidence to a forecast, and from the forecast to a verdict.

The gain of a candidate over the incumbent is forecast as a normal distribution,

    mean = a Delta_M + b Delta_Q,        std^2 = c^2 (s_M^2 + s_Q^2 + (Delta_M - Delta_Q)^2 / 4) + (d * scale)^2

with the mean differences Delta of models and fitted Q, their standard deviations s over refits and seeds, and the
spread of the logged returns as the scale. What earlier forecasts of the same campaign were wrong by corrects it. a to d
and the thresholds are to be chosen on simulated campaigns (benchmarks/gate): inside one campaign nobody can test them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from musbo.core.registry import stored
from musbo.gate.evidence import Evidence

Word: TypeAlias = Literal["GO", "NO-GO", "NEED-DATA"]

PRIOR = 3.0
"""How many forecasts the calibration on simulated campaigns counts for, beside those of the campaign itself."""


@stored("gate/rule")
@dataclass(frozen=True)
class Rule:
    """How evidence becomes a verdict."""

    models: float = 0.7
    """a: weight of the models' difference."""
    fitted: float = 0.3
    """b: weight of fitted Q's difference."""
    spread: float = 1.0
    """c: how far estimators that disagree are believed to be wrong."""
    floor: float = 0.1
    """d: the error that is always possible, in units of the logged returns' spread."""
    pass_below: float = 0.1
    """GO where the chance of a bad candidate is smaller."""
    stop_above: float = 0.5
    """NO-GO where it is larger; in between nobody knows: NEED-DATA."""


@stored("gate/forecast")
@dataclass(frozen=True)
class Gain:
    """How much more than the incumbent a candidate would earn per episode: a normal distribution."""

    mean: float
    std: float

    def below(self, value: float) -> float:
        """The chance that it lies below."""
        return normal_cdf((value - self.mean) / self.std)

    def interval(self, share: float = 0.9) -> tuple[float, float]:
        """Where it lies with this chance."""
        half = {0.5: 0.6745, 0.8: 1.2816, 0.9: 1.6449, 0.95: 1.96}[share] * self.std
        return self.mean - half, self.mean + half

    def crps(self, truth: float) -> float:
        """Continuous ranked probability score: small where the truth was likely; in units of the return."""
        z = (truth - self.mean) / self.std
        density = math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        return self.std * (z * (2 * normal_cdf(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))


def normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@dataclass(frozen=True)
class Past:
    """A forecast of the same campaign, and what came true."""

    gain: Gain
    truth: float


def forecast(rule: Rule, evidence: Evidence, past: Sequence[Past] = ()) -> Gain:
    """The gain, corrected by the campaign's own past."""
    by_models, by_q = (np.asarray(each, float) for each in (evidence.models, evidence.fitted))
    gains = [pairs[:, 0] - pairs[:, 1] for pairs in (by_models, by_q)]
    middle = [float(each.mean()) for each in gains]
    spread = [float(each.var(ddof=1)) if len(each) > 1 else 0.0 for each in gains]
    mean = rule.models * middle[0] + rule.fitted * middle[1]
    apart = (middle[0] - middle[1]) ** 2 / 4
    std = math.sqrt(rule.spread**2 * (sum(spread) + apart) + (rule.floor * evidence.scale) ** 2)
    return corrected(Gain(mean, max(std, 1e-9)), past)


def corrected(gain: Gain, past: Sequence[Past]) -> Gain:
    """Shifted and widened as earlier forecasts should have been, as far as there were any."""
    if not past:
        return gain
    z = np.asarray([(each.truth - each.gain.mean) / each.gain.std for each in past])
    bias = float(z.sum()) / (PRIOR + len(z))
    size = math.sqrt((PRIOR + float((z**2).sum())) / (PRIOR + len(z)))
    return Gain(gain.mean + bias * gain.std, gain.std * max(size, 1.0))


@stored("gate/ruling")
@dataclass(frozen=True)
class Ruling:
    """A verdict with what it rests on."""

    word: Word
    gain: Gain
    margin: float
    """Worse by more than this is bad."""
    bad: float
    """The chance that the candidate is bad."""
    better: float
    """The chance that it is better."""
    evidence: Evidence
    reasons: tuple[str, ...] = ()
    """In sentences, the weightiest first."""


def rule_on(rule: Rule, evidence: Evidence, margin: float, past: Sequence[Past] = ()) -> Ruling:
    """The verdict."""
    gain = forecast(rule, evidence, past)
    bad, better = gain.below(-margin), 1.0 - gain.below(0.0)
    word: Word = "GO" if bad < rule.pass_below else "NO-GO" if bad > rule.stop_above else "NEED-DATA"
    if not (math.isfinite(gain.mean) and math.isfinite(gain.std)):
        word = "NO-GO"
    return Ruling(word, gain, margin, bad, better, evidence, reasons(word, rule, evidence, gain, margin, len(past)))


def reasons(word: Word, rule: Rule, evidence: Evidence, gain: Gain, margin: float, past: int) -> tuple[str, ...]:
    """What a person should know of it, in sentences."""
    if not math.isfinite(gain.mean):
        return ("An estimate is no number: the policy or the models are broken.",)
    models, q = (np.asarray(each, float) for each in (evidence.models, evidence.fitted))
    by_models, by_q = models[:, 0] - models[:, 1], q[:, 0] - q[:, 1]
    low, high = gain.interval()
    said = [
        f"It is forecast to earn {gain.mean:+.4g} per episode against the incumbent, with a chance of 90 % between "
        f"{low:+.4g} and {high:+.4g}. Bad is below {-margin:.4g}; the chance of that is {gain.below(-margin):.0%}.",
        f"The refitted models say {by_models.mean():+.4g} (from {by_models.min():+.4g} to {by_models.max():+.4g}), "
        f"fitted Q says {by_q.mean():+.4g} (from {by_q.min():+.4g} to {by_q.max():+.4g}).",
    ]
    if by_models.mean() * by_q.mean() < 0:
        said.append("Models and fitted Q disagree about which of the two is better.")
    if evidence.lost > 0.05:
        said.append(f"{evidence.lost:.0%} of its imagined episodes leave everything that the data cover.")
    if evidence.path > 1.5:
        said.append(
            f"Along its path the models disagree {evidence.path:.1f} times as much as is ordinary on held-out data."
        )
    if evidence.outside:
        name, share = evidence.outside[0]
        said.append(f"It would take {name} beyond nearly all data in {share:.0%} of its steps.")
    if past:
        said.append(f"{past} earlier forecast{'s' * (past > 1)} of this campaign corrected this one.")
    return tuple(said)


def batch_that_settles(rule: Rule, ruling: Ruling, transitions: int) -> int | None:
    """About how many more transitions would make a verdict, if spreads shrink with the root of the data.

    None where it is made, or where even four times the data would not do.
    """
    if ruling.word != "NEED-DATA":
        return None
    for factor in (1.25, 1.5, 2.0, 3.0, 4.0):
        narrower = Gain(ruling.gain.mean, ruling.gain.std / math.sqrt(factor))
        bad = narrower.below(-ruling.margin)
        if bad < rule.pass_below or bad > rule.stop_above:
            return math.ceil((factor - 1) * transitions / 100) * 100
    return None
