"""Makes the golden logs: `python -m tests.golden.make_logs`. A historian's CSV, its mapping, an npz, what they say.

They are never made again: newer versions have to read them.
"""

import json
from pathlib import Path

import numpy as np

from tests.campaign.homes import STEPS, walks

PLACE = Path(__file__).parent / "logs-v1"
MAPPING = """\
obs = [
  { column = "temp", scale = 0.5, offset = 1.0 },
  "flow",
  { column = "level", align = "mean" },
  { column = "speed", quality = "speed_status", hold = 90.0 },
]
act = [{ column = "valve", align = "next" }, { column = "pump", align = "next" }]
reward = "profit"
time = "stamp"
time_format = "%d.%m.%Y %H:%M:%S"
interval = 60.0
gap = 600.0
machine = "unit"
quality = "status"
good = ["Good", 192]
"""
HEADER = "stamp,unit,temp,flow,level,speed,speed_status,valve,pump,profit,status"


def main() -> None:
    if PLACE.exists():
        raise SystemExit(f"{PLACE} is there: a golden file is never made again")
    PLACE.mkdir()
    made = {name: values[:, : 11 + (name == "obs")] for name, values in walks(2, seed=9).items()}
    obs, act, reward = made["obs"], made["act"], made["reward"]
    lines = [HEADER]
    for unit in range(2):
        for t in range(12):
            temp, flow, level, speed = (np.float64(x) for x in obs[unit, t])
            last = t == 11
            done = [0.0, 0.0, 0.0] if last else [*act[unit, t], reward[unit, t]]
            numbers = ",".join(f"{value:.17g}" for value in ((temp - 1) / 0.5, flow, level, speed))
            stamp = f"31.05.2024 12:{t:02}:00"
            lines.append(f"{stamp},mill-{unit},{numbers},good,{','.join(f'{x:.17g}' for x in done)},Good")
            # Half a minute later there is a value of bad quality, and nothing else.
            lines.append(f"31.05.2024 12:{t:02}:30,mill-{unit},999,,,,,,,,Bad")
    (PLACE / "plant.csv").write_text("\n".join(lines) + "\n")
    (PLACE / "mapping.toml").write_text(MAPPING)
    flat = {
        "observations": obs[:, :-1].reshape(-1, 4),
        "actions": act.reshape(-1, 2),
        "rewards": reward.reshape(-1),
        "next_observations": obs[:, 1:].reshape(-1, 4),
        "terminals": np.zeros(22, bool),
        "timeouts": np.arange(22) % 11 == 10,
        "episodes": np.repeat([0, 1], 11),
    }
    np.savez_compressed(PLACE / "logs.npz", allow_pickle=False, **flat)
    said = {name: np.asarray(values).tolist() for name, values in flat.items()}
    (PLACE / "said.json").write_text(json.dumps(said, indent=1) + "\n")
    assert STEPS > 11


if __name__ == "__main__":
    main()
