"""The runtime of a bundle: whether all forms of a policy agree, and how long a step takes on one core.

    python benchmarks/runtime/run.py --work DIR

The policy and the labeler are those of `musbo`, preset `fast`, on halfcheetah, with random weights. The steps run in a
Python with numpy alone. Writes results.json and the tables of README.md. Needs gcc and onnxruntime.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime

from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.recipes import recipe
from musbo.data.scaling import Normaliser, Scaling
from musbo.field import runtime
from musbo.field.bundle import About, Columns, Seen, contents
from musbo.learning.explore import Seeking
from musbo.models.labeler import Labeler, Levels, init_members
from musbo.models.mlp import MLP
from musbo.models.policy import Policy
from musbo.tasks.find import our_task
from musbo.tasks.history import stacked
from musbo.tasks.task import Task

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]

TASK = our_task("halfcheetah")
OBSERVATIONS = 10_000
KEYS = ("median", "p99.9", "processor_median", "processor_p99.9")
CORE, REPEATS = 0, 5
STEPS_EACH, RECORDED = 20_000, 5000
"""Steps that are timed; fewer where each waits for the disk."""
WAYS = {
    "policy alone": {"explore": False},
    "policy and labeler": {"explore": True},
    "policy and labeler, recorded": {"explore": True, "record": True},
}
STEPS = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from runtime import Runtime

said = json.loads(sys.argv[2])
record = sys.argv[3] if said.pop("record", False) else None
obs = np.random.default_rng(0).standard_normal((said["warm"] + said["steps"], said["size"])).astype(np.float32)
controller = Runtime(sys.argv[1], fallback=said["fallback"], record=record, explore=said["explore"], seed=0)
taken, worked = [], []
for row in obs:
    begun, busy = time.perf_counter_ns(), time.thread_time_ns()
    controller.act(row)
    worked.append(time.thread_time_ns() - busy)
    taken.append(time.perf_counter_ns() - begun)
assert controller.fallbacks == 0 and "jax" not in sys.modules and "musbo" not in sys.modules
json.dump([taken[said["warm"]:], worked[said["warm"]:]], sys.stdout)
"""
MAIN = """
#include <stdio.h>
#include "policy.h"
int main(void) {
    float observation[MUSBO_OBSERVATIONS], action[MUSBO_ACTIONS];
    while (fread(observation, sizeof(float), MUSBO_OBSERVATIONS, stdin) == MUSBO_OBSERVATIONS) {
        musbo_policy(observation, action);
        fwrite(action, sizeof(float), MUSBO_ACTIONS, stdout);
    }
    return 0;
}
"""


def lively(mlp: MLP, key: jax.Array) -> MLP:
    """With outputs that use the whole range, as those of a trained policy do."""
    last = mlp.weights[-1] / jnp.std(mlp.weights[-1]) / mlp.weights[-1].shape[0] ** 0.5
    biases = tuple(0.3 * jax.random.normal(jax.random.fold_in(key, i), b.shape) for i, b in enumerate(mlp.biases))
    return MLP((*mlp.weights[:-1], last), biases, mlp.activation)


def made(raw: Task) -> tuple[Policy, dict[str, bytes]]:
    """A policy of the task with random weights, and its bundle."""
    task, key = stacked(raw), jax.random.key(0)
    method = recipe("musbo", "fast", raw)
    assert isinstance(method, ImaginedTRPO)
    policy = method.begin(task, key).policy
    policy = replace(policy, mlp=lively(policy.mlp, key))
    n, new = task.obs_size, task.predicted
    scaling = Scaling(
        jnp.zeros(n), jnp.ones(n), jnp.zeros(task.act_size), jnp.ones(task.act_size), jnp.zeros(new), jnp.ones(new),
        jnp.full(n, -5.0), jnp.full(n, 5.0),
    )  # fmt: skip
    policy = replace(policy, normaliser=Normaliser(scaling.obs_mean, scaling.obs_std))
    fit = method.labeler
    members = init_members(key, task, fit.hidden, fit.activation, fit.members)
    judge = Labeler(members, scaling, Levels(*(jnp.asarray(x, jnp.float32) for x in (1, 2, 2, 1))))
    wide = np.full(raw.obs_size, 1e6, np.float32)
    seen = Seen(observations(task, 64), -wide, wide)
    obs = Columns(tuple(f"obs_{i}" for i in range(raw.obs_size)), ("",) * raw.obs_size)
    act = Columns(tuple(f"act_{i}" for i in range(raw.act_size)), ("",) * raw.act_size)
    about = About(raw.name, obs, act, raw.episode_steps, raw.history, None, (), 1, "0" * 64, {}, explores=True)
    return policy, contents(policy, Seeking().actor(policy, judge), seen, about, {}).files


def observations(task: Task, n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, task.obs_size)).astype(np.float32)


def put(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def apart(task: Task, policy: Policy, folder: Path) -> dict[str, float]:
    """How far every form is from the policy in JAX: the largest difference, as a share of the half-range."""
    obs = observations(task, OBSERVATIONS)
    wanted = np.asarray(jax.jit(lambda x: policy(x))(obs))
    (folder / "main.c").write_text(MAIN)
    subprocess.run(["gcc", "-std=c99", "-O2", "main.c", "-o", "main", "-lm"], cwd=folder, check=True)
    out = subprocess.run([folder / "main"], input=obs.astype("<f4").tobytes(), capture_output=True, check=True).stdout
    session = onnxruntime.InferenceSession(folder / "policy.onnx", providers=["CPUExecutionProvider"])
    found = {
        "numpy runtime": runtime.Mind(runtime.Bundle(folder)).policy(obs),
        "ONNX Runtime": np.concatenate([np.asarray(session.run(["action"], {"observation": x[None]})[0]) for x in obs]),
        "C": np.frombuffer(out, "<f4").reshape(wanted.shape),
    }
    return {name: float(np.max(np.abs(act - wanted) / task.half_range)) for name, act in found.items()}


def timed(folder: Path, raw: Task, way: str, repeat: int) -> dict[str, float]:
    """Microseconds of a step in a process of its own: on the clock, and of the processor alone, which other programs on
    the core do not change."""
    steps = RECORDED if "record" in WAYS[way] else STEPS_EACH
    said = {"warm": 500, "steps": steps, "size": raw.obs_size, "fallback": raw.centre.tolist(), **WAYS[way]}
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    record = folder.parent / "steps.musbo"
    record.unlink(missing_ok=True)
    load = os.getloadavg()[0]
    command = [sys.executable, "-I", "-c", STEPS, str(folder), json.dumps(said), str(record)]
    out = subprocess.run(command, capture_output=True, check=True, env={**os.environ, **one}).stdout
    taken, worked = np.asarray(json.loads(out)) / 1000
    numbers = (np.median(taken), np.quantile(taken, 0.999), np.median(worked), np.quantile(worked, 0.999))
    return {"repeat": repeat, **{key: round(float(x), 1) for key, x in zip(KEYS, numbers, strict=True)}, "load": load}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    work = parser.parse_args().work
    os.sched_setaffinity(0, {CORE})
    load = os.getloadavg()[0]
    tasks = {history: replace(TASK, history=history) for history in (0, 4)}
    found: dict[str, Any] = {}
    for history, raw in tasks.items():
        policy, files = made(raw)
        task, folder = stacked(raw), work / f"history-{history}"
        put(folder, files)
        found[f"history {history}"] = {
            "inputs": task.obs_size,
            "apart": apart(task, policy, folder),
            "microseconds": {way: [] for way in WAYS},
        }
    for repeat in range(1, REPEATS + 1):  # all ways once before any of them again
        for history, raw in tasks.items():
            for way in WAYS:
                row = timed(work / f"history-{history}", raw, way, repeat)
                found[f"history {history}"]["microseconds"][way].append(row)
                print(history, way, row, flush=True)
    for each in found.values():
        for rows in each["microseconds"].values():
            rows.append({"repeat": "median", **{key: median(row[key] for row in rows) for key in (*KEYS, "load")}})
    cpu = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), "")
    environment = {
        "processor": cpu.partition(":")[2].strip(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": jax.__version__,
        "onnxruntime": onnxruntime.__version__,
        "load_before": round(load, 1),
        "steps": STEPS_EACH,
        "steps_recorded": RECORDED,
    }
    (HERE / "results.json").write_text(json.dumps({"results": found, "environment": environment}, indent=1) + "\n")
    lines = [
        "| history | what runs | median | 99.9 % | processor alone: median | 99.9 % |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in found.items():
        for way, taken in each["microseconds"].items():
            numbers = " | ".join(f"{taken[-1][key]:,.0f} µs" for key in KEYS)
            lines.append(f"| {name.split()[1]} | {way} | {numbers} |")
    lines += ["", f"The load average was {load:.1f} at the start."]
    between(HERE / "README.md", "times", lines)
    lines = [
        f"With a history of {name.split()[1]} ({each['inputs']} inputs): "
        + ", ".join(f"{form} {value:.1e}" for form, value in each["apart"].items())
        + "."
        for name, each in found.items()
    ]
    between(HERE / "README.md", "apart", lines)


if __name__ == "__main__":
    main()
