"""The label of examples/morel_halt.py against trajectories that are ended by hand, and the quotes of its how-to.

Members disagree by |a| here (`acting_labeler`), so that the actions of a rollout say where it is doubtful.
"""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import musbo
from musbo.core import serial
from musbo.learning.advantage import Discounting, gae
from musbo.learning.imagine import Rollout
from musbo.models.labeler import Labeler
from tests.learning.small import f32, rollout_of
from tests.models.test_actor import acting_labeler
from tests.test_examples import EXAMPLES, load

Halt = load("morel_halt").Halt
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
    np.testing.assert_allclose(seen, apart, atol=1e-6)
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


def test_training_with_it():
    """As a program of its own: these tests check types at run time, and there the kinds of labels are a closed list."""
    program = [sys.executable, str(EXAMPLES / "morel_halt.py")]
    environment = os.environ | {"PYTHONPATH": str(Path(musbo.__file__).parents[1])}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    *updates, last = done.stdout.splitlines()
    lengths = [float(re.findall(r"of (\S+) steps", line)[0]) for line in updates]
    before, after = (float(number) for number in re.findall(r"(\S+) with", last))
    assert len(lengths) == 5 and min(lengths) < 50 and np.isfinite([*lengths, before, after]).all()
    assert after > before / 2  # costs


def test_a_class_of_another_package_is_not_written():
    with pytest.raises(musbo.UserError, match="cannot write .*Halt.*only classes of musbo and optax can be read back"):
        serial.to_json(Halt())


def test_the_how_to_quotes_what_is_there():
    """A block that begins with the name of a file is a part of that file."""
    page = (EXAMPLES.parent / "docs" / "how-to" / "add-your-own-method.md").read_text()
    quotes = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", page, re.DOTALL)
    assert len(quotes) == 4
    for name, text in quotes:
        assert text in (EXAMPLES.parent / name).read_text(), f"{name} has changed: quote it again in the how-to"
