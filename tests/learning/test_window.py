"""Returns of windows, trust and the gradient of a termination, against numpy, by hand and by finite differences."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.data.scaling import Scaling
from musbo.learning import climb
from musbo.learning.climb import ClimbSettings, Worth
from musbo.learning.imagine import Starts
from musbo.learning.window import (
    Ordinary,
    WindowSettings,
    distance,
    goes_on,
    lived,
    measure_ordinary,
    returns,
    trust,
    values,
)
from musbo.models import dynamics
from musbo.models.dynamics import Dynamics
from musbo.models.frame import frame_of
from musbo.models.mlp import member
from musbo.tasks.builtin import pointmass

LEARNED = replace(pointmass, name="ends by a logit", terminated="learned")
FALLS = replace(pointmass, name="falls", terminated=lambda obs: obs[0] > 0.5)


def test_returns_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    t, b, gamma, lam = 7, 5, 0.9, 0.8
    reward, after = rng.normal(size=(2, t, b))
    on = (rng.random((t, b)) > 0.2).astype(float)
    U = rng.random((t, b))
    cut = on < 0.5
    cut[3, 2] = True  # left what is known
    wanted = np.zeros((t, b))
    for lane in range(b):
        later = after[-1, lane]
        for i in reversed(range(t)):
            v = after[i, lane]
            future = v if cut[i, lane] else (1 - lam) * v + lam * later
            x = reward[i, lane] + gamma * on[i, lane] * future
            later = x * U[i, lane] if x > 0 else x
            wanted[i, lane] = later
    paid, goes, trusted, beyond = (jnp.asarray(a, jnp.float32) for a in (reward, on, U, after))
    G = returns(jnp.float32(gamma), lam, paid, goes, trusted, jnp.asarray(cut), beyond)
    np.testing.assert_allclose(G, wanted, rtol=1e-5, atol=1e-5)


def test_doubt_never_pays():
    one = jnp.ones((1, 1))
    for reward in (-2.0, 3.0):
        for U in (0.0, 0.5, 1.0):
            G = returns(jnp.float32(0.9), 0.95, reward * one, one, U * one, one > 2, 0 * one)
            assert float(G[0, 0]) <= reward + 1e-6


def test_trust_by_hand():
    apart = jnp.asarray([0.0, 2.0, 4.0, 8.0])
    np.testing.assert_allclose(trust(0.5, apart, jnp.float32(2.0)), [1.0, 1.0, np.exp(-0.5), np.exp(-1.5)], rtol=1e-6)


def test_distance_counts_every_column_in_its_own_unit_and_up_to_five():
    one, other = jnp.zeros((1, 3)), jnp.asarray([[1.0, -4.0, 1000.0]])
    assert float(distance(jnp.asarray([1.0, 2.0]), one, other)[0]) == pytest.approx(
        (1 + 2) / 2
    )  # the logit has no part
    assert float(distance(jnp.asarray([1.0, 2.0, 1.0]), one, other)[0]) == pytest.approx((1 + 2 + 5) / 3)


def test_a_termination_has_its_value_and_the_gradient_of_a_normal_distribution():
    """1 where the episode goes on; the slope is minus the density of the boundary under the kernel."""
    width = jnp.asarray([0.1, 0.3, 0.2, 0.2])
    probes = jax.random.normal(jax.random.PRNGKey(0), (200_000, 4))
    for x in (0.45, 0.62):
        obs = jnp.asarray([[x, 0.1, 0.2, 0.3]])

        def on(o: jax.Array) -> jax.Array:
            return goes_on(FALLS, width, jnp.ones(()), jnp.zeros((1, 4)), o, probes)[0]

        assert float(on(obs)) == (1.0 if x <= 0.5 else 0.0)
        slope = np.asarray(jax.grad(on)(obs))[0]
        density = np.exp(-0.5 * ((0.5 - x) / 0.1) ** 2) / (0.1 * np.sqrt(2 * np.pi))
        np.testing.assert_allclose(slope, [-density, 0, 0, 0], atol=0.05)


def test_a_learned_termination_has_the_gradient_of_its_probability():
    said = jnp.asarray([[0.0, 1.5], [0.0, -1.5]])

    def on(out: jax.Array) -> jax.Array:
        return goes_on(LEARNED, jnp.ones(4), jnp.float32(2.0), out, jnp.zeros((2, 4)), jnp.zeros((1, 4)))

    np.testing.assert_array_equal(on(said), [0.0, 1.0])
    p = 1 / (1 + np.exp(-1.5 / 2))
    slope = np.asarray(jax.grad(lambda out: on(out).sum())(said))
    np.testing.assert_allclose(slope[:, 1], [-p * (1 - p) / 2] * 2, rtol=1e-5)


def world(task=pointmass, n: int = 3):
    obs, act, out = task.obs_size, task.act_size, dynamics.target_size(task)
    ones = {size: jnp.ones(size) for size in (obs, act, out)}
    scaling = Scaling(
        0 * ones[obs],
        ones[obs],
        0 * ones[act],
        ones[act],
        0 * ones[out],
        0.1 * ones[out],
        -3 * ones[obs],
        3 * ones[obs],
    )
    M = Dynamics(dynamics.init_members(jax.random.PRNGKey(1), task, (16,), "silu", n), scaling)
    ordinary = Ordinary(ones[out], jnp.float32(0.3), jnp.zeros(()), jnp.ones(()))
    return M, ordinary


def test_the_gradient_of_a_window_is_that_of_finite_differences():
    """Through three steps of M, U and V, with respect to the actor's weights."""
    M, ordinary = world()
    settings = WindowSettings(imagined=12, steps=3)
    climber = climb.begin(ClimbSettings(actor=(8,), critic=(8,)), 4, 2, jax.random.PRNGKey(2))
    frame, key = frame_of(pointmass), jax.random.PRNGKey(3)
    start = jax.random.normal(jax.random.PRNGKey(4), (4, 4))
    instead = jnp.zeros((3, 4, 4))
    direction = jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape), climber.actor)

    def height(step: jax.Array) -> jax.Array:
        actor = jax.tree.map(lambda p, d: p + step * d, climber.actor, direction)
        seen, _ = lived(pointmass, settings, actor, frame, M, ordinary, start, instead, key)
        after = jnp.min(values(climber.critics, seen.next_obs.reshape(-1, 4)), axis=0).reshape(3, 4)
        return jnp.sum(returns(jnp.float32(0.9), 0.95, seen.reward + 30, seen.on, seen.trust, seen.cut, after)[0])

    seen, _ = lived(pointmass, settings, climber.actor, frame, M, ordinary, start, instead, key)
    assert float(seen.trust.min()) < 1  # doubt has a part in it
    h = 1e-2
    slope = (float(height(jnp.float32(h))) - float(height(jnp.float32(-h)))) / (2 * h)
    assert float(jax.grad(height)(jnp.float32(0.0))) == pytest.approx(slope, rel=2e-2)


def test_ordinary_is_the_percentile_of_every_member_and_the_next():
    M, _ = world()
    obs, act = jax.random.normal(jax.random.PRNGKey(5), (200, 4)), jnp.zeros((200, 2))
    seen = measure_ordinary(pointmass, M, obs, act)
    x = jnp.concatenate([obs, act], axis=1)
    said = [np.asarray(jax.vmap(member(M.members, i))(x)) for i in range(3)]
    apart = np.concatenate([np.abs(said[i] - said[(i + 1) % 3]) for i in range(3)])
    columns = np.quantile(apart, 0.95, axis=0)
    np.testing.assert_allclose(seen.columns, columns, rtol=1e-4)
    wanted = np.quantile(np.minimum(apart / columns, 5).mean(1), 0.95)
    np.testing.assert_allclose(seen.heldout, wanted, rtol=1e-4)


def test_a_lane_that_ends_goes_on_elsewhere_and_owes_nothing_to_it():
    M, ordinary = world(FALLS)
    settings = WindowSettings(imagined=4, steps=4)
    climber = climb.begin(ClimbSettings(actor=(8,), critic=(8,)), 4, 2, jax.random.PRNGKey(2))
    start, instead = jnp.full((1, 4), 2.0), jnp.full((4, 1, 4), -1.0)
    frame, key = frame_of(pointmass), jax.random.PRNGKey(0)
    seen, _ = lived(FALLS, settings, climber.actor, frame, M, ordinary, start, instead, key)
    assert bool(seen.cut[0, 0]) and float(seen.on[0, 0]) == 0
    np.testing.assert_array_equal(seen.obs[1], instead[0])


def test_networks_carried_over_say_the_same():
    climber = climb.begin(ClimbSettings(actor=(8,), critic=(8,)), 4, 2, jax.random.PRNGKey(2))
    old = frame_of(pointmass)
    new = replace(old, normaliser=replace(old.normaliser, mean=jnp.full(4, 0.3), std=jnp.full(4, 2.0)))
    worths = [Worth(jnp.float32(0.9), jnp.float32(r), jnp.float32(u)) for r, u in ((0.5, 2.0), (-0.5, 5.0))]
    after = climb.carry_over(climber, (old, new), (worths[0], worths[1]))
    obs = jax.random.normal(jax.random.PRNGKey(6), (10, 4))
    v = [
        w.unit * values(c.slow, f.see(obs)) + w.unknown / (1 - w.gamma)
        for c, f, w in zip((climber, after), (old, new), worths, strict=True)
    ]
    np.testing.assert_allclose(v[0], v[1], rtol=1e-4, atol=1e-4)
    a = [jax.vmap(c.actor)(f.see(obs)) for c, f in ((climber, old), (after, new))]
    np.testing.assert_allclose(a[0], a[1], rtol=1e-4, atol=1e-4)


def test_what_cannot_be_is_refused():
    wrong: Any
    for wrong in ({"steps": 0}, {"imagined": 8, "steps": 16}, {"k": -1.0}, {"lam": 2.0}, {"kernel": 0.0}):
        with pytest.raises(UserError):
            WindowSettings(**wrong)
    with pytest.raises(UserError):
        ClimbSettings(tau=0.0)


def test_beginnings_are_drawn_by_their_share():
    from musbo.learning.window import beginnings

    initial, anywhere = (Starts(jnp.full((3, 4), x), jnp.asarray(3)) for x in (0.0, 1.0))
    drawn = beginnings(WindowSettings(initial=0.25), initial, anywhere, (50, 40), jax.random.PRNGKey(0))
    assert drawn.shape == (50, 40, 4)
    assert float(drawn.mean()) == pytest.approx(0.75, abs=0.03)
