"""Actors: eq. 16 and the readings of zeta, from members whose predictions are known by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.models.actor import Plain, PlainActor, Seeking, SeekingActor, UniformActor, make_actor
from musbo.models.labeler import Labeler, Levels
from musbo.models.policy import Policy
from musbo.models.probabilistic import Probabilistic
from tests.learning.small import OBS, f32, linear, linear_policy, plain_scaling, shifting_labeler, stack

B = 20_000
KEY = jax.random.PRNGKey(0)

# Members that predict s + shift: the pairs are 0.3, 0.5 and 0.4 apart, in L1.
SHIFTS = [[0.0, 0.0], [0.1, -0.2], [0.3, 0.2]]
LEVELS = (9.0, 2.0, 4.0, 9.0)  # spread_p95 = 2, error_p95 = 4


def half_as_wide(policy: Policy) -> Policy:
    """Bounds 0 and 1 in place of -1 and 1."""
    return replace(policy, centre=f32([0.5]), half_range=f32([0.5]))


def seeking(**settings) -> SeekingActor:
    actor = make_actor(
        Seeking(**settings), linear_policy([[1.0], [0.0]], [0.0]), shifting_labeler(SHIFTS, levels=LEVELS)
    )
    assert isinstance(actor, SeekingActor)
    return actor


def act(actor, obs: np.ndarray, previous=None, n_act: int = 1) -> tuple[np.ndarray, np.ndarray]:
    b = len(obs)
    before, acted, has = previous or (jnp.zeros((b, OBS)), jnp.zeros((b, n_act)), jnp.zeros(b, bool))
    got, zeta = actor.act(f32(obs), KEY, before, acted, has)
    return np.asarray(got), np.asarray(zeta)


def test_uniform():
    actor = UniformActor(f32([-1.0, 0.0]), f32([3.0, 0.5]))
    got, zeta = act(actor, np.zeros((B, OBS)), n_act=2)
    assert got.dtype == np.float32 and not zeta.any()
    assert (got >= [-1.0, 0.0]).all() and (got <= [3.0, 0.5]).all()
    np.testing.assert_allclose(got.mean(axis=0), [1.0, 0.25], atol=0.03)
    np.testing.assert_allclose(got.std(axis=0), np.array([4.0, 0.5]) / np.sqrt(12), rtol=0.02)


@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.1])
def test_plain(sigma: float):
    """The noise is a share of the half-range, around the squashed mean."""
    policy = half_as_wide(linear_policy([[1.0], [0.0]], [0.0]))
    got, zeta = act(PlainActor(policy, Plain(sigma)), np.full((B, OBS), 0.3))
    assert got.mean() == pytest.approx(0.5 + 0.5 * np.tanh(0.3), abs=2e-3)
    assert got.std() == pytest.approx(0.5 * sigma, rel=0.02, abs=1e-6)
    assert not zeta.any()


def test_noise_is_cut_at_the_bounds():
    policy = half_as_wide(linear_policy([[1.0], [0.0]], [0.0]))
    got, _ = act(PlainActor(policy, Plain(3.0)), np.zeros((B, OBS)))
    assert got.min() == 0.0 and got.max() == 1.0
    got, _ = act(seeking(zeta_scale="raw", zeta_max=None, sigma=3.0), np.zeros((B, OBS)))
    assert got.min() == -1.0 and got.max() == 1.0


def test_disagreement_is_the_largest_over_pairs():
    """L1 between members: 0.3, 0.5 and |0.2| + |0.4| = 0.6."""
    _, zeta = act(seeking(zeta_scale="raw", zeta_max=None), np.ones((3, OBS)))
    np.testing.assert_allclose(zeta, 0.6, rtol=1e-5)


def test_lagged_is_the_largest_error_on_the_last_step():
    """From (1, 1) to (1.2, 1.1): the members are wrong by 0.3, 0.1 + 0.3 and 0.1 + 0.1."""
    actor = seeking(zeta="lagged", zeta_scale="raw", zeta_max=None)
    previous = (jnp.ones((2, OBS)), jnp.zeros((2, 1)), jnp.asarray([True, False]))
    _, zeta = act(actor, np.array([[1.2, 1.1], [1.2, 1.1]]), previous)
    np.testing.assert_allclose(zeta, [0.4, 0.0], rtol=1e-5)  # nothing to look back at: no zeta


def test_oracle_is_the_largest_error_now():
    actor = seeking(zeta="oracle", zeta_scale="raw", zeta_max=None)
    assert actor.needs_oracle and not seeking().needs_oracle and not seeking(zeta="lagged").needs_oracle
    obs = jnp.ones((B, OBS))
    tentative = actor.tentative(obs, KEY)
    assert np.std(tentative) == pytest.approx(0.01, rel=0.02)
    assert np.mean(tentative) == pytest.approx(np.tanh(1.0), abs=1e-3)
    got, zeta = actor.act_oracle(obs, tentative, f32(np.tile([1.2, 1.1], (B, 1))), KEY)
    np.testing.assert_allclose(zeta, 0.4, rtol=1e-5)
    assert np.abs(got).max() == 1.0


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"zeta_scale": "raw", "zeta_max": None}, 0.6),
        ({"zeta_scale": "raw", "zeta_max": 0.3}, 0.3),  # capped
        ({"zeta_scale": "raw", "zeta_max": 0.7}, 0.6),
        ({"zeta_scale": "relative", "zeta_max": 0.3}, 0.3 * 0.6 / 2.0),
        ({"zeta_scale": "relative", "zeta_max": 0.3, "zeta": "oracle"}, 0.3 * 0.4 / 4.0),
    ],
)
def test_scales_of_zeta(settings: dict, wanted: float):
    actor = seeking(**settings)
    obs = jnp.ones((1, OBS))
    if actor.needs_oracle:
        _, zeta = actor.act_oracle(obs, jnp.zeros((1, 1)), f32([[1.2, 1.1]]), KEY)
    else:
        _, zeta = act(actor, np.asarray(obs))
    assert float(zeta[0]) == pytest.approx(wanted, rel=1e-5)


def test_relative_zeta_is_capped():
    actor = seeking(zeta_max=0.2)
    ordinary = replace(actor.labeler, levels=Levels(*(f32(0.5) for _ in range(4))))
    _, zeta = act(replace(actor, labeler=ordinary), np.ones((1, OBS)))
    assert float(zeta[0]) == pytest.approx(0.2)


def test_pooled_noise_has_the_same_mean_size_and_seeks_nothing():
    """Members that disagree more in one lane than in another: alone each lane has its own zeta, pooled the mean."""
    bounds = f32([0.5, 0.5]), f32([-10.0, -10.0])
    nets = stack(*(Probabilistic(linear(np.outer([g, 0, 0], [1, 0, 0, 0]), [0.0] * 4), *bounds) for g in (0.0, 1.0)))
    judge = Labeler(nets, plain_scaling(), shifting_labeler(SHIFTS, levels=LEVELS).levels)
    policy = linear_policy([[0.0], [0.0]], [0.0])
    obs = np.linspace(0.0, 3.0, B)[:, None] * np.ones((1, OBS))
    alone, pooled = (SeekingActor(policy, judge, Seeking(sigma=0.0, pooled=flag)) for flag in (False, True))
    _, own = act(alone, obs)
    taken, shared = act(pooled, obs)
    assert own.std() > 0.05
    np.testing.assert_allclose(shared, own.mean(), rtol=1e-5)
    assert taken[: B // 2].std() == pytest.approx(own.mean(), rel=0.03)  # where alone there would be less
    assert taken[B // 2 :].std() == pytest.approx(own.mean(), rel=0.03)


def test_both_noises_add_up():
    """Variance sigma^2 + zeta^2, in units of the half-range; the two are independent."""
    actor = seeking(sigma=0.05, zeta_max=0.3)  # zeta = 0.09
    for policy, half in ((actor.policy, 1.0), (half_as_wide(actor.policy), 0.5)):
        got, _ = act(replace(actor, policy=policy), np.zeros((B, OBS)))
        assert got.std() == pytest.approx(half * np.hypot(0.05, 0.09), rel=0.02)
        assert got.mean() == pytest.approx(float(policy.centre[0]), abs=3e-3)


def acting_labeler() -> Labeler:
    """Two members that differ by |a| in the first state: one adds the action, the other does not."""

    def one(slope: float) -> Probabilistic:
        weight = np.zeros((OBS + 1, 2 * OBS))
        weight[OBS, 0] = slope
        return Probabilistic(linear(weight, np.zeros(2 * OBS)), f32([9.0, 9.0]), f32([-9.0, -9.0]))

    return Labeler(stack(one(0.0), one(1.0)), plain_scaling(), Levels(*(f32(1.0) for _ in range(4))))


def test_zeta_looks_at_the_tentative_action():
    """Mean action 0: members disagree by |eps_const|, so zeta is the absolute value of a normal number."""
    actor = SeekingActor(linear_policy([[0.0], [0.0]], [0.0]), acting_labeler(), Seeking(0.1, zeta_scale="raw"))
    _, zeta = act(actor, np.zeros((B, OBS)))
    assert zeta.mean() == pytest.approx(0.1 * np.sqrt(2 / np.pi), rel=0.02)
    assert np.mean(zeta**2) == pytest.approx(0.01, rel=0.03)


def test_the_tentative_action_is_judged_inside_the_bounds():
    """An action of 5 is never executed: the members are asked about 1."""
    actor = SeekingActor(
        linear_policy([[0.0], [0.0]], [0.0]), acting_labeler(), Seeking(zeta="oracle", zeta_scale="raw", zeta_max=None)
    )
    _, zeta = actor.act_oracle(jnp.zeros((1, OBS)), f32([[5.0]]), jnp.zeros((1, OBS)), KEY)
    assert float(zeta[0]) == pytest.approx(1.0)


def test_make_actor():
    policy, labeler = linear_policy([[1.0], [0.0]], [0.0]), shifting_labeler(SHIFTS)
    assert isinstance(make_actor(Plain(), policy, labeler), PlainActor)
    assert make_actor(Seeking(zeta="oracle"), policy, labeler).needs_oracle


@pytest.mark.parametrize(
    "wrong",
    [
        {"sigma": -0.1},
        {"sigma": float("nan")},
        {"zeta_max": 0.0},
        {"zeta_max": -1.0},
        {"zeta_max": float("nan")},
        {"zeta_max": None},
    ],
)
def test_impossible_settings(wrong: dict):
    with pytest.raises(UserError):
        Seeking(**wrong)
    with pytest.raises(UserError):
        Plain(-0.1)
