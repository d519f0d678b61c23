"""The point mass behind a pipe, as a plant: Python alone. `examples/plant/plant.py` says how it speaks."""

import json
import random
import sys


def main() -> None:
    position, velocity, reward = [0.0, 0.0], [0.0, 0.0], None
    for line in sys.stdin:
        said = json.loads(line)
        if "begin" in said:
            drawn = random.Random(said["begin"])
            position, velocity, reward = [drawn.uniform(-1, 1) for _ in range(2)], [0.0, 0.0], None
        else:
            act = [min(max(force, -1.0), 1.0) for force in said["act"]]
            position = [p + 0.1 * v + 0.005 * f for p, v, f in zip(position, velocity, act, strict=True)]
            velocity = [v + 0.1 * f for v, f in zip(velocity, act, strict=True)]
            reward = -sum(p * p for p in position) - 0.01 * sum(force * force for force in act)
        print(json.dumps({"observation": position + velocity, "reward": reward}), flush=True)


if __name__ == "__main__":
    main()
