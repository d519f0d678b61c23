"""Imagined transitions in a replay, against a loop over the windows that they are made of."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.learning.dream import dream
from musbo.learning.imagine import Starts
from musbo.learning.replay import empty
from musbo.learning.soft import Entropy, SoftSettings, begin
from musbo.learning.window import WindowSettings, beginnings, lived
from musbo.models.frame import frame_of
from musbo.tasks.builtin import pointmass
from tests.learning.test_window import FALLS, world

SETTINGS = WindowSettings(imagined=60, steps=6, fresh=0.0, least=0.3)
KEY = jax.random.PRNGKey(5)
PAID = (jnp.float32(-2.0), jnp.float32(4.0))  # what an unknown step pays, and the unit


def dreamt(task=pointmass, settings=SETTINGS, level=0.3):
    M, ordinary = world(task)
    ordinary = replace(ordinary, heldout=jnp.float32(level), lanes=jnp.float32(1e6))
    actor = begin(SoftSettings(actor=(8,), critic=(8,)), Entropy(), 4, 2, KEY).parts.actor
    states = Starts(0.5 * jax.random.normal(KEY, (20, 4)), jnp.asarray(20))
    frame, lanes = frame_of(task), 0.45 * jnp.ones((settings.lanes, 4))
    replay = empty(2, 60, 4, 2, doubted=True)
    filled = dream(task, settings, actor, frame, PAID, M, ordinary, states, states, lanes, replay, jnp.asarray(1), KEY)
    _, k_instead, _, k_window = jax.random.split(KEY, 4)
    instead = beginnings(settings, states, states, (6, settings.lanes), k_instead)
    quiet = replace(ordinary, lanes=jnp.zeros(()))
    seen = lived(task, settings, actor, frame, M, quiet, lanes, instead, k_window)
    return filled, seen


def test_rows_are_the_steps_of_the_lanes():
    (replay, last, shares), (seen, end) = dreamt()
    np.testing.assert_array_equal(last, end)  # the lanes live on
    assert replay.n.tolist() == [0, 60] and float(shares[0]) == 1.0 and float(shares[1]) == 0.0
    rows = jax.tree.map(lambda column: np.asarray(column[60:]), replay.rows)
    for name, wanted in (("x", seen.obs), ("a", seen.share), ("next_x", seen.next_obs)):
        np.testing.assert_allclose(getattr(rows, name), np.asarray(wanted).reshape(60, -1), rtol=1e-6)
    np.testing.assert_allclose(rows.reward, (np.asarray(seen.reward).ravel() + 2) / 4, rtol=1e-5)
    np.testing.assert_allclose(rows.trust, np.asarray(seen.trust).ravel(), rtol=1e-6)


def test_where_the_members_disagree_a_lane_begins_anew():
    """By the held-out level alone: what the lanes of somebody else met does not make doubt ordinary."""
    (replay, _, _), (seen, _) = dreamt(level=0.08)
    doubted = SETTINGS.least > np.asarray(seen.trust)
    assert doubted.any() and not doubted.all()
    np.testing.assert_array_equal(np.asarray(seen.cut), doubted)
    goes_on = np.asarray(seen.obs)[1:] == np.asarray(seen.next_obs)[:-1]
    np.testing.assert_array_equal(goes_on.all(axis=2), ~np.asarray(seen.cut)[:-1])
    assert replay.n.tolist() == [0, 60]  # what is in doubt is kept, and counts as little as it is trusted


def test_an_end_ends_the_future():
    (replay, _, shares), (seen, _) = dreamt(FALLS)
    ended = np.asarray(seen.next_obs)[..., 0].ravel() > 0.5
    assert ended.any() and not ended.all()
    np.testing.assert_array_equal(np.asarray(replay.rows.goes_on[60:]), 1.0 - ended)
    assert float(shares[1]) == pytest.approx(ended.mean())
