"""Small simulated campaigns, in each of which one candidate stands before the gate, and what it would really earn.

A campaign learns for one to three deployments. Its newest policy that has collected a batch is the incumbent; the
candidate is the policy trained on all of it, or a spoilt one. What the candidate is, and everything else, follows from
the seed. Both are measured in the simulator, which neither the campaign nor the gate sees.
"""

from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from musbo.algorithms.method import Method
from musbo.algorithms.recipes import recipe
from musbo.campaign.changes import changed
from musbo.data.batch import Batch, concatenate, rows_of
from musbo.data.dataset import Dataset, assemble
from musbo.data.history import stacked_batch
from musbo.field import simulate
from musbo.field.find import find_task
from musbo.gate.evidence import gather
from musbo.learning.imagine import Imagine, draw_starts
from musbo.learning.places import places
from musbo.models.frame import AnyPolicy
from musbo.tasks.builtin import pendulum, pointmass
from musbo.tasks.history import stacked
from musbo.tasks.task import Factory, Task

EXAMPLE = Path(__file__).parents[2] / "examples" / "plant"
METHODS = {
    "musbo": {"updates": 30},
    "uvg": {"updates": 120, "steps": 2000},
    "sac": {"steps": 2000},
}
"""Short trainings: a campaign that has not converged yet has something to gain and something to lose."""
SIZES = {"pendulum": 600, "pointmass": 600, "plant": 1500}
MEASURED = {"pendulum": 60, "pointmass": 60, "plant": 20}
"""Episodes in which a policy is measured."""
KINDS = ("next", "next", "next", "noisy", "earlier", "offset", "overfitted")
"""What a candidate is: the next policy; that with noise on its weights; an earlier policy than the incumbent, or the
next one where there is none; the next one with its actions moved; one that climbed far in models of too few data."""


@dataclass(frozen=True)
class Verdict:
    """What the gate saw of one candidate, and the truth."""

    seed: int
    task: str
    method: str
    kind: str
    deployments: int
    evidence: dict[str, Any]
    """As gathered."""
    imagined: tuple[float, float] | None
    """What the models of the campaign itself promise of candidate and incumbent; None: the method has none."""
    candidate: float
    """Its real mean return."""
    incumbent: float
    random: float
    behaviour: float
    """Mean return in the newest batch."""


def campaign(seed: int) -> Verdict:
    rng = np.random.default_rng([seed, 2])
    name = ("pendulum", "pointmass", "plant")[int(rng.integers(3))]
    algo = tuple(METHODS)[int(rng.integers(len(METHODS)))]
    kind = KINDS[int(rng.integers(len(KINDS)))]
    deployments = int(rng.integers(2, 4))
    task = task_of(name)
    seen, method = stacked(task), method_of(name, algo)
    key = jax.random.PRNGKey(seed)
    state = method.begin(seen, jax.random.fold_in(key, 0))
    batches: list[Batch] = []
    policies: list[AnyPolicy] = []
    for d in range(deployments):
        parts = simulate.collect(task, method.actor(seen, state), SIZES[name], seed * 10 + d)
        batches.append(concatenate([part.batch for part in parts]))
        data = everything(task, batches, seed)
        for reached, _ in method.train(seen, data, state, jax.random.fold_in(key, d + 1)):
            state = reached
        policies.append(state.policy)
    incumbent = policies[-2]
    kind = "next" if kind == "earlier" and deployments < 3 else kind
    candidate = spoilt(kind, policies, seen, batches, seed)
    data = everything(task, batches, seed)
    evidence = gather(seen, data, candidate, incumbent, jax.random.fold_in(key, 100))
    truth = [
        float(simulate.evaluate(task, each, MEASURED[name], seed).returns.mean()) for each in (candidate, incumbent)
    ]
    imagined = promises(method, state, seen, data, candidate, incumbent)
    return Verdict(
        seed=seed,
        task=name,
        method=algo,
        kind=kind,
        deployments=deployments,
        evidence=asdict(evidence),
        imagined=imagined,
        candidate=truth[0],
        incumbent=truth[1],
        random=random_return(name),
        behaviour=float(batches[-1].returns().mean()),
    )


# Their parts


@cache
def task_of(name: str) -> Task:
    if name == "plant":
        return replace(find_task(str(EXAMPLE / "plant.toml")), simulator=Factory(PlantEnv))
    return {"pendulum": pendulum, "pointmass": pointmass}[name]


class PlantEnv(gymnasium.Env):
    """The plant of the example as a simulator. It needs `industrial_benchmark_python` (see the README)."""

    def __init__(self) -> None:
        spec = util.spec_from_file_location("plant", EXAMPLE / "plant.py")
        assert spec is not None and spec.loader is not None
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._make: Any = module.Plant
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (6,))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._plant = self._make(seed)
        return np.asarray(self._plant.shown(), np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = self._plant.step(action)
        return np.asarray(self._plant.shown(), np.float32), reward, False, False, {}


@cache
def method_of(task: str, algo: str) -> Method:
    return changed(recipe(algo, "quick", task_of(task)), METHODS[algo])


@cache
def random_return(task: str) -> float:
    """Of uniformly random actions, on average."""
    own = task_of(task)
    rng = np.random.default_rng(0)

    def act(obs: Any) -> np.ndarray:
        return rng.uniform(own.low, own.high, (len(obs), own.act_size)).astype(np.float32)

    return float(simulate.evaluate(own, act, 60, 0).returns.mean())


def everything(task: Task, batches: list[Batch], seed: int) -> Dataset:
    return assemble((stacked_batch(task, each) for each in batches), 3 * len(batches[0]), seed)


# The candidates


def spoilt(kind: str, policies: list[AnyPolicy], seen: Task, batches: list[Batch], seed: int) -> AnyPolicy:
    """The candidate; `policies` are those of the campaign so far."""
    rng = np.random.default_rng([seed, 3])
    match kind:
        case "noisy":
            size = float(rng.uniform(0.1, 0.6))
            return jax.tree.map(lambda leaf: _shaken(leaf, size, rng), policies[-1], is_leaf=eqx.is_array)
        case "earlier":
            return policies[-3]
        case "offset":
            frame = policies[-1].frame
            moved = frame.centre + jnp.asarray(rng.uniform(-0.5, 0.5, seen.act_size), jnp.float32) * frame.half_range
            return eqx.tree_at(lambda policy: policy.frame.centre, policies[-1], moved)
        case "overfitted":
            return overfitted(seen, batches[0], seed)
        case _:
            return policies[-1]


def _shaken(leaf: Any, size: float, rng: np.random.Generator) -> Any:
    """A matrix of weights with noise of a share of its own spread."""
    if not eqx.is_inexact_array(leaf) or leaf.ndim != 2:
        return leaf
    return leaf + size * jnp.std(leaf) * jnp.asarray(rng.normal(size=leaf.shape), jnp.float32)


def overfitted(seen: Task, first: Batch, seed: int) -> AnyPolicy:
    """Value gradients on a part of the first batch, with everything trusted."""
    settings = {"steps": 0, "updates": 300, "window.k": 0.0, "handover": "best_imagined"}
    method = changed(recipe("uvg", "quick", seen), settings)
    name = next(name for name in SIZES if task_of(name).name == seen.name)
    few = stacked_batch(task_of(name), rows_of(first, np.arange(len(first)) < len(first) // 2))
    key = jax.random.PRNGKey(seed)
    state = method.begin(seen, key)
    for reached, _ in method.train(seen, assemble([few], 3 * len(first), seed), state, key):
        state = reached
    return state.policy


def promises(
    method: Method, state: Any, seen: Task, data: Dataset, candidate: AnyPolicy, incumbent: AnyPolicy
) -> tuple[float, float] | None:
    """What the models of the campaign say of both, from the same beginnings."""
    found = [method.foresight(eqx.tree_at(lambda s: s.policy, state, policy)) for policy in (candidate, incumbent)]
    _, _, starts = places(Imagine(starts="mixed"), seen, data, jax.random.PRNGKey(0))
    start = draw_starts(starts, 20, jax.random.PRNGKey(1))
    said = [float(jnp.mean(one.courses(seen, start, seen.episode_steps, None)[2])) for one in found if one is not None]
    return (said[0], said[1]) if len(said) == 2 else None
