"""Algorithm 1 on the point mass: it learns, it says what it does, and it resumes to the same bits from everywhere."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray

from musbo.algorithms import imagined_findings, imagined_trpo
from musbo.algorithms.imagined_trpo import State, places
from musbo.algorithms.method import Forecast, Metrics
from musbo.core import serial
from musbo.core.diagnostics import Caution, Diagnostic, Findings
from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.dataset import Dataset, assemble
from musbo.learning import fit, handover, imagine
from musbo.learning.advantage import Ridge, RidgeValue, Value
from musbo.learning.explore import SeekingActor
from musbo.learning.handover import Rating
from musbo.learning.imagine import Imagine, Rollout
from musbo.learning.label import Disagreement, Seen, Signals
from musbo.learning.value import Ensemble
from musbo.models.actor import UniformActor
from musbo.models.dynamics import Dynamics
from musbo.models.labeler import Labeler
from musbo.models.mlp import MLP
from musbo.models.policy import Policy
from musbo.tasks.builtin import pointmass
from tests.algorithms.tiny import FIT, TINY, batch, same, true_return
from tests.learning.small import batch_of, f32, rollout_of

EPISODES = 20  # per deployment


@cache
def deployment(seed: int, number: int) -> tuple[Dataset, State, jax.Array, list[tuple[State, Metrics]]]:
    """D_all after deployment `number`, the state before training on it, the key of that training, and all it yields."""
    key = jax.random.fold_in(jax.random.PRNGKey(seed), number)
    before = TINY.begin(pointmass, jax.random.PRNGKey(seed)) if number == 1 else deployment(seed, number - 1)[3][-1][0]
    data = assemble(batches(seed, number), 2 * EPISODES * pointmass.episode_steps, seed)
    return data, before, key, list(TINY.train(pointmass, data, before, key))


@cache
def batches(seed: int, number: int) -> list:
    """The first actor is uniformly random; later ones are what the last training left."""
    before = TINY.begin(pointmass, jax.random.PRNGKey(seed)) if number == 1 else deployment(seed, number - 1)[3][-1][0]
    earlier = batches(seed, number - 1) if number > 1 else []
    return [*earlier, batch(TINY.actor(pointmass, before), EPISODES, 100 * seed + number)]


def diagnostic(metrics: Metrics, name: str) -> Any:
    """The value of one diagnostic among the findings."""
    (found,) = [one.value for one in metrics.findings.diagnostics if one.name == name]
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_it_learns(seed: int):
    """In the true world, after one deployment of random actions, and without looking there while it learns."""
    _, before, _, states = deployment(seed, 1)
    random, untrained = batches(seed, 1)[0].returns().mean(), true_return(before.policy)
    trained = true_return(states[-1][0].policy)
    print(f"random {random:.1f}, untrained {untrained:.1f}, trained {trained:.1f}")
    assert trained > untrained / 3 and trained > random / 3  # costs, so a third is much better


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_imagined_return_improves(seed: int):
    checks = [m for _, m in deployment(seed, 1)[3] if m.stage == "check"]
    assert [m.index for m in checks] == [0, 5, 10, 15, 20, 25, 30]
    returns = [m.numbers["imagined_return"] for m in checks]
    assert max(returns) > returns[0] / 3
    best = int(np.argmax(returns))
    assert diagnostic(deployment(seed, 1)[3][-1][1], "chosen") == checks[best].index  # what was handed over


def test_stages_in_the_order_of_the_pseudo_code():
    states = deployment(0, 1)[3]
    stages = [m.stage for _, m in states]
    assert list(dict.fromkeys(stages)) == ["dynamics", "labeler", "start", "check", "improve", "done"]
    assert [m.index for _, m in states if m.stage == "dynamics"] == list(range(1, FIT.epochs + 1))
    assert [m.index for _, m in states if m.stage == "improve"] == list(range(1, TINY.updates + 1))


def test_what_every_update_reports():
    """Steps inside the trust region, quantiles in order, nothing that is not a number."""
    for _, m in deployment(0, 1)[3]:
        if m.stage != "improve":
            continue
        row = m.numbers
        assert row["kl"] <= 1.5 * TINY.trpo.delta * (1 + 1e-3)
        assert row["gain"] > 0 if row["accepted"] else row["gain"] == row["kl"] == 0
        for name in ("U", "disagreement"):
            assert row[name] == sorted(row[name]) and np.isfinite(row[name]).all()
        assert row["U"][0] > 0 and row["U"][2] <= 1
        assert row["length"] == pytest.approx(TINY.imagine.horizon) and row["value_explained"] <= 1


def test_a_trajectory_that_runs_away_spoils_nothing():
    """Members that throw a state that is far out further: a few of 30 trajectories would leave the range of numbers."""
    data, _, key, states = deployment(0, 1)
    begun = next(state for state, m in states if m.stage == "check")
    M, P = begun.dynamics, begun.labeler
    assert M is not None and P is not None
    initial, anywhere, _ = places(TINY.imagine, pointmass, data, key)
    far = float(jnp.quantile(initial.obs[: int(initial.n), 0], 0.9))
    seen = (far - M.scaling.obs_mean[0]) / M.scaling.obs_std[0]  # as the networks see it

    def steep(network: MLP) -> MLP:
        """With one more hidden unit, which adds 30 times what the first coordinate is beyond `far`."""
        (first, last), (b_first, b_last) = network.weights, network.biases
        unit = jnp.zeros((first.shape[0], 1)).at[0].set(1.0)
        push = jnp.zeros((1, last.shape[1])).at[0, 0].set(30 * M.scaling.obs_std[0] / M.scaling.target_std[0])
        biases = jnp.append(b_first, -seen), b_last
        return replace(network, weights=(jnp.hstack([first, unit]), jnp.vstack([last, push])), biases=biases)

    def updated(model: Dynamics) -> tuple:
        start = initial, anywhere, jnp.asarray(0)
        parts = begun.policy, begun.value, model, P
        return imagined_trpo.update(TINY, pointmass, *parts, *start, key, key, jnp.asarray(True), jnp.ones(()))

    _, tame, *_ = updated(M)
    _, value, numbers, _ = updated(replace(M, members=jax.vmap(steep)(M.members)))
    assert 0.3 < float(numbers.length) / TINY.imagine.horizon < 0.99  # some were cut
    assert bool(numbers.accepted) and np.isfinite(float(numbers.value_explained))
    assert np.abs(np.asarray(value.weights)).max() < 100 * np.abs(np.asarray(tame.weights)).max()


def test_resuming_gives_the_same_bits():
    """The step after every yielded state, taken anew from that state alone, is the step that followed it.

    So by induction is every later one. A tenth of the epochs of the two long fits stand for all of them.
    """
    data, before, key, states = deployment(0, 1)
    everything = [(before, Metrics("")), *states]
    taken = 0
    for i, ((state, metrics), (wanted, told)) in enumerate(zip(everything[:-1], everything[1:], strict=True)):
        long_fit = metrics.stage in ("dynamics", "labeler") and metrics.index < FIT.epochs
        if long_fit and i % 10:
            continue
        # Every fifth one from a file, as after a kill.
        again = serial.decode(serial.encode(state), "state") if i % 5 == 0 else state
        got, says = next(TINY.train(pointmass, data, again, key))
        assert (got.stage, got.update, got.checked) == (wanted.stage, wanted.update, wanted.checked)
        assert says == told
        assert same(got, wanted), (got.stage, i)
        taken += 1
    assert taken > TINY.updates + 20


def test_a_whole_training_resumed_in_the_middle():
    data, _, key, states = deployment(0, 1)
    middle = next(i for i, (_, m) in enumerate(states) if m.stage == "improve" and m.index == TINY.check.every)
    *_, (final, _) = TINY.train(pointmass, data, serial.decode(serial.encode(states[middle][0]), "state"), key)
    assert same(final.policy, states[-1][0].policy)


def test_a_second_deployment_compiles_nothing_and_starts_warm():
    deployment.cache_clear()  # earlier tests may have trained, and what they compiled may have been let go since
    deployment(0, 1)
    compiled = (imagined_trpo._learn, imagine._trajectories, fit._train_member, fit.validation_error, handover.rate)
    before = [function._cache_size() for function in compiled]  # type: ignore[attr-defined]
    _, state, _, states = deployment(0, 2)
    assert [function._cache_size() for function in compiled] == before  # type: ignore[attr-defined]
    errors = {
        number: [m.numbers["error"] for _, m in deployment(0, number)[3] if m.stage == "dynamics"] for number in (1, 2)
    }
    assert errors[2][0] < errors[1][0]  # after one epoch: it did not begin anew
    assert states[0][0].policy.normaliser.mean[0] != state.policy.normaliser.mean[0]


def test_a_new_normaliser_does_not_change_the_policy():
    """The first yielded state has the new normaliser, and the policy that collected."""
    data, before, _, states = deployment(0, 2)
    policy = states[0][0].policy
    np.testing.assert_allclose(policy(data.obs), before.policy(data.obs), atol=1e-4)


def test_actors():
    _, before, _, states = deployment(0, 1)
    first = TINY.actor(pointmass, before)
    assert isinstance(first, UniformActor)
    np.testing.assert_array_equal(first.low, pointmass.low)
    later = TINY.actor(pointmass, states[-1][0])
    assert isinstance(later, SeekingActor)
    assert same(later.policy, states[-1][0].policy)


def test_a_key_decides():
    """Other randomness, another policy: nothing is drawn from a fixed seed by accident."""
    data, before, _, states = deployment(0, 1)
    other, _ = next(TINY.train(pointmass, data, before, jax.random.PRNGKey(77)))
    assert other.fit is not None and states[0][0].fit is not None
    assert not np.array_equal(other.fit.networks.weights[0], states[0][0].fit.networks.weights[0])


# The policy that is handed over, and what is said of it


def planted(returns: list[float], number: float) -> Rating:
    """A rating whose every number is its own."""
    return Rating(f32(returns), f32(10 * number), f32(number / 10), f32(number))


def test_what_is_promised_is_promised_of_the_chosen_policy(monkeypatch: pytest.MonkeyPatch):
    """The checks at 20, 25 and 30 rate 1.5, 6 and 3: the policy of 25 is handed over, with its own numbers."""
    data, _, key, states = deployment(0, 1)
    at_20 = next(state for state, m in states if m.stage == "improve" and m.index == 20)
    ratings = iter([planted([1.0, 2.0], 1), planted([5.0, 7.0], 2), planted([3.0, 3.0], 3)])
    monkeypatch.setattr(handover, "rate", lambda *args: next(ratings))
    seen = list(TINY.train(pointmass, data, replace(at_20, choice=None), key))
    checks = [(state, m) for state, m in seen if m.stage == "check"]
    assert [m.index for _, m in checks] == [20, 25, 30] and checks[-1][1].numbers["chosen"] == 25
    (best_state, best), (_, last), (end, done) = checks[1], checks[2], seen[-1]
    assert (done.stage, diagnostic(done, "chosen")) == ("done", 25) and same(end.policy, best_state.policy)
    assert done.forecast == best.forecast == Forecast(6.0, 20.0, None) and done.forecast != last.forecast
    for name, value in (("imagined_cut", 0.2), ("path_disagreement", 2.0)):
        assert diagnostic(done, name) == best.numbers[name] == pytest.approx(value) != last.numbers[name]


def test_the_clone_is_where_improvement_begins():
    """Line 5: the policy of the first check is the best of the clone, and not the one that collected."""
    states = deployment(0, 1)[3]
    cloned = [state for state, m in states if m.stage == "start"][-1]
    begun = next(state for state, m in states if m.stage == "check")
    assert cloned.fit is not None and not same(begun.policy, cloned.policy)
    assert same(begun.policy, TINY.start.policy(cloned.policy, cloned.fit))


def test_the_baseline_explains_returns_from_the_first_update_on():
    """It is fitted on the first batch before it is used there, and on every later one for the next."""
    explained = [m.numbers["value_explained"] for _, m in deployment(0, 1)[3] if m.stage == "improve"]
    assert explained[0] > 0.5 and np.mean(explained[-10:]) > 0.5


def test_quantiles_are_over_the_steps_that_exist():
    """Every fourth step of each trajectory is looked at; those that do not exist say nothing."""
    steps = np.tile(np.arange(8.0)[:, None], (1, 10))
    live = np.arange(8)[:, None] <= np.full(10, 3)
    signal = np.where(live, steps + np.arange(10), 1e6)
    (got,) = imagined_trpo.tenths(rollout_of(np.zeros((8, 10)), live=live), {"x": f32(signal)}).values()
    np.testing.assert_allclose(got, np.quantile(np.arange(10.0), [0.1, 0.5, 0.9]), rtol=1e-5)


def test_every_check_promises_what_it_saw():
    for _, m in deployment(0, 1)[3]:
        if m.stage == "check":
            wanted = Forecast(m.numbers["imagined_return"], m.numbers["imagined_length"], None)
            assert m.forecast == wanted and m.numbers["imagined_return"] == pytest.approx(
                np.mean(m.numbers["imagined_per_member"]), rel=1e-5
            )


def test_a_promise_is_of_whole_beginnings_only_where_enough_were_held_out():
    """Five held-out episodes are enough, four are not; where episodes can be begun anew none is needed."""
    n, steps = 40, 4
    obs = np.zeros((n, 2))
    data = assemble([batch_of(obs, np.zeros((n, 1)), obs, steps)], n, seed=0, heldout_share=0.5)
    out = np.flatnonzero(np.asarray(data.heldout) & np.asarray(data.initial))
    assert len(out) >= 5
    for count in (4, 5):
        some = replace(data, heldout=jnp.zeros(n, bool).at[out[:count]].set(True))
        assert imagined_trpo.from_beginnings(Imagine(), some) == (count == 5)
        assert imagined_trpo.from_beginnings(Imagine(starts="reset"), some)


@pytest.mark.parametrize(("cut", "warned"), [(0.0, False), (0.5, False), (0.51, True), (1.0, True), (None, False)])
def test_trajectories_that_were_cut(cut: float | None, warned: bool):
    found = imagined_findings.handed_over(25, cut, 1.5)
    assert {one.name: one.value for one in found.diagnostics} == {
        "chosen": 25, "imagined_cut": cut, "path_disagreement": 1.5
    }  # fmt: skip
    assert [one.kind for one in found.cautions] == ["cut"] * warned


def test_what_is_shown_at_the_end():
    """Whether doubt goes with error, beside the chosen policy."""
    _, _, _, states = deployment(0, 1)
    end, done = states[-1]
    names = [one.name for one in done.findings.diagnostics]
    assert names == ["chosen", "imagined_cut", "path_disagreement", "rank_correlation", "reliability"]
    assert -1 <= diagnostic(done, "rank_correlation") <= 1 and len(diagnostic(done, "reliability").x) == 10
    assert (end.stage, end.update, end.checked, end.choice) == ("collected", 0, -1, None)


def test_what_is_shown_of_every_update():
    """The quantiles of the label's signals, and its temperature."""
    updates = [m for _, m in deployment(0, 1)[3] if m.stage == "improve"]
    assert [m.over for m in updates] == [False] * (TINY.updates - 1) + [True]
    for m in updates:
        U = diagnostic(m, "U")
        assert [U.low, U.median, U.high] == m.numbers["U"] and diagnostic(m, "alpha") > 0


@stored("label/quiet-left")
@dataclass(frozen=True)
class QuietLeft:
    """A label of one's own: steps to the left of `edge` count for nothing, and where a step is is its signal."""

    edge: float = 0.0

    def __call__(self, rollout: Rollout, judge: Labeler, key: PRNGKeyArray) -> tuple[Rollout, Signals]:
        place = rollout.obs[..., 0]
        return replace(rollout, weight=jnp.where(place < self.edge, 0.0, 1.0)), {"place": place}

    def findings(self, judge: Labeler, seen: Seen) -> Findings:
        place = seen["place"]
        shown = Diagnostic("place", place, "place", "Where imagined steps are.", series="improve")
        left = place is not None and place.median < self.edge
        return Findings((shown,), (Caution("left", "most steps count for nothing"),) if left else ())


@pytest.mark.parametrize("edge", [-100.0, 100.0])
def test_a_label_of_ones_own(edge: float):
    """It is stored by its name, trains, and what it has to say is in the metrics of every update."""
    data, before, key, _ = deployment(0, 1)
    fit = replace(FIT, epochs=2, hidden=(8,))
    method = replace(TINY, label=QuietLeft(edge), dynamics=fit, labeler=fit, updates=2)
    assert serial.from_json(serial.to_json(method)) == method
    seen = [m for _, m in method.train(pointmass, data, before, key)]
    updates = [m for m in seen if m.stage == "improve"]
    assert len(updates) == 2 and seen[-1].stage == "done"
    assert [m.index for m in seen if m.stage == "check"] == [0, 2]  # every fifth, and after the last update
    for m in updates:
        place = diagnostic(m, "place")
        assert [place.low, place.median, place.high] == m.numbers["place"] and "U" not in m.numbers
        assert [one.kind for one in m.findings.cautions] == ["left"] * (edge > 0)
        assert m.numbers["accepted"] == (edge < 0)  # nothing to learn where nothing counts


def filled(starts: Any) -> list[float]:
    return np.asarray(starts.obs)[: int(starts.n), 0].tolist()


def test_places_to_start_from():
    """Initial states of training episodes, any training state, and initial states that were held out."""
    n, steps = 60, 5
    obs = np.stack([np.arange(n), np.zeros(n)], axis=1)
    data = assemble([batch_of(obs, np.zeros((n, 1)), obs, steps)], 80, seed=0, heldout_share=0.5)
    initial, anywhere, heldout = places(Imagine(), pointmass, data, jax.random.PRNGKey(0))
    out = np.asarray(data.heldout)[:n]
    first = np.arange(n) % steps == 0
    assert filled(initial) == np.flatnonzero(first & ~out).tolist()
    assert filled(anywhere) == np.flatnonzero(~out).tolist()
    assert filled(heldout) == np.flatnonzero(first & out).tolist()
    assert initial.obs.shape == anywhere.obs.shape == heldout.obs.shape == (80, 2)


def test_places_where_no_episode_begins():
    """As in a log that was cut out of a longer one: any state of each side."""
    n = 40
    obs = np.stack([np.arange(n), np.zeros(n)], axis=1)
    data = assemble([batch_of(obs, np.zeros((n, 1)), obs, 20)], 40, seed=0)
    initial, anywhere, heldout = places(
        Imagine(), pointmass, replace(data, initial=jnp.zeros(n, bool)), jax.random.PRNGKey(0)
    )
    out = np.asarray(data.heldout)
    assert filled(initial) == filled(anywhere) == np.flatnonzero(~out).tolist()
    assert filled(heldout) == np.flatnonzero(out).tolist()


@pytest.mark.parametrize("wrong", [{"updates": 0}, {"labeler": replace(FIT, members=1)}])
def test_impossible_settings(wrong: dict):
    with pytest.raises(UserError):
        replace(TINY, **wrong)


def test_updates_that_are_all_rejected_are_said():
    """Where U is 0 everywhere no step can be accepted: training says both instead of ending in silence."""
    data, before, key, _ = deployment(0, 1)
    blind = replace(TINY, label=Disagreement(alpha=1e9), updates=25, check=replace(TINY.check, every=25))
    said: dict[int, dict[str, str]] = {}
    for _, metrics in blind.train(pointmass, data, before, key):
        if metrics.stage == "improve":
            said[metrics.index] = {caution.kind: caution.text for caution in metrics.findings.cautions}
    assert set(said[19]) == {"nothing trusted"} and "U from 0.000 to 0.000" in said[19]["nothing trusted"]
    assert "the last 20 updates were rejected" in said[20]["updates rejected"]
    assert "the last 25 updates were rejected" in said[25]["updates rejected"]


@dataclass(frozen=True)
class Diverging:
    """A baseline whose every fit but the first is infinite."""

    def begin(self, obs_size: int, key: PRNGKeyArray) -> RidgeValue:
        return Ridge().begin(obs_size, key)

    def fit(self, value: RidgeValue, *rest: Any) -> RidgeValue:
        weights = Ridge().fit(value, *rest).weights
        return RidgeValue(jnp.where(jnp.any(value.weights != 0), jnp.inf, weights))


def test_a_baseline_that_is_no_longer_finite_stops_no_training():
    """The last sound one is kept: with infinite advantages every further update would be rejected."""
    data, _, key, states = deployment(0, 1)
    begun = next(state for state, m in states if m.stage == "check")
    M, P = begun.dynamics, begun.labeler
    assert M is not None and P is not None
    initial, anywhere, _ = places(TINY.imagine, pointmass, data, key)
    diverging = replace(TINY, baseline=Diverging())

    def updated(policy: Policy, value: Value, i: int) -> tuple:
        start = initial, anywhere, jnp.asarray(i)
        anew, whole = jnp.asarray(i == 0), jnp.ones(())
        policy, value, numbers, _ = imagined_trpo.update(
            diverging, pointmass, policy, value, M, P, *start, key, key, anew, whole
        )
        assert isinstance(value, RidgeValue) and np.isfinite(np.asarray(value.weights)).all() and value.weights.any()
        return policy, value, numbers

    policy, value, _ = updated(begun.policy, Diverging().begin(pointmass.obs_size, key), 0)
    _, _, numbers = updated(policy, value, 1)
    assert bool(numbers.accepted)


def test_updates_that_are_all_rejected_are_answered(monkeypatch: pytest.MonkeyPatch):
    """After twenty in a row there is a new V, fitted before it is used, and half of delta; after forty a quarter."""
    data, before, key, _ = deployment(0, 1)
    blind = replace(TINY, label=Disagreement(alpha=1e9), updates=42, check=replace(TINY.check, every=42))
    told: list[tuple[bool, float]] = []
    really = imagined_trpo.update

    def watched(*given):
        told.append((bool(given[-2]), float(given[-1])))
        return really(*given)

    begun: list[int] = []
    new = Ridge.begin
    monkeypatch.setattr(imagined_trpo, "update", watched)
    monkeypatch.setattr(Ridge, "begin", lambda *given: (begun.append(len(told)), new(*given))[1])
    for _ in blind.train(pointmass, data, before, key):
        pass
    assert [i for i, (anew, _) in enumerate(told) if anew] == [0, 20, 40]
    assert begun == [20, 40]
    assert [share for _, share in told] == [1.0] * 20 + [0.5] * 20 + [0.25] * 2


def test_rows_that_begin_anew_are_full():
    """Every imagined step is live where the world ends after a few of them, and V and sigma keep to their bounds."""

    def outside(next_obs):
        return jnp.abs(next_obs[0]) > 0.5

    short = replace(pointmass, name="short", terminated=outside)
    data, before, key, _ = deployment(0, 1)
    noise = replace(TINY.policy, learned_sigma=True, least_sigma=0.29)
    anew = replace(
        TINY, imagine=Imagine(30, 50, "initial", restart=True), baseline=Ensemble(hidden=(16,)), policy=noise, updates=6
    )
    state = begun = replace(before, value=anew.baseline.begin(pointmass.obs_size, key))
    for state, metrics in anew.train(short, data, begun, key):
        if metrics.stage == "improve":
            assert metrics.numbers["length"] < 25 and metrics.numbers["accepted"]
            assert float(jnp.exp(state.policy.log_sigma).min()) >= 0.29 - 1e-6
    assert state.stage == "collected"
    old = replace(anew, imagine=replace(anew.imagine, restart=False), updates=1)
    rows = {}
    for settings in (anew, old):
        where, again, k, _ = imagined_trpo._begin_update(
            settings.imagine, short, *places(settings.imagine, short, data, key)[:2], jnp.asarray(0), key
        )
        M = state.dynamics
        assert M is not None
        rows[settings] = imagine.imagine(
            short, settings.imagine, before.policy, M, where, jnp.asarray(0), k, k, again
        ).live.mean()
    assert rows[anew] > 0.99 > 2 * rows[old]
