"""A run in words and in one line."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from musbo.campaign.events import Evaluated
from musbo.reporting.verdict import BARS, picture, sparkline, verdict
from tests.reporting import sample
from tests.reporting.test_advice import every, returns


def test_a_sparkline():
    assert sparkline([0.0, 7.0, 3.0, None, 14.0]) == "▁▅▃·█"  # two units a bar, halves to the even one
    assert sparkline([5.0, 5.0]) == "▁▁" and sparkline([]) == "" and sparkline([None]) == "·"


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_a_sparkline_keeps_the_order(values: list[float]):
    bars = [BARS.index(bar) for bar in sparkline(values)]
    assert len(bars) == len(values)
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            assert bars[i] <= bars[j] or a > b


def test_the_picture_begins_with_the_behaviour():
    found = returns(-80.0, -60.0, -20.0)
    assert picture(found) == "-99 ▁▃▄█ -20   random actions, then the policy after each deployment"
    assert "the behaviour in the data, then" in picture(every(found, source="log.csv"))
    skipped = Evaluated(0.0, skipped="no simulator")
    unmeasured = replace(found, deployments=tuple(replace(item, evaluation=skipped) for item in found.deployments))
    assert picture(unmeasured) == ""


def test_the_verdict_of_a_healthy_run():
    assert verdict(returns(-80.0, -60.0, -20.0)) == (
        "After 3 deployments (3,000 transitions) the policy earns -20 ± 1 per episode; random actions earned -99. "
        "It is better than the one after deployment 2, by 40 ± 0. Nothing looks wrong."
    )


def test_the_verdict_of_others():
    worse = verdict(returns(-40.0, -20.0, -60.0))
    assert "It is worse than the one after deployment 2, by 40 ± 0. One thing to look at." in worse
    early = verdict(replace(returns(-40.0, -20.0), finished=False, settings=replace(sample.settings(), budget=5)))
    assert early.startswith("2 of 5 deployments so far. After 2 deployments")
    assert verdict(sample.summary(0, deployments=())) == "Nothing was collected yet."
    skipped = Evaluated(0.0, skipped="task logs has no simulator")
    logs = sample.changed(sample.summary(1), 1, lambda item: replace(item, evaluation=skipped))
    assert verdict(logs) == (
        "After 1 deployment (1,000 transitions) the policy was not measured: task logs has no simulator. "
        "Imagination promises -2 per step; the newest batch has -1.98. Nothing looks wrong."
    )


def test_a_small_difference_beside_the_gain_is_no_news():
    """Clear, because the same episodes are compared, and still nothing that anybody would act on."""
    assert "It is better than the one after deployment 2" in verdict(returns(-60.0, -30.0, -20.0))
    assert "It does not differ clearly from the one after deployment 2." in verdict(returns(-60.0, -20.0, -20.1))
