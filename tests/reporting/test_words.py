import math

import pytest

from musbo.core.diagnostics import Curve, Diagnostic, Findings, Quantiles
from musbo.reporting import words


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
    assert words.quantiles(Quantiles(0.9987, 1.0, 12.3)) == "0.999 1.000 12.3"
    assert words.quantiles(None) == "-"


def test_spans():
    assert words.spans([1, 2, 4, 5, 6, 9]) == "1, 2, 4 to 6, 9" and words.spans([3]) == "3"


def test_diagnostics():
    one = Diagnostic("x", 0.123, "the x", "About x.")
    share = Diagnostic("y", 0.123, "the y", "About y.", column="y", percent=True)
    curve = Diagnostic("z", Curve((1.0,), (2.0,), "this", "that"), "the z", "About z.", column="z")
    nothing = Diagnostic("n", None, "the n", "About n.", column="n")
    hidden = Diagnostic("h", 1.0, "the h", "About h.")
    assert [words.diagnostic(each) for each in (one, share, curve, nothing)] == ["0.123", "12%", "-", "-"]
    assert words.diagnostic(Diagnostic("chosen", 110.0, "update of the policy", "")) == "110"
    assert words.brief(Findings((one, hidden, share, curve, nothing))) == "the x 0.123, the y 12%"
    assert words.brief(Findings()) == ""


def test_sentences():
    assert words.sentence("mean Q on hopper") == "Mean Q on hopper."
    assert words.sentence("It ends. ") == "It ends." and words.sentence("") == ""
    assert words.sentence("log.csv: odd") == "log.csv: odd."
