"""Explorers: eq. 16 and the readings of zeta, from members whose predictions are known by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.core.diagnostics import NOTHING
from musbo.core.errors import UserError
from musbo.learning.explore import Explore, Plain, PlainActor, Seeking, SeekingActor
from musbo.models.actor import Actor
from musbo.models.labeler import Labeler, Levels
from musbo.models.policy import Policy
from musbo.models.probabilistic import Probabilistic
from tests.learning.small import OBS, acting_labeler, f32, linear, linear_policy, plain_scaling, shifting_labeler, stack

B = 20_000
KEY = jax.random.PRNGKey(0)

# Members that predict s + shift: the pairs are 0.3, 0.5 and 0.4 apart, in L1.
SHIFTS = [[0.0, 0.0], [0.1, -0.2], [0.3, 0.2]]
LEVELS = (9.0, 2.0, 4.0, 9.0)  # spread_p95 = 2, error_p95 = 4


def half_as_wide(policy: Policy) -> Policy:
    """Bounds 0 and 1 in place of -1 and 1."""
    return replace(policy, centre=f32([0.5]), half_range=f32([0.5]))


def seeking(**settings) -> SeekingActor:
    return Seeking(**settings).actor(linear_policy([[1.0], [0.0]], [0.0]), shifting_labeler(SHIFTS, levels=LEVELS))


def act(actor, obs: np.ndarray, previous=None, n_act: int = 1) -> tuple[np.ndarray, np.ndarray]:
    b = len(obs)
    before, acted, has = previous or (jnp.zeros((b, OBS)), jnp.zeros((b, n_act)), jnp.zeros(b, bool))
    got, zeta = actor.act(f32(obs), KEY, before, acted, has)
    return np.asarray(got), np.asarray(zeta)


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


def test_every_explorer_makes_its_actor():
    policy, labeler = linear_policy([[1.0], [0.0]], [0.0]), shifting_labeler(SHIFTS)
    for judge in (labeler, None):  # a method without a labeler can have plain noise
        actor = Plain(0.3).actor(policy, judge)
        assert isinstance(actor, PlainActor) and actor.settings == Plain(0.3) and not actor.needs_oracle
    assert Seeking(zeta="oracle").actor(policy, labeler).needs_oracle
    for maker in (Plain(), Seeking()):
        assert isinstance(maker, Explore) and isinstance(maker.actor(policy, labeler), Actor)


def test_nobody_seeks_without_a_judge():
    with pytest.raises(UserError, match="no labeler to seek with: choose --explore plain"):
        Seeking().actor(linear_policy([[1.0], [0.0]], [0.0]), None)


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


# What is shown of zeta


def shown(actor: SeekingActor, zeta: object, alone: float = 0.0) -> tuple[dict, list[str]]:
    """Diagnostics by name, and the kinds of the cautions."""
    found = actor.findings(np.asarray(zeta, np.float32), alone)
    return {one.name: one.value for one in found.diagnostics}, [one.kind for one in found.cautions]


def test_findings_of_seeking():
    values, cautions = shown(seeking(zeta_max=0.3), np.linspace(0.0, 0.2, 101))
    zeta = values["zeta"]
    assert (zeta.low, zeta.median, zeta.high) == pytest.approx((0.02, 0.1, 0.18), rel=1e-5)
    assert values.keys() == {"zeta", "zeta_at_cap"} and values["zeta_at_cap"] == 0.0 and cautions == []


@pytest.mark.parametrize(("at_cap", "warned"), [(0, False), (4, False), (5, False), (6, True), (10, True)])
def test_zeta_at_its_cap(at_cap: int, warned: bool):
    """Of ten steps; the cap in float32 is the cap, and a little below it is not."""
    zeta = np.where(np.arange(10) < at_cap, np.float32(0.3), np.float32(0.3 * (1 - 1e-4)))
    values, cautions = shown(seeking(zeta_max=0.3), zeta)
    assert values["zeta_at_cap"] == at_cap / 10 and cautions == ["at cap"] * warned


def test_no_cap_no_share_of_steps_at_it():
    values, cautions = shown(seeking(zeta_scale="raw", zeta_max=None), np.full(5, 9.0))
    assert values["zeta_at_cap"] == 0.0 and cautions == []


@pytest.mark.parametrize(("alone", "warned"), [(0.0, False), (0.1, False), (0.11, True), (1.0, True)])
def test_lanes_alone_make_no_control(alone: float, warned: bool):
    """Only where zeta is pooled: who seeks may do so alone."""
    assert shown(seeking(pooled=True), np.zeros(5), alone)[1] == ["no control"] * warned
    assert shown(seeking(), np.zeros(5), alone)[1] == []


def test_plain_noise_has_nothing_to_say():
    actor = Plain(0.3).actor(linear_policy([[1.0], [0.0]], [0.0]), None)
    assert actor.findings(np.full(5, 9.0, np.float32), 1.0) == NOTHING
