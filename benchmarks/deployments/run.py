"""MUSBO beside ME-TRPO and its own ablation, on the same seeds and budget.

    python benchmarks/deployments/run.py --work DIR

Runs every missing cell with `musbo run` (or `musbo resume`, when it was interrupted), one single-threaded process per
core, and writes results.csv, environment.json and the tables of README.md from what is there. Cells that have not run
are listed as missing.
"""

import argparse
import csv
import json
import math
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from musbo.campaign.events import Collected, Episodes, Trained

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]

BUDGETS = {"pendulum": (4, 2_000), "halfcheetah": (5, 50_000), "hopper": (10, 25_000)}
PRESETS = {"pendulum": "quick", "halfcheetah": "fast", "hopper": "fast"}
# Settings were chosen on other seeds: benchmarks/fast-preset.
SEEDS = {"pendulum": range(10), "halfcheetah": range(74, 77), "hopper": range(20, 23)}
ALGOS = ("musbo", "me-trpo", "musbo-collection")


def cells(tasks: list[str], algos: list[str], seeds: list[int] | None) -> list[tuple[str, str, int]]:
    """One seed of everything before the second; the small task, which takes minutes, first."""
    wanted = [(task, algo, seed) for task, algo in product(tasks, algos) for seed in seeds or SEEDS[task]]
    return sorted(wanted, key=lambda cell: (cell[0] != "pendulum", cell[2], tasks.index(cell[0])))


def run_cell(work: Path, cell: tuple[str, str, int], cores: "Queue[int]") -> None:
    task, algo, seed = cell
    out = work / f"{task}-{algo}-{seed}"
    core = cores.get()
    budget, batch_size = BUDGETS[task]
    started = (out / "ledger.sqlite").exists()
    words = ["resume", str(out)]
    if not started:
        words = ["run", task, "--algo", algo, "--preset", PRESETS[task], "--seed", str(seed), "--out", str(out)]
        words += ["--budget", str(budget), "--batch-size", str(batch_size)]
    environment = os.environ | {
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "OMP_NUM_THREADS": "1",
    }
    with (work / f"{out.name}.log").open("a") as log:
        subprocess.run(
            ["taskset", "-c", str(core), sys.executable, "-m", "musbo", *words],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    cores.put(core)


def read(work: Path, wanted: list[tuple[str, str, int]]) -> tuple[list[dict], list[str]]:
    from musbo.campaign.summary import summary

    rows, missing = [], []
    for task, algo, seed in wanted:
        out = work / f"{task}-{algo}-{seed}"
        if not (out / "ledger.sqlite").exists():
            missing.append(f"{task} {algo} {seed}")
            continue
        found = summary(out)
        if not found.finished:
            missing.append(f"{task} {algo} {seed} (at deployment {len(found.returns)} of {BUDGETS[task][0]})")
        for item in found.deployments:
            if item.training is None or item.evaluation is None or item.evaluation.episodes is None:
                continue
            row = {"task": task, "algo": algo, "seed": seed, "deployment": item.number}
            last = item.number == BUDGETS[task][0]
            row["alpha_auto"] = automatic_alpha(out) if last else None  # of earlier labelers nothing is kept
            rows.append(row | numbers(item.batch, item.training, item.evaluation.episodes))
    return rows, missing


def numbers(batch: "Collected", training: "Trained", episodes: "Episodes") -> dict[str, Any]:
    """The columns of one deployment."""
    from musbo.core.diagnostics import Quantiles

    def own(name: str) -> Any:
        every = (*batch.findings.diagnostics, *training.findings.diagnostics)
        value = next((each.value for each in every if each.name == name), None)
        if isinstance(value, Quantiles):
            return " ".join(f"{v:.6g}" for v in (value.low, value.median, value.high))
        return value

    promise = training.forecast
    return {
        "size": batch.transitions,
        "batch_return": batch.mean_return,
        "batch_length": batch.mean_length,
        **{name: own(name) for name in ("zeta", "zeta_at_cap", "dynamics_error", "labeler_error")},
        "imagined_return": promise.total if promise else None,
        "imagined_length": promise.steps if promise else None,
        **{name: own(name) for name in ("path_disagreement", "U", "disagreement", "alpha", "chosen")},
        "trained_seconds": training.seconds,
        "policy_sha256": training.policy_sha256,
        "return": episodes.mean_return,
        "spread": episodes.deviation,
        "model_return": episodes.model_return,
        "length": episodes.mean_length,
        "speed": episodes.speed,
    }


def automatic_alpha(out: Path) -> float:
    """What alpha would be at `auto` for the labeler that a finished run ends with."""
    from musbo.campaign.store import Store
    from musbo.campaign.summary import read_status
    from musbo.core import serial

    trained = read_status(out).trained
    state = serial.decode(Store(out / "store").get(trained[max(trained)].state))
    return math.log(2) / float(state.labeler.levels.pair_p90)


def table(rows: list[dict], missing: list[str], algos: list[str]) -> list[str]:
    """Every seed of every method."""
    lines = ["| task | method | seed | return after each deployment | at the end, over 20 episodes |"]
    lines.append("|---|---|---|---|---|")
    for task, (deployments, _) in BUDGETS.items():
        for algo in algos:
            for seed in sorted({row["seed"] for row in rows if (row["task"], row["algo"]) == (task, algo)}):
                curve = [row for row in rows if (row["task"], row["algo"], row["seed"]) == (task, algo, seed)]
                curve.sort(key=lambda row: row["deployment"])
                last = curve[-1]
                if last["deployment"] == deployments:
                    shown = " ".join(f"{row['return']:.0f}" for row in curve)
                    end = f"{last['return']:.0f} ± {last['spread']:.0f}"
                    lines.append(f"| {task} | {algo} | {seed} | {shown} | {end} |")
    if missing:
        lines += ["", f"Not run yet: {len(missing)} of {len(cells(list(BUDGETS), algos, None))} runs."]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="where the runs are kept; outside the repository")
    parser.add_argument("--tasks", nargs="+", default=list(BUDGETS), choices=list(BUDGETS))
    parser.add_argument("--algos", nargs="+", default=list(ALGOS))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--cores", nargs="+", type=int, default=sorted(os.sched_getaffinity(0)))
    parser.add_argument("--only-read", action="store_true", help="write the results of what is there; run nothing")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    wanted = cells(args.tasks, args.algos, args.seeds)
    if not args.only_read:
        cores: Queue[int] = Queue()
        for core in args.cores:
            cores.put(core)
        with ThreadPoolExecutor(len(args.cores)) as pool:
            list(pool.map(lambda cell: run_cell(args.work, cell, cores), wanted))
    every = cells(list(BUDGETS), list(ALGOS), None)
    rows, missing = read(args.work, every)
    if not rows:
        sys.exit("nothing has run yet")
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    from musbo.campaign.versions import versions

    about = versions() | {"processor": platform.processor() or platform.machine(), "threads per run": "1"}
    (HERE / "environment.json").write_text(json.dumps(about, indent=1) + "\n")
    between(HERE / "README.md", "results", table(rows, missing, list(ALGOS)))


if __name__ == "__main__":
    main()
