"""How fast is collection, measured against stepping the same simulators and doing nothing else?

Bare stepping: 50 lanes of the same environment, pre-drawn random actions, reset when an episode ends. Collection: a
batch of 50,000 with as many lanes and an actor of the usual size (policy 200-200, three labeler networks 4 x 200),
which also draws noise, computes the disagreement and records everything. Both make their lanes first, and that time
counts. The two are interleaved and repeated, and the actor ends up with uniform actions too, so that both visit the
same kind of states. Wall-clock time decides; the processor time of the whole process stands beside it.

    python benchmarks/collection/run.py
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from musbo.core.diagnostics import NOTHING
from musbo.field.find import find_task
from musbo.field.simulate import collect
from musbo.field.worlds import LANES, make_gym
from musbo.tasks.task import Gym, Task


class StandIn(eqx.Module):
    """Does the work of an exploring actor, and then acts uniformly at random."""

    policy: list[Array]
    labeler: list[list[Array]]

    @property
    def needs_oracle(self) -> bool:
        return False

    def tentative(self, obs, key):
        mean = jnp.tanh(_mlp(self.policy, obs))
        return mean + 0.01 * jax.random.normal(key, mean.shape)

    def act(self, obs, key, previous_obs, previous_act, has_previous):
        first, second = jax.random.split(key)
        tentative = self.tentative(obs, first)
        inputs = jnp.concatenate([obs, tentative], axis=1)
        means = [_mlp(member, inputs)[:, : obs.shape[1]] for member in self.labeler]
        pairs = [jnp.abs(means[a] - means[b]).sum(1) for a, b in ((0, 1), (0, 2), (1, 2))]
        zeta = jnp.max(jnp.stack(pairs), axis=0)
        random = jax.random.uniform(second, tentative.shape, minval=-1.0, maxval=1.0)
        return jnp.clip(random + 1e-6 * tentative, -1.0, 1.0), zeta

    def findings(self, signal, alone):
        return NOTHING


def _mlp(weights, x):
    for weight in weights[:-1]:
        x = jax.nn.silu(x @ weight)
    return x @ weights[-1]


def stand_in(task: Task) -> StandIn:
    def network(seed: int, sizes: tuple[int, ...]) -> list[Array]:
        keys = jax.random.split(jax.random.key(seed), len(sizes))
        return [jax.random.normal(k, (i, o)) / i**0.5 for k, i, o in zip(keys, sizes, sizes[1:], strict=False)]

    obs, act = task.obs_size, task.act_size
    labeler = [network(seed, (obs + act, 200, 200, 200, 200, 2 * obs)) for seed in (1, 2, 3)]
    return StandIn(network(0, (obs, 200, 200, act)), labeler)


class Times(NamedTuple):
    wall: float
    processor: float


def timed(work: Callable[[], None]) -> Times:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return Times(time.perf_counter() - wall, time.process_time() - processor)


def bare(simulator: Gym, actions: np.ndarray) -> None:
    """Make the lanes and step them through all actions [t b act]."""
    envs = [make_gym(simulator.id, **dict(simulator.kwargs)) for _ in range(LANES)]
    for lane, env in enumerate(envs):
        env.reset(seed=lane)
    for row in actions:
        for env, action in zip(envs, row, strict=True):
            if env.step(action)[2]:
                env.reset()


def collected(task: Task, actor: StandIn, size: int, seed: int) -> None:
    assert sum(len(shard.batch) for shard in collect(task, actor, size, seed)) == size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", nargs="+", default=["halfcheetah", "hopper"])
    parser.add_argument("--size", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.json")
    options = parser.parse_args()
    rows = [measure(find_task(name), options.size, options.repeats) for name in options.tasks]
    environment = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        **{package: version(package) for package in ("jax", "gymnasium", "mujoco", "numpy")},
    }
    options.out.write_text(json.dumps({"environment": environment, "results": rows}, indent=2) + "\n")


def measure(task: Task, size: int, repeats: int) -> dict:
    simulator = task.simulator
    assert isinstance(simulator, Gym)
    actions = np.random.default_rng(0).uniform(-1, 1, (size // LANES, LANES, task.act_size)).astype(np.float32)
    actor = stand_in(task)
    collected(task, actor, LANES * task.episode_steps, seed=0)  # compiles
    pairs = []
    for repeat in range(repeats):
        pairs.append((timed(lambda: bare(simulator, actions)), timed(partial(collected, task, actor, size, repeat))))
        stepped, whole = pairs[-1]
        print(f"{task.name}: {size / stepped.wall:.0f} bare, {size / whole.wall:.0f} collected per second")
    ratios = [stepped.wall / whole.wall for stepped, whole in pairs]
    print(f"{task.name}: median ratio {statistics.median(ratios):.3f}")
    return {
        "task": task.name,
        "lanes": LANES,
        "size": size,
        "repeats": repeats,
        "bare_steps_per_second": [round(size / stepped.wall) for stepped, _ in pairs],
        "collected_steps_per_second": [round(size / whole.wall) for _, whole in pairs],
        "bare_processor_seconds": [round(stepped.processor, 2) for stepped, _ in pairs],
        "collected_processor_seconds": [round(whole.processor, 2) for _, whole in pairs],
        "ratio_median": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
    }


if __name__ == "__main__":
    main()
