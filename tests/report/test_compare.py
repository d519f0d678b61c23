"""The rows of a comparison from made-up runs whose statistics can be said by heart."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from musbo.campaign import flags
from musbo.cluster.study import cells, parse
from musbo.report import compare, figures, tables
from musbo.report.gather import Material, Run, names
from musbo.report.sections import diagnostic_sheets, sections, settings, warnings
from tests.report import sample
from tests.stories import tiny


def run(method: str, seed: int, returns: list[float], task: str = "pointmass", random: float = 0.0) -> Run:
    settings = replace(sample.settings(), task=task, seed=seed, deployments=len(returns))
    summary = sample.summary(len(returns))
    summary |= {"returns": returns, "final_return": returns[-1], "seconds": 1800.0}
    summary["per_deployment"][0]["batch"]["batch_return"] = random
    return Run(Path(f"{method}-{task}-{seed}"), method, settings, summary, task)


def material(*runs: Run, studies: tuple = ()) -> Material:
    return Material(runs, (), studies)


def test_one_row_per_method():
    found = material(
        run("a", 0, [10.0, 60.0]), run("a", 1, [10.0, 100.0]), run("b", 0, [30.0, 50.0]), run("b", 1, [30.0, 70.0])
    )
    a, b = compare.method_rows(found, found.groups[0])
    assert (a["mean"], b["mean"]) == (80.0, 60.0)
    assert a["deviation"] == pytest.approx(np.sqrt(2 * 20**2))
    assert (a["area"], b["area"]) == (45.0, 45.0)
    assert a["goal"] == 40.0  # between random actions, 0, and the best mean, 80
    assert (a["reached"], a["needed"], b["reached"], b["needed"]) == (2, 2.0, 2, 2.0)
    assert a["difference"] is None and a["better"] is None
    assert b["difference"] == -20.0 and (b["difference_low"], b["difference_high"]) == (-30.0, -10.0)
    assert b["better"] == 0.25 and b["pairs"] == 2  # 70 beats 60, and that is all
    assert a["hours"] == 0.5


def test_the_return_under_the_model_reward_stands_beside_the_score():
    runs = [run("a", s, [3.0, 10.0 + s]) for s in (0, 1)]
    for each, model in zip(runs, (20.0, 30.0), strict=True):
        each.summary["per_deployment"][-1]["evaluated"]["model_return"] = model
    table = next(iter(sections(material(*runs), film=False))).sheets[0]
    assert table.cells[0][table.heads.index("model return")] == "25" and "'Model return' is" in table.note
    for each in runs:
        each.summary["per_deployment"][-1]["evaluated"]["model_return"] = each.summary["final_return"]
    table = next(iter(sections(material(*runs), film=False))).sheets[0]
    assert "model return" not in table.heads and "'Model return'" not in table.note


def test_a_comparison_says_its_terms():
    one, two = run("a", 0, [3.0]), run("b", 0, [4.0])
    section = next(iter(sections(material(one, two), film=False)))
    assert section.words == "1 deployment of 100 transitions, preset quick. A return is the mean over 2 episodes."
    assert "oracle steps" not in section.sheets[0].heads
    two = replace(two, settings=replace(two.settings, preset="fast", episodes=5))
    two.summary["per_deployment"][0]["batch"]["extra_steps"] = 1234
    section = next(iter(sections(material(one, two), film=False)))
    assert "preset quick and fast. A return is the mean over 2 and 5 episodes." in section.words
    table = section.sheets[0]
    assert [cells[table.heads.index("oracle steps")] for cells in table.cells] == ["-", "1,234"]
    assert "'Oracle steps' were tried" in table.note


def test_settings_that_differ_between_tasks_are_shown():
    def alpha(run: Run, value: float) -> Run:
        method: Any = run.settings.method
        return replace(
            run, settings=replace(run.settings, method=replace(method, label=replace(method.label, alpha=value)))
        )

    runs = [alpha(run(m, 0, [1.0], t), v) for t, v in (("x", 0.1), ("y", 0.1), ("z", 0.2)) for m in ("a", "b")]
    assert settings(material(*runs[:4])).words == "As on x, 1 x 100; the same on the others."
    section = settings(material(*runs, alpha(run("c", 0, [1.0], "z"), 0.3)))
    assert section.words == "As on x, 1 x 100; what differs on the others stands below. c as on z, 1 x 100."
    first, other = section.sheets
    assert first.heads == ("setting", "a", "b", "c") and first.cells[0] == ("label.alpha", "0.1", "0.1", "0.3")
    assert ("episodes", "2", "2", "2") in first.cells and ("preset", "quick", "quick", "quick") in first.cells
    assert (other.title, other.cells) == ("On z, 1 x 100", (("label.alpha", "0.2", "0.2", "0.3"),))


def test_only_seeds_of_both_are_paired():
    found = material(run("a", 0, [1.0]), run("a", 1, [2.0]), run("b", 1, [7.0]), run("b", 2, [100.0]))
    _, b = compare.method_rows(found, found.groups[0])
    assert b["pairs"] == 1 and b["difference"] == 5.0
    assert b["difference_low"] is None and b["difference_high"] is None  # of one pair


def test_one_seed_has_no_interval_and_no_chance():
    found = material(run("a", 0, [1.0]), run("b", 0, [2.0]), run("b", 1, [3.0]))
    a, b = compare.method_rows(found, found.groups[0])
    assert a["iqm_low"] is None and a["iqm_high"] is None and (b["iqm_low"], b["iqm_high"]) == (2.0, 3.0)
    assert b["better"] is None
    section = next(iter(sections(found, film=False)))
    assert "With fewer than five seeds" in section.sheets[0].note
    assert ": mean over seeds, where there are several" in section.figures[0].title


def test_a_score_may_be_asked_for():
    found = replace(material(run("a", 0, [10.0, 60.0]), run("b", 0, [30.0, 50.0])), scores={"pointmass": 55.0})
    a, b = compare.method_rows(found, found.groups[0])
    assert a["goal"] == 55.0 and (a["reached"], a["needed"], b["reached"], b["needed"]) == (1, 2.0, 0, np.inf)


def test_missing_runs_are_counted():
    study = parse({"tasks": ["pointmass"], "algos": ["musbo"], "seeds": [0, 1, 2], "budgets": {"pointmass": [1, 100]}})
    one = run("musbo", 0, [1.0])
    one = replace(one, settings=replace(one.settings, batch=100))
    missing = tuple((cell, "not begun") for cell in cells(study)[1:])
    found = Material((one,), missing, ((Path("study"), study),))
    (row,) = compare.method_rows(found, found.groups[0])
    assert (row["runs"], row["asked"]) == (1, 3)


def test_unfinished_runs_are_not_compared():
    half = run("a", 1, [1000.0])
    half = replace(half, summary=half.summary | {"finished": False})
    found = material(run("a", 0, [1.0]), half)
    (a,) = compare.method_rows(found, found.groups[0])
    assert (a["runs"], a["mean"], a["deviation"]) == (1, 1.0, None)


def test_a_band_is_the_mean_over_seeds():
    found = compare.band(np.array([[1.0, np.nan, 3.0], [3.0, 5.0, 3.0]]))
    assert found is not None
    assert found.deployments.tolist() == [1, 3] and found.value.tolist() == [2.0, 3.0]
    assert (found.low[0], found.high[0]) == (1.0, 3.0) and found.low[1] == found.high[1] == 3.0
    assert compare.band(np.full((2, 3), np.nan)) is None


def test_one_deployment_has_its_interval_and_its_seeds():
    values = {
        "a": np.array([[1.0], [3.0], [5.0]]),
        "b": np.array([[np.nan, 4.0], [np.nan, 8.0]]),
        "c": np.array([[2.0]]),
    }
    with figures.canvas() as (_, axes):
        assert figures.bands(axes, values, {"a": 0, "b": 1, "c": 2}) == 3
        drawn = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines]
        bars = [bar.get_segments()[0].tolist() for bar in axes.collections]
    assert drawn == [
        ([0.8] * 3, [1.0, 3.0, 5.0]), ([0.8], [3.0]), ([2.0] * 2, [4.0, 8.0]), ([2.0], [6.0]), ([1.2], [2.0])
    ]  # fmt: skip
    assert bars == [[[0.8, 1.0], [0.8, 5.0]], [[2.0, 4.0], [2.0, 8.0]]]


def test_the_reliability_of_the_first_run_of_each_method():
    runs = [run("a", 0, [1.0, 2.0]), run("a", 1, [1.0, 2.0]), run("b", 0, [1.0, 2.0]), run("c", 0, [1.0, 2.0])]
    found = material(*runs)
    assert figures.reliabilities(found, found.groups[0]) is None
    for i, each in enumerate(runs[:3]):
        each.summary["per_deployment"][-1]["trained"] |= {
            "reliability_doubt": [1.0 + i, 2.0],
            "reliability_error": [1.0, 3.0],
        }
    figure = figures.reliabilities(found, found.groups[0])
    assert figure is not None and figure.name == "reliability-pointmass-2x100"
    assert [f">{method}<" in figure.svg.decode() for method in "abc"] == [True, True, False]


def test_all_tasks_on_one_line():
    """Task x: 0 to 80; task y: -100 (random) to 0. A task on which nobody is above random actions is left out."""
    runs = [run("a", s, [v], "x") for s, v in ((0, 60.0), (1, 100.0))] + [run("b", s, [40.0], "x") for s in (0, 1)]
    runs += [run("a", s, [0.0], "y", random=-100.0) for s in (0, 1)]
    runs += [run("b", s, [v], "y", random=-100.0) for s, v in ((0, -50.0), (1, -150.0))]
    runs += [run(m, 0, [0.0], "z", random=5.0) for m in ("a", "b")]
    found = compare.overall(material(*runs))
    assert found is not None
    a, b = found.rows
    assert a["mean"] == pytest.approx(1.0) and b["mean"] == pytest.approx((0.5 + 0.0) / 2)
    assert a["tasks"] == 2 and b["better"] == 0.0
    # IQM over the four scores of b, -.5 .5 .5 .5: the middle two
    assert b["iqm"] == pytest.approx(0.5)
    assert found.profiles["b"].share[0] == pytest.approx(0.75)  # above -.5
    assert [group.task for group in found.no_line] == ["z"] and not found.unfinished and not found.partly
    assert compare.overall(material(*runs[:4])) is None  # one task


def test_what_is_not_put_together_is_named():
    """On y nothing is finished, and c has run on x alone."""
    runs = [run(m, s, [v], t) for m, v in (("a", 2.0), ("b", 1.0)) for t in ("x", "z") for s in (0, 1)]
    half = run("a", 0, [1.0], "y")
    half = replace(half, summary=half.summary | {"finished": False})
    everything = material(*runs, half, run("c", 0, [5.0], "x"))
    found = compare.overall(everything)
    assert found is not None and [row["method"] for row in found.rows] == ["a", "b"]
    assert [group.task for group in found.unfinished] == ["y"] and found.partly == ["c"] and not found.no_line
    words = next(iter(sections(everything, film=False))).words
    assert "no run is finished with a return: y" in words and "on some of these: c." in words
    nothing = compare.overall(material(*runs[:2], half, run("c", 0, [5.0], "x")))
    assert nothing is not None and nothing.rows == []


def test_an_interval_over_tasks_needs_two_seeds_of_each():
    runs = [run(m, s, [v + s], t) for m, v in (("a", 2.0), ("b", 1.0)) for t in ("x", "y") for s in (0, 1)]
    found = compare.overall(material(*runs))
    assert found is not None and all(row["iqm_low"] is not None for row in found.rows)
    found = compare.overall(material(*runs[:-1]))
    assert found is not None
    a, b = found.rows
    assert a["iqm_low"] is not None and b["iqm_low"] is None and b["better_low"] is None and b["better"] is not None


def test_imagined_minus_real():
    found = material(run("a", 0, [1.0, 2.0, 3.0]))
    values = compare.diagnostic(found.of(found.groups[0], "a"), "imagined_minus_real")
    np.testing.assert_allclose(values, [[-2.0 + 40 / 50, -2.0 + 30 / 50, -2.0 + 20 / 50]])


def test_novelty_has_three_decimals():
    runs = [run("a", s, [1.0, 2.0]) for s in (0, 1)]
    for each, novelty in zip(runs, (1.0, 1.004), strict=True):
        each.summary["per_deployment"][1]["batch"]["novelty"] = novelty
        each.summary["per_deployment"][1]["trained"]["dynamics_error"] = novelty
    found = material(*runs)
    (table,) = diagnostic_sheets(found, found.groups[0])
    assert [cells[-1] for cells in table.cells[:2]] == ["1.002 ± 0.003", "1 ± 0.00283"]
    assert tables.FORESIGHT["novelty"](tables.rows(runs[0].summary)[1]) == "1.000"


def test_what_was_foreseen_stands_in_where_training_rates_no_policy():
    one = run("a", 0, [1.0])
    (item,) = one.summary["per_deployment"]
    item["trained"] |= {"imagined_return": None, "imagined_horizon": None}
    assert np.isnan(compare.diagnostic([one], "imagined_minus_real")).all()
    item["evaluated"] |= {"foreseen_return": -30.0, "imagined_steps": 20.0}
    np.testing.assert_allclose(compare.diagnostic([one], "imagined_minus_real"), [[-1.5 + 40 / 50]])
    item["trained"] |= {"imagined_return": -20.0}  # rated from the midst of episodes, which are not the real ones
    np.testing.assert_allclose(compare.diagnostic([one], "imagined_minus_real"), [[-1.5 + 40 / 50]])
    item["trained"] |= {"imagined_horizon": 10}
    np.testing.assert_allclose(compare.diagnostic([one], "imagined_minus_real"), [[-2.0 + 40 / 50]])


def test_runs_on_logs_are_named_by_what_was_brought():
    one = replace(run("a", 0, [1.0, 2.0]), brought=("12ab", "34cd"))
    for item, size in zip(one.summary["per_deployment"], (300, 501), strict=True):
        item["batch"]["size"] = size
    assert (one.group.batch, one.group.slug) == (400, "pointmass-2x400")
    assert replace(one, brought=("12ab",)).group.batch == one.settings.batch  # one more is collected


def test_the_first_method_is_the_studys_first_whichever_runs_are_there():
    study = parse({"tasks": ["pointmass"], "algos": ["musbo", "bremen"], "seeds": [0, 1]})
    runs = run("bremen", 0, [1.0]), run("bremen", 1, [2.0]), run("musbo", 1, [4.0])
    found = material(*runs, studies=((Path("study"), study),))
    assert found.methods(found.groups[0]) == ["musbo", "bremen"]
    musbo, bremen = compare.method_rows(found, found.groups[0])
    assert musbo["difference"] is None and bremen["difference"] == -2.0


def test_nothing_is_half_way_where_nobody_is_above_random_actions():
    found = material(run("a", 0, [-8.0]), run("b", 0, [-12.0]))
    a, b = compare.method_rows(found, found.groups[0])
    assert a["goal"] is None and a["reached"] is None and b["needed"] is None


def test_a_run_without_a_return_is_named_and_not_averaged():
    lost = run("a", 1, [1.0])
    lost = replace(lost, summary=lost.summary | {"returns": [None], "final_return": None})
    found = material(run("a", 0, [3.0]), lost)
    (a,) = compare.method_rows(found, found.groups[0])
    assert (a["runs"], a["mean"]) == (1, 3.0)
    assert compare.unscored(found, found.groups[0]) == [lost]
    section = next(iter(sections(found, film=False)))
    assert "Without a final return, and not in what follows: a, seed 1" in section.words


def test_tasks_have_names_of_their_own():
    tasks = ["/x/one.py:TASK", "/y/two.py:TASK", "pendulum", "<pendulum>", "<my/task>", "/z/one.py:TASK"]
    assert list(names(tasks).values()) == ["TASK", "two.TASK", "pendulum", "pendulum-2", "my-task", "one.TASK"]


def test_the_settings_say_which_kinds_a_method_is_made_of():
    found = dict(flags.flat(tiny.method()))
    assert (found["label"], found["handover"], found["label.alpha"]) == ("disagreement", "best_imagined", 0.001)


def test_warnings_are_said_once_and_with_their_places():
    found = [run(m, s, [1.0, 2.0, 3.0, 4.0]) for m in ("a", "b") for s in (0, 1, 2)]
    assert not list(warnings(material(*found)))
    for each, days in ((found[0], (2, 3, 4)), (found[1], (2,)), (found[2], (2, 3, 4)), (found[5], (1, 4))):
        for d in days:
            each.summary["per_deployment"][d - 1]["batch"]["zeta_at_cap"] = 0.5 + d / 10
    found[3].summary["per_deployment"][0]["trained"]["U"] = [0.99, 0.995, 0.999]
    found[4].summary["per_deployment"][0]["batch"] |= {"source": "log.csv", "warnings": ["odd", "odder"]}
    (section,) = warnings(material(*found))
    (cap, where), (inert, there), *odd = section.notes
    assert "zeta is at its cap in 70% of the steps" in cap and "the coefficient is inert" in inert
    assert where == "a, seeds 0, 2, deployments 2 to 4; a, seed 1, deployment 2; b, seed 2, deployments 1, 4"
    assert there == "b, seed 0, deployment 1"
    assert odd == [(f"log.csv: {text}", "b, seed 1, deployment 1") for text in ("odd", "odder")]
    (every,) = section.sheets
    assert len(every.rows) == 3 + 1 + 3 + 2 + 1 + 2 and every.cells == ()
    assert "first deployment that is named" in section.words
    (section,) = warnings(material(found[1], run("a", 0, [1.0], "y")))
    assert section.notes[0][1] == "a on pointmass, 4 x 100, deployment 2" and not section.words
