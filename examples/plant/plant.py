"""The plant: the Industrial Benchmark behind a pipe. It knows nothing of musbo, and shows what a plant shows.

A line of JSON in, a line of JSON out:

    {"begin": 17}             start up; 17 seeds the disturbances
    {"act": [0.1, 0, -0.2]}   one control interval
    -> {"observation": [...], "reward": ...}

A setpoint is given by demand. The actions change velocity, gain and shift, and the plant answers with fatigue and
consumption, noisy and late: consumption follows the steering after five to nine intervals, and how worn and how far out
of tune the machine is stays hidden. The reward is -(3 fatigue + consumption), as the benchmark defines it.
"""

import json
import sys
from typing import Any

import numpy as np

np.float = float  # pyright: ignore  # the benchmark is older than numpy 1.24
from industrial_benchmark_python.IDS import IDS  # noqa: E402  # pyright: ignore  # only on site

SETPOINT = 70  # that of the benchmark's own baselines
SHOWN = ("p", "v", "g", "h", "f", "c")


class Plant:
    """One machine, from its start."""

    def __init__(self, seed: int) -> None:
        self.machine = IDS(p=SETPOINT, inital_seed=seed)  # (sic)

    def shown(self) -> list[float]:
        return [float(self.machine.state[key]) for key in SHOWN]

    def step(self, act: Any) -> float:
        self.machine.step(np.asarray(act, float))
        return float(self.machine.state["reward"])


def main() -> None:
    plant, reward = None, None
    for line in sys.stdin:
        said = json.loads(line)
        if "begin" in said:
            plant, reward = Plant(said["begin"]), None
        else:
            assert plant is not None, "begin first"
            reward = plant.step(said["act"])
        print(json.dumps({"observation": plant.shown(), "reward": reward}), flush=True)


if __name__ == "__main__":
    main()
