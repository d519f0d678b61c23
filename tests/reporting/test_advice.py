"""The rules of the advice: each finds the fault that is planted, and says nothing about a healthy run."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.algorithms import recipes
from musbo.campaign.events import Episodes, Rewards, Stretch
from musbo.campaign.summary import Deployment, Summary, summary
from musbo.core.diagnostics import Caution, Findings
from musbo.learning.explore import seeking_findings
from musbo.reporting.advice import (
    APART,
    FEW,
    ORDER,
    OTHER,
    UNEXPLAINED,
    Advice,
    Standing,
    advise,
    baseline_better,
    behaviour,
    difference,
    in_order,
)
from tests.reporting import sample

RECORDS = Path(__file__).parents[2] / "benchmarks" / "comparison" / "records"
PAGE = Path(__file__).parents[2] / "docs" / "advice.md"


DRY_RUN = Caution("reward formula", "the reward formula of task mine is 0.1 times the simulator's reward")


def kinds(found: Summary) -> list[str]:
    return [each.kind for each in advise(found)]


def only(found: Summary) -> Advice:
    (advice,) = advise(found)
    return advice


def returns(*means: float, deviation: float = 1.0, **changes) -> Summary:
    """A run with these returns; each evaluation has 20 episodes, half a deviation above and below."""
    found = replace(sample.summary(len(means)), **changes)
    for d, mean in enumerate(means, 1):
        each = tuple(mean + deviation * (i % 2 - 0.5) for i in range(20))
        found = sample.changed(found, d, lambda item, each=each, mean=mean: _measured(item, each, mean, deviation))
    return found


def _measured(item: Deployment, each: tuple[float, ...], mean: float, deviation: float) -> Deployment:
    episodes = Episodes(each, mean, deviation, mean, 50.0, None, 1000)
    return sample.with_evaluation(item, episodes=episodes, stretch=Stretch(mean, 50.0))


def own_task(found: Summary, **shape) -> Summary:
    settings = replace(found.settings, task="<mine>")
    return replace(found, settings=settings, task=replace(found.task, **shape))


def every(found: Summary, **batch) -> Summary:
    return replace(found, deployments=tuple(sample.with_batch(item, **batch) for item in found.deployments))


# Healthy runs


def test_a_healthy_run_is_left_alone():
    assert advise(sample.summary()) == ()
    assert advise(returns(-80.0, -60.0, -40.0)) == ()
    assert advise(sample.summary(0, deployments=(), finished=False)) == ()


@pytest.mark.parametrize("name", ["musbo", "musbo-coefficient", "me-trpo", "bremen", "mopo"])
def test_real_runs_that_learned_are_left_alone(name: str):
    assert advise(summary(RECORDS / "halfcheetah" / f"halfcheetah-{name}-5x50000-s74")) == ()


def test_floors_have_nothing_to_learn():
    for name in ("bc", "random"):
        assert advise(summary(RECORDS / "halfcheetah-others" / f"halfcheetah-{name}-5x50000-s74")) == ()


# Faults


def test_a_reward_formula_that_disagrees():
    """A tenth of the reward: -0.1 for -1."""
    wrong = own_task(every(sample.summary(), rewards=Rewards(-1.0, -0.1, 1.5)))
    advice = only(wrong)
    assert (advice.kind, advice.deployments) == ("reward disagrees", (1, 2, 3))
    assert "gives -0.1 per step where the simulator gives -1" in advice.text and "differ by 1.5 standard" in advice.text
    assert "where the log has -1" in only(every(wrong, source="log.csv")).text
    assert advise(own_task(every(sample.summary(), rewards=Rewards(-1.0, -0.9, APART)))) == ()
    noticed = sample.changed(wrong, 1, lambda i: sample.with_training(i, findings=Findings(cautions=(DRY_RUN,))))
    assert kinds(noticed) == ["reward formula"]  # the dry run has said so already
    ours = every(sample.summary(), rewards=Rewards(-1.0, -0.1, 1.5))  # on purpose, on a task of the paper
    assert advise(ours) == ()


@pytest.mark.parametrize(("stage", "outputs"), [("dynamics", 4), ("labeler", 4)])
def test_a_model_that_predicts_badly(stage: str, outputs: int):
    def with_error(value: float) -> Summary:
        findings = Findings((sample.error(stage, value),))
        return sample.changed(sample.summary(), 3, lambda item: sample.with_training(item, findings=findings))

    advice = only(with_error(1.77))
    assert advice.kind == f"{stage} inaccurate" and advice.deployments == (3,)
    assert "44% of the variance" in advice.text and "error 1.77" in advice.text  # 1.77 / 4
    assert f"--{stage}.max-steps" in advice.text
    assert f"the {stage} model is worse than the mean on held-out data (error 9 in" in only(with_error(9.0)).text
    assert advise(with_error(UNEXPLAINED * outputs)) == ()
    earlier = sample.changed(
        sample.summary(), 1, lambda i: sample.with_training(i, findings=Findings((sample.error(stage, 9.0),)))
    )
    assert advise(earlier) == ()  # a later training has put it right


def test_a_learned_reward_and_termination_are_outputs_too():
    learned = own_task(every(sample.summary(), terminations=3), reward="learned", terminated="learned")
    at = lambda value: sample.changed(  # noqa: E731
        learned, 3, lambda i: sample.with_training(i, findings=Findings((sample.error("dynamics", value),)))
    )
    assert advise(at(6 * UNEXPLAINED)) == () and kinds(at(6.1 * UNEXPLAINED)) == ["dynamics inaccurate"]


def test_nothing_learned():
    advice = only(returns(-120.0, -110.0, -105.0))
    assert (
        advice.kind == "nothing learned"
        and "random actions (-105.0 at best, -99 before, over 20 episodes)" in advice.text
    )
    assert kinds(returns(-120.0, -110.0, finished=False)) == []  # too early to say
    assert kinds(returns(-120.0)) == ["nothing learned"]  # one deployment was all
    brought = every(returns(-120.0, -115.0, -110.0), source="log.csv")
    assert "better than the data it began with" in only(brought).text


def test_flat_returns():
    advice = only(returns(-40.0, -40.5, -39.5))
    assert advice.kind == "flat" and "(-40, now -39.5)" in advice.text
    assert kinds(returns(-40.0, -39.5)) == []  # two are no course
    assert kinds(returns(-40.0, -35.0, -39.5)) == []
    # Noise of the evaluation is no movement: half of the episodes better, half worse.
    noisy = returns(-40.0, -38.0, -39.0)
    swap = Episodes(tuple(-36.0 + 40 * (0.5 - i % 2) for i in range(20)), -36.0, 20.5, -36.0, 50.0, None, 1000)
    noisy = sample.changed(noisy, 2, lambda item: sample.with_evaluation(item, episodes=swap))
    assert kinds(noisy) == ["flat"]


def test_a_collapse():
    advice = only(returns(-60.0, -20.0, -60.0))
    assert advice.kind == "collapse" and "deployment=2" in advice.text and advice.deployments == (3,)
    assert kinds(returns(-60.0, -20.0, -35.0)) == []  # 15 of 79 are lost
    assert kinds(returns(-60.0, -20.0, -60.0, deviation=100.0)) == ["collapse"]  # the same starts: a sure difference
    assert kinds(summary(RECORDS / "hopper-others" / "hopper-brac-10x25000-s20")) == ["collapse"]


def test_a_dip_on_the_way():
    advice = only(returns(-40.0, -90.0, -20.0))
    assert advice.kind == "unstable" and "fell from -40 to -90 at deployment 2" in advice.text
    assert kinds(returns(-40.0, -60.0, -20.0)) == []
    unclear = sample.changed(  # it fell at the end, and nobody knows whether it will rise again
        sample.summary(2), 2, lambda item: sample.with_episodes(item, mean_return=-90.0, returns=(400.0, -580.0))
    )
    assert kinds(unclear) == []
    assert only(summary(RECORDS / "hopper-others" / "hopper-sac-10x25000-s20")).deployments == (4, 7)


def test_advice_names_only_what_the_method_has():
    advice = only(summary(RECORDS / "hopper-others" / "hopper-brac-10x25000-s20"))
    assert "--handover" not in advice.text and "--updates" not in advice.text and "--batch-size" in advice.text
    assert "--handover" in only(returns(-60.0, -20.0, -60.0)).text


def test_imagination_that_promises_too_much():
    def promised(value: float, d: int = 3) -> Summary:
        return sample.changed(
            returns(-80.0, -60.0, -40.0), d,
            lambda item: sample.with_training(item, forecast=replace(item.training.forecast, total=value)),  # type: ignore
        )  # fmt: skip

    # 10 imagined steps; real: -0.8 per step, where random actions had -99 / 50 = -1.98: a gain of 1.18.
    assert kinds(promised(-8.0 + 5.8)) == []
    advice = only(promised(-8.0 + 6.0))
    assert advice.kind == "imagined above real" and "promises -0.2 per step and -0.8 comes true" in advice.text
    assert kinds(promised(10.0, d=2)) == []  # the newest policy is what counts


def test_terminations_that_were_never_seen():
    learned = own_task(every(sample.summary(), terminations=0), terminated="learned")
    advice = only(learned)
    assert advice.kind == "no terminations" and "none of the 60 episodes" in advice.text
    one = sample.changed(learned, 2, lambda item: sample.with_batch(item, terminations=1))
    assert advise(one) == ()
    assert advise(own_task(learned, terminated="given")) == () == advise(own_task(learned, terminated="never"))
    assert advise(every(learned, terminations=None)) == ()  # not counted in older runs


def test_a_batch_of_too_few_episodes():
    few = every(sample.summary(2), episodes=2)
    assert only(few).kind == "few episodes" and "only 4 episodes so far" in only(few).text
    assert advise(every(sample.summary(1), episodes=FEW)) == ()
    assert "there is only 1 episode so far" in only(every(sample.summary(1), episodes=1)).text


# Cautions


def with_cautions(found: Summary, kind: str, *days: int) -> Summary:
    for d in days:
        own = Findings(cautions=(Caution(kind, f"{kind} in {d}"),))
        found = sample.changed(found, d, lambda item, own=own: sample.with_training(item, findings=own))
    return found


def test_an_inert_coefficient_is_said_once_and_only_where_it_is_the_rule():
    assert only(with_cautions(sample.summary(4), "inert", 1, 2, 4)) == Advice("inert", "inert in 4", (1, 2, 4))
    assert advise(with_cautions(sample.summary(4), "inert", 1, 2)) == ()
    assert advise(with_cautions(sample.summary(1, finished=False), "inert", 1)) == ()  # too early to say
    assert kinds(with_cautions(sample.summary(1), "inert", 1)) == ["inert"]


def test_a_caution_about_one_training_counts_while_it_is_the_newest():
    for kind in ("cut", "updates rejected", "nothing trusted"):
        assert kinds(with_cautions(sample.summary(), kind, 1, 3)) == [kind]
        assert advise(with_cautions(sample.summary(), kind, 1, 2)) == ()


def test_what_parts_of_ones_own_say_is_said_once():
    assert only(with_cautions(sample.summary(), "mine", 1, 2)) == Advice("mine", "mine in 2", (1, 2))


def test_cautions_of_batches_are_folded_in():
    capped = every(sample.summary(), findings=seeking_findings([0.1, 0.2, 0.3], 0.9, 0.0))
    assert only(capped).kind == "at cap" and only(capped).deployments == (1, 2, 3)


# Order


@given(st.permutations(ORDER))
def test_the_most_important_comes_first(drawn: list[str]):
    assert [each.kind for each in in_order(Advice(kind, "x") for kind in drawn)] == list(ORDER)


def test_what_is_unknown_stands_where_others_stand():
    mixed = [Advice(kind, "x") for kind in ("flat", "mine", "collapse")]
    assert [each.kind for each in in_order(mixed)] == ["collapse", "mine", "flat"]


def test_several_faults_at_once():
    wrong = own_task(every(returns(-60.0, -20.0, -60.0), rewards=Rewards(-1.0, -0.1, 1.5), episodes=1))
    assert kinds(with_cautions(wrong, "inert", 1, 2, 3)) == ["reward disagrees", "collapse", "few episodes", "inert"]


def test_the_page_has_every_kind():
    rows = [line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert [row for row in rows if row in ORDER] == [kind for kind in ORDER if kind != OTHER]


# Numbers that the rules use


def test_a_difference_is_taken_episode_by_episode():
    one, other = (Episodes(each, 0.0, 1.0, None, 50.0, None, 100) for each in ((3.0, 5.0, 1.0), (1.0, 2.0, 2.0)))
    found = difference(one, other)
    # 2, 3, -1: their mean is 4/3, their deviation sqrt(13/3) = 2.0817, a third of its square root of three 1.2019
    assert found is not None
    assert (found.mean, found.error, found.better) == pytest.approx((4 / 3, 2.0817 / 3**0.5, 2 / 3), rel=1e-4)
    assert not found.clear
    assert difference(one, replace(other, returns=(1.0,))) is None
    gap = difference(replace(one, returns=(3.0, None, 1.0)), other)
    assert gap is not None and gap.mean == pytest.approx(0.5)  # 2 and -1


def test_short_logs_are_scaled_to_the_length_of_an_evaluation():
    found = returns(-40.0, -30.0, -20.0)
    assert behaviour(found) == pytest.approx(-99.0)
    short = sample.changed(found, 1, lambda item: sample.with_batch(item, mean_length=25.0))
    assert behaviour(short) == pytest.approx(-198.0)  # half as long as an episode of the evaluation
    assert behaviour(own_task(short, terminated="given")) == pytest.approx(-99.0)  # there, short is what it is worth


# Beside other methods


def test_a_baseline_that_does_better():
    first = Standing("musbo", 10.0, floor=False)
    clear, unclear = Standing("sac", 15.0, False, low=1.0), Standing("mopo", 20.0, False, low=-1.0)
    advice = baseline_better(first, [clear, unclear], "pendulum, 4 x 2,000")
    assert advice and advice.text.startswith("on pendulum, 4 x 2,000, sac does better than musbo (15 against 10)")
    assert baseline_better(first, [unclear], "x") is None and baseline_better(first, [], "x") is None
    floor = baseline_better(first, [Standing("bc", 11.0, floor=True)], "x")
    assert floor and "nothing useful was learned" in floor.text
    assert baseline_better(replace(first, floor=True), [clear], "x") is None
    assert {name for name, recipe in recipes.ALGORITHMS.items() if recipe.floor} == {"bc", "random"}
