"""Learned rewards and terminations beside what was recorded: numbers by hand, from networks that are made."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.data.dataset import Dataset, assemble
from musbo.data.scaling import measure
from musbo.learning import learned
from musbo.models.dynamics import Dynamics
from musbo.models.mlp import MLP
from musbo.models.probabilistic import Probabilistic
from musbo.models.stochastic import Stochastic
from musbo.tasks.history import stacked
from musbo.tasks.task import Task
from tests.learning.small import batch_of

TASK = Task("t", 2, 1, (-1.0,), (1.0,), 10, reward="learned", terminated="learned")


def some_data(n: int = 2600) -> Dataset:
    """The reward is the first observation; every fifth step ends its episode."""
    random = np.random.default_rng(0)
    obs, next_obs = random.normal(size=(2, n, 2))
    batch = batch_of(obs, random.uniform(-1, 1, (n, 1)), next_obs, episode_steps=5)
    last = np.append(batch.episode[1:] != batch.episode[:-1], True)
    return assemble([replace(batch, reward=batch.obs[:, 0], terminated=last, truncated=np.zeros_like(last))], n, 0)


def constant(outputs: list[list[float]]) -> MLP:
    """Members that say the same whatever they see."""
    biases = jnp.asarray(outputs)
    return MLP((jnp.zeros((len(outputs), 3, biases.shape[1])),), (biases,), "relu")


def numbers(found: Any) -> dict[str, float | None]:
    return {each.name: each.value for each in found.diagnostics}


def test_by_hand_with_members_in_turn():
    """Three members, of which the second never ends: every third held-out step is asked of it."""
    data = some_data()
    scaling = measure(data, learn_reward=True)
    model = Dynamics(constant([[0, 0, 1.0, 5.0], [0, 0, 0.0, -5.0], [0, 0, 0.5, 5.0]]), scaling)
    found = learned.agreement(TASK, data, partial(learned.by_dynamics, TASK, model), reward=True)
    held = np.asarray(data.heldout)
    recorded, over = np.asarray(data.reward)[held], np.asarray(data.terminated)[held]
    assert len(recorded) < learned.BLOCK
    which = np.arange(len(recorded)) % 3
    paid = float(scaling.target_mean[-1]) + float(scaling.target_std[-1]) * np.array([1.0, 0.0, 0.5])[which]
    said = numbers(found)
    apart = np.sqrt(np.mean((paid - recorded) ** 2)) / recorded.std()
    assert said["learned_reward_apart"] == pytest.approx(apart, rel=1e-4) and apart > learned.FAR
    assert said["learned_reward_correlation"] == pytest.approx(np.corrcoef(paid, recorded)[0, 1], abs=1e-4)
    assert said["learned_ends_seen"] == pytest.approx(np.mean(which[over] != 1))
    assert said["learned_ends_early"] == pytest.approx(np.mean(which[~over] != 1))
    assert [each.kind for each in found.cautions] == ["learned reward"] and f"{apart:.0%}" in found.cautions[0].text


def test_a_perfect_model_has_nothing_to_say():
    """The reward is the first observation, which a linear network can give back; blocks change nothing."""
    data = some_data(12_000)
    assert int(data.heldout.sum()) > learned.BLOCK
    scaling = measure(data, learn_reward=True)
    weight = np.zeros((1, 3, 4), np.float32)
    weight[0, 0, 2] = float(scaling.obs_std[0] / scaling.target_std[-1])
    shift = float((scaling.obs_mean[0] - scaling.target_mean[-1]) / scaling.target_std[-1])
    network = MLP((jnp.asarray(weight),), (jnp.asarray([[0, 0, shift, -9.0]]),), "relu")
    only_reward = replace(TASK, terminated=None)
    found = learned.agreement(
        only_reward, data, partial(learned.by_dynamics, only_reward, Dynamics(network, scaling)), reward=True
    )
    said = numbers(found)
    assert said["learned_reward_apart"] == pytest.approx(0, abs=1e-5) and not found.cautions
    assert said["learned_reward_correlation"] == pytest.approx(1) and "learned_ends_seen" not in said


def test_terminations_that_are_missed_are_said():
    given = replace(TASK, reward=lambda s, a, n: n[0])
    data = some_data()
    model = Dynamics(constant([[0, 0, -5.0]]), measure(data, learn_reward=False))
    found = learned.agreement(given, data, partial(learned.by_dynamics, given, model), reward=False)
    assert numbers(found) == {"learned_ends_seen": 0.0, "learned_ends_early": 0.0}
    assert "the models foresee 0%" in found.cautions[0].text


@pytest.mark.parametrize("history", [0, 2])
def test_a_stochastic_model_says_its_means(history: int):
    raw = replace(TASK, history=history)
    task, data = stacked(raw), some_data()
    if history:
        wide = jnp.zeros((data.capacity, task.obs_size))
        data = replace(data, obs=wide.at[:, :2].set(data.obs), next_obs=wide)
    scaling = measure(data, True, task.predicted)
    outputs = jnp.asarray([[0, 0, 2.0, 0.9, 0, 0, 0, 0], [0, 0, -2.0, 0.1, 0, 0, 0, 0]])
    mlp = MLP((jnp.zeros((2, task.obs_size + 1, 8)),), (outputs,), "relu")
    bounds = jnp.ones((2, 4))
    model = Stochastic(Probabilistic(mlp, bounds, -bounds), scaling, jnp.asarray([1]))  # the other is no elite
    paid, over = learned.by_stochastic(task, model, data.obs[:5], data.act[:5])
    np.testing.assert_allclose(
        paid, float(scaling.target_mean[-1] - 2 * scaling.target_std[-1]) * np.ones(5), rtol=1e-5
    )
    assert not np.asarray(over).any() and jax.tree.leaves(paid)[0].shape == (5,)
