"""A million transitions come home: how long does `Campaign.ingest` take, and how much memory?

A campaign of a task with 17 observations and 6 actions waits for its second round. A million transitions in episodes of
1000 come home as a recording, as four, as Parquet, npz or CSV: they are read, checked by the doctor against the task
and the earlier batch, written down and kept. Every way is measured in a process of its own, with the campaign already
opened, and all ways once before any of them again. Writes results.csv, environment.json and the table of README.md.

    python -m benchmarks.ingest.run --work ../ingest
"""

import argparse
import csv
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.document import between
from tests.campaign.homes import batch_of, recorded, records

HERE = Path(__file__).parent
OBS, ACT, EPISODE = 17, 6, 1000
TRANSITIONS, REPEATS = 1_000_000, 3
WAYS = {
    "one recording": ("home.musbo",),
    "four recordings": tuple(f"home-{i}.musbo" for i in range(4)),
    "Parquet": ("home.parquet",),
    "npz": ("home.npz",),
    "CSV": ("home.csv",),
}
MEASURED = ("seconds", "processor_seconds", "peak_mb", "peak_over_data", "load")


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


def prepare(work: Path) -> None:
    """The campaign with its second round in the field, and the files that come home."""
    import pyarrow.csv
    import pyarrow.parquet

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
    made = episodes(TRANSITIONS, 3)
    for way in ("one recording", "four recordings"):
        for i, name in enumerate(WAYS[way]):
            part = {key: np.array_split(values, len(WAYS[way]))[i] for key, values in made.items()}
            recorded(work / name, records(part), bundle)
    batch = batch_of(made)
    write_batch(work / WAYS["Parquet"][0], batch)
    np.savez(work / WAYS["npz"][0], **vars(batch))
    pyarrow.csv.write_csv(pyarrow.parquet.read_table(work / WAYS["Parquet"][0]), work / WAYS["CSV"][0])


def held(key: str) -> int:
    """Bytes that this process holds (VmRSS), or has held at most (VmHWM)."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{key}:")]
    return int(line.split()[1]) * 1024


def measure(work: Path, way: str) -> dict[str, Any]:
    """One ingest, in this process."""
    from musbo.campaign.field_campaign import Campaign

    place = work / "copy"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(work / "campaign", place)
    campaign = Campaign(place, task=task())
    campaign.status()
    load, before, began, worked = os.getloadavg()[0], held("VmRSS"), time.monotonic(), time.process_time()
    came = campaign.ingest([work / name for name in WAYS[way]], accept=True)
    seconds, processor, most = time.monotonic() - began, time.process_time() - worked, held("VmHWM")
    assert campaign.verify().problems == ()
    shutil.rmtree(place)
    data = came.transitions * (4 * (2 * OBS + ACT + 1) + 11)
    return {
        "way": way,
        "transitions": came.transitions,
        "file_mb": round(sum((work / name).stat().st_size for name in WAYS[way]) / 1e6, 1),
        "data_mb": round(data / 1e6, 1),
        "before_mb": round(before / 1e6, 1),
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "peak_mb": round((most - before) / 1e6, 1),
        "peak_over_data": round((most - before) / data, 2),
        "load": round(load, 2),
        "findings": "; ".join(f"{finding.level}: {finding.kind}" for finding in came.findings),
    }


def with_medians(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All repeats, and of each way the median of every number."""
    medians = []
    for way in WAYS:
        mine = [row for row in rows if row["way"] == way]
        medians.append(mine[0] | {"repeat": "median"} | {key: median(row[key] for row in mine) for key in MEASURED})
    return [*rows, *medians]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """For the README: medians, and the largest peak of all repeats."""
    lines = [
        "| 1,000,000 transitions as | file (MB) | seconds | processor seconds | peak (MB) | peak / data |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows[-len(WAYS) :]:
        most = max((each for each in rows if each["way"] == row["way"]), key=lambda each: each["peak_mb"])
        numbers = f"{row['file_mb']:.0f} | {row['seconds']:.1f} | {row['processor_seconds']:.1f}"
        lines.append(f"| {row['way']} | {numbers} | {most['peak_mb']:.0f} | {most['peak_over_data']:.2f} |")
    loads = [row["load"] for row in rows[: -len(WAYS)]]
    return [*lines, "", f"The load average was {min(loads):.1f} to {max(loads):.1f}."]


def environment(load: float) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        **{name: version(name) for name in ("jax", "numpy", "pyarrow")},
        "load_before": round(load, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a folder for the campaign and the files")
    parser.add_argument("--way", choices=WAYS, help="one measurement in this process, printed")
    chosen = parser.parse_args()
    if chosen.way:
        print(json.dumps(measure(chosen.work, chosen.way)))
        return
    load = os.getloadavg()[0]
    if not chosen.work.exists():
        prepare(chosen.work)
    rows = []
    for repeat in range(1, REPEATS + 1):
        for way in WAYS:
            words = [sys.executable, "-m", "benchmarks.ingest.run", "--work", str(chosen.work.absolute()), "--way", way]
            done = subprocess.run(words, capture_output=True, text=True, cwd=HERE.parents[1])
            if done.returncode:
                raise SystemExit(done.stderr)
            rows.append({"repeat": repeat, **json.loads(done.stdout.splitlines()[-1])})
            print(json.dumps(rows[-1]), flush=True)
    rows = with_medians(rows)
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (HERE / "environment.json").write_text(json.dumps(environment(load), indent=1) + "\n")
    between(HERE / "README.md", "ingest", table(rows))


if __name__ == "__main__":
    main()
