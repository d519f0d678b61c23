"""What counts as bad, and limits, by hand."""

from dataclasses import replace

import pytest

from musbo.campaign.events import Beside
from musbo.campaign.gating import Held, _held, _kept_back, _margin
from musbo.core.errors import UserError
from musbo.tasks import builtin
from tests.campaign.test_foreseen import EVIDENCE


def test_the_margin_that_nobody_gave():
    """A tenth of what the incumbent gained over the first batch, or of the spread where it gained nothing."""
    margin, why = _margin(None, Beside("p", -120.0, -200.0), 30.0)
    assert margin == pytest.approx(8.0) and "10% of the distance" in why
    assert _margin(None, Beside("p", -200.0, -120.0), 30.0)[0] == pytest.approx(8.0)
    margin, why = _margin(None, Beside("", -200.0, -200.0), 30.0)
    assert margin == pytest.approx(3.0) and "standard deviation of the logged returns" in why
    with pytest.raises(UserError, match="nothing says what a bad policy would be.*--margin"):
        _margin(None, Beside("", -200.0, -200.0), 0.0)


def test_the_margin_that_was_given():
    margin, why = _margin(5.0, Beside("", -200.0, -200.0), 0.0)
    assert margin == 5.0 and "--margin" in why
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="the margin is a loss"):
            _margin(wrong, Beside("", -200.0, -100.0), 1.0)


def test_actions_beside_their_limits():
    """A force goes from -1 to 1. That in x changes by an eighth of its range, that in y by half of it."""
    task = builtin.pointmass
    x, y = Held("force in x", 0.25, 0.125, None), Held("force in y", None, 0.5, None)
    assert _held(task, {}, EVIDENCE) == (x, y) and not x.over and not y.over
    limited = _held(task, {"change": 0.5}, EVIDENCE)
    assert limited == (replace(x, allowed=0.25), replace(y, allowed=0.25))
    assert [each.over for each in limited] == [False, True]
    (sentence,) = _kept_back(limited)
    assert "force in y by 50% of its range" in sentence and "allow 25%" in sentence
    declared = _held(replace(task, act_change=(None, 1.2)), {}, EVIDENCE)
    assert [each.allowed for each in declared] == [None, pytest.approx(0.6)]
