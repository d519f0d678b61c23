"""What a run shows while it runs, from news alone."""

import io

from rich.console import Console

from musbo.campaign.loop import News
from musbo.report.live import REMINDER, Lines, picture, watch
from musbo.report.progress import Seen, fold, seconds_left
from tests.report import sample


def after(news: list[News], seconds_each: float = 1.0) -> Seen:
    """All news folded, one every few seconds."""
    seen = Seen()
    for number, item in enumerate(news, start=1):
        seen = fold(seen, item, number * seconds_each)
    return seen


def upto(kind: str, stage: str | None = None, index: int | None = None) -> list[News]:
    """The beginning of a run, up to and including a piece of news."""
    news = [sample.beginning()]
    for item in sample.news(1):
        news.append(item)
        numbers = item.numbers
        if item.kind == kind and stage in (None, numbers.get("stage")) and index in (None, numbers.get("index")):
            return news
    raise AssertionError("there is no such news")


def test_stages_follow_the_news():
    assert after([sample.beginning()]).stage == "collect"
    assert after(upto("collected")).stage == "dynamics"
    seen = after(upto("training", "dynamics", 1))
    assert (seen.stage, seen.done, seen.total) == ("dynamics", 1, 2)
    # The last report of a fit: the next stage is being compiled, and nothing is known of its length.
    seen = after(upto("training", "dynamics", 2))
    assert (seen.stage, seen.done, seen.total) == ("labeler", 0, None)
    assert after(upto("training", "labeler", 2)).stage == "start"  # stopped early: no member is active
    seen = after(upto("training", "improve", 2))
    assert (seen.stage, seen.done, seen.total) == ("improve", 2, 4)
    assert after(upto("training", "done")).stage == "evaluate"
    seen = after(upto("evaluated"))
    assert (seen.deployment, seen.stage) == (2, "collect")


def test_numbers_follow_the_news():
    seen = after(upto("training", "improve", 2))
    assert seen.batch_return == -99.0
    assert seen.errors == {"dynamics": 0.25, "labeler": 0.25, "start": 0.25}
    assert seen.U == [0.5, 0.7, 0.9]
    assert seen.imagined == -3.0
    assert seen.returns == () and seen.real is None
    seen = after(upto("evaluated"))
    assert (seen.returns, seen.imagined, seen.real) == ((-40.0,), -2.0, -0.8)
    seen = after([*upto("evaluated"), *sample.news(2)])
    assert seen.returns == (-40.0, -30.0)
    assert seen.zeta == [0.1, 0.2, 0.3]
    assert (seen.deployment, seen.stage) == (2, "evaluate")


def test_what_was_foreseen_at_the_evaluation_is_shown_where_training_says_nothing():
    seen = after([News("evaluated", 1, sample.evaluated(1) | {"foreseen_return": -30.0, "imagined_steps": 20.0})])
    assert (seen.imagined, seen.real) == (-1.5, -0.8)


def test_one_episode_has_no_deviation():
    numbers = sample.evaluated(1) | {"spread": None, "returns": [-40.0]}
    assert run_lines([*upto("trained"), News("evaluated", 1, numbers)])[-1].startswith(
        "  return     -40 over 1 episode;"
    )


def test_a_resumed_run_knows_what_was_before():
    seen = after([sample.beginning(2, resumed=True)])
    assert (seen.deployment, seen.stage, seen.returns) == (2, "collect", (-40.0,))
    assert (seen.imagined, seen.real) == (-2.0, -0.8)


def test_time_left_goes_by_the_pace_since_the_first_report():
    seen = Seen()
    assert seconds_left(seen, 5.0) is None
    seen = fold(seen, News("training", 1, sample.fit("dynamics", 1, 11)), 100.0)  # 100 s of compilation
    assert seconds_left(seen, 100.0) is None
    seen = fold(seen, News("training", 1, sample.fit("dynamics", 3, 11)), 104.0)
    assert seconds_left(seen, 104.0) == 16.0  # two epochs took 4 s, eight are left


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
        "  dynamics   validation error 0.25 after 2 epochs, 2.0 s",
        "  labeler    validation error 0.25 after 2 epochs, 2.0 s",
        "  start      validation error 0.25 after 2 epochs, 2.0 s",
        "  improve    4 updates; U 0.500 0.700 0.900, 8.0 s",
        "  trained    policy of update 4, imagined reward per step -2",
        "  return     -40 ± 14.1 over 2 episodes; per step -0.8 real, -2 imagined",
        "deployment 2 of 2",
        "  collected  1,000 transitions in 20 episodes, return -98; zeta 0.100 0.200 0.300, 25% at its cap",
        "  dynamics   validation error 0.25 after 2 epochs, 2.0 s",
        "  labeler    validation error 0.25 after 2 epochs, 2.0 s",
        "  start      validation error 0.25 after 2 epochs, 2.0 s",
        "  improve    4 updates; U 0.500 0.700 0.900, 8.0 s",
        "  trained    policy of update 4, imagined reward per step -2",
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
    inert = sample.trained(1) | {"U": [0.99, 0.995, 0.999]}
    capped = sample.batch(2) | {"zeta_at_cap": 0.9}
    written = run_lines(
        [
            sample.beginning(),
            News("collected", 1, capped),
            News("trained", 1, inert),
            News("evaluated", 1, {"skipped": "task logs has no simulator"}),
        ]
    )
    assert any(line.startswith("  warning    the coefficient is inert") for line in written)
    assert any(line.startswith("  warning    zeta is at its cap in 90%") for line in written)
    assert written[-1] == "  return     not evaluated: task logs has no simulator"


def test_data_that_were_brought_are_mentioned():
    news = sample.beginning()
    for brought, text in ((1, "2 deployments of 100 transitions, data for 1"), (2, "2 deployments, data for 2")):
        assert run_lines([News("begin", 1, news.numbers | {"brought": brought})])[0].endswith(text)


def test_a_stop_is_announced():
    news = [*upto("training", "dynamics", 1), News("stopping", 0, {}), News("stopped", 1, {})]
    assert "stopping at the next safe point" in run_lines(news)[-2]
    assert run_lines(news)[-1] == "  dynamics   validation error 0.5 after 1 epoch, 3.0 s"
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
    for part in ("deployment 1 of 2", "improving in imagination", "2 of 4", "2.0 s left", "return of the batch  -99"):
        assert part in text
    assert "U at 10/50/90 %      0.500 0.700 0.900" in text
    assert "dynamics 0.25  labeler 0.25  start 0.25" in text
    assert "-3 imagined, - real" in text
    text = shown([*upto("evaluated"), *sample.news(2)[:3]])
    for part in ("deployment 2 of 2", "fitting the dynamics M", "return so far", "zeta at 10/50/90 %"):
        assert part in text


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
