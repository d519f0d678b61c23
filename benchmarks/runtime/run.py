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
RECORDED = 2000
"""Steps, at most, where each waits for the disk."""
KEYS = ("median", "p99.9", "processor_median", "processor_p99.9")
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


def timed(folder: Path, raw: Task, way: dict[str, Any], options: argparse.Namespace) -> dict[str, float]:
    """Microseconds of a step in a process of its own, of the repeat with the smallest median: on the clock, and of the
    processor alone, which other programs on the core do not change."""
    steps = min(options.steps, RECORDED) if "record" in way else options.steps
    said = {"warm": 500, "steps": steps, "size": raw.obs_size, "fallback": raw.centre.tolist(), **way}
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    every = []
    for i in range(options.repeats):
        record = folder.parent / f"{i}.musbo"
        record.unlink(missing_ok=True)
        command = [sys.executable, "-I", "-c", STEPS, str(folder), json.dumps(said), str(record)]
        out = subprocess.run(command, capture_output=True, check=True, env={**os.environ, **one}).stdout
        taken, worked = np.asarray(json.loads(out)) / 1000
        every.append({
            "median": float(np.median(taken)), "p99.9": float(np.quantile(taken, 0.999)),
            "processor_median": float(np.median(worked)), "processor_p99.9": float(np.quantile(worked, 0.999)),
        })  # fmt: skip
    return min(every, key=lambda each: each["median"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--core", type=int, default=0)
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    found: dict[str, Any] = {}
    load = os.getloadavg()[0]
    for history in (0, 4):
        raw = replace(TASK, history=history)
        policy, files = made(raw)
        folder = options.work / f"history-{history}"
        put(folder, files)
        task = stacked(raw)
        found[f"history {history}"] = {
            "inputs": task.obs_size,
            "apart": apart(task, policy, folder),
            "microseconds": {name: timed(folder, raw, way, options) for name, way in WAYS.items()},
        }
    cpu = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), "")
    environment = {
        "processor": cpu.partition(":")[2].strip(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": jax.__version__,
        "onnxruntime": onnxruntime.__version__,
        "load_before": round(load, 1),
        "steps": options.steps,
        "repeats": options.repeats,
    }
    (HERE / "results.json").write_text(json.dumps({"results": found, "environment": environment}, indent=1) + "\n")
    lines = [
        "| history | what runs | median | 99.9 % | processor alone: median | 99.9 % |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in found.items():
        for way, taken in each["microseconds"].items():
            numbers = " | ".join(f"{taken[key]:,.0f} µs" for key in KEYS)
            lines.append(f"| {name.split()[1]} | {way} | {numbers} |")
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
