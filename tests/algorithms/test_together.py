"""Two methods that share every batch: whose rows are whose, who leads, and what each sees of the data."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.algorithms.recipes import recipe
from musbo.algorithms.together import Together, numbered, seen_by, worse
from musbo.core.errors import UserError
from musbo.data.batch import FALLBACK, HUMAN
from musbo.data.dataset import assemble
from musbo.learning.contest import Earned, leader
from musbo.learning.explore import Seeking
from musbo.learning.start import clone_rows
from musbo.models.actor import PairActor, SampleActor, SharedActor, chosen_by, for_lanes, policies_of, uniform
from musbo.models.gaussian import head
from musbo.models.policy import Policy, PolicySettings, init_policy
from musbo.tasks.builtin import pointmass
from tests.algorithms.test_value_gradients import policies
from tests.algorithms.tiny import batch, same
from tests.contract.test_recipes import brief, course, method, random_batch, random_data

KEY = jax.random.PRNGKey(0)


def test_lanes_of_a_pair():
    """Even lanes are the leader's, odd ones the other's; each shares its own lanes out as if it were alone."""
    weak, strong = policies((0.6, 0.1))
    two = SharedActor(weak, strong)
    pair = PairActor(two, SampleActor(strong))
    lanes = np.arange(12)
    # Lanes 0 2 4 6 8 10 are 0 1 2 3 4 5 of the leader's, of which every fourth from 1 on is its challenger's.
    assert chosen_by(pair, lanes).tolist() == [0, 2, 1, 2, 0, 2, 0, 2, 0, 2, 1, 2]
    assert policies_of(pair) == 3 and policies_of(two) == 2 and policies_of(uniform(pointmass)) == 1
    three = SharedActor(weak, strong, weak)  # of four lanes each has one, and the candidate two
    assert chosen_by(three, np.arange(6)).tolist() == [0, 1, 2, 2, 0, 1] and policies_of(three) == 3
    assert chosen_by(PairActor(SampleActor(strong), three), lanes).tolist() == [0, 1, 0, 2, 0, 3, 0, 3, 0, 1, 0, 2]
    turned = PairActor(SampleActor(strong), two)
    assert chosen_by(turned, lanes).tolist() == [0, 1, 0, 2, 0, 1, 0, 1, 0, 1, 0, 2]
    assert chosen_by(pair, np.arange(4, 8)).tolist() == [0, 2, 0, 2]


def test_a_row_of_a_pair_does_what_the_actor_of_its_lane_does():
    still, pushing = policies((0.0, 0.9))
    pair = PairActor(SampleActor(still), SampleActor(pushing))
    obs, act = jnp.zeros((2000, pointmass.obs_size)), jnp.zeros((2000, pointmass.act_size))
    past = obs, act, jnp.zeros(2000, bool)
    done, share = pair.act(obs, KEY, *past)
    assert np.asarray(share).tolist() == [0.0, 1.0] * 1000
    # A mean of atanh(0.9) with a spread of e^-2 before squashing.
    wanted = np.tanh(np.arctanh(0.9) + np.exp(-2) * np.random.default_rng(0).normal(size=100_000)).mean()
    np.testing.assert_allclose(np.asarray(done[0::2]).mean(), 0.0, atol=0.02)
    np.testing.assert_allclose(np.asarray(done[1::2]).mean(), wanted, atol=0.02)
    other = for_lanes(pair, np.full(2000, 3)).act(obs, KEY, *past)[0]
    np.testing.assert_allclose(np.asarray(other).mean(), wanted, atol=0.02)


@pytest.mark.parametrize("leads, numbers", [(0, ((0,), (1, 2))), (1, ((2,), (0, 1)))])
def test_numbers_of_policies(leads: int, numbers: tuple):
    """As the actor of the pair gives them: the leader's come first."""
    assert numbered((1, 2), leads) == numbers


def test_what_one_method_sees():
    newest = replace(random_batch(), by=np.resize(np.asarray([0, 1, 2, FALLBACK], np.int8), len(random_batch())))
    data = assemble([newest], 2 * len(newest), 0)
    n = len(newest)
    seen = np.asarray(seen_by(data, (1, 2)).by)[:n]
    assert seen[:4].tolist() == [HUMAN, 0, 1, FALLBACK]
    first = seen_by(data, (0,))
    policy = init_policy(KEY, pointmass, PolicySettings((8,), "tanh"))
    cloned = clone_rows(first, policy)
    mine = np.flatnonzero(newest.by == 0)
    assert sorted([*cloned.train, *cloned.heldout]) == mine.tolist()  # it clones what it steered itself


@pytest.mark.parametrize("gain, before, leads", [(6.0, 0, 1), (4.0, 0, 0), (4.0, 1, 1), (-6.0, 1, 0)])
def test_a_lead_passes_where_the_difference_is_no_chance(gain: float, before: int, leads: int):
    """The standard errors of 3 and 4 make one of 5."""
    assert leader(Earned(jnp.asarray([10.0, 10.0 + gain]), jnp.asarray([3.0, 4.0])), before) == leads


@pytest.mark.parametrize("better", [0, 1])
def test_what_came_true_decides(better: int):
    """A batch in which one of them stood still and the other pushed away, whatever their models say."""
    whole, state = brief(method("together")), course("together")[1][-1][0]
    weak, strong = policies((0.9, 0.0))
    numbers = numbered((1, 2), state.leads)
    actor = whole.actor(pointmass, state)
    assert isinstance(actor, PairActor)
    both = (strong, weak) if better == state.leads else (weak, strong)
    lead = SampleActor(both[0]) if state.leads == 0 else SharedActor(both[0], both[0])
    other = SharedActor(both[1], both[1]) if state.leads == 0 else SampleActor(both[1])
    newest = batch(PairActor(lead, other), 20, seed=4)
    assert set(newest.by) == {0, 1, 2}
    data = assemble([random_batch(), newest], 2 * len(random_batch()) + len(newest), 0)
    *_, (after, metrics) = whole.train(pointmass, data, state, jax.random.PRNGKey(5))
    assert after.leads == better and after.policy is (after.first, after.second)[better].policy
    shown = {each.name: each.value for each in metrics.findings.diagnostics}
    assert shown["leads"] == better
    earned = [shown["trust_region_earned"], shown["gradients_earned"]]
    returns, owner = newest.returns(), newest.by[newest.starts()]
    wanted = [returns[owner == own[0]].mean() for own in numbers]
    np.testing.assert_allclose(np.asarray(earned, float), wanted, rtol=1e-4)


def test_before_a_shared_batch_the_models_of_the_other_one_decide(monkeypatch: pytest.MonkeyPatch):
    """Whatever `foresee` says of the two policies; each is asked of the models of the other method."""
    whole = brief(method("together"))
    states = course("together")[1]
    last = next(state for state, metrics in reversed(states) if metrics.stage != "done")
    ended = states[-1][0]

    def planted(task: Any, steps: int, policy: Any, model: Any, start: Any) -> tuple[Any, Any, Any]:
        first = isinstance(policy, Policy)
        own, other = (ended.first, ended.second) if first else (ended.second, ended.first)
        assert not same(model, own.dynamics) and same(model, other.dynamics)
        return None, None, jnp.full(len(start), 5.0 if first else 4.0)

    monkeypatch.setattr("musbo.algorithms.together.foresee", planted)
    *_, (after, _) = whole.train(pointmass, random_data(), last, jax.random.PRNGKey(7))
    assert after.leads == 0 and after.policy is after.first.policy


@pytest.mark.parametrize(
    "new, old, expected",
    [
        ([5.0, 5.0, 5.0], [4.0, 4.0, 4.0], False),
        ([3.0, 3.0, 3.0], [4.0, 4.0, 4.0], True),
        ([0.0, 9.0, 2.0], [4.0, 4.0, 4.0], False),  # -0.33 on average, with a standard error of 2.7
        ([np.nan, 9.0, 9.0], [4.0, 4.0, 4.0], True),
        ([5.0, 5.0, 5.0], [np.inf, 4.0, 4.0], False),
    ],
)
def test_what_is_worse(new: list[float], old: list[float], expected: bool):
    assert worse(np.asarray(new), np.asarray(old)) is expected


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("promised, kept", [(3.0, True), (5.0, False)])
def test_the_last_policy_stays_where_the_new_one_is_worse(promised: float, kept: bool, passes: bool, monkeypatch: Any):
    """By the models of the other one, and where the trust region goes on to lead; it also collects.

    Value gradients compare with the best policy so far themselves.
    """
    whole, state = brief(method("together")), course("together")[1][-1][0]
    state = replace(state, leads=0, policy=state.first.policy)
    before, leads = state.policy, int(passes)

    def planted(task: Any, steps: int, policy: Any, model: Any, start: Any) -> tuple[Any, Any, Any]:
        return None, None, jnp.full(len(start), 4.0 if policy is before else promised)

    monkeypatch.setattr("musbo.algorithms.together.foresee", planted)
    monkeypatch.setattr("musbo.algorithms.together.leader", lambda earned, led: leads)
    second = batch(whole.actor(pointmass, state), 20, seed=9)
    data = assemble([random_batch(), second], 2 * len(random_batch()) + len(second), 0)
    *_, (after, metrics) = whole.train(pointmass, data, state, jax.random.PRNGKey(5))
    assert after.leads == leads and after.policy is (after.first, after.second)[leads].policy
    assert (after.policy is before) is (kept and not passes)
    assert (metrics.forecast is None) or after.policy is not before
    obs = second.obs[:20]
    actor = whole.actor(pointmass, after)
    if leads == 1:  # what the runtime compares with is that of the policy that goes out
        shipped = actor.ship(jnp.asarray(obs), after.policy(jnp.asarray(obs)))
        spread = head(after.policy.network, after.policy.frame.see(jnp.asarray(obs)))[1]
        np.testing.assert_array_equal(shipped.golden["log_spread"], spread)
    else:
        assert actor.leader.policy is after.policy


def test_no_oracle():
    parts = recipe("musbo", "quick", pointmass)
    with pytest.raises(UserError, match="oracle"):
        Together(replace(parts, explore=Seeking(zeta="oracle")))
