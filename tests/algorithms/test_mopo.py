"""MOPO's own parts: its objective by hand, its elites, and settings that cannot be."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.algorithms.mopo import MOPO, DecayedLikelihood
from musbo.core.diagnostics import Quantiles
from musbo.core.errors import UserError
from musbo.learning import soft
from musbo.learning.fit import FitSettings, Rows, begin, epochs
from musbo.models.probabilistic import init_probabilistic
from musbo.tasks.builtin import pointmass
from tests.contract.test_recipes import brief, method, random_data
from tests.models.test_labeler import clamped
from tests.models.test_mlp import forward


def test_the_objective_by_hand():
    network = jax.tree.map(lambda leaf: leaf[0], init_probabilistic(jax.random.PRNGKey(0), (3, 4, 2), "silu", 1))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
    out = np.stack([forward(network.mlp, row) for row in x])
    mean, logvar = out[:, :2], clamped(out[:, 2:], -10.0, 0.5)
    decay = (0.3, 0.05)
    wanted = np.mean((mean - y) ** 2 / np.exp(logvar) + logvar) + 0.01 / 7 * 2 * 10.5  # 0.01 for seven members
    wanted += sum(0.5 * d * np.sum(np.asarray(w, float) ** 2) for d, w in zip(decay, network.mlp.weights, strict=True))
    got = DecayedLikelihood(decay, 7).loss(network, jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    assert float(got) == pytest.approx(wanted, rel=1e-4)
    errors = DecayedLikelihood(decay, 7).errors(network, jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(errors, np.sum((mean - y) ** 2, axis=1), rtol=1e-4)


def test_the_spread_follows_the_noise_of_the_data():
    """Of as many outputs as halfcheetah has, with the rate of `fast`: nothing else made the bounds meet."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3)).astype(np.float32)
    noise = 0.1 * np.exp(0.5 * x[:, :1])
    y = (np.tanh(x @ rng.normal(size=(3, 18))) + noise * rng.normal(size=(4000, 18))).astype(np.float32)
    rows = Rows(jnp.asarray(x), jnp.asarray(y), np.arange(3400), np.arange(3400, 4000))
    settings = FitSettings(
        members=1, hidden=(32, 32), activation="silu", batch=125, learning_rate=5e-3, decay="cosine", max_steps=4000,
        patience=200, l2=0.0,
    )  # fmt: skip
    first = begin(init_probabilistic(jax.random.PRNGKey(0), (3, 32, 32, 18), "silu", 1))
    *_, (last, _) = epochs(settings, DecayedLikelihood((0.0, 0.0, 0.0), 7), rows, first, jax.random.PRNGKey(1))
    network = jax.tree.map(lambda leaf: leaf[0], last.networks)
    assert (network.min_logvar < network.max_logvar).all()
    _, logvar = jax.vmap(network)(rows.x[3400:])
    told, true = np.asarray(logvar).mean(axis=1) / 2, np.log(noise[3400:, 0])
    assert np.corrcoef(told, true)[0, 1] > 0.9
    assert 0.5 < np.std(told) / np.std(true) < 1.5


def test_the_elites_are_the_best_on_held_out_data():
    m, key = replace(brief(method("mopo")), refresh=600, steps=1200), jax.random.PRNGKey(7)
    seen = list(m.train(pointmass, random_data(), m.begin(pointmass, key), key))
    errors = [metrics for _, metrics in seen if metrics.stage == "dynamics"][-1].numbers["error_per_member"]
    last = seen[-1][0]
    assert sorted(np.asarray(last.model.elites).tolist()) == sorted(np.argsort(errors)[: m.elites].tolist())
    assert last.imagined is None  # forgotten
    learning = [metrics for _, metrics in seen if metrics.stage == "learn"]
    assert [(m.index, m.over) for m in learning] == [(500, False), (600, False), (1100, False), (1200, True)]
    for one in learning:
        paid = {shown.name: shown.value for shown in one.findings.diagnostics}["penalty"]
        assert isinstance(paid, Quantiles) and [paid.low, paid.median, paid.high] == one.numbers["penalty"]
        assert one.numbers.keys() == {"critic_error", "Q", "penalty"}
    slots = [state.imagined.n for state, metrics in seen if metrics.stage == "learn"]
    assert [int((n > 0).sum()) for n in slots] == [1, 1, 2, 2]  # a rollout every 600 of 1200 steps, a report every 500


def test_few_rows_of_a_minibatch_are_logged_ones(monkeypatch: pytest.MonkeyPatch):
    """A share of `real_share` from the data, the rest from imagination."""
    m, key = brief(method("mopo")), jax.random.PRNGKey(7)

    class Enough(Exception):
        """The first call has been seen."""

    def steps(settings, regulariser, steps, shares, networks, behaviour, sources, key) -> None:
        logged, imagined = (int(source.n.sum()) for source in sources)
        assert shares == (int(m.real_share * m.soft.batch), m.soft.batch - int(m.real_share * m.soft.batch))
        assert logged == int(random_data().live.sum()) and imagined == m.branches * m.horizon
        raise Enough

    monkeypatch.setattr(soft, "soft_steps", steps)
    with pytest.raises(Enough):
        list(m.train(pointmass, random_data(), m.begin(pointmass, key), key))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MOPO(elites=8),
        lambda: MOPO(decay=(1e-4,)),
        lambda: MOPO(horizon=0),
        lambda: MOPO(real_share=1.0),
        lambda: MOPO(FitSettings(members=2, hidden=(4, 4, 4, 4), weights="fresh", l2=0.0)),
        lambda: MOPO(FitSettings(members=7, hidden=(4, 4, 4, 4), weights="warm", l2=0.0)),
        lambda: MOPO(FitSettings(members=7, hidden=(4, 4, 4, 4), weights="fresh", l2=1.0)),
    ],
)
def test_impossible_settings(wrong: Any):
    with pytest.raises(UserError):
        wrong()
