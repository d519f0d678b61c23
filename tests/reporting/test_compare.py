"""The rows of a comparison from made-up runs whose statistics can be said by heart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from musbo.algorithms.method import Forecast
from musbo.campaign import flags
from musbo.campaign.events import Agreement
from musbo.campaign.summary import Deployment
from musbo.cluster.study import cells, parse
from musbo.core.diagnostics import Caution, Curve, Diagnostic, Findings
from musbo.learning.explore import seeking_findings
from musbo.reporting import canvas, compare, comparison_figures, measures, overall, run_tables
from musbo.reporting.gather import Material, Missing, Run, names
from musbo.reporting.page_diagnostics import diagnostic_sheets
from musbo.reporting.page_sections import sections
from musbo.reporting.page_settings import settings
from musbo.reporting.page_verdict import verdict_of
from musbo.reporting.sheets import record
from tests.reporting import sample
from tests.stories import tiny


def run(method: str, seed: int, returns: list[float], task: str = "pointmass", random: float = 0.0) -> Run:
    """Half an hour of work, whose first batch was random."""
    own = replace(sample.settings(), task=task, seed=seed, budget=len(returns))
    every = [sample.with_episodes(sample.deployment(d), mean_return=r) for d, r in enumerate(returns, 1)]
    every[0] = sample.with_batch(every[0], mean_return=random)
    spent = 1800.0 - sum(item.seconds for item in every)
    every[0] = sample.with_training(every[0], seconds=10.0 + spent)
    summary = sample.summary(len(returns), settings=own, deployments=tuple(every))
    return Run(Path(f"{method}-{task}-{seed}"), method, summary, task)


def changed(run: Run, d: int, change: Callable[[Deployment], Deployment]) -> Run:
    return replace(run, summary=sample.changed(run.summary, d, change))


def unfinished(run: Run) -> Run:
    return replace(run, summary=replace(run.summary, finished=False))


def with_settings(run: Run, **changes: Any) -> Run:
    return replace(run, summary=replace(run.summary, settings=replace(run.settings, **changes)))


def material(*runs: Run, studies: tuple = ()) -> Material:
    return Material(runs, (), studies)


def test_one_row_per_method():
    found = material(
        run("a", 0, [10.0, 60.0]), run("a", 1, [10.0, 100.0]), run("b", 0, [30.0, 50.0]), run("b", 1, [30.0, 70.0])
    )
    a, b = compare.method_rows(found, found.groups[0])
    assert (a.mean, b.mean) == (80.0, 60.0)
    assert a.deviation == pytest.approx(np.sqrt(2 * 20**2))
    assert (a.area, b.area) == (45.0, 45.0)
    assert a.goal == 40.0  # between random actions, 0, and the best mean, 80
    assert (a.reached, a.needed, b.reached, b.needed) == (2, 2.0, 2, 2.0)
    assert a.difference is None and a.better is None
    assert b.difference == -20.0 and (b.difference_low, b.difference_high) == (-30.0, -10.0)
    assert b.better == 0.25 and b.pairs == 2  # 70 beats 60, and that is all
    assert a.hours == 0.5


def test_the_return_under_the_model_reward_stands_beside_the_score():
    runs = [run("a", s, [3.0, 10.0 + s]) for s in (0, 1)]
    own = [
        changed(each, 2, lambda item, model=model: sample.with_episodes(item, model_return=model))
        for each, model in zip(runs, (20.0, 30.0), strict=True)
    ]
    table = list(sections(material(*own), film=False))[1].sheets[0]
    assert table.cells[0][table.heads.index("model return")] == "25" and "'Model return' is" in table.note
    own = [changed(each, 2, lambda item: sample.with_episodes(item, model_return=item.mean_return)) for each in runs]
    table = list(sections(material(*own), film=False))[1].sheets[0]
    assert "model return" not in table.heads and "'Model return'" not in table.note


def test_a_comparison_says_its_terms():
    one, two = run("a", 0, [3.0]), run("b", 0, [4.0])
    section = list(sections(material(one, two), film=False))[1]
    assert section.words == "1 deployment of 100 transitions, preset quick. A return is the mean over 2 episodes."
    assert "oracle steps" not in section.sheets[0].heads
    two = with_settings(two, preset="fast", episodes=5)
    two = changed(two, 1, lambda item: sample.with_batch(item, extra_steps=1234))
    section = list(sections(material(one, two), film=False))[1]
    assert "preset quick and fast. A return is the mean over 2 and 5 episodes." in section.words
    table = section.sheets[0]
    assert [cells[table.heads.index("oracle steps")] for cells in table.cells] == ["-", "1,234"]
    assert "'Oracle steps' were tried" in table.note


def test_settings_that_differ_between_tasks_are_shown():
    def alpha(run: Run, value: float) -> Run:
        method: Any = run.settings.method
        return with_settings(run, method=replace(method, label=replace(method.label, alpha=value)))

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
    assert b.pairs == 1 and b.difference == 5.0
    assert b.difference_low is None and b.difference_high is None  # of one pair


def test_one_seed_has_no_interval_and_no_chance():
    found = material(run("a", 0, [1.0]), run("b", 0, [2.0]), run("b", 1, [3.0]))
    a, b = compare.method_rows(found, found.groups[0])
    assert a.iqm_low is None and a.iqm_high is None and (b.iqm_low, b.iqm_high) == (2.0, 3.0)
    assert b.better is None
    section = list(sections(found, film=False))[1]
    assert "With fewer than five seeds" in section.sheets[0].note
    assert ": mean over seeds, where there are several" in section.figures[0].title


def test_a_score_may_be_asked_for():
    found = replace(material(run("a", 0, [10.0, 60.0]), run("b", 0, [30.0, 50.0])), scores={"pointmass": 55.0})
    a, b = compare.method_rows(found, found.groups[0])
    assert a.goal == 55.0 and (a.reached, a.needed, b.reached, b.needed) == (1, 2.0, 0, np.inf)


def test_missing_runs_are_counted():
    study = parse({"tasks": ["pointmass"], "algos": ["musbo"], "seeds": [0, 1, 2], "budgets": {"pointmass": [1, 100]}})
    one = run("musbo", 0, [1.0])
    one = with_settings(one, batch_size=100)
    missing = tuple(Missing(cell, "not begun") for cell in cells(study)[1:])
    found = Material((one,), missing, ((Path("study"), study),))
    (row,) = compare.method_rows(found, found.groups[0])
    assert (row.runs, row.asked) == (1, 3)


def test_unfinished_runs_are_not_compared():
    half = unfinished(run("a", 1, [1000.0]))
    found = material(run("a", 0, [1.0]), half)
    (a,) = compare.method_rows(found, found.groups[0])
    assert (a.runs, a.mean, a.deviation) == (1, 1.0, None)


def test_a_band_is_the_mean_over_seeds():
    found = measures.band(np.array([[1.0, np.nan, 3.0], [3.0, 5.0, 3.0]]))
    assert found is not None
    assert found.deployments.tolist() == [1, 3] and found.value.tolist() == [2.0, 3.0]
    assert (found.low[0], found.high[0]) == (1.0, 3.0) and found.low[1] == found.high[1] == 3.0
    assert measures.band(np.full((2, 3), np.nan)) is None


def test_one_deployment_has_its_interval_and_its_seeds():
    values = {
        "a": np.array([[1.0], [3.0], [5.0]]),
        "b": np.array([[np.nan, 4.0], [np.nan, 8.0]]),
        "c": np.array([[2.0]]),
    }
    with canvas.canvas() as (_, axes):
        assert comparison_figures.bands(axes, values, {"a": 0, "b": 1, "c": 2}) == 3
        drawn = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines]
        bars = [bar.get_segments()[0].tolist() for bar in axes.collections]
    assert drawn == [
        ([0.8] * 3, [1.0, 3.0, 5.0]), ([0.8], [3.0]), ([2.0] * 2, [4.0, 8.0]), ([2.0], [6.0]), ([1.2], [2.0])
    ]  # fmt: skip
    assert bars == [[[0.8, 1.0], [0.8, 5.0]], [[2.0, 4.0], [2.0, 8.0]]]


def test_the_curves_of_the_first_run_of_each_method():
    runs = [run("a", 0, [1.0, 2.0]), run("a", 1, [1.0, 2.0]), run("b", 0, [1.0, 2.0]), run("c", 0, [1.0, 2.0])]
    found = material(*runs)
    assert comparison_figures.method_curves(found, found.groups[0]) == []

    def reliable(i: int) -> Callable[[Deployment], Deployment]:
        points = Curve((1.0 + i, 2.0), (1.0, 3.0), "disagreement of the labeler", "error")
        own = Findings((Diagnostic("reliability", points, "reliability", "Doubt against error."),))
        return lambda item: sample.with_training(item, findings=own)

    found = material(*(changed(each, 2, reliable(i)) for i, each in enumerate(runs[:3])), runs[3])
    (figure,) = comparison_figures.method_curves(found, found.groups[0])
    assert figure.name == "curve-reliability-pointmass-2x100"
    drawn = figure.svg.decode()
    assert [f">{method}<" in drawn for method in "abc"] == [True, True, False]
    assert ">disagreement of the labeler<" in drawn


def test_all_tasks_on_one_line():
    """Task x: 0 to 80; task y: -100 (random) to 0. A task on which nobody is above random actions is left out."""
    runs = [run("a", s, [v], "x") for s, v in ((0, 60.0), (1, 100.0))] + [run("b", s, [40.0], "x") for s in (0, 1)]
    runs += [run("a", s, [0.0], "y", random=-100.0) for s in (0, 1)]
    runs += [run("b", s, [v], "y", random=-100.0) for s, v in ((0, -50.0), (1, -150.0))]
    runs += [run(m, 0, [0.0], "z", random=5.0) for m in ("a", "b")]
    found = overall.overall(material(*runs))
    assert found is not None
    a, b = found.rows
    assert a.mean == pytest.approx(1.0) and b.mean == pytest.approx((0.5 + 0.0) / 2)
    assert a.tasks == 2 and b.better == 0.0
    # IQM over the four scores of b, -.5 .5 .5 .5: the middle two
    assert b.iqm == pytest.approx(0.5)
    assert found.profiles["b"].share[0] == pytest.approx(0.75)  # above -.5
    assert [group.task for group in found.no_line] == ["z"] and not found.unfinished and not found.partly
    assert overall.overall(material(*runs[:4])) is None  # one task


def test_what_is_not_put_together_is_named():
    """On y nothing is finished, and c has run on x alone."""
    runs = [run(m, s, [v], t) for m, v in (("a", 2.0), ("b", 1.0)) for t in ("x", "z") for s in (0, 1)]
    half = unfinished(run("a", 0, [1.0], "y"))
    everything = material(*runs, half, run("c", 0, [5.0], "x"))
    found = overall.overall(everything)
    assert found is not None and [row.method for row in found.rows] == ["a", "b"]
    assert [group.task for group in found.unfinished] == ["y"] and found.partly == ["c"] and not found.no_line
    words = list(sections(everything, film=False))[1].words
    assert "no run is finished with a return: y" in words and "on some of these: c." in words
    nothing = overall.overall(material(*runs[:2], half, run("c", 0, [5.0], "x")))
    assert nothing is not None and nothing.rows == []


def test_an_interval_over_tasks_needs_two_seeds_of_each():
    runs = [run(m, s, [v + s], t) for m, v in (("a", 2.0), ("b", 1.0)) for t in ("x", "y") for s in (0, 1)]
    found = overall.overall(material(*runs))
    assert found is not None and all(row.iqm_low is not None for row in found.rows)
    found = overall.overall(material(*runs[:-1]))
    assert found is not None
    a, b = found.rows
    assert a.iqm_low is not None and b.iqm_low is None and b.better_low is None and b.better is not None


def test_imagined_minus_real():
    one = run("a", 0, [1.0, 2.0, 3.0])
    found = material(one)
    values = measures.values(found.of(found.groups[0], "a"), measures.IMAGINED_MINUS_REAL)
    np.testing.assert_allclose(values, [[-2.0 + 40 / 50, -2.0 + 30 / 50, -2.0 + 20 / 50]])


def test_novelty_has_three_decimals():
    def novel(value: float) -> Callable[[Deployment], Deployment]:
        own = Findings((sample.error("dynamics", value),))
        return lambda item: sample.with_training(sample.with_batch(item, novelty=value), findings=own)

    runs = [changed(run("a", s, [1.0, 2.0]), 2, novel(value)) for s, value in ((0, 1.0), (1, 1.004))]
    found = material(*runs)
    (table,) = diagnostic_sheets(found, found.groups[0])
    last = {cells[0]: cells[-1] for cells in table.cells}
    assert (last["novelty"], last["dynamics error"]) == ("1.002 ± 0.003", "1 ± 0.00283")
    assert run_tables.FORESIGHT["novelty"](run_tables.rows(runs[0].summary)[1]) == "1.000"


def test_a_diagnostic_that_nobody_has_heard_of_is_compared():
    told = [
        changed(run("a", s, [1.0, 2.0]), 2, lambda i: sample.with_training(i, findings=sample.UNKNOWN)) for s in (0, 1)
    ]
    found = material(*told, run("b", 0, [1.0, 2.0]))
    drawn = {figure.name: figure.title for figure in comparison_figures.diagnostics(found, found.groups[0])}
    assert drawn["surprise-pointmass-2x100"].startswith(
        "Surprise of the critic on pointmass, 2 x 100 (bits). How often it is wrong."
    )
    assert drawn["temper-pointmass-2x100"].startswith("Temper of the actor (median) on pointmass")
    assert "trust-pointmass-2x100" not in drawn  # a curve has no number
    (curve,) = comparison_figures.method_curves(found, found.groups[0])
    assert curve.name == "curve-trust-pointmass-2x100" and ">how sure<" in curve.svg.decode()
    (table,) = diagnostic_sheets(found, found.groups[0])
    rows = {(row["name"], row["method"]): row for row in map(record, table.rows)}
    assert rows["surprise", "a"]["diagnostic"] == "surprise of the critic" and rows["surprise", "a"]["unit"] == "bits"
    assert (rows["surprise", "a"]["mean_2"], rows["temper", "a"]["mean_2"]) == (0.375, 2.5)
    assert ("surprise", "b") not in rows
    every = list(map(record, compare.run_rows(found)))
    assert every[1]["surprise"] == 0.375 and every[1]["mood_50"] == 4.0 and every[1]["budget"] == 2


def test_what_was_foreseen_stands_in_where_training_rates_no_policy():
    def apart(one: Run) -> np.ndarray:
        return measures.values([one], measures.IMAGINED_MINUS_REAL)

    one = changed(run("a", 0, [1.0]), 1, lambda item: sample.with_training(item, forecast=None))
    assert np.isnan(apart(one)).all()
    foreseen = Agreement(1.0, 1.0, imagined_steps=20.0, real_steps=50.0, imagined_return=-30.0)
    one = changed(one, 1, lambda item: sample.with_evaluation(item, agreement=foreseen))
    np.testing.assert_allclose(apart(one), [[-1.5 + 40 / 50]])
    midst = Forecast(-20.0, 10.0, None)  # rated from the midst of episodes, which are not the real ones
    one = changed(one, 1, lambda item: sample.with_training(item, forecast=midst))
    np.testing.assert_allclose(apart(one), [[-1.5 + 40 / 50]])
    one = changed(one, 1, lambda item: sample.with_training(item, forecast=replace(midst, horizon=10)))
    np.testing.assert_allclose(apart(one), [[-2.0 + 40 / 50]])


def test_runs_on_logs_are_named_by_what_was_brought():
    one = run("a", 0, [1.0, 2.0])
    for d, size in ((1, 300), (2, 501)):
        one = changed(one, d, lambda item, size=size: sample.with_batch(item, transitions=size))
    both = replace(one, summary=replace(one.summary, brought=sample.brought(300, 501)))
    assert (both.group.batch_size, both.group.slug) == (400, "pointmass-2x400")
    half = replace(one, summary=replace(one.summary, brought=sample.brought(300)))
    assert half.group.batch_size == one.settings.batch_size  # one more is collected


def test_the_first_method_is_the_studys_first_whichever_runs_are_there():
    study = parse({"tasks": ["pointmass"], "algos": ["musbo", "bremen"], "seeds": [0, 1]})
    runs = run("bremen", 0, [1.0]), run("bremen", 1, [2.0]), run("musbo", 1, [4.0])
    found = material(*runs, studies=((Path("study"), study),))
    assert found.methods(found.groups[0]) == ["musbo", "bremen"]
    musbo, bremen = compare.method_rows(found, found.groups[0])
    assert musbo.difference is None and bremen.difference == -2.0


def test_nothing_is_half_way_where_nobody_is_above_random_actions():
    found = material(run("a", 0, [-8.0]), run("b", 0, [-12.0]))
    a, b = compare.method_rows(found, found.groups[0])
    assert a.goal is None and a.reached is None and b.needed is None


def test_a_run_without_a_return_is_named_and_not_averaged():
    lost = changed(run("a", 1, [1.0]), 1, lambda item: sample.with_episodes(item, mean_return=None))
    found = material(run("a", 0, [3.0]), lost)
    (a,) = compare.method_rows(found, found.groups[0])
    assert (a.runs, a.mean) == (1, 3.0)
    assert compare.unscored(found, found.groups[0]) == [lost]
    section = list(sections(found, film=False))[1]
    assert "Without a final return, and not in what follows: a, seed 1" in section.words


def test_tasks_have_names_of_their_own():
    tasks = ["/x/one.py:TASK", "/y/two.py:TASK", "pendulum", "<pendulum>", "<my/task>", "/z/one.py:TASK"]
    assert list(names(tasks).values()) == ["TASK", "two.TASK", "pendulum", "pendulum-2", "my-task", "one.TASK"]


def test_the_settings_say_which_kinds_a_method_is_made_of():
    found = dict(flags.flat(tiny.method()))
    assert (found["label"], found["handover"], found["label.alpha"]) == ("disagreement", "best_imagined", 0.001)


def test_advice_is_said_once_and_with_its_places():
    found = [run(m, s, [10.0, 20.0, 30.0, 40.0]) for m in ("a", "b") for s in (0, 1, 2)]
    assert verdict_of(material(*found)).notes == []

    def capped(d: int) -> Callable[[Deployment], Deployment]:
        own = seeking_findings([0.1, 0.2, 0.3], 0.5 + d / 10, 0.0)
        return lambda item: sample.with_batch(item, findings=own)

    for i, days in ((0, (2, 3, 4)), (1, (2,)), (2, (2, 3, 4)), (5, (1, 3, 4))):
        for d in days:
            found[i] = changed(found[i], d, capped(d))
    odd = tuple(Caution(f"log.csv: {text}", f"log.csv: {text}") for text in ("odd", "odder"))
    found[4] = changed(
        found[4], 1, lambda item: sample.with_batch(item, source="log.csv", findings=Findings(cautions=odd))
    )
    section = verdict_of(material(*found))
    *rest, (cap, where) = section.notes
    assert "Zeta is at its cap in 90% of the steps" in cap
    assert where == "a, seeds 0, 2, deployments 2 to 4; b, seed 2, deployments 1, 3, 4"  # in one of four it is no rule
    assert rest == [(f"log.csv: {text}.", "b, seed 1, deployment 1") for text in ("odd", "odder")]
    (every,) = section.sheets
    assert len(every.rows) == 3 + 2 and every.cells == ()
    assert record(every.rows[0])["deployments"] == "2 3 4"
    section = verdict_of(material(found[0], run("a", 0, [10.0], "y", random=-50.0)))
    assert section.notes[0][1] == "a on pointmass, 4 x 100, deployments 2 to 4"


def test_the_verdict_of_a_comparison_names_the_best_and_how_sure_that_is():
    a = [run("a", seed, [10.0, value]) for seed, value in enumerate((50.0, 52.0, 54.0))]
    b = [run("b", seed, [10.0, value]) for seed, value in enumerate((60.0, 63.0, 66.0))]
    section = verdict_of(material(*a, *b))
    assert section.words == (
        "On pointmass, 2 x 100, b earns 63 ± 3 per episode (3 runs), the most of 2 methods; the next is a with 52. "
        "That difference is larger than chance."  # 11 apart, standard errors 1.15 and 1.73
    )
    assert section.notes[0][0].startswith("On pointmass, 2 x 100, b does better than a (63 against 52)")
    assert verdict_of(material(*b, *a)).notes == []  # what is compared is the first method
    close = [run("c", seed, [10.0, value]) for seed, value in enumerate((40.0, 63.0, 80.0))]
    assert "may be chance" in verdict_of(material(*b, *close)).words
    assert verdict_of(material(*b[:1], *a)).words.endswith("With one run of a method, differences may be chance.")
    assert "no run has finished" in verdict_of(material(unfinished(a[0]), unfinished(b[0]))).words
    floor = with_settings(run("floor", 0, [10.0, 70.0]), algo="bc")
    assert "nothing useful was learned there" in verdict_of(material(a[0], floor)).notes[0][0]
