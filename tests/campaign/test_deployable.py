"""What one deploys: the policy on any number of rows without compiling again, and the behaviour that explores."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import musbo
from musbo.campaign.deployable import CHUNK, NumpyPolicy, require_sound_actor
from musbo.core.diagnostics import NOTHING
from musbo.core.errors import UserError
from musbo.field import drive
from musbo.learning.explore import Plain, PlainActor, Seeking
from musbo.models.policy import Policy, PolicySettings, init_policy
from musbo.tasks.builtin import pointmass
from tests.stories import tiny

# An action's half-range is 3, and the network is not near zero.
TASK = replace(pointmass, name="wide", act_low=(-2.0, -2.0), act_high=(4.0, 4.0))
ONE = init_policy(jax.random.key(0), TASK, PolicySettings((16,), "tanh"))
POLICY: Policy = replace(ONE, mlp=jax.tree.map(lambda leaf: 3 * leaf, ONE.mlp))


class Echo(eqx.Module):
    """Does again what was done before; without a before, nothing."""

    needs_oracle: bool = eqx.field(static=True, default=False)

    def act(self, obs, key, previous_obs, previous_act, has_previous):
        again = previous_act + 0.1 * (obs - previous_obs)[:, :2]
        return jnp.where(has_previous[:, None], again, jnp.zeros_like(again)), jnp.zeros(len(obs))

    def findings(self, signal, alone):
        return NOTHING


def test_nothing_is_compiled_for_another_number_of_rows():
    policy = NumpyPolicy(POLICY, lambda: PlainActor(POLICY, Plain(0.1)))
    for n in (1, 2):
        policy(np.zeros((n, 4)))
        policy.explore(np.zeros((n, 4)), 0)
    functions: list[Any] = [drive._call, drive._act]
    before = [function._cache_size() for function in functions]
    for n in (3, 7, CHUNK - 1, CHUNK, CHUNK + 1, 1000):
        assert policy(np.zeros((n, 4))).shape == (n, 2)
        assert policy.explore(np.zeros((n, 4)), 0).shape == (n, 2)
    assert policy(np.zeros((0, 4))).shape == (0, 2)
    assert policy(np.zeros(4)).shape == (2,)
    assert [function._cache_size() for function in functions] == before


@given(st.integers(0, 3 * CHUNK), st.integers(0, 2**32 - 1))
def test_rows_are_what_they_are_alone(n: int, seed: int):
    rows = np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)
    wanted = np.asarray(jax.vmap(POLICY.mean)(jnp.asarray(rows))) if n else np.zeros((0, 2))
    np.testing.assert_allclose(NumpyPolicy(POLICY)(rows), wanted, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(value):
    policy = NumpyPolicy(POLICY, Echo)
    rows = np.zeros((3, 4))
    rows[2, 1] = value
    for call in (policy, partial(policy.explore, rng=0)):
        with pytest.raises(musbo.UserError, match="observation 1 is not a finite number"):
            call(rows)
        with pytest.raises(musbo.UserError, match="observation 1 is not a finite number"):
            call(rows[2])


def test_exploring_is_the_policy_with_the_noise_of_its_behaviour():
    policy = NumpyPolicy(POLICY, lambda: PlainActor(POLICY, Plain(0.05)))
    obs = np.array([0.1, -0.2, 0.3, 0.0])
    acts = policy.explore(np.tile(obs, (4000, 1)), np.random.default_rng(0))
    np.testing.assert_allclose(acts.mean(0), policy(obs), atol=0.01)
    np.testing.assert_allclose(acts.std(0), 0.05 * 3.0, rtol=0.05)  # of the half-range
    assert len(np.unique(acts[:, 0])) > 3990  # every row, in every chunk, has noise of its own
    np.testing.assert_allclose(np.corrcoef(acts[:-1, 0], acts[1:, 0])[0, 1], 0.0, atol=0.05)


def test_a_seed_is_the_same_noise_and_a_generator_goes_on():
    policy = NumpyPolicy(POLICY, lambda: PlainActor(POLICY, Plain(0.05)))
    obs, rng = np.zeros((3, 4)), np.random.default_rng(7)
    first, second = policy.explore(obs, rng), policy.explore(obs, rng)
    np.testing.assert_array_equal(policy.explore(obs, 7), first)
    assert (first != second).all()


def test_a_behaviour_may_look_back():
    policy = NumpyPolicy(POLICY, Echo)
    obs, before, did = np.full((2, 4), 2.0), np.ones((2, 4)), np.array([[0.5, -0.5], [1.0, 0.0]])
    np.testing.assert_array_equal(policy.explore(obs, 0), np.zeros((2, 2)))
    np.testing.assert_allclose(policy.explore(obs, 0, (before, did)), did + 0.1, atol=1e-6)
    np.testing.assert_allclose(policy.explore(obs[0], 0, (before[0], did[0])), did[0] + 0.1, atol=1e-6)
    with pytest.raises(musbo.UserError, match="as many as the observations"):
        policy.explore(obs, 0, (before[:1], did[:1]))
    with pytest.raises(musbo.UserError, match="one previous action of 2 numbers"):
        policy.explore(obs, 0, (before, before))


def test_who_cannot_explore_says_why():
    with pytest.raises(musbo.UserError, match="load it from the directory of its run"):
        NumpyPolicy(POLICY).explore(np.zeros(4), 0)
    with pytest.raises(musbo.UserError, match="in a copy of the simulator first"):
        NumpyPolicy(POLICY, lambda: Echo(needs_oracle=True)).explore(np.zeros(4), 0)


def test_a_run_explores_as_it_would_collect(tmp_path):
    method = replace(tiny.method(), explore=Seeking(sigma=0.0, zeta_scale="raw", zeta_max=1.0))
    done = musbo.run("pointmass", budget=2, batch_size=100, episodes=2, method=method, out=tmp_path / "run")
    obs = np.random.default_rng(0).uniform(-1, 1, (500, 4))
    acts, rest = done.policy.explore(obs, 3), done.policy(obs)
    assert (np.abs(acts) <= 1).all() and (acts != rest).any(axis=1).mean() > 0.9
    np.testing.assert_array_equal(musbo.load_policy(tmp_path / "run").explore(obs, 3), acts)
    with pytest.raises(musbo.UserError, match="for its last policy only, that of deployment 2"):
        musbo.load_policy(tmp_path / "run", deployment=1).explore(obs, 3)
    with pytest.raises(musbo.UserError, match="load it from the directory"):
        musbo.load_policy(tmp_path / "run" / "policy.safetensors").explore(obs, 3)


def test_what_collects_must_fit_together():
    """Of a state whose digests are right and whose networks are none: a sentence, before anything is exported."""
    actor = PlainActor(POLICY, Plain())
    require_sound_actor(actor, 4, 2)
    narrow = eqx.tree_at(lambda one: one.policy.mlp.weights[0], actor, jnp.zeros((3, 16)))
    no_bias = eqx.tree_at(lambda one: one.policy.mlp.biases[-1], actor, {})
    no_range = eqx.tree_at(lambda one: one.policy.half_range, actor, {})
    for each in (narrow, no_bias, no_range):
        with pytest.raises(UserError, match="what collects do not fit together"):
            require_sound_actor(each, 4, 2)
