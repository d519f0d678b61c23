"""Formulas of a task beside what a simulator or a log says: silent where they agree, a sentence with numbers else."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.field.dry_run import STEPS, dry_run
from musbo.field.formulas import compare_ends, compare_rewards
from musbo.field.task_from import task_from
from musbo.tasks import paper
from musbo.tasks.builtin import pendulum, pendulum_reward
from musbo.tasks.task import Task

OWN = replace(pendulum, name="own")


def said(formula: Any, observed: Any) -> str:
    found = compare_rewards(OWN, np.asarray(formula, float), np.asarray(observed, float), "the simulator's")
    return found.cautions[0].text if found.cautions else ""


def test_numbers_by_hand():
    observed = np.array([1.0, 2.0, 3.0, 4.0])
    assert said(observed, observed) == ""
    assert "is 0.1 times the simulator's reward (mean 0.25 and 2.5 over 4 steps, correlation 1.00)" in said(
        0.1 * observed, observed
    )
    assert "is 1 times the simulator's reward plus 3 (mean 5.5 and 2.5" in said(observed + 3, observed)
    assert "is -1 times the simulator's reward" in said(-observed, observed)
    # differences 3, -1, 1, -3 against 1, 2, 3, 4: sqrt(20 / 4) over sqrt(30 / 4) is 82 %
    assert "differs from the simulator's reward by 82% of its size" in said([4.0, 1.0, 4.0, 1.0], observed)
    assert "has little to do with" in said([1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0])
    assert said([0.0, 0.0], [0.0, 0.0]) == ""


@given(
    st.lists(st.integers(-1000, 1000), min_size=3, max_size=20),
    st.floats(0.01, 100),
    st.sampled_from([0.1, 0.5, 2.0, -1.0]),
)
def test_a_wrong_factor_is_always_said_and_rounding_never(rewards, scale, factor):
    observed = scale * np.array(rewards)
    noise = 1.0 + 1e-4 * np.cos(np.arange(len(observed)))
    assert said(observed * noise, observed) == ""
    if np.abs(observed).max() > 0:
        assert said(factor * observed, observed) != ""


def test_ends_by_hand():
    ends = np.array([True, False, True, False])
    assert not compare_ends(OWN, ends, ends, "the simulator's").cautions
    early = compare_ends(replace(OWN, terminated=lambda n: n[0] > 0), ends, np.zeros(4, bool), "the simulator's")
    assert "wrong in 2 of 4 steps: in 2 it says over where the simulator's episode went on" in early.cautions[0].text
    never = compare_ends(OWN, np.zeros(4, bool), ends, "the logged")
    assert "terminated=None), but 2 of 4 steps ended the logged episode" in never.cautions[0].text


@pytest.mark.parametrize("factor", [1.0, 0.1])
@pytest.mark.parametrize("task", [OWN, task_from("Pendulum-v1", terminated=None)], ids=["built in", "Gymnasium"])
def test_a_dry_run_compares_with_the_simulator(task: Task, factor: float):
    tried = dry_run(replace(task, reward=lambda o, a, n: factor * pendulum_reward(o, a, n)))
    assert tried.steps == STEPS
    texts = [caution.text for caution in tried.findings.cautions]
    assert texts == [] if factor == 1.0 else ["is 0.1 times the simulator's reward" in text for text in texts] == [True]


@pytest.mark.parametrize("task", [paper.halfcheetah, paper.hopper, paper.walker2d], ids=lambda task: task.name)
def test_formulas_that_read_the_speed_at_the_end_of_a_step_are_no_reason_to_warn(task: Task):
    tried = dry_run(replace(task, name="mine"))
    assert [caution.text for caution in tried.findings.cautions] == []
    assert tried.findings.diagnostics[0].value is not None


def test_a_termination_that_the_simulator_does_not_share():
    task = task_from("Hopper-v5", terminated=lambda n: n[0] > 0.0)
    (caution,) = dry_run(task).findings.cautions
    assert (
        caution.kind == "termination formula" and "it says over where the simulator's episode went on" in caution.text
    )
    (caution,) = dry_run(task_from("Hopper-v5", terminated=None)).findings.cautions
    assert "give a formula, or terminated='learned'" in caution.text


def test_one_line_where_jax_cannot_compile_a_reward():
    def reward(obs: Any, act: Any, next_obs: Any) -> Any:
        if obs[0] > 0:
            return jnp.float32(1.0)
        return jnp.float32(0.0)

    with pytest.raises(Exception, match="jnp.where in place of if .test_formulas.py, line ") as caught:
        dry_run(replace(OWN, reward=reward))
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__  # and no traceback of JAX before it
