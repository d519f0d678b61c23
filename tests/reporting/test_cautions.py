"""What a run is warned of: sentences that its parts make, and that every display shows."""

import math

from musbo.algorithms.imagined_findings import handed_over
from musbo.campaign.summary import per_step
from musbo.core.diagnostics import Findings, Quantiles, quantiles
from musbo.learning.explore import seeking_findings
from musbo.learning.label import coefficient_findings, penalty_findings
from tests.reporting import sample


def text(found: Findings) -> str:
    (caution,) = found.cautions
    return caution.text


def test_reward_per_step():
    assert per_step(-20.0, 10.0) == -2.0
    assert per_step(None, 10.0) is None
    one = sample.deployment(1)
    assert one.real_per_step == -0.8
    assert sample.with_evaluation(one, stretch=None).real_per_step is None  # nothing was imagined
    assert sample.with_evaluation(one, stretch=None, episodes=None, skipped="no simulator").real_per_step is None


def test_an_inert_coefficient_is_called_so():
    assert "the coefficient is inert (range 0.009" in text(coefficient_findings(sample.INERT, None, 0.028))
    assert coefficient_findings(Quantiles(0.9, 0.94, 0.9501), None, 0.028).cautions == ()


def test_imagination_that_runs_away():
    assert handed_over(1, 0.5, 1.0).cautions == handed_over(1, None, 1.0).cautions == ()
    assert text(handed_over(1, 0.75, 1.0)).startswith("75% of the imagined trajectories")


def test_a_penalty_that_is_nearly_constant():
    assert penalty_findings(Quantiles(1.0, 1.03, 1.06)).cautions == ()
    assert penalty_findings(Quantiles(0.0, 0.0, 0.0)).cautions == ()
    assert "same everywhere (from 2.3 to 2.31)" in text(penalty_findings(Quantiles(2.302, 2.304, 2.306)))


def test_zeta_at_its_cap():
    assert "zeta is at its cap in 51% of the steps" in text(seeking_findings([0.1, 0.2, 0.3], 0.51, 0.0))
    assert seeking_findings([0.1, 0.2, 0.3], 0.5, 0.0).cautions == seeking_findings(None, None, 0.0).cautions == ()


def test_a_control_that_has_nothing_to_pool():
    found = text(seeking_findings([0.1, 0.2, 0.3], 0.0, 1.0))
    assert "zeta is pooled over a single lane in 100% of the steps" in found and "raise --batch-size" in found
    assert seeking_findings([0.1, 0.2, 0.3], 0.0, 0.02).cautions == ()


def test_what_is_not_finite_is_no_quantile():
    assert quantiles([math.nan, 1.0, 2.0]) is None and quantiles(None) is None
