"""What BRAC's behaviour is cloned from, and its objective, against numpy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.algorithms.method import gradient_steps
from musbo.algorithms.model_free import Likelihood, ModelFree, newest
from musbo.algorithms.mopo import MOPO
from musbo.core.errors import UserError
from musbo.data.batch import Batch, make_batch
from musbo.data.dataset import assemble
from musbo.data.scaling import Normaliser
from musbo.learning.soft import SoftSettings
from musbo.models.frame import Frame
from musbo.models.mlp import init_mlp
from musbo.tasks.task import Task
from tests.models.test_mlp import forward

FRAME = Frame(
    Normaliser(jnp.array([1.0, 2.0]), jnp.array([2.0, 5.0])), centre=jnp.array([0.5]), half_range=jnp.array([2.0])
)


def batch(act: np.ndarray, first: int = 0) -> Batch:
    """Episodes of ten steps; the observations number the rows, beginning with `first`."""
    number = np.arange(first, first + len(act), dtype=np.float32)
    obs = np.stack([number, -number], axis=1)
    return make_batch(
        obs=obs,
        act=act[:, None].astype(np.float32),
        reward=np.zeros(len(act), np.float32),
        next_obs=obs + 1,
        terminated=np.zeros(len(act), bool),
        truncated=np.arange(len(act)) % 10 == 9,
    )


def test_the_newest_batch_alone_is_cloned():
    """Its training rows to fit on, its held-out ones to stop by; neither earlier batches nor free rows."""
    act = np.linspace(-1.4, 2.4, 40)
    data = assemble([batch(-act), batch(act, first=40)], capacity=100, seed=0)
    rows = newest(data, FRAME)
    held = np.flatnonzero(data.heldout)
    assert np.asarray(rows.heldout).tolist() == [row for row in held if 40 <= row < 80]
    assert sorted([*rows.train, *rows.heldout]) == list(range(40, 80))
    np.testing.assert_allclose(rows.y[40:80, 0], (act - 0.5) / 2, rtol=1e-5)
    np.testing.assert_allclose(rows.x[40:80, 0], (np.arange(40, 80) - 1) / 2, rtol=1e-5)
    np.testing.assert_allclose(rows.x[40:80, 1], (-np.arange(40, 80) - 2) / 5, rtol=1e-5)


def test_actions_clipped_to_a_bound_do_not_own_the_clone():
    """The Gaussian of largest likelihood has the moments of what was cloned, before squashing. Were a quarter of the
    actions taken as near to the bound as float32 allows, its mean action would be 0.62, its spread 0.65 and
    P(a < 0) = 0.18, where the data have 0.75, 0.24 and 0.004.
    """
    share = np.clip(0.8 + 0.3 * np.random.default_rng(0).normal(size=20_000), -1, 1)
    for sign in (1.0, -1.0):
        rows = newest(assemble([batch(0.5 + 2 * sign * share)], capacity=20_000, seed=0), FRAME)
        u = np.arctanh(sign * np.asarray(rows.y[:, 0], float))
        z = np.linspace(-8, 8, 4001)
        weight = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
        action = np.tanh(u.mean() + u.std() * z)
        mean = (weight * action).sum()
        spread = math.sqrt((weight * (action - mean) ** 2).sum())
        assert mean == pytest.approx(share.mean(), abs=0.05)
        assert spread == pytest.approx(share.std(), abs=0.15)
        assert 0.5 * math.erfc(u.mean() / u.std() / math.sqrt(2)) < 0.1  # P(a < 0)


def test_the_likelihood_by_hand():
    network = init_mlp(jax.random.PRNGKey(0), (2, 8, 4), "tanh", last_gain=2.0)
    rng = np.random.default_rng(1)
    x, a = rng.normal(size=(7, 2)), rng.uniform(-0.9, 0.9, (7, 2))
    mean, raw = np.split(np.stack([forward(network, row) for row in x]), 2, axis=1)
    log_spread = -5 + 3.5 * (np.tanh(raw) + 1)  # from -5 to 2
    noise = (np.arctanh(a) - mean) / np.exp(log_spread)
    density = -0.5 * noise**2 - log_spread - 0.5 * np.log(2 * np.pi) - np.log(1 - a**2)
    got = Likelihood().errors(network, jnp.asarray(x, jnp.float32), jnp.asarray(a, jnp.float32))
    np.testing.assert_allclose(got, -density.sum(axis=1), rtol=1e-4, atol=1e-4)
    loss = Likelihood().loss(network, jnp.asarray(x, jnp.float32), jnp.asarray(a, jnp.float32))
    assert float(loss) == pytest.approx(-density.sum(axis=1).mean(), rel=1e-4)
    assert Likelihood().kernels(network) == ()


@pytest.mark.parametrize(("steps", "per", "wanted"), [(30, 0.0, 30), (30, 0.5, 30), (1, 1.0, 1000), (2500, 99.0, 4000)])
def test_gradient_steps_grow_with_the_data(steps: int, per: float, wanted: int):
    """40 rows of a capacity of 100; what comes from their number is rounded up to thousands."""
    data = assemble([batch(np.linspace(-1, 1, 40))], capacity=100, seed=0)
    assert gradient_steps(steps, per, data) == wanted


def test_as_many_are_taken():
    """Chunk by chunk: 1,000 and not the one that `steps` alone asks for."""
    mine = Task("mine", 2, 1, (-1.0,), (1.0,), 10, reward="learned")
    small = SoftSettings(actor=(4,), critic=(4,), batch=8)
    method = ModelFree(soft=small, steps=1, per_transition=1.0)
    data = assemble([batch(np.linspace(-1, 1, 40))], capacity=100, seed=0)
    key = jax.random.PRNGKey(0)
    seen = [m for _, m in method.train(mine, data, method.begin(mine, key), key) if m.stage == "learn"]
    assert [(m.index, m.of, m.over) for m in seen] == [(500, 1000, False), (1000, 1000, True)]
    with pytest.raises(UserError):
        ModelFree(per_transition=-1.0)
    with pytest.raises(UserError):
        MOPO(per_transition=-1.0)
