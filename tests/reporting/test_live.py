"""What a run shows while it runs, from news alone."""

import io
from dataclasses import replace

from rich.console import Console

from musbo.campaign.events import Agreement, Evaluated
from musbo.campaign.news import Completed, Left, News, Stopping, Training
from musbo.core.diagnostics import Caution, Findings, Quantiles
from musbo.learning.explore import seeking_findings
from musbo.reporting.live import REMINDER, Lines, picture, watch
from musbo.reporting.progress import Seen, fold, seconds_left
from tests.reporting import sample


def after(news: list[News], seconds_each: float = 1.0) -> Seen:
    """All news folded, one every few seconds."""
    seen = Seen()
    for number, item in enumerate(news, start=1):
        seen = fold(seen, item, number * seconds_each)
    return seen


def upto(kind: str, stage: str | None = None, index: int | None = None) -> list[News]:
    """The beginning of a run, up to and including a piece of news."""
    news: list[News] = [sample.beginning()]
    for item in sample.news(1):
        news.append(item)
        if isinstance(item, Training):
            found = kind == "training" and stage == item.metrics.stage and index in (None, item.metrics.index)
        else:
            found = isinstance(item, Completed) and kind == type(item.what).__name__.lower()
        if found:
            return news
    raise AssertionError("there is no such news")


def test_stages_follow_the_news():
    assert after([sample.beginning()]).stage.name == "collect"
    assert after(upto("collected")).stage.name == "dynamics"
    seen = after(upto("training", "dynamics", 1))
    assert (seen.stage.name, seen.done, seen.total) == ("dynamics", 1, 2)
    # The last report of a fit: the next stage is being compiled, and nothing is known of its length.
    seen = after(upto("training", "dynamics", 2))
    assert (seen.stage.name, seen.done, seen.total) == ("labeler", 0, None)
    assert after(upto("training", "labeler", 2)).stage.name == "start"  # stopped early: no member is active
    seen = after(upto("training", "improve", 2))
    assert (seen.stage.name, seen.done, seen.total) == ("improve", 2, 4)
    assert after(upto("training", "done")).stage.name == "evaluate"
    seen = after(upto("evaluated"))
    assert (seen.deployment, seen.stage.name) == (2, "collect")


def test_a_report_on_the_side_changes_the_forecast_only():
    before = after(upto("training", "improve", 2))
    assert replace(after(upto("training", "check", 2)), imagined=None) == replace(before, imagined=None)


def test_numbers_follow_the_news():
    seen = after(upto("training", "improve", 2))
    assert seen.current is not None and seen.current.batch.mean_return == -99.0
    errors = {name: shown.value for name, shown in seen.diagnostics.items() if name.endswith("error")}
    assert errors == {"dynamics_error": 0.25, "labeler_error": 0.25, "start_error": 0.25}
    assert seen.diagnostics["U"].value == Quantiles(0.5, 0.7, 0.9)
    assert seen.imagined == -3.0
    assert seen.returns == () and seen.real is None
    seen = after(upto("evaluated"))
    assert (seen.returns, seen.imagined, seen.real) == ((-40.0,), -2.0, -0.8)
    seen = after([*upto("evaluated"), *sample.news(2)])
    assert seen.returns == (-40.0, -30.0)
    assert seen.diagnostics["zeta"].value == Quantiles(0.1, 0.2, 0.3)
    assert (seen.deployment, seen.stage.name) == (2, "evaluate")


def test_what_was_foreseen_at_the_evaluation_is_shown_where_training_says_nothing():
    foreseen = Agreement(1.0, 1.0, imagined_steps=20.0, real_steps=50.0, imagined_return=-30.0)
    news: list[News] = [
        Completed(1, sample.batch(1)),
        Completed(1, sample.trained(1, forecast=None)),
        Completed(1, sample.evaluated(1, agreement=foreseen)),
    ]
    seen = after(news)
    assert (seen.imagined, seen.real) == (-1.5, -0.8)


def test_one_episode_has_no_deviation():
    whole = sample.evaluated(1)
    assert whole.episodes is not None
    one = replace(whole, episodes=replace(whole.episodes, deviation=None, returns=(-40.0,)))
    assert run_lines([*upto("trained"), Completed(1, one)])[-1].startswith("  return     -40 over 1 episode;")


def test_a_resumed_run_knows_what_was_before():
    seen = after([sample.beginning(2, resumed=True)])
    assert (seen.deployment, seen.stage.name, seen.returns) == (2, "collect", (-40.0,))
    assert (seen.imagined, seen.real) == (-2.0, -0.8)


def test_a_run_that_is_resumed_in_training_begins_with_the_first_stage():
    one = replace(sample.deployment(1), training=None, evaluation=None)
    began = replace(sample.beginning(1, resumed=True), summary=sample.summary(1, deployments=(one,), finished=False))
    assert after([began]).stage.name == "dynamics"
    later = replace(one, training=sample.trained(1))
    began = replace(began, summary=replace(began.summary, deployments=(later,)))
    seen = after([began, Completed(1, sample.evaluated(1))])
    assert after([began]).stage.name == "evaluate" and (seen.imagined, seen.real) == (-2.0, -0.8)


def test_time_left_goes_by_the_pace_since_the_first_report():
    seen = after([sample.beginning()])
    assert seconds_left(seen, 5.0) is None
    seen = fold(seen, Training(1, sample.fit("dynamics", 1, 11)), 100.0)  # 100 s of compilation
    assert seconds_left(seen, 100.0) is None
    seen = fold(seen, Training(1, sample.fit("dynamics", 3, 11)), 104.0)
    assert seconds_left(seen, 104.0) == 16.0  # two epochs took 4 s, eight are left


INERT = sample.findings(sample.INERT)


def run_lines(news: list[News], every_stage: bool = True, seconds_each: float = 1.0) -> list[str]:
    now = [0.0]
    written: list[str] = []
    lines = Lines(written.append, every_stage, clock=lambda: now[0])
    for item in news:
        now[0] += seconds_each
        lines(item)
    return written


def test_lines_off_a_terminal():
    assert run_lines([*upto("evaluated"), *sample.news(2)]) == [
        "musbo (quick) on pointmass, seed 0: 2 deployments of 100 transitions",
        "deployment 1 of 2",
        "  collected  1,000 transitions in 20 episodes, return -99",
        "  dynamics   2 epochs; dynamics error 0.25, 2.0 s",
        "  labeler    2 epochs; labeler error 0.25, 2.0 s",
        "  start      2 epochs; start error 0.25, 2.0 s",
        "  improve    4 updates; uncertainty coefficient U 0.500 0.700 0.900, 6.0 s",
        "  trained    update of the policy 4, imagined reward per step -2",
        "  return     -40 ± 14.1 over 2 episodes; per step -0.8 real, -2 imagined",
        "deployment 2 of 2",
        "  collected  1,000 transitions in 20 episodes, return -98; "
        "exploration scale zeta 0.100 0.200 0.300, zeta at its cap 25%",
        "  dynamics   2 epochs; dynamics error 0.25, 2.0 s",
        "  labeler    2 epochs; labeler error 0.25, 2.0 s",
        "  start      2 epochs; start error 0.25, 2.0 s",
        "  improve    4 updates; uncertainty coefficient U 0.500 0.700 0.900, 6.0 s",
        "  trained    update of the policy 4, imagined reward per step -2",
        "  return     -30 ± 14.1 over 2 episodes; per step -0.6 real, -2 imagined",
    ]


def test_above_a_display_there_is_a_line_per_deployment():
    assert run_lines(upto("evaluated"), every_stage=False)[1:] == [
        "deployment 1: return -40 ± 14.1 over 2 episodes; per step -0.8 real, -2 imagined"
    ]


def test_a_long_stage_is_heard_of_now_and_then():
    written = run_lines(upto("training", "improve", 3), seconds_each=REMINDER)
    assert "  improve    3 of 4, about 1 min 30 s left" in written


def test_warnings_and_what_was_not_measured():
    capped = seeking_findings([0.1, 0.2, 0.3], 0.9, 0.0)
    began = replace(sample.beginning(), cautions=(Caution("changed task", "the file of the task has changed"),))
    news: list[News] = [began]
    for d in (1, 2, 3):
        news.append(Completed(d, sample.batch(2, findings=capped)))
        news.append(Completed(d, sample.trained(d, findings=sample.findings(sample.INERT))))
        news.append(Completed(d, Evaluated(0.0, skipped="task logs has no simulator")))
    written = run_lines(news)
    assert written[1] == "  warning    the file of the task has changed"
    warned = [(i, line) for i, line in enumerate(written) if line.startswith("  warning    ")][1:]
    assert ["the coefficient is inert" in line for _, line in warned] == [False, True]  # once each, three times found
    assert "zeta is at its cap in 90%" in warned[0][1]
    assert written.index("deployment 2 of 2") < warned[0][0] < warned[1][0] < written.index("deployment 3 of 2")
    assert written[-1] == "  return     not evaluated: task logs has no simulator"


def test_a_resumed_run_does_not_repeat_its_warnings():
    inert = sample.changed(sample.summary(2), 1, lambda i: sample.with_training(i, findings=INERT))
    inert = sample.changed(inert, 2, lambda i: sample.with_training(i, findings=INERT))
    began = replace(sample.beginning(2, resumed=True), summary=replace(inert, finished=False))
    assert not any("warning" in line for line in run_lines([began, Completed(3, sample.batch(3))]))


def test_data_that_were_brought_are_mentioned():
    for brought, text in ((1, "2 deployments of 100 transitions, data for 1"), (2, "2 deployments, data for 2")):
        assert run_lines([sample.beginning(data=brought)])[0].endswith(text)


def test_a_stop_is_announced():
    news: list[News] = [*upto("training", "dynamics", 1), Stopping(), Left(1)]
    assert "stopping at the next safe point" in run_lines(news)[-2]
    assert run_lines(news)[-1] == "  dynamics   1 epoch; dynamics error 0.5, 3.0 s"
    assert after(news).deployment == 1


def test_a_resumed_and_a_finished_run_say_so():
    assert run_lines([sample.beginning(2, resumed=True)])[0].endswith(", resumed in deployment 2")
    assert run_lines([sample.beginning(3, resumed=True, finished=True)])[0].endswith(", finished already")


def shown(news: list[News]) -> str:
    now = [0.0]
    lines = Lines(lambda text: None, clock=lambda: now[0])
    for item in news:
        now[0] += 1
        lines(item)
    console = Console(file=io.StringIO(), width=90, force_terminal=False, record=True)
    console.print(picture(lines))
    return console.export_text()


def test_the_display_shows_where_the_run_is():
    text = shown(upto("training", "improve", 2))
    for part in ("deployment 1 of 2", "improving in imagination", "2 of 4", "2.0 s left"):
        assert part in text
    facts = dict(line.split("  ", 1) for line in text.splitlines() if "  " in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    assert facts["return of the batch"] == "-99"
    assert facts["uncertainty coefficient U at 10/50/90 %"] == "0.500 0.700 0.900"
    for stage in ("dynamics", "labeler", "start"):
        assert facts[f"{stage} error"] == "0.25"
    assert "-3 imagined, - real" in text
    text = shown([*upto("evaluated"), *sample.news(2)[:3]])
    for part in (
        "deployment 2 of 2",
        "fitting the dynamics M",
        "return so far",
        "exploration scale zeta at 10/50/90 %",
    ):
        assert part in text


def test_a_diagnostic_that_nobody_has_heard_of_is_shown():
    update = sample.improve(4, 4)
    unknown = replace(update, findings=Findings(sample.UNKNOWN.diagnostics))
    news: list[News] = [*upto("training", "start", 2), Training(1, unknown)]
    assert run_lines(news)[-1].startswith(
        "  improve    4 updates; surprise of the critic 0.375, temper of the actor 1.250 2.500 5.000"
    )
    text = shown(news)
    for part in ("surprise of the critic", "temper of the actor at 10/50/90 %", "mood of the batch at 10/50/90 %"):
        assert part in text
    assert "trustworthiness" not in text  # a curve is for figures


def test_a_display_for_terminals_and_lines_for_the_rest():
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)
        with watch(console) as observe:
            for item in upto("evaluated"):
                observe(item)
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
        assert "return     -40" in text or "deployment 1: return -40" in text
        assert ("improving in imagination" in text or "evaluating" in text or "collecting" in text) == terminal
        assert ("\x1b[" in text) == terminal
