"""Branches: rows that fit together, ends that are final, and rewards that are lowered by the price of doubt."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.data.scaling import Normaliser
from musbo.learning.branch import branch, foresee, refill
from musbo.learning.imagine import Starts
from musbo.learning.label import Penalty
from musbo.learning.replay import empty
from musbo.models.frame import Frame
from musbo.models.gaussian import GaussianPolicy
from musbo.models.mlp import init_mlp
from musbo.models.stochastic import largest_spread, predict
from tests.learning.small import ACT, OBS, endless
from tests.models.test_stochastic import some_model

KEY = jax.random.PRNGKey(0)
ACTOR = init_mlp(jax.random.PRNGKey(1), (OBS, 6, 2 * ACT), "relu")
FRAME = Frame(Normaliser(jnp.full(OBS, 0.2), jnp.full(OBS, 1.5)), jnp.full(ACT, 0.1), jnp.full(ACT, 0.8))
SHORT = replace(endless, terminated=lambda s: s[0] > 1.0)


def starts(n: int = 40) -> jnp.ndarray:
    return 0.1 * jax.random.normal(jax.random.PRNGKey(2), (n, OBS))


def test_a_branch_holds_together():
    rollout = branch(SHORT, 6, ACTOR, FRAME, some_model(), starts(), KEY)
    obs, live, ended = (np.asarray(part) for part in (rollout.obs, rollout.live, rollout.terminated))
    assert ended.sum() > 0 and live[0].all()
    np.testing.assert_array_equal(obs[0], starts())
    for t in range(5):
        np.testing.assert_array_equal(live[t + 1], live[t] & ~ended[t])  # after an end nothing exists
        alive = live[t + 1]
        assert (obs[t + 1][alive, 0] <= 1.0).all()
    assert (obs[1:][ended[:-1]][:, 0] > 1.0).all()  # the state that ended it is kept
    low, high = np.asarray(FRAME.centre - FRAME.half_range), np.asarray(FRAME.centre + FRAME.half_range)
    assert (np.asarray(rollout.executed) >= low - 1e-6).all() and (np.asarray(rollout.executed) <= high + 1e-6).all()
    assert np.asarray(rollout.executed).std(axis=(0, 1)).min() > 0.05  # samples, not the mean alone


def test_the_price_of_doubt():
    model = some_model()
    rollout = branch(endless, 3, ACTOR, FRAME, model, starts(), KEY)
    lowered, price = Penalty(0.7)(rollout, model, KEY)
    for t in range(3):
        wanted = 0.7 * np.asarray(largest_spread(model, rollout.obs[t], rollout.executed[t]))
        np.testing.assert_allclose(price[t], wanted, rtol=1e-5)
        np.testing.assert_allclose(lowered.reward[t], np.asarray(rollout.reward[t]) - wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="lambda_p"):
        Penalty(-1.0)


def test_rows_as_the_networks_see_them():
    """The slot holds the branch's live steps: from state to next state, with the end where it was."""
    model, obs = some_model(), starts(7)
    replay, price = refill(
        SHORT, 4, 30, Penalty(), ACTOR, FRAME, model, Starts(obs, jnp.asarray(7)), empty(2, 120, OBS, ACT),
        jnp.asarray(1), KEY,
    )  # fmt: skip
    n = int(replay.n[1])
    assert int(replay.n[0]) == 0 and 30 < n < 120 and (np.diff(price) > 0).all() and float(price[0]) > 0
    rows = jax.tree.map(lambda column: np.asarray(column)[120 : 120 + n], replay.rows)
    std, mean = np.asarray(FRAME.normaliser.std), np.asarray(FRAME.normaliser.mean)
    ended = (rows.next_x * std + mean)[:, 0] > 1.0
    np.testing.assert_array_equal(rows.goes_on, 1.0 - ended)
    assert (np.abs(rows.a) <= 1 + 1e-6).all()
    begun = rows.x[:30] * std + mean  # the first step of every branch is a logged state
    for row in begun:
        assert np.abs(np.asarray(obs) - row).sum(axis=1).min() < 1e-4
    following = {tuple(np.round(x, 4)) for x in rows.x[30:]}
    assert following <= {tuple(np.round(x, 4)) for x in rows.next_x[rows.goes_on == 1]}


def test_the_foreseen_course_is_that_of_the_elites_means():
    model, obs = some_model(), starts(4)
    policy = GaussianPolicy(ACTOR, FRAME)
    courses, lengths, rewards = foresee(endless, 3, policy, model, obs)
    assert np.asarray(lengths).tolist() == [3] * 4
    for i in range(4):
        elite = jax.tree.map(lambda leaf, i=i: leaf[int(model.elites[i % 2])], model.members)
        s, learned = obs[i], 0.0
        for t in range(3):
            mean = predict(elite, model.scaling, s, policy(s[None])[0])[0]
            s, learned = s + mean[:OBS], learned + float(mean[OBS])
            np.testing.assert_allclose(courses[i, t], s, rtol=1e-4, atol=1e-4)
        assert float(rewards[i]) == pytest.approx(learned, rel=1e-3, abs=1e-3)


def test_a_step_whose_price_is_no_number_does_not_exist():
    """Nothing is learned from it, and no other step is touched."""
    model = some_model()
    rollout = branch(endless, 3, ACTOR, FRAME, model, starts(), KEY)
    broken = replace(rollout, executed=rollout.executed.at[1, 4].set(jnp.nan))
    lowered, price = Penalty(0.7)(broken, model, KEY)
    wanted = np.asarray(rollout.live).copy()
    wanted[1, 4] = False
    assert np.isnan(price[1, 4]) and wanted.sum() == rollout.live.sum() - 1
    np.testing.assert_array_equal(lowered.live, wanted)
