"""What a policy has to beat, measured in the plant itself: standing still, random actions, the best constant action.

    python references.py OUT.json --seed 9000

The best constant action is searched for on a grid, with the same setpoint, horizon and start as the policies. The best
thirty of a coarse grid and of a finer one around its best are tried on other disturbances, and the one that wins is
measured with disturbances of its own, those that the last policies are measured with.
"""

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from plant import Plant

EPISODES, STEPS = 100, 100
COARSE = (-1, -0.6, -0.4, -0.2, -0.1, 0, 0.1, 0.2, 0.4, 0.6, 1)
FINE = (-0.05, 0, 0.05)


def reward(act: Callable[[], np.ndarray], seeds: range) -> np.ndarray:
    """Mean reward per step of every episode."""
    found = []
    for seed in seeds:
        plant = Plant(seed)
        found.append(np.mean([plant.step(act()) for _ in range(STEPS)]))
    return np.array(found)


def best(actions: list[tuple[float, ...]], seeds: range, keep: int) -> list[tuple[float, ...]]:
    def score(act: tuple[float, ...]) -> float:
        return float(reward(lambda: np.array(act), seeds).mean())

    return sorted(actions, key=score, reverse=True)[:keep]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, required=True, help="of the disturbances of the last policies")
    said = parser.parse_args()
    measured = range(said.seed * 10_000, said.seed * 10_000 + EPISODES)
    coarse = best(list(itertools.product(COARSE, repeat=3)), range(2), 30)
    around = {
        tuple(float(x) for x in np.clip(np.round(np.add(act, by), 3), -1, 1))
        for act in coarse[:5]
        for by in itertools.product(FINE, repeat=3)
    }
    fine = best(sorted(around), range(2, 6), 30)
    (winner,) = best(list({*coarse, *fine}), range(6, 26), 1)
    random = np.random.default_rng(said.seed)
    controllers = {
        "standing still": lambda: np.zeros(3),
        "best constant action": lambda: np.array(winner),
        "random actions": lambda: random.uniform(-1, 1, 3),
    }
    found = {}
    for name, act in controllers.items():
        every = reward(act, measured)
        found[name] = {"reward": float(every.mean()), "error": float(every.std(ddof=1) / np.sqrt(len(every)))}
    found["best constant action"] |= {"action": list(winner), "tried": len(COARSE) ** 3 + len(around)}
    said.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
