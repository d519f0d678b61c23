"""What is measured of a batch, against numpy."""

from dataclasses import replace

import numpy as np
import pytest

from musbo.campaign.measure import rewards
from musbo.data.batch import Batch
from musbo.tasks.builtin import pointmass

TASK = replace(pointmass, name="mine")


def random_batch(n: int) -> Batch:
    """One episode of numbers that nothing made."""
    rng = np.random.default_rng(0)
    walk = rng.normal(size=(n + 1, 4)).astype(np.float32)
    last = np.arange(n) == n - 1
    return Batch(
        obs=walk[:-1], act=rng.uniform(-1, 1, (n, 2)).astype(np.float32), reward=np.zeros(n, np.float32),
        next_obs=walk[1:], terminated=~last & last, truncated=last, episode=np.zeros(n, np.int32),
        step=np.arange(n, dtype=np.int32), by=np.zeros(n, np.int8),
    )  # fmt: skip


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_the_formula_beside_the_rewards_on_record(share: float):
    batch = random_batch(30)
    p, a = batch.next_obs[:, :2].astype(float), batch.act.astype(float)
    formula = -(p**2).sum(1) - 0.01 * (a**2).sum(1)
    found = rewards(TASK, replace(batch, reward=(formula / share).astype(np.float32)))
    assert found is not None
    recorded = formula / share
    assert found.recorded == pytest.approx(recorded.mean(), rel=1e-4)
    assert found.formula == pytest.approx(formula.mean(), rel=1e-4)
    apart = np.sqrt(np.mean((formula - recorded) ** 2)) / recorded.std()
    assert found.apart == pytest.approx(apart, abs=1e-4)
    assert (found.apart > 0.5) == (share < 1)


def test_a_learned_reward_and_a_formula_without_a_number_have_nothing_to_compare():
    batch = random_batch(30)
    assert rewards(replace(TASK, reward="learned"), batch) is None
    assert rewards(replace(TASK, reward=lambda s, a, n: s[0] * float("nan")), batch) is None


def test_rewards_that_never_change_have_a_hundredth_of_their_size_as_unit():
    batch = random_batch(30)
    batch = replace(batch, reward=np.full(30, 2.0, np.float32))
    found = rewards(replace(TASK, reward=lambda s, a, n: 0 * s[0] + 2.1), batch)
    assert found is not None and found.apart == pytest.approx(5.0, rel=1e-3)  # 0.1 is five times 0.02
