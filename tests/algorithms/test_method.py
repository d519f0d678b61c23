"""What methods report on the way: an epoch of a fit, some gradient steps of an actor-critic."""

import pytest

from musbo.algorithms.method import LEARN, Metrics, fit_metrics, learn_metrics
from musbo.core.diagnostics import NOTHING, Caution, Findings
from musbo.learning.fit import Epoch


@pytest.mark.parametrize(
    ("number", "active", "over"),
    [(3, 2, False), (9, 1, False), (10, 2, True), (3, 0, True)],  # the last epoch, or nobody goes on
)
def test_an_epoch_as_metrics(number: int, active: int, over: bool):
    got = fit_metrics("dynamics", Epoch(number, 10, active, 0.25, (0.2, 0.3)), column="model\nerror")
    assert (got.stage, got.index, got.of, got.unit, got.over) == ("dynamics", number, 10, "epoch", over)
    assert got.numbers == {"active": active, "error": 0.25, "error_per_member": [0.2, 0.3]}
    (shown,) = got.findings.diagnostics
    assert (shown.name, shown.value, shown.column) == ("dynamics_error", 0.25, "model\nerror")
    assert got.findings.cautions == () and got.forecast is None


def test_an_error_that_is_no_number_is_not_shown():
    (shown,) = fit_metrics("labeler", Epoch(1, 10, 2, float("inf"), (0.2, float("inf")))).findings.diagnostics
    assert (shown.name, shown.value, shown.column) == ("labeler_error", None, "")


@pytest.mark.parametrize(("step", "over"), [(500, False), (1199, False), (1200, True)])
def test_gradient_steps_as_metrics(step: int, over: bool):
    more = Findings((), (Caution("flat penalty", "it is flat"),))
    got = learn_metrics(step, 1200, 0.5, -3.0, more)
    assert (got.stage, got.index, got.of, got.unit, got.over) == (LEARN.name, step, 1200, "gradient step", over)
    assert got.numbers == {"critic_error": 0.5, "Q": -3.0}
    shown = {one.name: (one.value, one.series) for one in got.findings.diagnostics}
    assert shown == {"Q": (-3.0, "learn"), "critic_error": (0.5, "")}
    assert got.findings.cautions == more.cautions


def test_metrics_say_little_unless_told():
    assert Metrics("done") == Metrics("done", 0, None, "step", False, {}, NOTHING, None)
