import io
from dataclasses import replace

import pytest
from rich.console import Console

from musbo.campaign.events import Evaluated
from musbo.campaign.summary import Deployment, Summary
from musbo.core.diagnostics import Diagnostic, Findings, Quantiles
from musbo.reporting.run_tables import rows, tables
from musbo.reporting.sheets import record
from tests.reporting import sample


def printed(summary: Summary, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(*tables(summary))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_rows_hold_the_numbers_of_every_deployment():
    first, second, _ = rows(sample.summary())
    assert (first.deployment, first.mean_return, first.imagined_per_step, first.real_per_step) == (1, -40.0, -2.0, -0.8)
    zeta = second.diagnostic("zeta")
    assert first.diagnostic("zeta") is None and zeta is not None and zeta.value == Quantiles(0.1, 0.2, 0.3)
    assert first.seconds == 11.5


def test_nothing_is_cut_on_a_narrow_terminal():
    text = printed(sample.summary())
    assert "…" not in text
    for part in ("-40 ± 14.1", "0.500 0.700 0.900", "0.100 0.200 0.300", "25%", "0.0125"):
        assert part in text


def test_the_return_under_the_model_reward_stands_beside_another_one():
    summary = sample.summary()
    assert rows(summary)[0].model_return == -40.0 and "model" not in printed(summary).split("training ")[0]

    def widest(item: Deployment) -> Deployment:
        item = sample.with_batch(item, mean_return=-1234.5, transitions=50_000)
        item = sample.with_training(item, seconds=3550.0)
        return sample.with_episodes(item, mean_return=-4258.46, deviation=1234.5, model_return=-4275.77, speed=12.34)

    summary = replace(summary, deployments=tuple(map(widest, summary.deployments)))
    text = printed(summary)
    assert "-4258.5 ± 1234.5  -4275.8" in text and "…" not in text
    float32 = -4258.46 * (1 + 1e-6)
    summary = sample.changed(summary, 1, lambda item: sample.with_episodes(item, model_return=float32))
    assert "-4258.5 ± 1234.5        -" in printed(summary)
    skipped = Evaluated(0.0, skipped="no simulator")
    summary = sample.changed(summary, 1, lambda item: replace(item, evaluation=skipped))
    assert rows(summary)[0].model_return is None and "-4275.8" in printed(summary)


def test_empty_columns_are_left_out():
    assert "speed" not in printed(sample.summary())
    fast = sample.changed(sample.summary(), 1, lambda item: sample.with_episodes(item, speed=1.25))
    assert "speed" in printed(fast) and "1.25" in printed(fast)
    assert "oracle" not in printed(fast)
    fast = sample.changed(fast, 2, lambda item: sample.with_batch(item, extra_steps=1234))
    assert "oracle" in printed(fast) and "1,234" in printed(fast)


@pytest.mark.parametrize("missing", ["trained", "evaluated"])
def test_a_run_under_way_has_a_table_too(missing):
    whole = sample.deployment(1)
    part = replace(whole, evaluation=None, training=None if missing == "trained" else whole.training)
    summary = sample.summary(1, deployments=(part,), finished=False)
    assert "1,000" in printed(summary)
    assert ("training\n" in printed(summary).replace(" ", "")) == (missing != "trained")


def test_a_diagnostic_that_nobody_has_heard_of_has_its_columns():
    summary = sample.changed(sample.summary(), 2, lambda item: sample.with_training(item, findings=sample.UNKNOWN))
    text = printed(summary)
    assert "surprise" in text and "0.375" in text and "1.250 2.500 5.000" in text
    assert "mood" not in text and "trust" not in text  # they ask for no column
    first, second, _ = map(record, rows(summary))
    assert (second["surprise"], second["temper_10"], second["temper_90"]) == (0.375, 1.25, 5.0)
    assert (second["mood_10"], second["mood_50"], second["mood_90"]) == (3.0, 4.0, 7.0)
    assert "trust" not in second and "surprise" not in first and first["U_50"] == 0.7


def test_a_diagnostic_takes_no_name_that_is_taken():
    odd = Findings((Diagnostic("novelty", 5.0, "novelty of mine", "Another one."),))
    summary = sample.summary(1)
    summary = sample.changed(summary, 1, lambda item: sample.with_batch(item, novelty=0.5, findings=odd))
    (row,) = map(record, rows(summary))
    assert (row["novelty"], row["diagnostic_novelty"]) == (0.5, 5.0)


def test_many_diagnostics_are_split_over_several_tables():
    many = Findings(
        tuple(
            Diagnostic(f"n{i}", Quantiles(i + 0.1, i + 0.2, i + 0.3), f"number {i}", "Made up.", column=f"number {i}")
            for i in range(9)
        )
    )
    summary = sample.summary(1)
    text = printed(sample.changed(summary, 1, lambda item: sample.with_training(item, findings=many)))
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    assert all(f"number {i}" in text and f"{i}.100 {i}.200 {i}.300" in text for i in range(9))
    first = text.split("training ")[1].split("(continued)")[0]
    assert "imagined" in first and "real" in first
