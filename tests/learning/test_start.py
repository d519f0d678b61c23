"""Where policy optimisation starts: behaviour cloning recovers a policy that is known."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.data.batch import FALLBACK, HUMAN
from musbo.data.dataset import Dataset, assemble
from musbo.data.scaling import Normaliser
from musbo.learning import start
from musbo.learning.fit import Epoch
from musbo.learning.start import Clone, Continue, Start
from musbo.models.policy import Policy, PolicySettings, init_policy, renormalise
from musbo.tasks.task import Task
from tests.learning.small import batch_of, f32, reward
from tests.models.test_mlp import random_mlp

TASK = Task("wide", 3, 2, (-1.0, 0.0), (3.0, 0.5), 10, reward)
SETTINGS = PolicySettings(hidden=(16,), activation="tanh")
QUICKLY = Clone(learning_rate=5e-3, batch=64)
KEY = jax.random.PRNGKey(0)


def known(seed: int) -> Policy:
    policy = init_policy(KEY, TASK, SETTINGS)
    mlp = random_mlp(np.random.default_rng(seed), "tanh", (3, 4, 2))
    return replace(policy, mlp=mlp, normaliser=Normaliser(f32([5.0, 0.0, 0.0]), f32([2.0, 1.0, 1.0])))


def behaved(policy: Policy, seed: int, n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Observations, and the executed actions of the policy with noise of 0.1 of the half-range."""
    rng = np.random.default_rng(seed)
    obs = np.array([5.0, 0.0, 0.0]) + np.array([2.0, 1.0, 1.0]) * rng.normal(size=(n, 3))
    act = np.asarray(policy(f32(obs))) + 0.1 * TASK.half_range * rng.normal(size=(n, 2))
    return obs, np.clip(act, TASK.low, TASK.high)


def data_of(*policies: Policy) -> Dataset:
    """One deployment of each, in arrays that have room for one more."""
    batches = []
    for seed, policy in enumerate(policies):
        obs, act = behaved(policy, seed)
        batches.append(batch_of(obs, act, obs, 20))
    return assemble(batches, 2000 * (len(policies) + 1), seed=0)


def distance(one: Policy, other: Policy) -> np.ndarray:
    """Root mean square difference of the two means, in half-ranges."""
    obs, _ = behaved(other, seed=99)
    return np.sqrt(np.mean(((np.asarray(one(f32(obs))) - np.asarray(other(f32(obs)))) / TASK.half_range) ** 2, axis=0))


def cloned_from(data: Dataset, begin: Policy) -> tuple[Policy, list[Epoch]]:
    *states, (work, last) = QUICKLY.begin(data, begin, None, KEY)
    return QUICKLY.policy(begin, work), [*(epoch for _, epoch in states), last]


def test_a_known_policy_is_recovered():
    """To a fraction of the noise that it was seen through; only the newest batch counts."""
    earlier, newest = known(1), known(2)
    data = data_of(earlier, newest)
    begin = renormalise(init_policy(KEY, TASK, SETTINGS), known(0).normaliser)
    policy, epochs = cloned_from(data, begin)
    assert distance(begin, newest).min() > 0.2
    assert distance(policy, newest).max() < 0.05
    assert distance(policy, earlier).min() > 0.2
    assert len(epochs) < QUICKLY.epochs  # stopped by the held-out part
    np.testing.assert_array_equal(policy.log_sigma, begin.log_sigma)  # cloning is of the mean


@pytest.mark.parametrize("who", [FALLBACK, HUMAN])
def test_what_others_steered_is_not_cloned(who: int):
    """Half of the newest batch is a controller of the site: with its number it is left out, without it cloned."""
    site, own = known(1), known(2)
    steered = np.arange(2000) % 2 == 1
    obs, act = behaved(own, 0)
    act[steered] = np.asarray(site(f32(obs)))[steered]
    batch = batch_of(obs, act, obs, 20)
    begin = renormalise(init_policy(KEY, TASK, SETTINGS), known(0).normaliser)
    apart = {}
    for by in (0, who):
        marked = replace(batch, by=np.where(steered, by, 0).astype(np.int8))
        data = assemble([marked], 4000, seed=0)
        chosen = start.clone_rows(data, begin)
        assert len(chosen.train) + len(chosen.heldout) == (2000 if by == 0 else 1000)
        apart[by] = distance(cloned_from(data, begin)[0], own).max()
    assert apart[who] < 0.07 < 0.15 < apart[0]
    nobody = assemble([replace(batch, by=np.full(2000, who, np.int8))], 4000, seed=0)
    assert list(QUICKLY.begin(nobody, begin, None, KEY)) == [] and QUICKLY.policy(begin, None) is begin


def test_cloning_begins_from_the_policy_that_collected():
    """Which is already right, and stays so."""
    newest = known(2)
    data = data_of(newest)
    policy, epochs = cloned_from(data, newest)
    assert distance(policy, newest).max() < 0.03
    assert epochs[0].error < 2 * 0.1**2 * 1.1


def test_rows_are_those_of_the_newest_batch():
    data = data_of(known(1), known(2))
    rows = start.clone_rows(data, known(0))
    newest = np.asarray(data.deployment) == 2
    heldout = np.asarray(data.heldout)
    np.testing.assert_array_equal(rows.train, np.flatnonzero(newest & ~heldout))
    np.testing.assert_array_equal(rows.heldout, np.flatnonzero(newest & heldout))
    assert len(rows.heldout) == 300
    assert np.abs(np.asarray(rows.y)[rows.train]).max() <= 1 + 1e-6  # in half-ranges around the centre
    np.testing.assert_allclose(np.asarray(rows.x)[rows.train].std(axis=0), 1, atol=0.1)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch": 0}, {"patience": 0}, {"learning_rate": 0.0}])
def test_impossible_settings(wrong: dict):
    """Refused when they are made, not after the models were fitted."""
    with pytest.raises(UserError):
        Clone(**wrong)


def test_settings_of_the_paper():
    """Appendix F: 5e-4, 3 checks; BREMEN: minibatches of 256. No weight decay."""
    fit = Clone().as_fit()
    assert (fit.learning_rate, fit.batch, fit.patience, fit.l2, fit.members) == (5e-4, 256, 3, 0.0, 1)


# Starts as values


def test_continuing_takes_the_policy_as_it_is():
    policy, begin = known(1), Continue()
    assert isinstance(begin, Start) and begin.stages() == ()
    assert list(begin.begin(data_of(known(2)), policy, None, KEY)) == []
    assert begin.policy(policy, None) is policy


def test_cloning_announces_its_stage():
    assert isinstance(QUICKLY, Start)
    assert [stage.name for stage in QUICKLY.stages()] == [start.STAGE]


def test_cloning_goes_on_from_its_work():
    """To the same bits; without any work the policy is what it was."""
    data, policy = data_of(known(2)), init_policy(KEY, TASK, SETTINGS)
    few = replace(QUICKLY, epochs=3)
    states = [work for work, _ in few.begin(data, policy, None, KEY)]
    assert len(states) == 3
    again = [work for work, _ in few.begin(data, policy, states[0], KEY)]
    assert len(again) == 2
    jax.tree.map(np.testing.assert_array_equal, again[-1], states[-1])
    assert few.policy(policy, None) is policy
    np.testing.assert_array_equal(few.policy(policy, states[-1]).mlp.weights[0], states[-1].best.weights[0][0])
    assert list(few.begin(data, policy, states[-1], KEY)) == []
