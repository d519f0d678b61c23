"""SAC and BCQ beside d3rlpy's on the same logged data, and BRAC beside the behaviour that made them.

    python benchmarks/agreement/run.py --work DIR [--campaign hopper=RUN] [--cores 0 1]

The data are all batches of one campaign: from random actions to what it had learned at the end, of mixed quality by
their making. `--campaign` takes a finished run instead of making it anew. Every cell is one single-threaded process,
run if its result is missing; results.csv and the table of README.md are written from what is there.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
CAMPAIGNS = {
    "pendulum": "run pendulum --preset quick --seed 300 --deployments 4 --batch 2000",
    "hopper": "run hopper --preset fast --seed 20 --deployments 10 --batch 25000",
}
PRESETS = {"pendulum": "quick", "hopper": "fast"}
STEPS = {"pendulum": 10_000, "hopper": 20_000}
SEEDS = {"pendulum": range(5), "hopper": range(3)}
WHEELS = "https://download.pytorch.org/whl/cpu"
PEERS = ["torch==2.13.0", "d3rlpy==2.8.1"]
OURS = [
    "jax",
    "equinox",
    "optax",
    "gymnasium[mujoco]",
    "mujoco<4",
    "tyro",
    "rich",
    "pyarrow",
    "safetensors",
    "jaxtyping",
]


class Cell(NamedTuple):
    task: str
    algo: str
    made_by: str
    seed: int


def cells() -> list[Cell]:
    who = [("sac", "musbo"), ("sac", "d3rlpy"), ("bcq", "musbo"), ("bcq", "d3rlpy"), ("brac", "musbo")]
    every = [Cell(task, *pair, seed) for task in CAMPAIGNS for pair in who for seed in SEEDS[task]]
    return sorted(every, key=lambda cell: (cell.task != "pendulum", cell.seed))


def environment(folder: Path) -> Path:
    """The peers' interpreter; its environment is made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", PEERS[0], "--extra-index-url", WHEELS], check=True)
        subprocess.run([*pip, *PEERS, *OURS], check=True)
    return python


def data(work: Path, task: str, given: dict[str, Path]) -> Path:
    """All batches of the campaign as one file."""
    from musbo.data.batch import concatenate
    from musbo.data.files import read_batch, write_batch

    file = work / f"{task}.parquet"
    if not file.exists():
        run = given.get(task, work / f"campaign-{task}")
        if not (run / "summary.json").exists():
            begun = (run / "ledger.sqlite").exists()
            words = ["resume", str(run)] if begun else [*CAMPAIGNS[task].split(), "--out", str(run)]
            subprocess.run([sys.executable, "-m", "musbo", *words], check=True)
        count = len(list((run / "data").glob("deployment-*.parquet")))
        batches = [read_batch(run / "data" / f"deployment-{d}.parquet") for d in range(1, count + 1)]
        write_batch(file, concatenate(batches))
    return file


def train(work: Path, cell: Cell, peers: Path, cores: "Queue[int]") -> None:
    name = f"{cell.task}-{cell.algo}-{cell.made_by}-{cell.seed}"
    out, file = work / f"{name}.json", str(work / f"{cell.task}.parquet")
    if out.exists():
        return
    size = [PRESETS[cell.task], str(STEPS[cell.task])]
    words = [str(peers), str(HERE / "peer.py"), file, cell.task, cell.algo, str(cell.seed), *size]
    if cell.made_by == "musbo":
        words = [sys.executable, "-m", "musbo", "run", cell.task, "--algo", cell.algo, "--data", file, "--json"]
        words += ["--preset", PRESETS[cell.task], "--deployments", "1", "--seed", str(cell.seed)]
        words += ["--steps", str(STEPS[cell.task]), "--out", str(work / name)]
        if (work / name).exists():
            words = [sys.executable, "-m", "musbo", "resume", str(work / name), "--json"]
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    single = os.environ | {"XLA_FLAGS": flags, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SRC)}
    core = cores.get()
    with (work / f"{name}.log").open("w") as log:
        done = subprocess.run(["taskset", "-c", str(core), *words], env=single, stdout=subprocess.PIPE, stderr=log)
    cores.put(core)
    if done.returncode:
        print(f"{name} failed: see {work / name}.log", flush=True)
        return
    found = json.loads(done.stdout.decode().strip().splitlines()[-1] if cell.made_by == "d3rlpy" else done.stdout)
    result = {"return": found["final_return"]} if cell.made_by == "musbo" else found
    out.write_text(json.dumps(result))
    print(f"{name}: {result['return']:.0f}", flush=True)


def table(work: Path) -> str:
    from musbo.data.files import read_batch

    rows, missing, lines = [], [], []
    for cell in cells():
        file = work / f"{cell.task}-{cell.algo}-{cell.made_by}-{cell.seed}.json"
        if file.exists():
            rows.append({**cell._asdict(), "return": round(json.loads(file.read_text())["return"], 2)})
        else:
            missing.append(" ".join(map(str, cell)))
    with (HERE / "results.csv").open("w") as out:
        writer = csv.DictWriter(out, [*Cell._fields, "return"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for task in CAMPAIGNS:
        if not (work / f"{task}.parquet").exists():
            continue
        batch = read_batch(work / f"{task}.parquet")
        returns = batch.returns()
        lines += ["", f"### {task}", ""]
        quality = f"{returns.mean():.0f} (from {returns.min():.0f} to {returns.max():.0f})"
        lines += [f"{len(batch):,} transitions, {len(returns)} episodes; the behaviour's mean return is {quality}.", ""]
        lines += ["| method | made by | returns of the seeds | mean | deviation |", "|---|---|---|---|---|"]
        for algo, who in dict.fromkeys((cell.algo, cell.made_by) for cell in cells()):
            got = [r["return"] for r in rows if (r["task"], r["algo"], r["made_by"]) == (task, algo, who)]
            if got:
                spread = f"{statistics.stdev(got):.0f}" if len(got) > 1 else "-"
                each = ", ".join(f"{x:.0f}" for x in got)
                lines.append(f"| {algo} | {who} | {each} | {statistics.mean(got):.0f} | {spread} |")
    if missing:
        lines += ["", "Not run yet: " + "; ".join(missing) + "."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--campaign", nargs="*", default=[], metavar="TASK=RUN")
    parser.add_argument("--peers", type=Path, help="where the peers' environment is or shall be (DIR/peers)")
    parser.add_argument("--cores", type=int, nargs="+", default=list(range(os.cpu_count() or 1)))
    parser.add_argument("--tasks", nargs="+", default=list(CAMPAIGNS), choices=list(CAMPAIGNS))
    parser.add_argument("--only-read", action="store_true")
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    if not chosen.only_read:
        peers = environment(chosen.peers or chosen.work / "peers")
        given = {name: Path(run) for name, _, run in (text.partition("=") for text in chosen.campaign)}
        for task in chosen.tasks:
            data(chosen.work, task, given)
        cores: Queue[int] = Queue()
        for core in chosen.cores:
            cores.put(core)
        with ThreadPoolExecutor(len(chosen.cores)) as pool:
            wanted = [cell for cell in cells() if cell.task in chosen.tasks]
            list(pool.map(lambda cell: train(chosen.work, cell, peers, cores), wanted))
    readme = HERE / "README.md"
    head = readme.read_text().partition("<!-- results -->")[0]
    readme.write_text(head + "<!-- results -->\n" + table(chosen.work))


if __name__ == "__main__":
    main()
