"""The label of examples/morel_halt.py against trajectories that are ended by hand, and the quotes of its how-to.

Members disagree by |a| here (`acting_labeler`), so that the actions of a rollout say where it is doubtful.
"""

import re
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import musbo
from musbo.algorithms import recipes
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.campaign import command
from musbo.campaign.events import Trained
from musbo.campaign.news import Completed, Training
from musbo.core import serial
from musbo.core.diagnostics import Quantiles
from musbo.learning.advantage import Discounting, gae
from musbo.learning.imagine import Rollout
from musbo.models.labeler import Labeler
from tests.learning.small import acting_labeler, f32, rollout_of
from tests.stories import tiny
from tests.test_examples import EXAMPLES, load

EXAMPLE = load("morel_halt")
Halt = EXAMPLE.Halt
KEY = jax.random.PRNGKey(0)
PENALTY = 7.0
LABEL = Halt(multiple=2.0, penalty=PENALTY)  # doubt begins above 0.5


def judge() -> Labeler:
    labeler = acting_labeler()
    return replace(labeler, levels=replace(labeler.levels, spread_p95=f32(0.25)))


def acted(apart: object, reward: object, **flags: object) -> Rollout:
    """A rollout at whose steps the members disagree by `apart`."""
    executed = np.asarray(apart, np.float32)[..., None]
    return replace(rollout_of(reward, **flags), executed=f32(executed), act=f32(9 * executed))  # type: ignore[arg-type]


def test_it_ends_at_the_first_doubtful_step():
    no, yes = False, True
    # Lanes: no doubt, the threshold itself included; doubt at steps 1 and 3; doubt at once; an end of its own before
    # the doubt; an end of its own in the doubtful step.
    apart = np.array(
        [[0.5, 0.1, 0.6, 0.0, 0.0], [0.4, 0.9, 0.0, 0.0, 0.0], [0.0, 0.0, 0.7, 0.9, 0.8], [0.3, 0.9, 0, 0, 0]]
    )
    reward = np.arange(1.0, 21.0).reshape(4, 5)
    ends = np.array([[no] * 5, [no, no, no, yes, no], [no, no, no, no, yes], [no] * 5])
    exists = np.array([[yes] * 5, [yes] * 5, [yes, yes, yes, no, yes], [yes, yes, yes, no, no]])
    given = acted(apart, np.where(exists, reward, 0), terminated=ends, live=exists)

    got, seen = LABEL(given, judge(), KEY)
    np.testing.assert_allclose(seen["disagreement"], apart, atol=1e-6)
    np.testing.assert_allclose(seen["halted"], np.full_like(apart, 3 / 5))  # of five trajectories, at every step
    np.testing.assert_array_equal(
        got.live, [[yes] * 5, [yes, yes, no, yes, yes], [yes, no, no, no, yes], [yes, no, no, no, no]]
    )
    np.testing.assert_array_equal(
        got.terminated, [[no, no, yes, no, no], [no, yes, no, yes, no], [no, no, no, no, yes], [no] * 5]
    )
    np.testing.assert_allclose(
        got.reward, [[1, 2, 3 - 7, 4, 5], [6, 7 - 7, 0, 9, 10], [11, 0, 0, 0, 15 - 7], [16, 0, 0, 0, 0]]
    )
    for name in ("obs", "act", "executed", "weight", "last_obs"):
        np.testing.assert_array_equal(getattr(got, name), getattr(given, name))


def test_a_row_of_several_trajectories():
    """Doubt at step 1; a new trajectory from step 3 on, after an end; one from 6 on, after a cut, in doubt at once."""
    apart = np.array([0, 0.9, 0, 0, 0.1, 0, 0.9, 0, 0])[:, None]
    ends, exists = np.zeros((9, 1), bool), np.ones((9, 1), bool)
    ends[2], exists[5] = True, False
    got, seen = LABEL(acted(apart, exists * 10.0, terminated=ends, live=exists), judge(), KEY)
    assert np.flatnonzero(got.live).tolist() == [0, 1, 3, 4, 6]
    assert np.flatnonzero(got.terminated).tolist() == [1, 6]
    np.testing.assert_allclose(np.asarray(got.reward)[:, 0], [10, 3, 0, 10, 10, 0, 3, 0, 0])
    np.testing.assert_allclose(seen["halted"], 2 / 3, rtol=1e-6)


def test_nothing_changes_without_doubt():
    given = acted(np.full((4, 3), 0.49), np.random.default_rng(0).normal(size=(4, 3)))
    got, _ = LABEL(given, judge(), KEY)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(given), strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_trajectories_against_a_loop():
    rng = np.random.default_rng(1)
    t, b = 12, 200
    apart, reward = rng.uniform(0, 0.55, (t, b)), rng.normal(size=(t, b))
    ends = rng.random((t, b)) < 0.05
    exists = np.cumsum(ends, axis=0) - ends == 0
    got, _ = LABEL(acted(apart, np.where(exists, reward, 0), terminated=ends & exists, live=exists), judge(), KEY)
    lengths = []
    for lane in range(b):
        steps, halted = 0, False
        for step in range(t):
            steps, halted = step + 1, apart[step, lane] > 0.5
            if halted or ends[step, lane]:
                break
        lengths.append(steps)
        paid = np.where(np.arange(steps) == steps - 1, PENALTY * halted, 0.0)
        np.testing.assert_allclose(got.reward[:steps, lane], reward[:steps, lane] - paid, rtol=1e-5)
        assert bool(got.terminated[steps - 1, lane]) == (halted or ends[steps - 1, lane])
        assert not got.terminated[: steps - 1, lane].any() and not got.reward[steps:, lane].any()
    np.testing.assert_array_equal(np.asarray(got.live).sum(axis=0), lengths)
    assert 1 < np.mean(lengths) < t


def test_what_is_no_number_is_doubtful():
    given = rollout_of(np.ones((3, 2)), obs=np.zeros((4, 2, 2)))
    given = replace(given, executed=given.executed.at[1, 0].set(np.nan))
    got, _ = LABEL(given, judge(), KEY)
    np.testing.assert_array_equal(got.live, [[True, True], [True, True], [False, True]])
    np.testing.assert_allclose(got.reward, [[1, 1], [1 - PENALTY, 1], [0, 1]])


def test_advantages_end_there():
    """No value is expected after the halt: A_1 = r_1 - penalty - V_1, and A_0 = r_0 + gamma V_1 - V_0 + gamma l A_1."""
    got, _ = LABEL(acted([[0.0], [0.9], [0.0]], [[1.0], [2.0], [3.0]]), judge(), KEY)
    values = f32([[10.0], [20.0], [30.0], [40.0]])
    last = 2 - PENALTY - 20
    first = 1 + 0.9 * 20 - 10 + 0.9 * 0.5 * last
    np.testing.assert_allclose(gae(Discounting(0.9, 0.5), got, values), [[first], [last], [0.0]], rtol=1e-6)


@pytest.mark.parametrize(("share", "warned"), [(0.0, False), (0.9, False), (0.91, True), (1.0, True), (None, False)])
def test_what_it_shows(share: float | None, warned: bool):
    seen = None if share is None else Quantiles(share, share, share)
    found = LABEL.findings(judge(), {"disagreement": None, "halted": seen})
    (shown,) = found.diagnostics
    assert (shown.name, shown.value, shown.percent, shown.series) == ("halted", share, True, "improve")
    assert [one.kind for one in found.cautions] == ["nearly all halted"] * warned


def test_it_is_stored_by_its_name():
    written = serial.to_json(LABEL)
    assert "label/halt" in str(written) and serial.from_json(written) == LABEL


def test_a_whole_campaign_with_it(tmp_path: Path):
    """Settings and states go through files; what it has to say reaches whoever watches, and what is kept."""
    method = replace(tiny.method(), label=Halt(multiple=0.5, penalty=30.0))
    seen = []
    result = musbo.run(
        "pointmass", algo="halt", method=method, budget=2, batch_size=100, episodes=2, out=tmp_path / "run",
        observe=seen.append,
    )  # fmt: skip
    assert len(result.returns) == 2 and np.isfinite(np.asarray(result.returns, float)).all()
    reports = [news.metrics for news in seen if isinstance(news, Training) and news.metrics.stage == "improve"]
    assert len(reports) == 2 * method.updates
    for one in reports:
        assert [shown.name for shown in one.findings.diagnostics] == ["halted"]
        assert one.findings.diagnostics[0].value == one.numbers["halted"][1]
    kept = [news.what for news in seen if isinstance(news, Completed) and isinstance(news.what, Trained)]
    assert [{one.name for one in what.findings.diagnostics} >= {"halted", "chosen"} for what in kept] == [True, True]
    again = musbo.resume(tmp_path / "run")  # nothing is left to do, and everything can be read
    assert again.returns == result.returns


def test_on_the_command_line():
    """After `--import` it is a kind of label for every method that has one, with flags for its settings."""
    settings, _ = command.read(["pointmass", "--label", "halt", "--label.penalty", "30"])
    assert isinstance(settings.method, ImaginedTRPO) and settings.method.label == Halt(penalty=30.0)
    assert settings.method == replace(musbo.recipe("musbo", "quick", "pointmass"), label=Halt(penalty=30.0))  # type: ignore[type-var]


def test_the_method_that_it_adds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recipes, "ALGORITHMS", dict(recipes.ALGORITHMS))
    EXAMPLE.add_method("halt", "as the example does", EXAMPLE.halt)
    settings, _ = command.read(["pointmass", "--algo", "halt", "--label.multiple", "2"])
    assert settings.method == replace(EXAMPLE.halt("quick", "pointmass"), label=Halt(multiple=2.0))


def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture):
    """Smaller than it is; rewards are costs, and the policy is much better than random actions."""
    result = EXAMPLE.main(budget=1, episodes=5, out=tmp_path / "run")
    lengths = [float(found) for found in re.findall(r"(\S+) steps,", capsys.readouterr().out)]
    assert len(lengths) == 5 and min(lengths) < 50 and np.isfinite(lengths).all()
    assert result.returns[0] > -35  # about half of what random actions cost


def test_the_how_to_quotes_what_is_there():
    """A block that begins with the name of a file is a part of that file."""
    page = (EXAMPLES.parent / "docs" / "how-to" / "add-your-own-method.md").read_text()
    quotes = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", page, re.DOTALL)
    assert len(quotes) == 5
    for name, text in quotes:
        assert text in (EXAMPLES.parent / name).read_text(), f"{name} has changed: quote it again in the how-to"
