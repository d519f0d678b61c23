"""The controller on site: Python and numpy, a pipe to the plant, and the runtime that came with the bundle.

    python controller.py --bundle BUNDLE --record monday.musbo SITE -- python plant.py
    python controller.py --logs logs.csv SITE -- python plant.py

where SITE is `--episodes 50 --steps 100 --seed 1` and a `--rule` for every action. The second form is what the site did
before: its own controller, with bounded noise so that the logs show what the actions do. That controller brings the
steering slowly back to where the site knows that it is safe; it is the fallback of every policy, too.
"""

import argparse
import csv
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

HOLD = 12
"""The noise of the site's own controller stays the same for so many intervals, since the plant is slow."""


class Baseline:
    """The site's own controller: a rule for every action, `gain * (wanted - observation[column])`."""

    def __init__(self, rules: list[list[float]]) -> None:
        columns, self.wanted, self.gain, self.noise = np.transpose(rules)
        self.columns = columns.astype(int)

    def __call__(self, observation: Any) -> np.ndarray:
        return np.clip(self.gain * (self.wanted - np.asarray(observation)[self.columns]), -1, 1)


class Plant:
    """The other end of the pipe."""

    def __init__(self, pipe: Any, seed: int) -> None:
        self.pipe, self.seed = pipe, seed

    def begin(self, episode: int) -> list[float]:
        return self._ask({"begin": self.seed * 10_000 + episode})["observation"]

    def step(self, act: Any) -> tuple[list[float], float]:
        said = self._ask({"act": [float(x) for x in act]})
        return said["observation"], said["reward"]

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        self.pipe.stdin.write(json.dumps(what) + "\n")
        self.pipe.stdin.flush()
        line = self.pipe.stdout.readline()
        if not line:
            raise SystemExit("the plant has stopped; what it said last is above.")
        return json.loads(line)


@contextmanager
def plant_of(command: list[str], seed: int) -> Iterator[Plant]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pipe:
        yield Plant(pipe, seed)
        pipe.stdin.close()  # type: ignore[union-attr]


def with_bundle(said: argparse.Namespace, plant: Plant) -> dict[str, Any]:
    """The policy of a bundle steers, behind its runtime."""
    spec = importlib.util.spec_from_file_location("runtime", said.bundle / "runtime.py")
    runtime = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(runtime)  # type: ignore[union-attr]
    rewards, fallbacks, shown = [], 0, []
    with runtime.Runtime(
        said.bundle, fallback=said.baseline, record=said.record, machine="line-3", seed=said.seed
    ) as own:
        for episode in range(said.episodes):
            seen, reward = plant.begin(episode), None
            own.begin()
            for _ in range(said.steps):
                shown.append(seen)
                seen, reward = plant.step(own.act(seen, reward=reward))
                fallbacks += bool(own.reason)
                rewards.append(reward)
            own.end(seen, reward=reward)
    return {"rewards": rewards, "fallbacks": fallbacks, "shown": shown[: said.steps]}


def by_itself(said: argparse.Namespace, plant: Plant) -> dict[str, Any]:
    """What the site did before."""
    random, own = np.random.default_rng(said.seed), said.baseline
    rows, rewards, shown = [], [], []
    for episode in range(said.episodes):
        seen = plant.begin(episode)
        act = noise = np.zeros(len(own.noise))
        for step in range(said.steps):
            if step % HOLD == 0:
                noise = random.uniform(-own.noise, own.noise)
            act = np.clip(own(seen) + noise, -1, 1)
            after, reward = plant.step(act)
            rows.append([episode, step, *seen, *act, reward])
            rewards.append(reward)
            shown.append(seen)
            seen = after
        rows.append([episode, said.steps, *seen, *act, 0.0])  # only for the observation that the last action led to
    names = [f"obs_{i}" for i in range(len(shown[0]))] + [f"act_{i}" for i in range(len(own.noise))]
    with said.logs.open("w", newline="") as file:
        csv.writer(file).writerows([["episode", "step", *names, "reward"], *rows])
    return {"rewards": rewards, "fallbacks": 0, "shown": shown[: said.steps]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    words = ("COLUMN", "WANTED", "GAIN", "NOISE")
    parser.add_argument("--rule", type=float, nargs=4, action="append", required=True, metavar=words, help="per action")
    parser.add_argument("plant", nargs="+", help="the command that starts the plant")
    said = parser.parse_args()
    said.baseline = Baseline(said.rule)
    with plant_of(said.plant, said.seed) as plant:
        found = with_bundle(said, plant) if said.bundle else by_itself(said, plant)
    steps = len(found["rewards"])
    rewards = np.reshape(found.pop("rewards"), (said.episodes, said.steps)).mean(axis=1)
    error = float(rewards.std(ddof=1) / np.sqrt(len(rewards))) if len(rewards) > 1 else None
    json.dump({"reward": float(rewards.mean()), "error": error, "steps": steps} | found, sys.stdout)


if __name__ == "__main__":
    main()
