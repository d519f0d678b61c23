"""What is gathered of a candidate: pairs, and where it would go, by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.data.dataset import Dataset
from musbo.gate.evidence import at_bounds, changes, gather, outside, spread_of_returns
from musbo.gate.fitted_q import FittedQ
from musbo.gate.real import real_return
from musbo.gate.refit import REFIT, refit, unknown_reward
from musbo.models.dynamics import step
from musbo.models.mlp import member
from tests.gate.test_real import batch
from tests.gate.worlds import aim, chain, dataset, ending, walked

REFITS = replace(REFIT, members=2, hidden=(32,), batch=32, epochs=40)
Q = FittedQ(hidden=(16,), seeds=2, steps=50)
SHORT = replace(chain, episode_steps=8)
KEY = jax.random.PRNGKey(0)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return dataset(walked(SHORT, 30, 8, 1), walked(SHORT, 10, 8, 2))


def test_a_policy_beside_itself(data: Dataset):
    """Everything is paired: not even chance is between them. The same again gives the same."""
    found = gather(SHORT, data, aim(0.5), aim(0.5), KEY, REFITS, Q)
    for pairs in (found.models, found.fitted):
        assert len(pairs) == 2 and all(mine == theirs for mine, theirs in pairs)
    assert gather(SHORT, data, aim(0.5), aim(0.5), KEY, REFITS, Q) == found
    assert found.steps == 8.0 and found.lost == 0.0
    assert found.changes == (("aim", 0.0),) and found.at_bounds == ()


def test_models_tell_two_policies_apart(data: Dataset):
    """The truth: 7 steps at 0.5 instead of at -0.5."""
    found = gather(SHORT, data, aim(0.5), aim(-0.5), KEY, REFITS, Q)
    np.testing.assert_allclose([mine - theirs for mine, theirs in found.models], 7.0, atol=0.7)


def test_without_an_incumbent_the_newest_batch_stands_in(data: Dataset):
    found = gather(SHORT, data, aim(1.0), None, KEY, REFITS, Q)
    beside = gather(SHORT, data, aim(1.0), aim(0.5), KEY, REFITS, Q)
    newest = np.asarray(data.reward)[np.asarray(data.deployment) == 2].reshape(10, 8).sum(axis=1).mean()
    assert real_return(SHORT, data, 2) == pytest.approx(float(newest))
    for pairs, with_policy in ((found.models, beside.models), (found.fitted, beside.fitted)):
        assert [mine for mine, _ in pairs] == [mine for mine, _ in with_policy]
        assert [theirs for _, theirs in pairs] == [real_return(SHORT, data, 2)] * 2
    assert found.at_bounds == (("aim", 1.0),)


def test_refits_know_the_chain_and_differ(data: Dataset):
    judges = refit(SHORT, data, KEY, REFITS)
    said = [step(SHORT, member(judges.dynamics.members, i), judges.dynamics.scaling, *ROW)[0] for i in (0, 1)]
    np.testing.assert_allclose(np.asarray(said), 0.25, atol=0.08)
    assert float(said[0][0]) != float(said[1][0])


ROW = (jnp.full(1, -0.5), jnp.full(1, 0.25))


def test_an_unknown_step_never_pays_where_episodes_can_end():
    made = dataset(batch([3, 3, 3], [1.0, 2.0, 6.0]))
    trained = np.asarray(made.reward)[np.asarray(made.training)]
    assert unknown_reward(chain, made) == pytest.approx(float(trained.mean()))
    assert unknown_reward(ending, made) == 0.0
    assert unknown_reward(ending, dataset(batch([3, 3, 3], [-1.0, -1.0, -1.0]))) == -1.0


def test_the_spread_of_logged_returns_by_hand():
    made = dataset(batch([3, 2], [1.0, 4.0]), batch([1], [1.0]))
    assert spread_of_returns(made) == pytest.approx(np.std([3.0, 8.0, 1.0]))


def test_observations_beyond_the_data_by_hand():
    task = replace(chain, obs_size=2, obs_names=("flow", "level"))
    ends = np.stack([np.linspace(0, 1, 1000), np.linspace(0, 1, 1000)], 1)
    made = walked(chain, 10, 100)
    made = dataset(replace(made, obs=ends.astype(np.float32), next_obs=ends.astype(np.float32)))
    seen = np.full((100, 2), 0.5)
    assert outside(task, made, seen) == ()
    seen[:3, 0], seen[:20, 1], seen[50, 0] = 2.0, 0.999, -0.001
    assert outside(task, made, seen) == (("level", 0.2), ("flow", 0.04))
    assert outside(replace(task, obs_names=()), made, seen)[0] == ("observation 1", 0.2)
    seen[:2, 0] = seen[50, 0] = 0.5  # one of a hundred is as usual
    assert [name for name, _ in outside(task, made, seen)] == ["level"]


TWO = replace(chain, act_size=2, act_low=(-1.0, 0.0), act_high=(1.0, 4.0), act_names=("valve", "pump"))


def test_actions_at_their_bounds_by_hand():
    done = np.tile([0.0, 2.0], (20, 1))
    done[:2, 0], done[:1, 1] = -1.0, 4.0
    assert at_bounds(TWO, done) == (("valve", 0.1),)  # one of twenty is rare
    done[:10, 1] = 4.0
    assert at_bounds(TWO, done) == (("pump", 0.5), ("valve", 0.1))


def test_changes_of_actions_by_hand():
    """Of its range, and within an episode."""
    done, live = np.zeros((2, 4, 2)), np.ones((2, 4), bool)
    done[1] = 2.0  # from one episode to the next nothing moves
    done[0, 1:, 1] = 1.0  # a quarter of the range of the pump
    done[0, 3, 0] = 2.0  # it does not exist
    live[0, 3] = False
    (valve, moved), (pump, by) = changes(TWO, done, live)
    assert (valve, moved, pump) == ("valve", 0.0, "pump")
    assert by == pytest.approx(np.quantile([0.25, 0, 0, 0, 0], 0.99))
    assert changes(TWO, done, np.zeros((2, 4), bool)) == ()
