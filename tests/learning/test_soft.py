"""The actor-critic step against NumPy, finite differences and problems whose answer is known."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.data.scaling import Normaliser
from musbo.learning import soft
from musbo.learning.replay import Replay, Transitions
from musbo.learning.soft import Entropy, Nearness, Regulariser, SoftSettings, Support
from musbo.models.frame import Frame
from musbo.models.gaussian import head, log_density, sample, sample_beside
from musbo.models.mlp import MLP, init_mlp, member
from musbo.models.support import decode, latents, nudged

KEY = jax.random.PRNGKey(0)
SMALL = SoftSettings(actor=(8,), critic=(8,), batch=16, learning_rate=1e-2)
OBS, ACT = 3, 2
REGULARISERS = [Entropy(), Nearness(), Support(generator=(8,))]


def behaviour() -> MLP:
    return init_mlp(jax.random.PRNGKey(5), (OBS, 8, 2 * ACT), "relu")


def some_rows(n: int = 16) -> Transitions:
    k = jax.random.split(KEY, 4)
    return Transitions(
        jax.random.normal(k[0], (n, OBS)),
        jax.random.uniform(k[1], (n, ACT), minval=-0.9, maxval=0.9),
        jax.random.normal(k[2], (n,)),
        jax.random.normal(k[3], (n, OBS)),
        jnp.where(jnp.arange(n) % 4 == 0, 0.0, 1.0),
    )


def forward(network: MLP, x: np.ndarray) -> np.ndarray:
    """A ReLU network, by hand, in double precision."""
    for w, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(x @ np.asarray(w, float) + np.asarray(b, float), 0)
    return x @ np.asarray(network.weights[-1], float) + np.asarray(network.biases[-1], float)


def q_by_hand(critics: MLP, x: np.ndarray, a: np.ndarray) -> np.ndarray:
    return np.stack([forward(member(critics, i), np.concatenate([x, a], axis=1))[:, 0] for i in range(2)])


def test_the_value_of_entropy():
    parts = Entropy().begin(SMALL, OBS, ACT, KEY)
    parts = replace(parts, log_alpha=jnp.asarray(0.7))
    networks = soft.begin(SMALL, Entropy(), OBS, ACT, KEY)
    x = some_rows().x
    a, logp = sample(parts.actor, x, KEY)
    wanted = q_by_hand(networks.critics, np.asarray(x), np.asarray(a)).min(0) - np.exp(0.7) * np.asarray(logp)
    got = Entropy().value(parts, parts, soft.twin(networks.critics), None, x, KEY)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_the_value_of_nearness():
    networks = soft.begin(SMALL, Nearness(0.3), OBS, ACT, KEY)
    x, b = some_rows().x, behaviour()
    a, logp = sample(networks.parts, x, KEY)
    apart = np.asarray(logp) - np.asarray(log_density(b, x, a))
    inside = (np.abs(a) < 0.99).all(axis=1)
    assert inside.sum() > 5
    wanted = q_by_hand(networks.critics, np.asarray(x), np.asarray(a)).min(0) - 0.3 * apart
    got = Nearness(0.3).value(networks.parts, networks.parts, soft.twin(networks.critics), b, x, KEY)
    np.testing.assert_allclose(np.asarray(got)[inside], wanted[inside], rtol=1e-3, atol=1e-3)


def test_nearness_costs_nothing_at_home_and_something_away():
    """The sampled divergence from oneself is zero in every sample, and positive on average from anybody else."""
    b = behaviour()
    x = jax.random.normal(KEY, (4000, OBS))
    for actor, at_home in ((b, True), (init_mlp(KEY, (OBS, 8, 2 * ACT), "relu"), False)):
        apart = np.asarray(sample_beside(actor, b, x, KEY)[1])
        assert np.abs(apart).max() < 1e-4 if at_home else apart.mean() > 0.1


def test_the_divergence_is_that_of_gaussians():
    """The mean of the sampled log ratio against the closed form, which the same squashing leaves as it is."""
    actor, b = init_mlp(KEY, (OBS, 8, 2 * ACT), "relu"), behaviour()
    x = jnp.repeat(jax.random.normal(KEY, (1, OBS)), 100_000, axis=0)
    (m1, s1), (m2, s2) = ((np.asarray(part[0], float) for part in head(net, x[:1])) for net in (actor, b))
    closed = (s2 - s1 + (np.exp(2 * s1) + (m1 - m2) ** 2) / (2 * np.exp(2 * s2)) - 0.5).sum()
    apart = np.asarray(sample_beside(actor, b, x, KEY)[1], float)
    assert apart.mean() == pytest.approx(closed, abs=4 * apart.std() / len(apart) ** 0.5)


def test_the_value_of_support():
    kind = Support(reach=0.2, candidates=4, caution=0.6, generator=(8,))
    networks = soft.begin(SMALL, kind, OBS, ACT, KEY)
    slow = kind.begin(SMALL, OBS, ACT, jax.random.PRNGKey(9))
    x = some_rows().x
    got = kind.value(networks.parts, slow, soft.twin(networks.critics), None, x, KEY)
    many = jnp.repeat(x, 4, axis=0)
    a = nudged(slow.nudge, 0.2, many, decode(networks.parts.decoder, many, latents(KEY, (len(many), 2 * ACT))))
    q = q_by_hand(networks.critics, np.asarray(many), np.asarray(a))
    wanted = (0.6 * q.min(0) + 0.4 * q.max(0)).reshape(-1, 4).max(1)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", REGULARISERS, ids=lambda k: type(k).__name__)
def test_one_step_by_hand(kind: Any):
    """The critics' target, Adam's first step (which is the sign of the gradient), and the slow copies."""
    networks = soft.begin(SMALL, kind, OBS, ACT, KEY)
    rows, b, key = some_rows(), behaviour(), jax.random.PRNGKey(3)
    after, seen = soft.soft_step(SMALL, kind, networks, b, rows, key)
    k_value, _ = jax.random.split(key)
    value = kind.value(networks.parts, networks.slow_parts, soft.twin(networks.slow_critics), b, rows.next_x, k_value)
    wanted = np.asarray(rows.reward) + 0.99 * np.asarray(rows.goes_on) * np.asarray(value)
    q = q_by_hand(networks.critics, np.asarray(rows.x), np.asarray(rows.a))
    assert float(seen[0]) == pytest.approx(((q - wanted) ** 2).mean(), rel=1e-3)
    assert float(seen[1]) == pytest.approx(q.mean(), rel=1e-3, abs=1e-4)
    # d/db of the output bias of critic i is proportional to the mean error of its own predictions
    for i in range(2):
        moved = float(after.critics.biases[-1][i, 0] - networks.critics.biases[-1][i, 0])
        assert moved == pytest.approx(-SMALL.learning_rate * np.sign((q[i] - wanted).mean()), rel=1e-2)
    for slow, old, new in (
        (after.slow_critics, networks.slow_critics, after.critics),
        (after.slow_parts, networks.slow_parts, after.parts),
    ):
        jax.tree.map(
            lambda s, o, n: np.testing.assert_allclose(s, 0.995 * np.asarray(o) + 0.005 * np.asarray(n), atol=1e-6),
            slow,
            old,
            new,
        )


@pytest.mark.parametrize("reward", [-3.0, 3.0])
def test_doubt_lowers_a_gain_and_leaves_a_loss(reward: float):
    """By the error that the critics see, against their target by hand."""
    networks = soft.begin(SMALL, Entropy(), OBS, ACT, KEY)
    U = jnp.linspace(0.0, 1.0, 16)
    rows = replace(some_rows(), reward=jnp.full(16, reward), goes_on=jnp.zeros(16), trust=U)
    q = q_by_hand(networks.critics, np.asarray(rows.x), np.asarray(rows.a))
    wanted = reward * np.asarray(U) if reward > 0 else np.full(16, reward)
    _, seen = soft.soft_step(SMALL, Entropy(), networks, None, rows, KEY)
    assert float(seen[0]) == pytest.approx(((q - wanted) ** 2).mean(), rel=1e-3)


def test_a_termination_ends_the_future():
    """With an enormous slow critic, only rows that go on see it."""
    networks = soft.begin(SMALL, Entropy(), OBS, ACT, KEY)
    huge = replace(networks.slow_critics, biases=(*networks.slow_critics.biases[:-1], jnp.full((2, 1), 1e6)))
    networks = replace(networks, slow_critics=huge)
    rows = replace(some_rows(), goes_on=jnp.zeros(16))
    assert float(soft.soft_step(SMALL, Entropy(), networks, None, rows, KEY)[1][0]) < 1e3
    rows = replace(rows, goes_on=jnp.ones(16))
    assert float(soft.soft_step(SMALL, Entropy(), networks, None, rows, KEY)[1][0]) > 1e9


def test_the_loss_of_support_by_hand():
    """A variational autoencoder of the actions (reconstruction and half the divergence), less the Q that is climbed."""
    kind, key = Support(reach=0.2, generator=(8,)), jax.random.PRNGKey(3)
    parts = kind.begin(SoftSettings(actor=(8,)), 3, 2, jax.random.PRNGKey(1))
    x, taken = (jax.random.uniform(jax.random.PRNGKey(i), (5, n), minval=-1.0) for i, n in ((4, 3), (5, 2)))
    k_code, k_propose = jax.random.split(key)
    code = np.asarray(jax.vmap(parts.encoder)(jnp.concatenate([x, taken], axis=1)), np.float64)
    mean, log_spread = code[:, :4], np.clip(code[:, 4:], -4, 15)
    z = mean + np.exp(log_spread) * np.asarray(jax.random.normal(k_code, (5, 4)))
    rebuilt = np.tanh(np.asarray(jax.vmap(parts.decoder)(jnp.concatenate([x, jnp.asarray(z, jnp.float32)], axis=1))))
    # KL(N(mean, spread) || N(0, 1)), averaged over the numbers of the code.
    divergence = np.mean(0.5 * (np.exp(2 * log_spread) + mean**2 - 1) - log_spread)
    proposed = decode(parts.decoder, x, latents(k_propose, (5, 4)))
    climbed = nudged(parts.nudge, 0.2, x, proposed)

    def q(states: Any, actions: Any) -> Any:
        value = jnp.sum(actions, axis=1) + states[:, 0]
        return jnp.stack([value, 100.0 + value])

    expected = np.mean((rebuilt - np.asarray(taken)) ** 2) + 0.5 * divergence - np.mean(q(x, climbed)[0])
    np.testing.assert_allclose(kind.loss(parts, q, None, x, taken, key), expected, rtol=1e-4)


def test_the_generator_does_not_learn_from_the_critics():
    """BCQ's VAE is fitted to the data alone: another critic leaves its gradient as it is."""
    kind = Support(generator=(8,))
    networks = soft.begin(SMALL, kind, OBS, ACT, KEY)
    rows = some_rows()

    def gradient(scale: float) -> Any:
        q = soft.twin(jax.tree.map(lambda leaf: scale * leaf, networks.critics))
        return jax.grad(lambda parts: kind.loss(parts, q, None, rows.x, rows.a, KEY))(networks.parts)

    one, other = gradient(1.0), gradient(5.0)
    jax.tree.map(np.testing.assert_array_equal, (one.encoder, one.decoder), (other.encoder, other.decoder))
    assert not np.array_equal(one.nudge.weights[-1], other.nudge.weights[-1])


def test_alpha_follows_the_entropy():
    """Too little entropy raises alpha, too much lowers it."""
    parts = Entropy().begin(SMALL, OBS, ACT, KEY)
    x = some_rows(512).x
    flat = soft.twin(jax.tree.map(jnp.zeros_like, soft.begin(SMALL, Entropy(), OBS, ACT, KEY).critics))
    for bias, sign in ((-3.0, -1), (0.4, 1)):  # of the log spread, before its bounds: narrow, wide
        weights = jnp.zeros_like(parts.actor.weights[-1])
        last = jnp.concatenate([jnp.zeros(ACT), jnp.full(ACT, bias)])
        actor = replace(parts.actor, weights=(*parts.actor.weights[:-1], weights),
                        biases=(*parts.actor.biases[:-1], last))  # fmt: skip
        entropy = -float(jnp.mean(sample(actor, x, KEY)[1]))
        slope = jax.grad(lambda p: Entropy().loss(p, flat, None, x, some_rows(512).a, KEY))(replace(parts, actor=actor))
        assert np.sign(entropy + ACT) == sign == np.sign(float(slope.log_alpha))


def test_a_bandit_with_a_known_answer():
    """One state, no future, reward -(a - 0.3)^2: SAC's mean and BCQ's choice find 0.3."""
    n = 512
    a = jax.random.uniform(KEY, (n, 1), minval=-1.0, maxval=1.0)
    rows = Transitions(jnp.zeros((n, 1)), a, -10.0 * (a[:, 0] - 0.3) ** 2, jnp.zeros((n, 1)), jnp.zeros(n))
    source = Replay(rows, jnp.asarray([n]))
    settings = SoftSettings(actor=(32,), critic=(32, 32), batch=128, learning_rate=3e-3)
    frame = Frame(Normaliser(jnp.zeros(1), jnp.ones(1)), jnp.zeros(1), jnp.ones(1))
    for kind in (Entropy(), Support(generator=(32,), reach=0.1)):
        state = soft.begin(settings, kind, 1, 1, KEY)
        state, _ = soft.soft_steps(settings, kind, 2000, (128,), state, None, (source,), KEY)
        chosen = kind.policy(state.parts, state.critics, frame)(jnp.zeros((1, 1)))
        assert float(chosen[0, 0]) == pytest.approx(0.3, abs=0.15), type(kind).__name__


def test_every_source_has_its_share_of_a_minibatch():
    """Without a future the first step's error is a mean over the rows, whose every term is known."""

    def source(value: float) -> Replay:
        rows = Transitions(
            jnp.zeros((1, OBS)), jnp.zeros((1, ACT)), jnp.asarray([value]), jnp.zeros((1, OBS)), jnp.zeros(1)
        )
        return Replay(rows, jnp.asarray([1]))

    state = soft.begin(SMALL, Entropy(), OBS, ACT, KEY)
    q = np.asarray(soft.twin(state.critics)(jnp.zeros((1, OBS)), jnp.zeros((1, ACT))))[:, 0]
    _, seen = soft.soft_steps(SMALL, Entropy(), 1, (3, 61), state, None, (source(7.0), source(-2.0)), KEY)
    assert float(seen[0]) == pytest.approx(np.mean((3 * (q - 7.0) ** 2 + 61 * (q + 2.0) ** 2) / 64), rel=1e-4)


@pytest.mark.parametrize("kind", REGULARISERS, ids=lambda k: type(k).__name__)
def test_another_normaliser_changes_no_function(kind: Any):
    k = jax.random.split(KEY, 4)
    old, new = (
        Frame(
            Normaliser(jax.random.normal(k[i], (OBS,)), jnp.exp(jax.random.normal(k[i + 2], (OBS,)))),
            jnp.zeros(ACT),
            jnp.ones(ACT),
        )  # fmt: skip
        for i in range(2)
    )
    networks = soft.begin(SMALL, kind, OBS, ACT, KEY)
    moved = soft.renormalise(networks, old, new)
    obs, a = jax.random.normal(KEY, (20, OBS)), some_rows(20).a
    np.testing.assert_allclose(
        soft.twin(moved.critics)(new.see(obs), a), soft.twin(networks.critics)(old.see(obs), a), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(
        kind.policy(moved.parts, moved.critics, new)(obs), kind.policy(networks.parts, networks.critics, old)(obs),
        rtol=1e-3, atol=1e-3,
    )  # fmt: skip


def test_who_needs_the_behaviour_cloned():
    """BRAC alone is kept near to it."""
    assert [kind.clones() for kind in REGULARISERS] == [False, True, False]
    assert all(isinstance(kind, Regulariser) for kind in REGULARISERS)


def test_narrower_networks():
    """Only BCQ has networks of its own, and nothing else of it changes."""
    assert Entropy().narrower(64) == Entropy() and Nearness(0.3).narrower(64) == Nearness(0.3)
    assert Support(reach=0.2, candidates=3).narrower(64) == Support(reach=0.2, candidates=3, generator=(64, 64))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SoftSettings(actor=()),
        lambda: SoftSettings(batch=0),
        lambda: SoftSettings(gamma=1.0),
        lambda: SoftSettings(tau=0.0),
        lambda: Nearness(-1.0),
        lambda: Support(candidates=0),
        lambda: Support(caution=2.0),
    ],
)
def test_impossible_settings(wrong: Any):
    with pytest.raises(UserError):
        wrong()
