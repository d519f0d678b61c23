"""Data that come home, made with numpy alone: the point mass under a noisy controller, and recordings of it."""

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from musbo.campaign.field_campaign import Campaign
from musbo.campaign.places import LEDGER
from musbo.data.batch import Batch, make_batch

GOLDEN = Path(__file__).parents[1] / "golden"
STEPS = 50


def waiting(place: Path, name: str = "campaign-v1") -> Campaign:
    """A campaign on the point mass whose second round is in the field; 100 transitions are planned."""
    place.mkdir(parents=True)
    shutil.copytree(GOLDEN / name / "store", place / "store")
    for file in (LEDGER, "settings.json"):
        shutil.copy(GOLDEN / name / file, place / file)
    return Campaign(place)


def awaited(campaign: Campaign) -> str:
    """The bundle in the field."""
    return campaign.status().rounds[-1].bundles[-1]


def walks(episodes: int = 8, seed: int = 0) -> dict[str, np.ndarray]:
    """Every episode has one observation more than actions; each array is [episodes, steps, ...]."""
    random = np.random.default_rng(seed)
    position, velocity = random.uniform(-1, 1, (episodes, 2)), np.zeros((episodes, 2))
    obs, act, reward = [np.concatenate([position, velocity], 1)], [], []
    for _ in range(STEPS):
        action = np.clip(-position - velocity + random.normal(0, 0.3, (episodes, 2)), -1, 1).astype(np.float32)
        velocity = velocity + 0.1 * action
        position = position + 0.1 * velocity
        obs.append(np.concatenate([position, velocity], 1))
        act.append(action)
        reward.append(-np.sum(position**2, 1) - 0.01 * np.sum(action**2, 1))
    made = {"obs": np.stack(obs, 1), "act": np.stack(act, 1), "reward": np.stack(reward, 1)}
    return {name: values.astype(np.float32) for name, values in made.items()}


def batch_of(made: dict[str, np.ndarray], **more: Any) -> Batch:
    """The same as a batch of which nobody says who chose the actions."""
    n, steps = made["reward"].size, made["reward"].shape[1]
    columns = {
        "obs": made["obs"][:, :-1].reshape(n, -1),
        "act": made["act"].reshape(n, -1),
        "reward": made["reward"].reshape(n),
        "next_obs": made["obs"][:, 1:].reshape(n, -1),
        "terminated": np.zeros(n, bool),
        "truncated": np.arange(n) % steps == steps - 1,
        "episode": np.arange(n) // steps,
    }
    return make_batch(**(columns | more))


def records(made: dict[str, np.ndarray]) -> np.ndarray:
    """The records of docs/formats.md, [episodes, steps + 1], without checksums; the last of an episode closes it."""
    (count, steps, act), obs = made["act"].shape, made["obs"].shape[2]
    fields: list[Any] = [("number", "<u8"), ("time", "<f8"), ("episode", "<u4"), ("step", "<u4"), ("source", "u1")]
    fields += [("flags", "u1"), ("reason", "<u2"), ("reward", "<f4"), ("signal", "<f4"), ("obs", "<f4", (obs,))]
    fields += [(name, "<f4", (act,)) for name in ("commanded", "executed", "noise")] + [("checksum", "<u4")]
    rows = np.zeros((count, steps + 1), np.dtype(fields))
    rows["number"] = np.arange(rows.size).reshape(rows.shape)
    rows["time"] = 1.7e9 + 0.5 * rows["number"]
    rows["episode"], rows["step"] = np.arange(count)[:, None], np.arange(steps + 1)
    rows["obs"] = made["obs"]
    for name in ("reward", "commanded", "executed", "noise"):
        rows[name][:, -1] = np.nan
    rows["reward"][:, :-1] = made["reward"]
    rows["commanded"][:, :-1] = rows["executed"][:, :-1] = made["act"]
    rows["noise"][:, :-1] = 0
    rows["flags"][:, -1] = 4 + 2
    return rows


def recorded(path: Path, rows: np.ndarray, bundle: str, **said: Any) -> Path:
    """A recording of some records."""
    rows = rows.reshape(-1).copy()
    names = {block: [f"{block}_{i}" for i in range(rows[field].shape[1])] for block, field in BLOCKS.items()}
    header = {"format": "musbo-recording", "version": 1, "bundle": bundle, "machine": "a", **names, **said}
    text = json.dumps(header).encode()
    head = b"MUSBOREC" + np.array([1, len(text)], "<u4").tobytes() + text
    data, width = rows.tobytes(), rows.dtype.itemsize
    rows["checksum"] = [zlib.crc32(data[i * width : (i + 1) * width - 4]) for i in range(len(rows))]
    path.write_bytes(head + np.array([zlib.crc32(head)], "<u4").tobytes() + rows.tobytes())
    return path


BLOCKS = {"obs": "obs", "act": "executed"}
