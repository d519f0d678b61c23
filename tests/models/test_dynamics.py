"""M: one imagined step against NumPy, and members that predict the same under another scaling."""

from functools import partial

import jax
import numpy as np
import pytest

from musbo.data.scaling import Scaling
from musbo.models import dynamics
from musbo.models.mlp import MLP, member
from musbo.tasks.task import Task
from tests.learning.small import beyond_one, f32, reward
from tests.models.test_mlp import forward, random_mlp

OBS, ACT, N = 2, 1, 4
TASKS = {
    "given": Task("given", OBS, ACT, (-1.0,), (1.0,), 10, reward, beyond_one),
    "endless": Task("endless", OBS, ACT, (-1.0,), (1.0,), 10, reward),
    "learned": Task("learned", OBS, ACT, (-1.0,), (1.0,), 10, "learned", "learned"),
    "learned reward": Task("learned reward", OBS, ACT, (-1.0,), (1.0,), 10, "learned", beyond_one),
}


def random_scaling(rng: np.random.Generator, target: int, obs: int = OBS, act: int = ACT) -> Scaling:
    sizes = (obs, act, target)
    moments = [f32(draw) for n in sizes for draw in (rng.normal(size=n), rng.uniform(0.3, 3, n))]
    return Scaling(*[*moments, f32(np.full(obs, -1e6)), f32(np.full(obs, 1e6))])


def members_of(task: Task) -> MLP:
    """Members whose biases are not zero either."""
    members = dynamics.init_members(jax.random.PRNGKey(0), task, (5,), "silu", N)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: leaf + f32(rng.normal(size=leaf.shape)), members)


@pytest.mark.parametrize("name", TASKS)
def test_a_step_against_numpy(name: str):
    task = TASKS[name]
    rng = np.random.default_rng(0)
    scaling = random_scaling(rng, dynamics.target_size(task))
    outputs = dynamics.target_size(task) + (task.terminated == "learned")
    network = random_mlp(rng, "relu", (OBS + ACT, 5, outputs))
    obs, act = rng.normal(size=(40, OBS)), rng.uniform(-1, 1, (40, ACT))
    statistics = jax.tree.map(np.asarray, scaling)
    x = np.hstack([(obs - statistics.obs_mean) / statistics.obs_std, (act - statistics.act_mean) / statistics.act_std])
    out = forward(network, x)
    wanted = obs + statistics.target_mean[:OBS] + statistics.target_std[:OBS] * out[:, :OBS]
    next_obs, got, terminated = jax.vmap(partial(dynamics.step, task, network, scaling))(f32(obs), f32(act))
    np.testing.assert_allclose(next_obs, wanted, rtol=1e-4, atol=1e-5)

    known = wanted[:, 0] - 0.1 * act[:, 0] ** 2
    learned = statistics.target_mean[-1] + statistics.target_std[-1] * out[:, min(OBS, out.shape[1] - 1)]
    np.testing.assert_allclose(got, learned if task.reward == "learned" else known, rtol=1e-3, atol=1e-4)

    if task.terminated == "learned":
        ends = 1 / (1 + np.exp(-out[:, -1])) > 0.5
    else:
        ends = wanted[:, 0] > 1 if task.terminated else np.zeros(40, bool)
    np.testing.assert_array_equal(terminated, ends)
    assert name == "endless" or 0 < ends.sum() < 40


@pytest.mark.parametrize("name", TASKS)
def test_another_scaling_same_predictions(name: str):
    """Next state, learned reward and the logit of a learned termination."""
    task = TASKS[name]
    rng = np.random.default_rng(0)
    old, new = (random_scaling(rng, dynamics.target_size(task)) for _ in range(2))
    before = members_of(task)
    after = dynamics.rescale(before, old, new)
    obs, act = f32(rng.normal(size=(20, OBS))), f32(rng.uniform(-1, 1, (20, ACT)))
    for i in range(N):
        one, two = (
            jax.vmap(partial(dynamics.step, task, member(m, i), s))(obs, act) for m, s in ((before, old), (after, new))
        )
        np.testing.assert_allclose(two[0], one[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(two[1], one[1], rtol=1e-4, atol=1e-4)
        if task.terminated == "learned":
            one, two = (
                jax.vmap(member(m, i))(jax.vmap(partial(dynamics.inputs, s))(obs, act))[:, -1]
                for m, s in ((before, old), (after, new))
            )
            np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-4)


def test_sizes():
    assert [dynamics.target_size(TASKS[name]) for name in TASKS] == [2, 2, 3, 3]
    assert members_of(TASKS["learned"]).biases[-1].shape == (N, 4)
    first, second = (member(members_of(TASKS["given"]), i).weights[0] for i in range(2))
    assert not np.allclose(first, second)
