"""From logs to a policy, without a simulator: a heater that was run by a crude thermostat for forty days.

    python examples/offline.py

There is no formula for the reward either: it is learned from the logs. Only at the end is the policy tried in the
simulated house that made the logs.
"""

from pathlib import Path

import numpy as np

import musbo

TASK = musbo.Task(
    name="heater",
    obs_size=5,  # room, walls, outside (degrees), and the hour as a point on a circle
    act_size=1,
    act_low=(0.0,),
    act_high=(1.0,),
    episode_steps=48,  # half-hours of one day
    reward="learned",
    terminated=None,  # a day ends by the clock only
)


class House:
    """The real world. Training never sees it."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.room, self.walls = rng.uniform(14, 20), rng.uniform(12, 18)
        self.cold, self.slot = rng.uniform(0, 8), 0

    def observe(self) -> np.ndarray:
        hour = 2 * np.pi * self.slot / 48
        outside = self.cold - 4 * np.cos(hour)
        return np.array([self.room, self.walls, outside, np.cos(hour), np.sin(hour)], np.float32)

    def step(self, power: float) -> float:
        """Comfort near 21 degrees, and the price of heating."""
        outside = self.observe()[2]
        self.room += 0.3 * (self.walls - self.room) + 0.1 * (outside - self.room) + 4 * power
        self.walls += 0.1 * (self.room - self.walls)
        self.slot += 1
        return float(-0.2 * (self.room - 21) ** 2 - 0.5 * power)


def live_through(seed: int, controller) -> list[tuple]:
    """One day: rows of (obs, act, reward, next_obs)."""
    house, rows = House(seed), []
    for _ in range(TASK.episode_steps):
        obs = house.observe()
        act = np.clip(controller(obs), 0, 1).astype(np.float32)
        rows.append((obs, act, house.step(float(act[0])), house.observe()))
    return rows


def thermostat(rng: np.random.Generator):
    """What the logs were made with: on below a set-point that somebody keeps turning, off above it."""
    target = rng.uniform(17, 24)
    return lambda obs: np.array([0.9 if obs[0] < target else 0.1]) + rng.normal(0, 0.15, 1)


def logs(days: int) -> musbo.Batch:
    """The columns of a log file as a batch; `musbo.write_batch` makes a file of it for `musbo run --data`."""
    rows = [row for day in range(days) for row in live_through(day, thermostat(np.random.default_rng(day)))]
    obs, act, reward, next_obs = (np.stack(column) for column in zip(*rows, strict=True))
    last = np.arange(len(rows)) % TASK.episode_steps == TASK.episode_steps - 1
    return musbo.make_batch(
        obs=obs, act=act, reward=reward, next_obs=next_obs, terminated=np.zeros(len(rows), bool), truncated=last
    )


def main(days: int = 40, out: Path | None = None, **settings) -> tuple[float, float]:
    batch = logs(days)
    result = musbo.run(TASK, data=[batch], budget=1, preset="quick", out=out, **settings)
    new_days = range(1000, 1020)
    before = np.mean([sum(r[2] for r in live_through(day, thermostat(np.random.default_rng(day)))) for day in new_days])
    after = np.mean([sum(r[2] for r in live_through(day, result.policy)) for day in new_days])
    print(f"reward per day in the real house: {before:.1f} with the thermostat, {after:.1f} with the policy")
    print("everything about the run:", result.folder)
    return float(before), float(after)


if __name__ == "__main__":
    main()
