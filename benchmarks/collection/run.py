"""How fast is collection, measured against stepping the same simulators and doing nothing else?

Bare stepping: 25 lanes of the same environment, pre-drawn random actions, reset when an episode ends. Collection: the
same lanes and number of steps with an actor of the usual size (policy 200-200, three labeler networks 4 x 200), which
also draws noise, computes the disagreement and records everything. The two are interleaved and repeated, and the actor
returns the same pre-drawn kind of action (uniform), so that both visit the same kind of states.

    python benchmarks/collection/run.py
"""

import argparse
import json
import os
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from musbo.field.simulate import LANES, collect
from musbo.field.worlds import make_gym
from musbo.tasks.find import find_task
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

    def act_oracle(self, obs, tentative, next_obs, key):
        raise NotImplementedError


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


def bare(envs: list, actions: np.ndarray) -> float:
    """Seconds for stepping all lanes through all actions [t b act]."""
    for lane, env in enumerate(envs):
        env.reset(seed=lane)
    begin = time.perf_counter()
    for row in actions:
        for env, action in zip(envs, row, strict=True):
            if env.step(action)[2]:
                env.reset()
    return time.perf_counter() - begin


def collected(task: Task, actor: StandIn, steps: int, seed: int) -> float:
    begin = time.perf_counter()
    for _ in collect(task, actor, LANES * steps, seed):
        pass
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", nargs="+", default=["halfcheetah", "hopper"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.json")
    options = parser.parse_args()
    rows = []
    for name in options.tasks:
        task = find_task(name)
        assert isinstance(task.simulator, Gym)
        steps = task.episode_steps
        envs = [make_gym(task.simulator.id, **dict(task.simulator.kwargs)) for _ in range(LANES)]
        actions = np.random.default_rng(0).uniform(-1, 1, (steps, LANES, task.act_size)).astype(np.float32)
        actor = stand_in(task)
        collected(task, actor, steps, seed=0)  # compiles
        pairs = []
        for repeat in range(options.repeats):
            pairs.append((bare(envs, actions), collected(task, actor, steps, seed=repeat)))
            print(f"{name}: {LANES * steps / pairs[-1][0]:.0f} bare, {LANES * steps / pairs[-1][1]:.0f} collected")
        ratios = [b / c for b, c in pairs]
        rows.append(
            {
                "task": name,
                "lanes": LANES,
                "steps": LANES * steps,
                "repeats": options.repeats,
                "bare_steps_per_second": [round(LANES * steps / b) for b, _ in pairs],
                "collected_steps_per_second": [round(LANES * steps / c) for _, c in pairs],
                "ratio_median": round(statistics.median(ratios), 3),
                "ratio_min": round(min(ratios), 3),
                "ratio_max": round(max(ratios), 3),
            }
        )
        print(f"{name}: median ratio {rows[-1]['ratio_median']}")
    packages = ("jax", "gymnasium", "mujoco", "numpy")
    environment = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        **{package: version(package) for package in packages},
    }
    options.out.write_text(json.dumps({"environment": environment, "results": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
