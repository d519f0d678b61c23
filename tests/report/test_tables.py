import io

import pytest
from rich.console import Console

from musbo.report.tables import rows, tables
from tests.report import sample


def printed(summary: dict, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(*tables(summary))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_rows_hold_the_numbers_of_every_deployment():
    first, second, _ = rows(sample.summary())
    assert (first["deployment"], first["return"], first["imagined"], first["real"]) == (1, -40.0, -2.0, -0.8)
    assert first["zeta"] is None and second["zeta"] == [0.1, 0.2, 0.3]
    assert first["seconds"] == 11.5


def test_nothing_is_cut_on_a_narrow_terminal():
    text = printed(sample.summary())
    assert "…" not in text
    for part in ("-40 ± 14.1", "0.500 0.700 0.900", "0.100 0.200 0.300", "25%", "0.0125"):
        assert part in text


def test_the_return_under_the_model_reward_stands_beside_another_one():
    summary = sample.summary()
    assert rows(summary)[0]["model_return"] == -40.0 and "model" not in printed(summary).split("inside")[0]
    for item in summary["per_deployment"]:  # as wide as it gets
        item["batch"] |= {"batch_return": -1234.5, "size": 50_000}
        item["evaluated"] |= {"return": -4258.46, "spread": 1234.5, "model_return": -4275.77, "speed": 12.34}
        item["trained"]["seconds"] = 3550.0
    text = printed(summary)
    assert "-4258.5 ± 1234.5  -4275.8" in text and "…" not in text
    summary["per_deployment"][0]["evaluated"]["model_return"] = -4258.46 * (1 + 1e-6)  # float32
    assert "-4258.5 ± 1234.5        -" in printed(summary)
    summary["per_deployment"][0]["evaluated"] = {"skipped": "no simulator"}
    assert rows(summary)[0]["model_return"] is None and "-4275.8" in printed(summary)


def test_empty_columns_are_left_out():
    assert "speed" not in printed(sample.summary())
    fast = sample.summary()
    fast["per_deployment"][0]["evaluated"]["speed"] = 1.25
    assert "speed" in printed(fast) and "1.25" in printed(fast)
    assert "oracle" not in printed(fast)
    fast["per_deployment"][1]["batch"]["extra_steps"] = 1234
    assert "oracle" in printed(fast) and "1,234" in printed(fast)


@pytest.mark.parametrize("missing", ["trained", "evaluated"])
def test_a_run_under_way_has_a_table_too(missing):
    summary = sample.summary(1)
    summary["per_deployment"][0][missing] = {}
    if missing == "trained":
        summary["per_deployment"][0]["evaluated"] = {}
    assert "1,000" in printed(summary)
    assert ("inside training" in printed(summary)) == (missing != "trained")
