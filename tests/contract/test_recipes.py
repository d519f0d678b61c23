"""The contract: what every method has to do, whatever it is. A new recipe is in this suite by being a recipe."""

from dataclasses import asdict, replace
from functools import cache, singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.algorithms.floors import Chance, Imitation
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.method import Method
from musbo.algorithms.model_free import ModelFree
from musbo.algorithms.mopo import MOPO
from musbo.algorithms.recipes import ALGORITHMS, recipe
from musbo.algorithms.together import Together
from musbo.algorithms.value_gradients import ValueGradients
from musbo.core import serial
from musbo.core.registry import kinds
from musbo.data.batch import Batch, make_batch
from musbo.data.dataset import Dataset, assemble
from musbo.learning import soft
from musbo.models.actor import UniformActor
from musbo.tasks.builtin import pointmass
from tests.algorithms.tiny import batch, same

EPISODES = 20


@singledispatch
def small(method: Any) -> Any:
    """The same method at a size for tests: a class of methods that is missing here fails loudly."""
    raise NotImplementedError(f"say in tests/contract how a small {type(method).__name__} looks")


@small.register
def _(method: ImaginedTRPO) -> ImaginedTRPO:
    fit = {"members": 2, "hidden": (32, 32), "epochs": 60, "patience": 60, "batch": 100}
    return replace(
        method,
        dynamics=replace(method.dynamics, **fit),
        labeler=replace(method.labeler, **fit),
        policy=replace(method.policy, hidden=(16,)),
        imagine=replace(method.imagine, rollouts=30, horizon=50),
        updates=30,
    )


@small.register
def _(method: ModelFree) -> ModelFree:
    networks = replace(method.soft, actor=(32, 32), critic=(32, 32), batch=64, learning_rate=2e-3, gamma=0.95)
    return replace(method, soft=networks, steps=3000, regulariser=method.regulariser.narrower(32))


@small.register
def _(method: MOPO) -> MOPO:
    fit = replace(method.dynamics, members=3, hidden=(32, 32), epochs=250, patience=250, batch=100)
    networks = replace(method.soft, actor=(32, 32), critic=(32, 32), batch=64, learning_rate=2e-3, gamma=0.95)
    return replace(
        method, dynamics=fit, elites=2, decay=(2.5e-5, 5e-5, 1e-4), branches=200, refresh=250, soft=networks, steps=3000
    )


@small.register
def _(method: ValueGradients) -> ValueGradients:
    fit = replace(method.dynamics, members=2, hidden=(32, 32), epochs=60, patience=60, batch=100)
    networks = replace(method.climb, actor=(16,), critic=(32,), actor_rate=5e-3, critic_rate=5e-3)
    window = replace(method.window, imagined=400, steps=8)
    rival = replace(method.soft, actor=(16,), critic=(32,), batch=32)
    return replace(method, dynamics=fit, climb=networks, window=window, updates=150, patience=5, soft=rival, steps=1000)


@small.register
def _(method: Together) -> Together:
    return Together(small(method.first), small(method.second))


@small.register
def _(method: Imitation) -> Imitation:
    return replace(method, policy=replace(method.policy, hidden=(16,)))


@small.register
def _(method: Chance) -> Chance:
    return method


def brief(method: Any) -> Any:
    """Even smaller: where only the course of events matters."""
    match method:
        case ImaginedTRPO():
            few = {"epochs": 3}  # the networks of `small`: what is compiled for the one serves the other
            return replace(
                method, dynamics=replace(method.dynamics, **few), labeler=replace(method.labeler, **few), updates=6
            )
        case ModelFree():
            return replace(method, steps=1000)
        case MOPO():
            few = replace(method.dynamics, epochs=3)
            return replace(method, dynamics=few, refresh=500, steps=1000)
        case ValueGradients():
            few = replace(method.dynamics, epochs=3)
            check = replace(method.check, every=3)
            return replace(method, dynamics=few, updates=6, patience=2, check=check, steps=600)
        case Together():
            return Together(brief(method.first), brief(method.second))
    return method


NAMES = list(ALGORITHMS)
# Their label, start and explorer, or both of their methods, are each that of another one, which is in the short form.
COMBINED = ("musbo-coefficient", "musbo-collection", "musbo-constant-noise", "together")
EACH = [pytest.param(name, marks=pytest.mark.long) if name in COMBINED else name for name in NAMES]
LEARNERS = [name for name, known in ALGORITHMS.items() if not known.floor and name not in COMBINED]
LEARNERS += [pytest.param(name, marks=pytest.mark.long) for name in COMBINED]


def method(name: str) -> Any:
    return small(recipe(name, "quick", "pointmass"))


@cache
def random_batch(seed: int = 0) -> Batch:
    return batch(UniformActor(jnp.asarray(pointmass.low), jnp.asarray(pointmass.high)), EPISODES, seed)


@cache
def random_data(seed: int = 0) -> Dataset:
    return assemble([random_batch(seed)], 2 * EPISODES * pointmass.episode_steps, seed)


def trained(name: str, seed: int = 0) -> Any:
    m, key = method(name), jax.random.PRNGKey(seed)
    before = m.begin(pointmass, key)
    return list(m.train(pointmass, random_data(seed), before, jax.random.fold_in(key, 1)))[-1][0]


@cache
def course(name: str) -> tuple[Any, list[Any]]:
    """A brief training: the state that it began with, and all that it yielded."""
    m, key = brief(method(name)), jax.random.PRNGKey(7)
    before = m.begin(pointmass, key)
    return before, list(m.train(pointmass, random_data(), before, key))


def value_of(policy: Any) -> float:
    """Mean return of the deterministic policy in the true world."""
    played = batch(Deterministic(policy), 20, seed=1000)  # type: ignore[arg-type]
    return float(played.returns().mean())


class Deterministic:
    """A policy as an actor, for the loop of these tests."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def act(self, obs: Any, key: Any, *past: Any) -> tuple[Any, Any]:
        return self.policy(obs), jnp.zeros(len(obs))


jax.tree_util.register_pytree_node(Deterministic, lambda d: ((d.policy,), None), lambda _, parts: Deterministic(*parts))


def test_every_class_of_methods_is_known():
    assert {type(recipe(name, "quick", "pointmass")) for name in NAMES} == set(kinds("method").values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", ["quick", "fast", "thorough", "paper"])
def test_a_method_is_a_value(name: str, preset: Any):
    value = recipe(name, preset, "hopper")
    assert isinstance(value, Method)
    assert hash(value) == hash(recipe(name, preset, "hopper"))
    assert serial.from_json(serial.to_json(value)) == value


@pytest.mark.parametrize("name", LEARNERS)
def test_it_learns(name: str):
    """From one batch of random actions on the point mass, at least twice as good as those, in the true world."""
    random = random_batch().returns().mean()
    learned = value_of(trained(name).policy)
    print(f"{name}: random {random:.1f}, learned {learned:.1f}")
    assert learned > random / 2  # costs


@pytest.mark.parametrize("name", EACH)
def test_actions_stay_inside_the_bounds(name: str):
    m, state = method(name), course(name)[1][-1][0]
    wild = 100.0 * jax.random.normal(jax.random.PRNGKey(5), (50, pointmass.obs_size))
    zeros = jnp.zeros((50, pointmass.act_size))
    act, zeta = m.actor(pointmass, state).act(wild, jax.random.PRNGKey(6), wild, zeros, jnp.zeros(50, bool))
    for actions in (act, state.policy(wild)):
        assert np.isfinite(actions).all()
        assert (np.asarray(actions) >= pointmass.low - 1e-6).all() and (
            np.asarray(actions) <= pointmass.high + 1e-6
        ).all()
    assert np.isfinite(zeta).all()


@pytest.mark.parametrize("name", EACH)
def test_it_resumes_to_the_same_bits_from_everywhere(name: str):
    """States that training yields go through bytes, the first one too, and training goes on from there."""
    m, key = brief(method(name)), jax.random.PRNGKey(7)
    before, states = course(name)
    assert same(list(m.train(pointmass, random_data(), before, key))[-1][0], last := states[-1][0])
    for state, metrics in states[:: max(1, len(states) // 4)]:
        if metrics.stage == "done":
            continue
        copy = serial.decode(serial.encode(state))
        assert same(copy, state)
        again = list(m.train(pointmass, random_data(), copy, key))[-1][0]
        assert same(again, last), f"other bits when resumed from {metrics.stage} {metrics.index}"


@pytest.mark.parametrize("name", EACH)
def test_a_model_can_be_asked_or_there_is_none(name: str):
    m = brief(method(name))
    obs, act = (jnp.asarray(part[:7]) for part in (random_batch().obs, random_batch().act))
    before, states = course(name)
    assert m.foresight(before) is None
    model = m.foresight(states[-1][0])
    assert (model is None) == isinstance(m, ModelFree | Imitation | Chance)
    if model is not None:
        courses, lengths, rewards = model.courses(pointmass, obs, 3, None)
        assert courses.shape == (7, 3, pointmass.obs_size) and np.isfinite(courses).all()
        assert np.asarray(lengths).tolist() == [3] * 7 and np.isfinite(rewards).all()
        doubt = model.doubt(obs, act)
        assert doubt.shape == (7,) and np.isfinite(doubt).all() and (np.asarray(doubt) > 0).all()


@pytest.mark.parametrize("name", EACH)
def test_a_second_deployment(name: str):
    """The trained actor collects, and training goes on from the carried-over state with stages as announced."""
    m, key, state = brief(method(name)), jax.random.PRNGKey(8), course(name)[1][-1][0]
    second = batch(m.actor(pointmass, state), EPISODES, seed=9)
    data = assemble([random_batch(), second], 2 * EPISODES * pointmass.episode_steps, 0)
    seen = list(m.train(pointmass, data, state, jax.random.fold_in(key, 2)))
    beside = ("check", "learned", "trust region", "check (value gradients)")  # reports on the side
    stages = list(dict.fromkeys(metrics.stage for _, metrics in seen if metrics.stage not in beside))
    assert stages == [*(stage.name for stage in m.stages), "done"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(seen[-1][0].policy))


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(method(name), ModelFree | MOPO)])
def test_actor_and_critics_are_carried_over(name: str):
    """With a step size of nothing, the next training hands over the same policy and the same Q, normalised anew."""
    m, key, before = brief(method(name)), jax.random.PRNGKey(11), course(name)[1][-1][0]
    wider = replace(random_batch(5), obs=3 * random_batch(5).obs + 1, next_obs=3 * random_batch(5).next_obs + 1)
    data = assemble([random_batch(), wider], 2 * EPISODES * pointmass.episode_steps, 0)
    still = replace(m, soft=replace(m.soft, learning_rate=1e-20), steps=1)
    after = list(still.train(pointmass, data, before, key))[-1][0]
    assert not np.allclose(after.frame.normaliser.std, before.frame.normaliser.std, rtol=0.1)
    obs, act = (jnp.asarray(part[:50]) for part in (random_batch().obs, random_batch().act))
    np.testing.assert_allclose(after.policy(obs), before.policy(obs), rtol=1e-3, atol=1e-3)
    q = [soft.twin(s.networks.critics)(s.frame.see(obs), s.frame.share(act)) for s in (before, after)]
    np.testing.assert_allclose(q[1], q[0], rtol=1e-3, atol=1e-2)


def awkward(kind: str) -> Batch:
    rng = np.random.default_rng(0)
    n, obs, act = 200, pointmass.obs_size, pointmass.act_size
    columns = {
        "obs": rng.normal(size=(n, obs)).astype(np.float32),
        "act": rng.uniform(-1, 1, (n, act)).astype(np.float32),
        "reward": rng.normal(size=n).astype(np.float32),
    }
    columns["next_obs"] = (columns["obs"] + 0.1 * rng.normal(size=(n, obs))).astype(np.float32)
    ends = np.arange(n) % 20 == 19
    terminated = np.zeros(n, bool)
    if kind == "constant columns":
        columns["obs"][:, 1] = columns["next_obs"][:, 1] = 3.0
        columns["act"][:, 0] = 1.0  # on the bound, where a squashed Gaussian has no density
    if kind == "one episode":
        ends = np.arange(n) == n - 1
    if kind == "terminations everywhere":
        terminated, ends = np.ones(n, bool), np.zeros(n, bool)
    return make_batch(**columns, terminated=terminated, truncated=ends & ~terminated)


@pytest.mark.parametrize("kind", ["constant columns", "one episode", "terminations everywhere"])
@pytest.mark.parametrize("name", EACH)
def test_awkward_data(name: str, kind: str):
    m, key = brief(method(name)), jax.random.PRNGKey(11)
    data = assemble([awkward(kind)], 2 * EPISODES * pointmass.episode_steps, 0)
    for state, metrics in m.train(pointmass, data, m.begin(pointmass, key), key):
        numbers = [x for x in jax.tree.leaves(asdict(metrics)) if isinstance(x, float)]
        assert np.isfinite(numbers).all(), metrics
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.policy))
