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
import statistics
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


def table(rows: list[dict], missing: list[str], algos: list[str]) -> str:
    """Every seed of every method, and the paired differences from MUSBO with their spread."""
    lines = []
    final: dict[tuple[str, str, int], dict] = {}
    for row in rows:
        if row["deployment"] == BUDGETS[row["task"]][0]:
            final[row["task"], row["algo"], row["seed"]] = row
    for task in BUDGETS:
        here = [key for key in final if key[0] == task]
        if not here:
            continue
        lines += [
            f"### {task}",
            "",
            "| method | seed | return per deployment | final | speed (m/s) | length |",
            "|---|---|---|---|---|---|",
        ]
        for algo in algos:
            for _, _, seed in sorted(key for key in here if key[1] == algo):
                curve = [r for r in rows if (r["task"], r["algo"], r["seed"]) == (task, algo, seed)]
                last = final[task, algo, seed]
                shown = ", ".join(f"{r['return']:.0f}" for r in sorted(curve, key=lambda r: r["deployment"]))
                speed = f"{last['speed']:.2f}" if last["speed"] is not None else ""
                lines.append(
                    f"| {algo} | {seed} | {shown} | {last['return']:.0f} ± {last['spread']:.0f} "
                    f"| {speed} | {last['length']:.0f} |"
                )
        lines.append("")
        for algo in algos:
            values = [final[key]["return"] for key in here if key[1] == algo]
            if values:
                spread = f" ± {statistics.stdev(values):.0f} between seeds" if len(values) > 1 else ""
                lines.append(f"- {algo}: mean final return {statistics.mean(values):.0f}{spread} ({len(values)} seeds)")
            pairs = [
                final[task, "musbo", seed]["return"] - final[task, algo, seed]["return"]
                for _, other, seed in here
                if other == algo != "musbo" and (task, "musbo", seed) in final
            ]
            if pairs:
                each = ", ".join(f"{p:+.0f}" for p in pairs)
                lines.append(f"  - MUSBO minus {algo}, seed by seed: {each} (mean {statistics.mean(pairs):+.0f})")
        lines += ["", *coefficient(task, [r for r in rows if r["task"] == task and r["algo"] == "musbo"]), ""]
    if missing:
        lines += ["Not run yet (task, method, seed): " + "; ".join(missing) + ".", ""]
    return "\n".join(lines)


def coefficient(task: str, rows: list[dict]) -> list[str]:
    """U inside a batch at both temperatures (its quantiles are those of the disagreement, mirrored), and zeta."""
    rows = [row for row in rows if row["disagreement"]]
    if not rows:
        return []
    lines = [
        f"U inside the last imagined batch and zeta in the field, MUSBO on {task}, mean over seeds:",
        "",
        "| deployment | U, 10-90 %, at 0.028 | at auto (alpha) | as run (alpha) | zeta 10, 50, 90 % | at its cap |",
        "|---|---|---|---|---|---|",
    ]

    def mean(values: list[float]) -> float:
        return statistics.mean(values) if values else math.nan

    for d in sorted({row["deployment"] for row in rows}):
        here = [row for row in rows if row["deployment"] == d]
        far = [[float(x) for x in row["disagreement"].split()] for row in here]

        def spread(alphas: list[float], far: list[list[float]] = far) -> str:
            low = mean([math.exp(-a * x[2]) for a, x in zip(alphas, far, strict=True)])
            high = mean([math.exp(-a * x[0]) for a, x in zip(alphas, far, strict=True)])
            return f"{low:.2f} to {high:.2f} ({mean(alphas):.3f})"

        run = [row["alpha"] for row in here]
        auto = [row["alpha_auto"] for row in here]
        at_auto = spread(auto) if None not in auto else "-"
        zeta = [[float(x) for x in row["zeta"].split()] for row in here if row["zeta"]]
        shown = " ".join(f"{mean([z[i] for z in zeta]):.2f}" for i in range(3)) if zeta else "random batch"
        cap = f"{mean([row['zeta_at_cap'] for row in here if row['zeta']]):.2f}" if zeta else ""
        fixed = spread([0.028] * len(here)).partition(" (")[0]
        lines.append(f"| {d} | {fixed} | {at_auto} | {spread(run)} | {shown} | {cap} |")
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
    readme = HERE / "README.md"
    head = readme.read_text().partition("<!-- results -->")[0] if readme.exists() else ""
    readme.write_text(head + "<!-- results -->\n\n" + table(rows, missing, list(ALGOS)))
    print(table(rows, missing, list(ALGOS)))


if __name__ == "__main__":
    main()
