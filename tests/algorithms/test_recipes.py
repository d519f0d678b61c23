"""Recipes: methods differ in settings only, and `paper` has the paper's numbers, written out here from its text."""

from dataclasses import fields, replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.algorithms import recipes
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.recipes import (
    ALGORITHMS,
    PRESETS,
    Imagined,
    Recipe,
    Scale,
    default_preset,
    reasons,
    recipe,
    scale,
)
from musbo.core import serial
from musbo.core.errors import UserError
from musbo.field.find import find_task
from musbo.learning.advantage import Ridge
from musbo.learning.explore import Plain, Seeking
from musbo.learning.fit import FitSettings
from musbo.learning.handover import Last
from musbo.learning.imagine import Imagine
from musbo.learning.label import Disagreement, Trust
from musbo.learning.start import Clone, Continue
from musbo.learning.value import Ensemble
from musbo.tasks.find import TASKS as OURS
from musbo.tasks.task import Task

MINE = Task("mine", 2, 1, (-1.0,), (1.0,), 300, reward="learned")
TASKS = [*(find_task(name) for name in OURS), MINE]
EVERY = [(preset, task) for preset in PRESETS for task in TASKS]


def differences(one: ImaginedTRPO, other: ImaginedTRPO) -> set[str]:
    return {field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name)}


@pytest.mark.parametrize(("preset", "task"), EVERY, ids=lambda each: getattr(each, "name", each))
def test_methods_differ_in_settings_only(preset: Any, task: Task):
    """One type, and exactly the parts that make each method."""
    names: tuple[Imagined, ...] = get_args(Imagined)
    value = {name: recipe(name, preset, task) for name in names}
    assert differences(value["musbo"], value["musbo-coefficient"]) == {"explore"}
    assert differences(value["musbo"], value["musbo-collection"]) == {"label"}
    assert differences(value["musbo"], value["musbo-constant-noise"]) == {"explore"}
    seeking = value["musbo"].explore
    assert isinstance(seeking, Seeking) and value["musbo-constant-noise"].explore == replace(seeking, pooled=True)
    assert differences(value["bremen"], value["me-trpo"]) - {"trpo"} == {"start"}
    assert differences(value["musbo"], value["bremen"]) - {"trpo"} == {"label", "explore"}
    kinds = {name: (type(v.label), type(v.start), type(v.explore)) for name, v in value.items()}
    assert kinds == {
        "musbo": (Disagreement, Clone, Seeking),
        "musbo-coefficient": (Disagreement, Clone, Plain),
        "musbo-collection": (Trust, Clone, Seeking),
        "musbo-constant-noise": (Disagreement, Clone, Seeking),
        "bremen": (Trust, Clone, Plain),
        "me-trpo": (Trust, Continue, Plain),
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_settings_are_values(preset: Any):
    """Hashable, so that they can be static; and they come back from JSON as they were."""
    for name in ALGORITHMS:
        value = recipe(name, preset, "hopper")
        assert hash(value) == hash(recipe(name, preset, "hopper"))
        assert serial.from_json(serial.to_json(value)) == value


# The table of hyper-parameters (L, rollout length, delta), and lambda from the text beside it.
TABLE = {
    "ant": (2000, 250, 0.05, 0.97),
    "halfcheetah": (2000, 250, 0.1, 0.95),
    "hopper": (6000, 1000, 0.05, 0.95),
    "walker2d": (2000, 1000, 0.05, 0.95),
    "cheetah-run": (2000, 250, 0.05, 0.95),
}
# Deployments and batch size for 500k in all.
BUDGETS = {
    "halfcheetah": (5, 100_000),
    "ant": (5, 100_000),
    "cheetah-run": (5, 100_000),
    "walker2d": (10, 50_000),
    "hopper": (10, 50_000),
}


@pytest.mark.parametrize("task", TABLE)
def test_the_paper_preset(task: str):
    musbo = recipe("musbo", "paper", task)
    L, H, delta, lam = TABLE[task]
    assert (musbo.updates, musbo.imagine.horizon, musbo.trpo.delta, musbo.discount.lam) == (L, H, delta, lam)
    assert musbo.discount.gamma == 0.99

    # "ensembles size of N=5 ... learning rate of 1e-3"; "PNN with K=3 and a learning rate of 1e-3"
    assert (musbo.dynamics.members, musbo.dynamics.learning_rate) == (5, 1e-3)
    assert (musbo.labeler.members, musbo.labeler.learning_rate) == (3, 1e-3)
    # "two layers of fully-connected neural network with hidden units of 1024 ... this same configuration with P"
    assert musbo.dynamics.hidden == musbo.labeler.hidden == (1024, 1024)
    # "no longer improves after consecutive 3 episodes"
    assert musbo.dynamics.patience == musbo.labeler.patience == 3
    assert musbo.dynamics.max_steps is None and not musbo.dynamics.bootstrap and musbo.dynamics.decay == "none"
    # "policy network ... two layers ... hidden units of 200"
    assert musbo.policy.hidden == (200, 200)
    # "behavioral cloning, we used a learning rate of 5e-4 ... this same setting for the behavioral cloning"
    assert isinstance(musbo.start, Clone)
    assert (musbo.start.learning_rate, musbo.start.patience) == (5e-4, 3)
    # "the same alpha = 0.028 for all environments"; two sampled members per batch
    assert musbo.label == Disagreement(alpha=0.028, pairs="batch", prediction="mean")
    # "the same constant sigma = 0.01 for all environments"
    assert isinstance(musbo.explore, Seeking) and musbo.explore.sigma == 0.01
    # The member is drawn outside the loop of optimisation steps; the last policy is the result.
    assert musbo.imagine.member == "per_outer" and musbo.imagine.starts == "initial"
    assert musbo.handover == Last()

    # What the paper leaves open, from the lineage.
    assert musbo.imagine.rollouts * musbo.imagine.horizon == 50_000
    assert musbo.dynamics.batch == musbo.labeler.batch == 1000 and musbo.dynamics.epochs == 200
    assert musbo.dynamics.activation == musbo.policy.activation == "relu"
    assert (musbo.trpo.cg_iterations, musbo.trpo.damping, musbo.trpo.fisher_stride) == (10, 0.1, 1)
    assert musbo.policy.sigma == 0.1 and not musbo.policy.learned_sigma


@pytest.mark.parametrize("task", TABLE)
def test_the_applied_delta(task: str):
    """Recorded as printed, applied at the scale of an honest sigma."""
    step = recipe("musbo", "paper", task).trpo
    assert step.applied_delta == pytest.approx(TABLE[task][2] / 220)
    assert replace(step, literal_delta=True).applied_delta == TABLE[task][2]


def test_lambda_is_larger_on_the_ant():
    """Appendix F: 0.97 on the ant, 0.95 elsewhere."""
    tasks = ("ant", "halfcheetah", "hopper", "walker2d", "cheetah-run")
    assert [recipe("musbo", "paper", task).discount.lam for task in tasks] == [0.97, 0.95, 0.95, 0.95, 0.95]


def test_what_the_paper_has_not_is_off_in_its_preset():
    """Fields that came later have the old behaviour as their default, and `paper` leaves them there."""
    for task in TASKS:
        paper = recipe("musbo", "paper", task)
        assert paper.imagine == Imagine(paper.imagine.rollouts, paper.imagine.horizon, "initial", "per_outer", False)
        assert paper.baseline == Ridge() and paper.check.steps is None
        assert paper.dynamics == FitSettings(members=5) and paper.dynamics.judged_by == "mean"
        assert paper.dynamics.least_steps == 0
        assert paper.trpo.at_sigma is None and paper.policy.least_sigma == 0


# Outside `paper`


@given(
    st.sampled_from([name for name in ALGORITHMS if name != "uvg"]),
    st.sampled_from(["quick", "fast", "thorough"]),
    st.sampled_from(TASKS),
    st.text("abcdefghij-", min_size=1, max_size=8),
)
def test_a_name_means_nothing(name: str, preset: Any, task: Task, another: str):
    """Two tasks that declare the same get the same settings."""
    assert recipe(name, preset, task) == recipe(name, preset, replace(task, name=another))


@given(
    st.sampled_from(["quick", "fast", "thorough"]),
    st.integers(1, 5000),
    st.sampled_from([None, "learned", lambda s: s[0] > 0]),
)
def test_settings_follow_from_the_task(preset: Any, steps: int, terminated: Any):
    task = replace(MINE, episode_steps=steps, terminated=terminated)
    musbo = recipe("musbo", preset, task)
    whole = min(steps, 1000)
    H = musbo.imagine.horizon
    assert whole == H if terminated is not None or steps <= 250 else H in (100, 200)
    assert musbo.check.steps == whole  # policies are rated over whole episodes, whatever is imagined
    most = 10_000 if preset == "quick" else 25_000
    assert 0.5 * most < musbo.imagine.rollouts * H <= most or (preset == "quick" and musbo.imagine.rollouts == 50)
    assert musbo.imagine.restart and musbo.imagine.starts == "mixed"
    assert musbo.label == Disagreement(alpha="auto")
    assert isinstance(musbo.baseline, Ensemble) and musbo.dynamics.judged_by == "trimmed"
    ahead = 1 / (1 - musbo.discount.gamma)
    assert ahead == pytest.approx(100 if terminated is None else max(100, min(300, 0.3 * steps)))


def test_to_fall_costs_more_than_leaping_into_it_earns():
    """The worth of 140 steps of hopping at 2.9 and a fall beside that of a thousand steps of standing at 1.0."""

    def worth(gamma: float, reward: float, steps: int) -> float:
        return sum(reward * gamma**t for t in range(steps))

    derived = recipe("musbo", "fast", "hopper").discount.gamma
    assert worth(0.99, 2.9, 140) > 2 * worth(0.99, 1.0, 1000)
    assert worth(derived, 2.9, 140) < 1.2 * worth(derived, 1.0, 1000)


def test_a_task_that_knows_its_own_beginnings():
    """Whole episodes from there, where nothing can end early and so nothing but the beginnings is missing."""
    assert recipe("musbo", "quick", "pendulum").imagine == Imagine(50, 200, "reset", restart=True)
    assert recipe("musbo", "quick", "pointmass").imagine == Imagine(50, 50, "reset", restart=True)
    assert recipe("musbo", "quick", "hopper").imagine == Imagine(10, 1000, "mixed", restart=True)


def test_reasons():
    said = reasons("musbo", "fast", "hopper")
    assert said[0].startswith("--imagine.horizon 1000: whole episodes") and "can end early" in said[0]
    assert any(each.startswith("--discount.gamma 0.9967: looks ahead 300 steps") for each in said)
    assert "because they are short" in reasons("bremen", "quick", "pendulum")[0]
    assert "none ends early" in reasons("me-trpo", "thorough", "halfcheetah")[0]
    assert reasons("musbo", "paper", "hopper") == reasons("sac", "fast", "hopper") == ()


def test_thorough_is_fast_for_longer():
    for task in TASKS:
        fast, thorough = recipe("musbo", "fast", task), recipe("musbo", "thorough", task)
        assert thorough.dynamics.max_steps == 3 * (fast.dynamics.max_steps or 0)
        assert thorough.updates == 3 * fast.updates
        same = replace(
            thorough,
            dynamics=fast.dynamics, labeler=fast.labeler, updates=fast.updates, handover=fast.handover,
        )  # fmt: skip
        assert same == fast


def test_the_peers_take_a_step_per_transition_when_thorough():
    for name in ("sac", "bcq", "brac", "mopo"):
        per = [recipe(name, preset, "hopper").per_transition for preset in ("fast", "thorough", "paper")]  # type: ignore[attr-defined]
        assert per == [0.0, 1.0, 0.0]


def test_bremens_own_delta():
    """0.1 on both cheetahs, where MUSBO's table has 0.05 for one of them."""
    for task, delta in {"halfcheetah": 0.1, "cheetah-run": 0.1, "cheetah-run-gym": 0.1, "hopper": 0.05}.items():
        assert recipe("bremen", "paper", task).trpo.delta == delta
    bremen = recipe("bremen", "paper", "hopper")
    assert bremen.explore == Plain(0.1)


@pytest.mark.parametrize("task", BUDGETS)
def test_budgets(task: str):
    I, B = BUDGETS[task]  # noqa: E741
    paper = scale("paper", task)
    assert (paper.budget, paper.batch_size) == (I, B)
    assert paper.budget * paper.batch_size == 500_000
    half = scale("fast", task)
    assert (half.budget, half.batch_size) == (I, B // 2)  # the paper's 250k


def test_default_presets():
    tasks = ("pendulum", "pointmass", "halfcheetah", "mine.py:MINE", MINE)
    assert [default_preset(task) for task in tasks] == ["quick", "quick", "fast", "fast", "fast"]


def test_the_budget_of_a_task_of_ones_own():
    """Fifty episodes, no more than the paper's size; what ends early has twice the deployments of half the size."""
    assert scale("fast", MINE) == Scale(5, 15_000)
    assert scale("thorough", replace(MINE, episode_steps=5000)) == Scale(5, 50_000)
    assert scale("fast", replace(MINE, terminated="learned")) == Scale(10, 7500)
    assert scale("quick", replace(MINE, episode_steps=20)) == Scale(2, 200)
    assert scale("fast", "mine.py:MINE") == Scale(5, 50_000)  # of which nothing is known
    assert [scale("quick", name) for name in ("pendulum", "pointmass", "hopper")] == [
        Scale(4, 400), Scale(2, 1000), Scale(2, 2000),
    ]  # fmt: skip


def test_unknown_names():
    with pytest.raises(UserError, match="musbo-coefficient"):
        recipe("mopo?", "fast", "hopper")
    with pytest.raises(UserError, match="made for a Task, or for one of pendulum"):
        recipe("mopo", "fast", "mine.py:MINE")


# Methods of one's own


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Recipe]:
    """The methods, in a copy that a test may add to."""
    monkeypatch.setattr(recipes, "ALGORITHMS", dict(ALGORITHMS))
    return recipes.ALGORITHMS


def mine(preset: Any, task: Task) -> ImaginedTRPO:
    return replace(recipe("me-trpo", preset, task), updates=7)


def other(preset: Any, task: Task) -> ImaginedTRPO:
    return replace(mine(preset, task), updates=8)


def test_a_new_method_is_found_by_its_name(known: dict[str, Recipe]):
    recipes.add_method("mine", "ME-TRPO in a hurry", mine)
    made = recipe("mine", "quick", "pendulum")
    assert made == replace(recipe("me-trpo", "quick", "pendulum"), updates=7)
    assert known["mine"] == Recipe("ME-TRPO in a hurry", mine) and not known["mine"].floor
    recipes.add_method("low.2", "to be beaten", other, floor=True)
    assert known["low.2"].floor and list(known)[-2:] == ["mine", "low.2"]


def test_a_name_that_is_taken(known: dict[str, Recipe]):
    with pytest.raises(UserError, match="there is a method 'bremen' already"):
        recipes.add_method("bremen", "another one", mine)
    recipes.add_method("mine", "ME-TRPO in a hurry", mine)
    recipes.add_method("mine", "in a greater hurry", mine)  # its module was loaded a second time
    assert known["mine"].line == "in a greater hurry"
    with pytest.raises(UserError, match="there is a method 'mine' already"):
        recipes.add_method("mine", "another one", other)


@pytest.mark.parametrize("name", ["", "Mine", "my method", "-mine", "mine/2", "mine\n"])
def test_a_name_that_cannot_be(name: str, known: dict[str, Recipe]):
    with pytest.raises(UserError, match="use lower case, digits and dashes"):
        recipes.add_method(name, "mine", mine)
    assert known == ALGORITHMS


def test_the_networks_of_bcq_have_the_width_of_the_preset():
    widths = {preset: recipe("bcq", preset, "hopper").regulariser.generator for preset in PRESETS}  # type: ignore[attr-defined]
    assert widths == {"quick": (64, 64), "fast": (200, 200), "thorough": (200, 200), "paper": (750, 750)}
