"""How far is the model reward, which imagination uses, from the reward that the simulator itself pays?

They are different functions on most tasks: the simulator measures speed as a difference of positions over the control
interval, the model reward reads the velocity at its end; bonuses and costs differ, too. Two behaviours: uniform
actions, and smooth ones (each action moves a tenth of the way to a new uniform draw, times four and clipped),
which move the bodies further.

    python benchmarks/model-reward/run.py
"""

import argparse
import json
import platform
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from musbo.field.find import find_task
from musbo.field.worlds import make_world
from musbo.tasks.task import Task

NAMES = ["halfcheetah", "cheetah-run", "ant", "hopper", "walker2d", "cheetah-run-gym"]
LANES = 5


def transitions(task: Task, smooth: bool, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng, lanes = np.random.default_rng(0), np.arange(LANES)
    world = make_world(task, LANES)
    obs = world.begin(list(range(LANES)))
    slow = np.zeros((LANES, task.act_size), np.float32)
    rows, age = [], np.zeros(LANES, int)
    for _ in range(steps):
        draw = rng.uniform(-1, 1, slow.shape).astype(np.float32)
        slow = slow + (draw - slow) / 10
        act = np.clip(4 * slow, -1, 1) if smooth else draw
        next_obs, reward, terminated, _ = world.step(lanes, act)
        rows.append((obs, act, next_obs, reward))
        age += 1
        over = terminated | (age == task.episode_steps)
        obs = next_obs.copy()
        if over.any():
            obs[over] = world.reset(lanes[over])
            age[over] = 0
    obs, act, next_obs, reward = (np.concatenate(column) for column in zip(*rows, strict=True))
    return obs, act, next_obs, reward


def measure(task: Task, behaviour: str, steps: int) -> dict:
    obs, act, next_obs, own = transitions(task, behaviour == "smooth", steps)
    assert callable(task.reward)
    model = np.asarray(jax.vmap(task.reward)(jnp.asarray(obs), jnp.asarray(act), jnp.asarray(next_obs)))
    gap = model.astype(np.float64) - own
    row = {
        "task": task.name,
        "behaviour": behaviour,
        "transitions": len(own),
        "simulator_mean": own.mean(),
        "model_mean": model.mean(),
        "mean_absolute_gap": np.abs(gap).mean(),
        "largest_gap": np.abs(gap).max(),
        "spread_of_simulator": own.std(),
        "correlation": np.corrcoef(model, own)[0, 1],
    }
    return {key: round(float(value), 4) if isinstance(value, np.floating) else value for key, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000, help=f"per lane; there are {LANES} lanes")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.json")
    options = parser.parse_args()
    rows = [measure(find_task(name), kind, options.steps) for name in NAMES for kind in ("uniform", "smooth")]
    packages = ("jax", "gymnasium", "mujoco", "dm_control", "numpy")
    environment = {"python": platform.python_version(), **{package: version(package) for package in packages}}
    options.out.write_text(json.dumps({"environment": environment, "results": rows}, indent=2) + "\n")
    for row in rows:
        print(" | ".join(str(value) for value in row.values()))


if __name__ == "__main__":
    main()
