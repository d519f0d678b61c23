import math

import pytest

from musbo.report import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 5 min"), (None, "-")],
)
def test_durations(seconds, text):
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (math.nan, "-"), (-1232.34, "-1232.3"), (0.00871, "0.00871"), (12.345, "12.3")]
)
def test_numbers(value, text):
    assert words.number(value) == text


def test_quantiles():
    assert words.quantiles([0.9987, 1.0, 12.3]) == "0.999 1.000 12.3"
    assert words.quantiles(None) == "-"


def test_spans():
    assert words.spans([1, 2, 4, 5, 6, 9]) == "1, 2, 4 to 6, 9" and words.spans([3]) == "3"


def test_reward_per_step():
    assert words.per_step(-20.0, 10.0) == -2.0
    assert words.per_step(None, 10.0) is None
    assert words.per_step(math.nan, 10.0) is None
    assert words.real_per_step({"return": -50.0, "length": 25.0, "early_return": -40.0, "early_length": 10.0}) == -4.0
    assert words.real_per_step({"return": -50.0, "length": 25.0}) is None  # nothing was imagined
    assert words.real_per_step({"skipped": "no simulator"}) is None


def test_an_inert_coefficient_is_called_so():
    (text,) = words.trained_warnings({"alpha": 0.028, "U": [0.99, 0.995, 0.999]}).values()
    assert "the coefficient is inert (range 0.009" in text
    assert words.trained_warnings({"alpha": 0.028, "U": [0.9, 0.94, 0.9501]}) == {}
    assert words.trained_warnings({"alpha": None, "U": [1.0, 1.0, 1.0]}) == {}  # a method without a coefficient


def test_imagination_that_runs_away():
    assert words.trained_warnings({"imagined_cut": 0.5}) == words.trained_warnings({"imagined_cut": None}) == {}
    (text,) = words.trained_warnings({"imagined_cut": 0.75}).values()
    assert text.startswith("75% of the imagined trajectories")


def test_zeta_at_its_cap():
    assert words.trained_warnings({"penalty": [1.0, 1.2, 1.06]}) == words.trained_warnings({"penalty": [0.0] * 3}) == {}
    (text,) = words.trained_warnings({"penalty": [2.302, 2.304, 2.306]}).values()
    assert "same everywhere (from 2.3 to 2.31)" in text
    (text,) = words.batch_warnings({"zeta_at_cap": 0.51}).values()
    assert "zeta is at its cap in 51% of the steps" in text
    assert words.batch_warnings({"zeta_at_cap": 0.5}) == words.batch_warnings({}) == {}


def test_a_control_that_has_nothing_to_pool():
    (text,) = words.batch_warnings({"zeta_at_cap": 0.0, "zeta_alone": 1.0}).values()
    assert "zeta is pooled over a single lane in 100% of the steps" in text and "raise --batch" in text
    assert words.batch_warnings({"zeta_alone": 0.02}) == {}
