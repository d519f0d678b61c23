"""Fitting: early stopping, best weights, schedules and resuming.

`Climb` is a fit that can be followed by hand: its loss has a constant gradient, for which Adam's step is the learning
rate itself, so that a member's one weight grows by the same amount at every step.
"""

import threading
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from musbo.core import serial
from musbo.core.errors import UserError
from musbo.data.dataset import assemble
from musbo.data.scaling import measure
from musbo.learning import fit, objectives
from musbo.learning.fit import Epoch, FitSettings, FitState, Rows, epochs
from musbo.models import labeler
from tests.learning.small import batch_of, endless, f32

KEY = jax.random.PRNGKey(0)


@dataclass(frozen=True)
class Climb:
    """The weight climbs; the error on held-out rows is its distance from their y."""

    slope: float = 1.0

    def loss(self, network: dict, x: Array, y: Array) -> Array:
        return -self.slope * network["w"][0, 0]

    def errors(self, network: dict, x: Array, y: Array) -> Array:
        return jnp.abs(network["w"][0, 0] - y[:, 0])

    def kernels(self, network: dict) -> tuple[Array, ...]:
        return (network["w"],)


SETTINGS = FitSettings(members=2, hidden=(1,), learning_rate=0.1, batch=4, epochs=20, l2=0.0)


def weights(*values: float) -> dict:
    return {"w": f32(values)[:, None, None]}


def rows(target: float = 0.3, train: int = 4, heldout: int = 2, capacity: int = 8) -> Rows:
    return Rows(
        jnp.zeros((capacity, 1)),
        jnp.full((capacity, 1), target),
        np.arange(train, dtype=np.int32),
        np.arange(train, train + heldout, dtype=np.int32),
    )


def climb(settings: FitSettings, start: dict, data: Rows, slope: float = 1.0) -> list[tuple[FitState, Epoch]]:
    return list(epochs(settings, Climb(slope), data, fit.begin(start), KEY))


def climbed(states: list[tuple[FitState, Epoch]]) -> np.ndarray:
    return np.stack([np.asarray(state.networks["w"])[:, 0, 0] for state, _ in states])


def test_each_member_stops_by_itself_and_keeps_its_best():
    """Steps of 0.1 towards 0.3 and beyond: from 0.0 the best is epoch 3, from -0.3 it is epoch 6; patience is 3."""
    states = climb(SETTINGS, weights(0.0, -0.3), rows())
    assert [m.active for _, m in states] == [2] * 5 + [1] * 3 + [0]
    assert [m.number for _, m in states] == list(range(1, 10))
    first = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.6, 0.6, 0.6]  # stopped after epoch 6, and does not move again
    second = [-0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    np.testing.assert_allclose(climbed(states), np.stack([first, second], axis=1), atol=1e-5)
    final = states[-1][0]
    np.testing.assert_allclose(final.best["w"][:, 0, 0], [0.3, 0.3], atol=1e-5)
    np.testing.assert_allclose(final.best_error, [0.0, 0.0], atol=1e-5)
    assert [list(map(int, state.waited)) for state, _ in states[5:]] == [[3, 0], [3, 1], [3, 2], [3, 3]]


def test_a_stopped_member_is_untouched():
    """Bit for bit, its optimiser included."""
    states = [state for state, _ in climb(SETTINGS, weights(0.0, -0.3), rows())]
    for name in ("networks", "moments", "best"):
        stopped, later = (jax.tree.map(lambda leaf: np.asarray(leaf)[0], getattr(states[i], name)) for i in (5, 8))
        jax.tree.map(np.testing.assert_array_equal, stopped, later)


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_patience(patience: int):
    states = climb(replace(SETTINGS, patience=patience), weights(0.0, 0.0), rows())
    assert len(states) == 3 + patience


@dataclass(frozen=True)
class Dip:
    """As Climb, but the error rises twice before it falls lower than ever, and then rises for good."""

    loss = Climb.loss
    kernels = Climb.kernels
    slope: float = 1.0

    def errors(self, network: dict, x: Array, y: Array) -> Array:
        w = network["w"][0, 0]
        return jnp.where(w < 0.35, w, jnp.abs(w - 0.5) - 1) * jnp.ones_like(y[:, 0])


def test_an_improvement_starts_the_waiting_anew():
    states = [state for state, _ in epochs(SETTINGS, Dip(), rows(), fit.begin(weights(0.0, 0.0)), KEY)]
    assert [int(state.waited[0]) for state in states] == [0, 1, 2, 0, 0, 1, 2, 3]
    np.testing.assert_allclose(states[-1].best["w"][:, 0, 0], 0.5, atol=1e-5)


def test_an_error_that_is_no_number_is_never_the_best():
    states = climb(SETTINGS, weights(0.0, float("nan")), rows())
    final = states[-1][0]
    assert float(final.best["w"][0, 0, 0]) == pytest.approx(0.3, abs=1e-5)
    assert not np.isfinite(final.best_error[1]) and int(states[2][0].active.sum()) == 1


def test_cosine():
    """0.5 (1 + cos(pi i / total)) of the rate at step i, over epochs of two steps."""
    settings = replace(SETTINGS, decay="cosine", epochs=5, patience=99)
    states = climb(settings, weights(0.0, 0.0), rows(train=8, capacity=10))
    rates = 0.1 * 0.5 * (1 + np.cos(np.pi * np.arange(10) / 10))
    np.testing.assert_allclose(climbed(states)[:, 0], np.cumsum(rates)[1::2], atol=1e-5)


@pytest.mark.parametrize(("train", "max_steps", "wanted"), [(8, 7, 3), (8, 1, 1), (8, 100, 20), (11, 6, 3), (3, 2, 2)])
def test_max_steps(train: int, max_steps: int, wanted: int):
    """An epoch is train // 4 steps; a part of a minibatch is left for another epoch's order."""
    settings = replace(SETTINGS, max_steps=max_steps, patience=99)
    states = climb(settings, weights(0.0, 0.0), rows(train=train, capacity=16))
    assert len(states) == wanted == states[0][1].of
    assert climbed(states)[-1, 0] == pytest.approx(0.1 * wanted * max(1, train // 4), abs=1e-4)


def test_l2_is_on_the_kernels_and_over_the_number_of_rows():
    """The gradient of l2 / n w^2 is 2 l2 w / n: with l2 = 6, n = 4 and w = 2 it balances a slope of 6 exactly."""
    settings = replace(SETTINGS, l2=6.0, epochs=3)
    assert np.array_equal(climbed(climb(settings, weights(2.0, 2.0), rows(), slope=6.0)), np.full((3, 2), 2.0))
    assert (climbed(climb(settings, weights(2.1, 2.1), rows(), slope=6.0))[0] < 2.1).all()
    assert (climbed(climb(settings, weights(1.9, 1.9), rows(), slope=6.0))[0] > 1.9).all()


def test_the_error_is_over_held_out_rows_alone():
    """Padding and free rows must not count: here they are far away."""
    data = rows(heldout=2)
    y = np.full((8, 1), 1000.0)
    y[4:6, 0] = [0.2, 0.6]
    states = climb(replace(SETTINGS, epochs=1), weights(0.0, 0.0), replace(data, y=f32(y)))
    assert states[0][1].error == pytest.approx(np.mean([0.1, 0.5]), abs=1e-5)
    assert states[0][1].error_per_member == pytest.approx((0.3, 0.3), abs=1e-5)


def test_more_held_out_rows_than_one_chunk():
    n = fit.CHUNK + 5
    data = rows(heldout=n, capacity=n + 4)
    y = np.zeros((n + 4, 1))
    y[-1] = 0.1 * n
    states = climb(replace(SETTINGS, epochs=1), weights(0.0, 0.0), replace(data, y=f32(y)))
    assert states[0][1].error == pytest.approx((0.1 * (n - 1) + 0.1 * n - 0.1) / n, rel=1e-4)


def orders(settings: FitSettings, epoch: int, data: Rows) -> np.ndarray:
    return np.stack([fit._order(settings, data, KEY, epoch, k) for k in range(settings.members)])


def test_members_see_the_same_rows_in_their_own_order():
    data = replace(rows(train=40, capacity=60), train=np.arange(3, 43, dtype=np.int32))
    first, later = (orders(SETTINGS, epoch, data) for epoch in (0, 1))
    for order in (*first, *later):
        np.testing.assert_array_equal(np.sort(order), data.train)
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first[0], later[0])


def test_bootstrap_rows_belong_to_the_member():
    data = rows(train=1000, capacity=1200)
    settings = replace(SETTINGS, bootstrap=True)
    first, later = (orders(settings, epoch, data) for epoch in (0, 1))
    for k in range(2):
        np.testing.assert_array_equal(np.sort(first[k]), np.sort(later[k]))
        assert not np.array_equal(first[k], later[k])
        assert len(np.unique(first[k])) == pytest.approx(1000 * (1 - np.exp(-1)), rel=0.05)
    assert not np.array_equal(np.sort(first[0]), np.sort(first[1]))
    assert set(first.ravel()) <= set(data.train)


def small_fit() -> tuple[FitSettings, Rows, FitState]:
    """A real one: 80 rows of a noisy system, in arrays that have room for 100."""
    rng = np.random.default_rng(0)
    obs, act = rng.normal(size=(80, 2)), rng.uniform(-1, 1, (80, 1))
    batch = batch_of(obs, act, obs + 0.1 * np.tanh(obs) + 0.1 * act + 0.01 * rng.normal(size=(80, 2)), 8)
    data = assemble([batch], 100, seed=0)
    scaling = measure(data, learn_reward=False)
    settings = FitSettings(members=2, hidden=(4,), activation="silu", batch=16, epochs=6, decay="cosine")
    start = objectives.begin_dynamics(endless, settings, None, scaling, KEY)
    return settings, objectives.dynamics_rows(endless, data, scaling), start


def test_resuming_gives_the_same_bits():
    """From every yielded state, as it is and as it comes back from a file."""
    settings, data, start = small_fit()
    objective = objectives.SquaredError()
    states = [state for state, _ in epochs(settings, objective, data, start, KEY)]
    assert len(states) == 6
    for i, state in enumerate([start, *states]):
        for again in (state, serial.decode(serial.encode(state), "state")):
            rest = [s for s, _ in epochs(settings, objective, data, again, KEY)]
            assert len(rest) == len(states) - i
            jax.tree.map(np.testing.assert_array_equal, rest[-1] if rest else again, states[-1])


def test_the_number_of_cores_changes_no_bit(monkeypatch: pytest.MonkeyPatch):
    settings, data, start = small_fit()
    ends = []
    for cores in ([0], [0, 1], [0, 1, 2, 3]):
        monkeypatch.setattr(fit, "usable_cores", lambda cores=cores: cores)
        ends.append([s for s, _ in epochs(settings, objectives.SquaredError(), data, start, KEY)][-1])
    for end in ends[1:]:
        jax.tree.map(np.testing.assert_array_equal, end, ends[0])


def test_an_epoch_in_one_stretch_or_several_has_the_same_bits(monkeypatch: pytest.MonkeyPatch):
    settings, data, start = small_fit()
    ends = []
    for stretch in (200, 3, 2, 1):  # an epoch has four minibatches
        monkeypatch.setattr(fit, "STRETCH", stretch)
        ends.append([s for s, _ in epochs(settings, objectives.SquaredError(), data, start, KEY)][-1])
    for end in ends[1:]:
        jax.tree.map(np.testing.assert_array_equal, end, ends[0])


def test_a_fit_that_is_left_leaves_no_thread():
    settings, data, start = small_fit()
    before = threading.active_count()
    fitting = epochs(settings, objectives.SquaredError(), data, start, KEY)
    next(fitting)
    assert threading.active_count() > before  # the next epoch is under way
    fitting.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_an_error_in_a_thread_is_raised():
    settings, data, start = small_fit()

    class Broken(objectives.SquaredError):
        def loss(self, network, x, y):
            raise ZeroDivisionError("of the loss")

    with pytest.raises(ZeroDivisionError, match="of the loss"):
        list(epochs(settings, Broken(), data, start, KEY))


def test_it_compiles_once():
    """Neither a state's age nor a file that it went through changes what is compiled for it."""
    settings, data, start = small_fit()
    states = [state for state, _ in epochs(settings, objectives.SquaredError(), data, start, KEY)]
    before = fit._train_member._cache_size()  # type: ignore[attr-defined]
    for state in (start, states[0], serial.decode(serial.encode(states[0]), "state")):
        next(epochs(settings, objectives.SquaredError(), data, state, KEY))
    assert fit._train_member._cache_size() == before  # type: ignore[attr-defined]
    for network in (start.networks, labeler.init_members(KEY, endless, (4,), "silu", 2)):
        assert not any(leaf.weak_type for leaf in jax.tree.leaves(fit.begin(network)))


def test_another_key_another_order():
    settings, data, start = small_fit()
    one, two = (
        list(epochs(settings, objectives.SquaredError(), data, start, key))[-1][0]
        for key in (KEY, jax.random.PRNGKey(1))
    )
    assert not np.array_equal(one.networks.weights[0], two.networks.weights[0])


@pytest.mark.parametrize("empty", ["train", "heldout"])
def test_nothing_to_fit(empty: str):
    with pytest.raises(UserError, match="at least one training and one held-out"):
        climb(SETTINGS, weights(0.0, 0.0), replace(rows(), **{empty: np.zeros(0, np.int32)}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": 0},
        {"batch": 0},
        {"epochs": 0},
        {"patience": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"l2": -1.0},
        {"l2": float("nan")},
        {"hidden": ()},
        {"hidden": (0,)},
        {"max_steps": 0},
    ],
)
def test_impossible_settings(wrong: dict):
    with pytest.raises(UserError):
        FitSettings(**wrong)


def test_trimmed_by_hand():
    """Of 12 episodes two are left out (a tenth, rounded up), the worst by their mean; the rest count by their rows."""
    episode = np.repeat(np.arange(12), [1, 9, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5])
    errors = np.ones(60)
    errors[episode == 0] = 50.0  # one row, the worst mean
    errors[episode == 1] = 9.0  # nine rows
    errors[episode == 2] = 3.0
    assert fit.trimmed(errors, episode) == pytest.approx((5 * 3.0 + 45 * 1.0) / 50)
    assert fit.trimmed(errors, 7 - episode) == pytest.approx((5 * 3.0 + 45 * 1.0) / 50)  # numbers are but names
    assert fit.trimmed(np.array([1.0, 1.0, 9.0]), np.array([0, 1, 2])) == 1.0  # of three the worst
    assert fit.trimmed(np.array([1.0, 9.0]), np.array([0, 1])) == 5.0  # two are too few
    assert fit.trimmed(np.array([1.0, 9.0]), np.array([4, 4])) == 5.0


def test_one_episode_cannot_own_the_check():
    """Three episodes would have the weight at 0.5, a fourth, of one row, at -9: on average it had better never move."""
    target = np.full((12, 1), 0.5)
    target[11] = -9.0
    data = Rows(
        jnp.zeros((12, 1)), f32(target), np.arange(4, dtype=np.int32), np.arange(5, 12, dtype=np.int32),
        np.array([1, 1, 2, 2, 3, 3, 7]),
    )  # fmt: skip
    owned = replace(data, heldout=np.array([5, 11], np.int32), episode=np.array([1, 7]))
    settings = replace(SETTINGS, patience=99, epochs=10)
    assert climb(settings, weights(0.0, 0.0), owned)[-1][0].best["w"].max() <= 0.5 + 1e-5
    kept = climb(replace(settings, judged_by="trimmed"), weights(0.0, 0.0), data)[-1]
    np.testing.assert_allclose(kept[0].best["w"][:, 0, 0], 0.5, atol=1e-5)
    np.testing.assert_allclose(kept[1].error, 0.0, atol=1e-5)


def test_errors_of_rows():
    """More than a chunk of them, each by itself."""
    n = fit.CHUNK + 100
    y = np.arange(n, dtype=np.float32)[:, None]
    heldout = np.pad(np.arange(n), (0, 2 * fit.CHUNK - n)).astype(np.int32)
    got = fit.row_errors(Climb(), {"w": f32([[3.0]])}, f32(y), f32(y), jnp.asarray(heldout), jnp.asarray(n))
    np.testing.assert_allclose(np.asarray(got)[:n], np.abs(3.0 - y[:, 0]))


@pytest.mark.parametrize(("least", "wanted"), [(0, 5), (3, 5), (12, 12), (13, 13), (99, 20)])
def test_few_data_are_seen_more_often(least: int, wanted: int):
    """One minibatch is an epoch here, and there are no more than 20."""
    settings = replace(SETTINGS, passes=5, least_steps=least, epochs=20, patience=99)
    assert len(climb(settings, weights(0.0, 0.0), rows())) == wanted


@pytest.mark.parametrize(("rows", "wanted"), [(2000, 6000), (50_000, 32_000), (90_000, 50_000), (10**6, 48_000)])
def test_the_length_of_a_fit_follows_the_data(rows: int, wanted: int):
    """80 passes of minibatches of 125; at least 6,000 and at most 50,000 of them."""
    settings = FitSettings(batch=125, epochs=1000, passes=80, least_steps=6000, max_steps=50_000)
    steps = rows // 125
    assert fit.planned_epochs(settings, steps) * steps == pytest.approx(wanted, abs=steps)


@pytest.mark.parametrize("wrong", [{"least_steps": -1}, {"passes": 0}])
def test_impossible_lengths(wrong: dict):
    with pytest.raises(UserError):
        FitSettings(**wrong)


def test_a_bootstrap_draws_whole_episodes():
    """As many rows as there are, in episodes one after the other, of which the last one is cut."""
    episode = np.repeat([4, 5, 9, 11], [3, 1, 5, 2])
    train = np.arange(100, 111, dtype=np.int32)
    own = {name: train[episode == name].tolist() for name in (4, 5, 9, 11)}
    data = replace(rows(), train=train, resampled=episode)
    seen = set()
    for seed in range(50):
        drawn = fit._drawn(data, np.random.default_rng(seed)).tolist()
        assert len(drawn) == len(train)
        left = drawn
        while left:
            name = int(episode[left[0] - 100])
            assert left[: len(own[name])] == own[name][: len(left)]
            seen.add(name)
            left = left[len(own[name]) :]
    assert seen == set(own)


def test_the_bootstrap_of_a_member_is_the_same_in_every_epoch():
    data = replace(rows(train=40, capacity=50), resampled=np.repeat(np.arange(10), 4))
    settings = replace(SETTINGS, bootstrap=True)
    first, second, other = (fit._order(settings, data, KEY, epoch, k) for epoch, k in ((0, 0), (1, 0), (0, 1)))
    assert first.tolist() != second.tolist() and sorted(first) == sorted(second) != sorted(other)
