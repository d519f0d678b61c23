"""A million transitions come home: how long does `Campaign.ingest` take, and how much memory?

A campaign of a task with 17 observations and 6 actions waits for its second round. The recording, or the Parquet file,
of a million transitions in episodes of 1000 comes home: it is read, checked by the doctor against the task and the
earlier batch, written down and kept. Every way is measured in a process of its own, with the campaign already opened.

    python -m benchmarks.ingest.run --work ../ingest
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.document import between
from tests.campaign.homes import batch_of, recorded, records

HERE = Path(__file__).parent
OBS, ACT, EPISODE = 17, 6, 1000
WAYS = {
    "one recording": ("home.musbo",),
    "four recordings": tuple(f"home-{i}.musbo" for i in range(4)),
    "Parquet": ("home.parquet",),
}


def task() -> Any:
    from musbo.tasks.task import Task

    def reward(obs: Any, act: Any, next_obs: Any) -> Any:
        return next_obs[0] - 0.1 * (act * act).sum()

    return Task("plant", OBS, ACT, (-1.0,) * ACT, (1.0,) * ACT, EPISODE, reward)


def episodes(n: int, seed: int) -> dict[str, np.ndarray]:
    """A stable linear plant under random actions: every episode has one observation more than actions."""
    random = np.random.default_rng(seed)
    A = 0.9 * np.linalg.qr(np.random.default_rng(0).normal(size=(OBS, OBS)))[0]
    B = np.random.default_rng(1).normal(size=(ACT, OBS))
    count = n // EPISODE
    act = random.uniform(-1, 1, (count, EPISODE, ACT)).astype(np.float32)
    obs = np.empty((count, EPISODE + 1, OBS), np.float32)
    obs[:, 0] = random.normal(size=(count, OBS))
    for t in range(EPISODE):
        obs[:, t + 1] = obs[:, t] @ A + act[:, t] @ B + 0.1 * random.normal(size=(count, OBS))
    return {"obs": obs, "act": act, "reward": obs[:, 1:, 0] - 0.1 * np.sum(act * act, axis=2, dtype=np.float32)}


def prepare(work: Path, n: int) -> None:
    """The campaign with its second round in the field, and the files that come home."""
    from musbo.algorithms import recipes
    from musbo.campaign import flags
    from musbo.campaign.field_campaign import Campaign
    from musbo.data.files import write_batch

    work.mkdir(parents=True)
    small = """
        --updates 2 --dynamics.epochs 1 --labeler.epochs 1 --start.epochs 1 --dynamics.hidden 16 --labeler.hidden 16
        --policy.hidden 16 --imagine.rollouts 5 --imagine.horizon 10 --imagine.starts mixed --check.rollouts 2
        --check.steps 10
    """
    method = flags.parse(recipes.recipe("musbo", "quick", "pointmass"), small.split())
    first = batch_of(episodes(10 * EPISODE, 2))
    campaign = Campaign.new(
        task(), data=[first], preset="quick", budget=3, batch_size=10 * EPISODE, method=method, out=work / "campaign"
    )
    campaign.train()
    bundle = campaign.export().id
    made = episodes(n, 3)
    for way in ("one recording", "four recordings"):
        for i, name in enumerate(WAYS[way]):
            part = {key: np.array_split(values, len(WAYS[way]))[i] for key, values in made.items()}
            recorded(work / name, records(part), bundle)
    write_batch(work / WAYS["Parquet"][0], batch_of(made))


def held(key: str) -> int:
    """Bytes that this process holds (VmRSS), or has held at most (VmHWM)."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{key}:")]
    return int(line.split()[1]) * 1024


def measure(work: Path, way: str) -> dict[str, Any]:
    """One ingest, in this process."""
    from musbo.campaign.field_campaign import Campaign

    place = work / "copy"
    shutil.copytree(work / "campaign", place)
    campaign = Campaign(place, task=task())
    campaign.status()
    before, began, worked = held("VmRSS"), time.monotonic(), time.process_time()
    came = campaign.ingest([work / name for name in WAYS[way]], accept=True)
    seconds, processor, most = time.monotonic() - began, time.process_time() - worked, held("VmHWM")
    assert campaign.verify().problems == ()
    shutil.rmtree(place)
    data = came.transitions * (4 * (2 * OBS + ACT + 1) + 11)
    return {
        "way": way,
        "transitions": came.transitions,
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "file_mb": round(sum((work / name).stat().st_size for name in WAYS[way]) / 1e6, 1),
        "data_mb": round(data / 1e6, 1),
        "peak_over_baseline_mb": round((most - before) / 1e6, 1),
        "peak_over_data": round((most - before) / data, 2),
        "baseline_mb": round(before / 1e6, 1),
        "findings": [f"{finding.level}: {finding.kind}" for finding in came.findings],
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """For the README: the largest of the repeats."""
    lines = [
        "| 1,000,000 transitions as | seconds | processor seconds | peak (MB) | peak / data |",
        "|---|---|---|---|---|",
    ]
    for way in WAYS:
        mine = [row for row in rows if row["way"] == way]
        most = {key: max(row[key] for row in mine) for key in mine[0] if isinstance(mine[0][key], int | float)}
        numbers = f"{most['seconds']:.0f} | {most['processor_seconds']:.1f} | {most['peak_over_baseline_mb']:.0f}"
        lines.append(f"| {way} | {numbers} | {most['peak_over_data']:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a folder for the campaign and the files")
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--way", choices=WAYS, help="one measurement in this process, printed")
    chosen = parser.parse_args()
    if chosen.way:
        print(json.dumps(measure(chosen.work, chosen.way)))
        return
    if not chosen.work.exists():
        prepare(chosen.work, chosen.transitions)
    rows = []
    for _ in range(chosen.repeats):
        for way in WAYS:
            words = [sys.executable, "-m", "benchmarks.ingest.run", "--work", str(chosen.work.absolute()), "--way", way]
            done = subprocess.run(words, capture_output=True, text=True, cwd=HERE.parents[1])
            if done.returncode:
                raise SystemExit(done.stderr)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(json.dumps(rows[-1]), flush=True)
    environment = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        **{name: version(name) for name in ("jax", "numpy", "pyarrow")},
    }
    chosen.out.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
    if chosen.out == HERE / "results.json":
        between(HERE / "README.md", "ingest", table(rows))


if __name__ == "__main__":
    main()
