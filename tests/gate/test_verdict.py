"""The forecast and the verdict: numbers by hand, by quadrature, and by scipy."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from musbo.gate.evidence import Evidence
from musbo.gate.score import scored
from musbo.gate.verdict import Gain, Past, Rule, batch_that_settles, corrected, forecast, normal_cdf, rule_on

RULE = Rule(models=0.7, fitted=0.3, spread=1.0, floor=0.1, pass_below=0.1, stop_above=0.5)
EVIDENCE = Evidence(
    models=((5.0, 2.0), (6.0, 5.0)), fitted=((4.0, 0.0), (2.0, 0.0)), scale=10.0, path=1.0, lost=0.0, steps=50.0
)


@pytest.mark.parametrize("z", [-6.0, -1.2, 0.0, 0.3, 4.0])
def test_the_normal_distribution(z: float):
    assert normal_cdf(z) == pytest.approx(float(stats.norm.cdf(z)), rel=1e-12)
    assert Gain(2.0, 3.0).below(2.0 + 3.0 * z) == pytest.approx(float(stats.norm.cdf(z)), rel=1e-9)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.95])
def test_intervals(share: float):
    expected = stats.norm.interval(share, loc=2.0, scale=3.0)
    assert Gain(2.0, 3.0).interval(share) == pytest.approx(expected, abs=3e-4)


@pytest.mark.parametrize(("mean", "std", "truth"), [(0.0, 1.0, 0.0), (2.0, 0.5, 3.0), (-1.0, 3.0, 4.0)])
def test_the_score_is_the_area_between_the_distributions(mean: float, std: float, truth: float):
    """CRPS = integral of (F(x) - [x >= truth])^2."""
    x, width = np.linspace(mean - 12 * std, mean + 12 * std, 400_001, retstep=True)
    area = float(np.sum((stats.norm.cdf(x, mean, std) - (x >= truth)) ** 2) * width)
    assert Gain(mean, std).crps(truth) == pytest.approx(area, rel=1e-4)


def test_a_forecast_beside_the_truth():
    gain = Gain(1.0, 2.0)
    low, high = gain.interval()
    assert scored(gain).truth is scored(gain).covered is scored(gain).crps is None
    for truth, covered in ((low - 0.01, False), (low + 0.01, True), (1.0, True), (high + 0.01, False)):
        found = scored(gain, truth)
        assert (found.gain, found.low, found.high, found.truth, found.covered) == (1.0, low, high, truth, covered)
        assert found.crps == gain.crps(truth)


def test_the_forecast_by_hand():
    """Models say 3 and 1 (mean 2, variance 2), fitted Q says 4 and 2 (mean 3, variance 2)."""
    found = forecast(RULE, EVIDENCE)
    assert found.mean == pytest.approx(0.7 * 2 + 0.3 * 3)
    assert found.std == pytest.approx(math.sqrt(2 + 2 + (2 - 3) ** 2 / 4 + 1.0**2))
    alone = replace(EVIDENCE, models=((5.0, 2.0),), fitted=((4.0, 1.0),), scale=0.0)
    assert forecast(RULE, alone).std == 1e-9  # never a certainty


def test_the_past_corrects_by_hand():
    """Two forecasts that were wrong by 2 and by 4 of their deviations, beside the three that the calibration counts."""
    assert corrected(Gain(1.0, 2.0), ()) == Gain(1.0, 2.0)
    past = [Past(Gain(0.0, 1.0), 2.0), Past(Gain(10.0, 0.5), 12.0)]
    found = corrected(Gain(1.0, 2.0), past)
    assert found.mean == pytest.approx(1.0 + 6 / 5 * 2.0)
    assert found.std == pytest.approx(2.0 * math.sqrt((3 + 4 + 16) / 5))
    assert corrected(Gain(1.0, 2.0), [Past(Gain(0.0, 1.0), 0.1)]).std == 2.0  # one hit narrows nothing


def test_the_verdict():
    narrow = replace(EVIDENCE, models=((5.0, 2.0), (5.0, 2.0)), fitted=((4.0, 1.0), (4.0, 1.0)))  # gain 3, deviation 1
    for margin, word in ((0.0, "GO"), (-2.0, "NEED-DATA"), (-4.0, "NO-GO")):
        found = rule_on(RULE, narrow, margin)
        assert found.word == word and (found.gain.mean, found.gain.std) == pytest.approx((3.0, 1.0))
        assert found.bad == pytest.approx(float(stats.norm.cdf(-margin - 3.0)))
        assert found.better == pytest.approx(float(stats.norm.cdf(3.0)))
    broken = rule_on(RULE, replace(narrow, models=((math.nan, 2.0), (5.0, 2.0))), 1.0)
    assert broken.word == "NO-GO" and "no number" in broken.reasons[0]


def test_the_reasons_are_sentences_and_say_what_is_odd():
    odd = replace(
        EVIDENCE, models=((0.0, 2.0), (1.0, 5.0)), lost=0.25, path=2.5, outside=(("flow", 0.4), ("level", 0.1))
    )
    past = [Past(Gain(0.0, 1.0), 0.5)]
    said = rule_on(RULE, odd, 1.0, past).reasons
    assert all(each.endswith(".") for each in said)
    for part in ("models and fitted q disagree", "25% of its imagined episodes", "2.5 times", "flow", "1 earlier"):
        assert any(part in each.lower() for each in said), part
    assert len(rule_on(RULE, EVIDENCE, 1.0).reasons) == 2


def test_the_batch_that_settles_by_hand():
    """With twice the data a deviation of 1 is 0.71: of a margin of 1 that is 1.41 deviations, 8 %; with half as many
    more it is 1.22, 11 %."""
    ruling = replace(rule_on(RULE, EVIDENCE, 1.0), word="NEED-DATA", gain=Gain(0.0, 1.0), margin=1.0)
    assert batch_that_settles(RULE, ruling, 1000) == 1000
    assert batch_that_settles(RULE, ruling, 1010) == 1100  # in hundreds
    assert batch_that_settles(RULE, replace(ruling, gain=Gain(-0.9, 1.0)), 1000) is None  # 46 %, and hardly less later
    assert batch_that_settles(RULE, replace(ruling, word="GO"), 1000) is None
