"""What M and P are fitted on: objectives against SciPy, rows against NumPy, levels by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, huber
from scipy.stats import multivariate_normal

from musbo.data.dataset import Dataset, assemble
from musbo.data.scaling import measure
from musbo.learning import objectives
from musbo.learning.fit import FitSettings
from musbo.models import dynamics, labeler
from musbo.models.dynamics import Dynamics
from musbo.models.labeler import Labeler, Levels
from musbo.models.probabilistic import Probabilistic
from tests.learning.small import ACT, OBS, batch_of, endless, f32, linear, plain_scaling, shifting_labeler, stack
from tests.models.test_mlp import forward, random_mlp

LEARNED = replace(endless, name="learned", reward="learned", terminated="learned")


def test_squared_error():
    """Summed over dimensions, averaged over samples."""
    rng = np.random.default_rng(0)
    mlp = random_mlp(rng, "silu")
    x, y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    wanted = ((forward(mlp, x) - y) ** 2).sum(axis=1)
    np.testing.assert_allclose(objectives.SquaredError().errors(mlp, f32(x), f32(y)), wanted, rtol=1e-3)
    assert float(objectives.SquaredError().loss(mlp, f32(x), f32(y))) == pytest.approx(wanted.mean(), rel=1e-4)


def test_huber_loss_against_scipy():
    """Twice SciPy's, whose quadratic part is halved; the error that a fit is judged by stays squared."""
    rng = np.random.default_rng(0)
    mlp = random_mlp(rng, "silu")
    x, y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    off = forward(mlp, x) - y
    assert (abs(off) < 0.8).any() and (abs(off) > 0.8).any()
    robust = objectives.SquaredError(huber=0.8)
    assert float(robust.loss(mlp, f32(x), f32(y))) == pytest.approx(2 * huber(0.8, off).sum(axis=1).mean(), rel=1e-4)
    np.testing.assert_allclose(robust.errors(mlp, f32(x), f32(y)), (off**2).sum(axis=1), rtol=1e-3)


def test_a_termination_by_cross_entropy():
    rng = np.random.default_rng(0)
    mlp = random_mlp(rng, "silu")
    x, y = rng.normal(size=(30, 3)), np.stack([rng.normal(size=30), rng.random(30) < 0.5], axis=1)
    out = forward(mlp, x)
    p = expit(out[:, 1])
    wanted = (out[:, 0] - y[:, 0]) ** 2 - y[:, 1] * np.log(p) - (1 - y[:, 1]) * np.log1p(-p)
    objective = objectives.SquaredError(logit=True)
    np.testing.assert_allclose(objective.errors(mlp, f32(x), f32(y)), wanted, rtol=1e-3)
    assert float(objective.loss(mlp, f32(x), f32(y))) == pytest.approx(wanted.mean(), rel=1e-4)


def test_eq_17_against_scipy():
    """Twice the negative log density without its constant, and the pull on the bounds."""
    rng = np.random.default_rng(0)
    network = Probabilistic(random_mlp(rng, "silu", (3, 5, 4)), f32([0.5, 0.7]), f32([-10.0, -3.0]))
    x, y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    mean, logvar = jax.vmap(network)(f32(x))
    densities = [
        multivariate_normal.logpdf(one, np.asarray(m), np.diag(np.exp(np.asarray(v, np.float64))))  # type: ignore[arg-type]
        for m, v, one in zip(mean, logvar, y, strict=True)
    ]
    likelihood = np.mean([-2 * d - 2 * np.log(2 * np.pi) for d in densities])
    pull = 0.01 * (0.5 + 0.7 + 10 + 3)
    objective = objectives.GaussianLikelihood()
    assert float(objective.loss(network, f32(x), f32(y))) == pytest.approx(likelihood + pull, rel=1e-4)
    np.testing.assert_allclose(
        objective.errors(network, f32(x), f32(y)), ((np.asarray(mean) - y) ** 2).sum(axis=1), rtol=1e-4
    )


def test_hidden_kernels_alone_decay():
    rng = np.random.default_rng(0)
    mlp = random_mlp(rng, "silu", (3, 5, 4, 4))
    network = Probabilistic(mlp, jnp.zeros(2), jnp.zeros(2))
    for kernels in (objectives.SquaredError().kernels(mlp), objectives.GaussianLikelihood().kernels(network)):
        assert [k.shape for k in kernels] == [(3, 5), (5, 4)]


def some_data(n: int = 60) -> Dataset:
    rng = np.random.default_rng(0)
    obs, act = 3 + 2 * rng.normal(size=(n, 2)), rng.uniform(-1, 1, (n, 1))
    move = 0.1 * obs + act
    last = (np.arange(n) + 1) % 6 == 0
    ended = last & (rng.random(n) < 0.5)
    batch = batch_of(obs, act, obs + move, 6, reward=5 + move[:, 0], terminated=ended, truncated=last & ~ended)
    return assemble([batch], n + 20, seed=0)


def test_rows_are_standardised():
    """By the training rows; with the learned reward as a column, and the termination as it is."""
    data = some_data()
    scaling = measure(data, learn_reward=True)
    rows = objectives.dynamics_rows(LEARNED, data, scaling)
    training = np.flatnonzero(np.asarray(data.live & ~data.heldout))
    np.testing.assert_array_equal(rows.train, training)
    np.testing.assert_array_equal(rows.heldout, np.flatnonzero(np.asarray(data.heldout)))
    assert rows.x.shape == (80, 3) and rows.y.shape == (80, 4)
    for standard in (rows.x, rows.y[:, :3]):
        np.testing.assert_allclose(np.mean(np.asarray(standard)[training], axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(np.std(np.asarray(standard)[training], axis=0), 1, rtol=1e-4)
    np.testing.assert_array_equal(rows.y[:, 3], np.asarray(data.terminated, np.float32))


def test_rows_undo_what_a_step_does():
    """A network that returns a row's target leads from its state to its next state and reward."""
    data = some_data()
    scaling = measure(data, learn_reward=True)
    y = objectives.dynamics_rows(LEARNED, data, scaling).y
    constant = dynamics.MLP((jnp.zeros((3, 4)),), (y[7],), "tanh")
    next_obs, reward, terminated = dynamics.step(LEARNED, constant, scaling, data.obs[7], data.act[7])
    np.testing.assert_allclose(next_obs, data.next_obs[7], rtol=1e-5)
    np.testing.assert_allclose(reward, data.reward[7], rtol=1e-5)
    assert bool(terminated) == bool(data.terminated[7])
    targets = objectives.labeler_rows(LEARNED, data, scaling).y
    np.testing.assert_allclose(targets, y[:, :2], rtol=1e-5)  # P never learns a reward


@pytest.mark.parametrize("kind", ["warm", "fresh"])
def test_where_a_fit_begins(kind: str):
    """Warm: the old predictions under the new scaling. Fresh, or without an old model: new weights."""
    data = some_data()
    old_scaling, scaling = measure(some_data(30), learn_reward=False), measure(data, learn_reward=False)
    settings = FitSettings(members=2, hidden=(5,), activation="silu", weights=kind)  # type: ignore[arg-type]
    k_old, k_new = jax.random.split(jax.random.PRNGKey(0))
    levels = Levels(*(jnp.ones(()) for _ in range(4)))
    M = Dynamics(dynamics.init_members(k_old, endless, (5,), "silu", 2), old_scaling)
    P = Labeler(labeler.init_members(k_old, endless, (5,), "silu", 2), old_scaling, levels)
    began_M = objectives.begin_dynamics(endless, settings, M, scaling, k_new).networks
    began_P = objectives.begin_labeler(endless, settings, P, scaling, k_new).networks

    def predictions(M_members, P_members, s) -> np.ndarray:
        one = jax.vmap(lambda net: dynamics.step(endless, net, s, data.obs[0], data.act[0])[0])(M_members)
        two = labeler.member_means(P_members, s, data.obs[:1], data.act[:1])
        return np.stack([one, two[:, 0]])

    same = np.allclose(
        predictions(began_M, began_P, scaling), predictions(M.members, P.members, old_scaling), rtol=1e-4
    )
    assert same == (kind == "warm")
    if kind == "fresh":
        untouched = objectives.begin_dynamics(endless, settings, None, scaling, k_new).networks
        jax.tree.map(np.testing.assert_array_equal, began_M, untouched)


def test_a_fit_begins_with_a_fresh_optimiser():
    settings = FitSettings(members=2, hidden=(5,), activation="silu")
    state = objectives.begin_dynamics(endless, settings, None, measure(some_data(), False), jax.random.PRNGKey(0))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(state.moments))
    assert int(state.epoch) == 0 and np.isinf(state.best_error).all() and np.asarray(state.active).all()


def test_pair_distances():
    distances = labeler.pair_distances(f32([[[0.0, 0.0]], [[1.0, -2.0]], [[1.0, 1.0]]]))
    np.testing.assert_allclose(distances, [[3.0], [2.0], [3.0]])  # pairs (0, 1), (0, 2), (1, 2)


def test_levels():
    """Members that add constants to the state are 0.3, 0.5 and 0.6 apart wherever they are; their errors are not."""
    data = some_data()
    judge = shifting_labeler([[0.0, 0.0], [0.1, -0.2], [0.3, 0.2]])
    levels = objectives.measure_levels(judge.members, judge.scaling, data)
    heldout = np.asarray(data.heldout)
    move = (np.asarray(data.next_obs) - np.asarray(data.obs))[heldout]
    shifts = np.array([[0.0, 0.0], [0.1, -0.2], [0.3, 0.2]])
    error = np.abs(move[None] - shifts[:, None]).sum(axis=2).max(axis=0)
    apart = np.repeat([0.3, 0.5, 0.6], heldout.sum())
    assert float(levels.pair_p90) == pytest.approx(np.quantile(apart, 0.9), rel=1e-4)
    assert float(levels.spread_p95) == pytest.approx(0.6, rel=1e-4)
    assert float(levels.error_p95) == pytest.approx(np.quantile(error, 0.95), rel=1e-4)
    assert float(levels.pair_mean) == pytest.approx(1.4 / 3, rel=1e-4)


def wrong_judge(*weights: dict[int, float]) -> Labeler:
    """Members that add the given multiples of the inputs to the first observation."""

    def member(of: dict[int, float]) -> Probabilistic:
        weight = np.zeros((OBS + ACT, 2 * OBS))
        for i, factor in of.items():
            weight[i, 0] = factor
        return Probabilistic(linear(weight, np.zeros(2 * OBS)), f32([0.5] * OBS), f32([-10.0] * OBS))

    return Labeler(stack(*map(member, weights)), plain_scaling(), Levels(*(f32(1.0) for _ in range(4))))


def unmoved(n: int) -> tuple[np.ndarray, Dataset]:
    """Random states and actions after which nothing changes."""
    rng = np.random.default_rng(0)
    obs, act = rng.normal(size=(n, OBS)), rng.normal(size=(n, ACT))
    return obs, assemble([batch_of(obs, act, obs, episode_steps=20)], n, 0)


def three_ways() -> tuple[Labeler, Dataset, np.ndarray, np.ndarray]:
    """Members wrong by s_0, by s_1 and by nothing; their distances [pairs n] and errors [k n] on held-out data."""
    _, data = unmoved(2000)
    s = np.asarray(data.obs)[np.asarray(data.heldout)].astype(float)
    wrong = np.stack([s[:, 0], s[:, 1], np.zeros(len(s))])
    apart = np.abs(np.stack([wrong[0] - wrong[1], wrong[0], wrong[1]]))
    return wrong_judge({0: 1.0}, {1: 1.0}, {}), data, apart, wrong


def test_levels_where_members_disagree_here_more_and_there_less():
    """Every level at its own quantile: 90 % of all pairs, 95 % of the largest one and of the largest error."""
    judge, data, apart, wrong = three_ways()
    levels = objectives.measure_levels(judge.members, judge.scaling, data)
    wanted = {
        "pair_p90": np.quantile(apart, 0.9),
        "spread_p95": np.quantile(apart.max(axis=0), 0.95),
        "error_p95": np.quantile(np.abs(wrong).max(axis=0), 0.95),
        "pair_mean": apart.mean(),
    }
    assert {name: float(getattr(levels, name)) for name in wanted} == pytest.approx(wanted, rel=1e-3)


def test_calibration_looks_at_the_pair_that_is_furthest_apart():
    judge, data, apart, wrong = three_ways()
    found = objectives.calibration(judge, data)
    error = np.abs(wrong.mean(axis=0))
    assert found.rank_correlation == pytest.approx(stats.spearmanr(apart.max(axis=0), error)[0], abs=1e-3)
    assert found.reliability is not None
    assert np.mean(found.reliability.x) == pytest.approx(apart.max(axis=0).mean(), rel=1e-3)
    assert len(found.reliability.x) == len(found.reliability.y) == 10


def test_calibration_where_the_error_is_known():
    """Members that are wrong by 1 and 3 times |s_0|: doubt is 2 |s_0|, and so is the error of their average."""
    obs, data = unmoved(400)
    found = objectives.calibration(wrong_judge({0: 1.0}, {0: 3.0}), data)
    assert found.rank_correlation == pytest.approx(1.0, abs=1e-4)
    assert found.reliability is not None
    doubt, error = np.array(found.reliability.x), np.array(found.reliability.y)
    np.testing.assert_allclose(error, doubt, rtol=1e-4)
    size = np.sort(np.abs(obs[np.asarray(data.heldout)[:400], 0]))
    assert doubt.mean() == pytest.approx(2 * size.mean(), rel=1e-4)


def test_calibration_where_doubt_tells_nothing():
    """Wrong by s_0 and by a_0: doubt |s_0 - a_0| and the error of the average, |s_0 + a_0| / 2, are independent."""
    _, data = unmoved(20_000)
    found = objectives.calibration(wrong_judge({0: 1.0}, {OBS: 1.0}), data)
    n = int(np.asarray(data.heldout).sum())
    assert found.rank_correlation is not None and found.reliability is not None
    assert n > 1_000 and abs(found.rank_correlation) < 4 / np.sqrt(n)
    error = np.array(found.reliability.y)
    np.testing.assert_allclose(error, np.sqrt(1 / np.pi), rtol=0.25)  # the mean of |N(0, 1/2)|, in every group


def test_rows_beside_the_truth_end_where_it_ended():
    """In units of the task: start and change of a copy are others, and their sum is the same next state."""
    data = some_data()
    scaling = measure(data, learn_reward=True)
    rows = objectives.dynamics_rows(LEARNED, data, scaling)
    both = objectives.steadied(LEARNED, rows, scaling, 0.1, jax.random.PRNGKey(0))
    n = len(rows.x)
    assert both.heldout.tolist() == rows.heldout.tolist()
    assert both.train.tolist() == [*rows.train, *(rows.train + n)]
    np.testing.assert_array_equal(both.x[:n], rows.x)
    np.testing.assert_array_equal(both.y[:n], rows.y)

    def start_and_end(x: jax.Array, y: jax.Array) -> tuple[np.ndarray, np.ndarray]:
        mean, std, by, times = (
            np.asarray(part, float)[:OBS]
            for part in (scaling.obs_mean, scaling.obs_std, scaling.target_mean, scaling.target_std)
        )
        start = mean + std * np.asarray(x, float)[:, :OBS]
        return start, start + by + times * np.asarray(y, float)[:, :OBS]

    (s, e), (s2, e2) = (start_and_end(both.x[part], both.y[part]) for part in (slice(n), slice(n, None)))
    np.testing.assert_allclose(e2, e, rtol=1e-4, atol=1e-4)
    moved = (s2 - s) / np.asarray(scaling.target_std[:OBS])
    np.testing.assert_array_equal(both.y[n:, OBS:], rows.y[:, OBS:])  # so are reward and termination
    assert 0.07 < moved.std() < 0.13 and np.abs(moved.mean()) < 0.03
    np.testing.assert_array_equal(both.x[n:, OBS:], rows.x[:, OBS:])  # actions are as they were
