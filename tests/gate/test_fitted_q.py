"""Fitted Q against a chain that is solved by hand."""

import jax
import numpy as np
import pytest

from musbo.gate.fitted_q import FittedQ, evaluate
from musbo.tasks.task import Task
from tests.gate.worlds import aim, chain, dataset, ending, walked

SMALL = FittedQ(hidden=(32,), seeds=2, steps=600, batch=128, learning_rate=3e-3, tau=0.1, ahead=5.0)
GAMMA = 0.8


def test_how_far_gamma_looks():
    assert SMALL.gamma(chain) == pytest.approx(GAMMA)
    assert FittedQ(ahead=100.0).gamma(chain) == pytest.approx(1 - 1 / 20)  # a third of an episode


@pytest.mark.parametrize(
    ("task", "at", "then"), [(chain, 0.7, 0.7), (chain, -0.4, -0.4), (ending, -0.5, -0.5), (ending, 0.8, 0.0)]
)
def test_what_is_earned_in_the_chain(task: Task, at: float, then: float):
    """(1 - gamma) (s0 + gamma c + gamma^2 c + ...) = (1 - gamma) s0 + gamma c; what ends earns s0 alone."""
    data = dataset(walked(task, 100, 8))
    starts = np.asarray(data.obs)[np.asarray(data.initial), 0]
    found = evaluate(task, data, [aim(at)], SMALL, jax.random.PRNGKey(0))
    assert found.shape == (1, 2)
    np.testing.assert_allclose(found, (1 - GAMMA) * starts.mean() + GAMMA * then, atol=0.08)
    assert found[0, 0] != found[0, 1]  # networks of their own


def test_policies_share_all_that_chance_decides():
    data = dataset(walked(chain, 20, 8))
    few = FittedQ(hidden=(16,), seeds=2, steps=50)
    found = evaluate(chain, data, [aim(0.3), aim(0.3), aim(0.4)], few, jax.random.PRNGKey(1))
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).all()
