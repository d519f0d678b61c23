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
sys.path.insert(0, str(HERE.parent))
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]

RESULTS, DATA = HERE / "results.csv", HERE / "data.json"
SRC = HERE.parents[1] / "src"
CAMPAIGNS = {
    "pendulum": "run pendulum --preset quick --seed 300 --budget 4 --batch-size 2000",
    "hopper": "run hopper --preset fast --seed 20 --budget 10 --batch-size 25000",
}
PRESETS = {"pendulum": "quick", "hopper": "fast"}
STEPS = 10_000
SEEDS = {"pendulum": range(10), "hopper": range(3)}
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
    every += [Cell("hopper", "brac-1.0", "musbo", seed) for seed in SEEDS["hopper"]]
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
    python, script = (sys.executable, "ours.py") if cell.made_by == "musbo" else (str(peers), "peer.py")
    words = [python, str(HERE / script), file, cell.task, cell.algo, str(cell.seed)]
    words += [PRESETS[cell.task], str(STEPS)]
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    single = os.environ | {"XLA_FLAGS": flags, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SRC)}
    core = cores.get()
    with (work / f"{name}.log").open("w") as log:
        done = subprocess.run(["taskset", "-c", str(core), *words], env=single, stdout=subprocess.PIPE, stderr=log)
    cores.put(core)
    if done.returncode:
        print(f"{name} failed: see {work / name}.log", flush=True)
        return
    found = json.loads(done.stdout.decode().strip().splitlines()[-1])
    out.write_text(json.dumps(found))
    print(f"{name}: {' '.join(f'{value:.0f}' for value in found['returns'])}", flush=True)


def settled(returns: list[float]) -> float:
    """The mean over the second half of the training."""
    return statistics.mean(returns[len(returns) // 2 :])


def gathered(work: Path) -> dict[Cell, list[float]]:
    """What is in results.csv, and what `work` has of it or more."""
    known: dict[Cell, list[float]] = {}
    if RESULTS.exists():
        with RESULTS.open() as stream:
            for row in csv.DictReader(stream):
                cell = Cell(row["task"], row["algo"], row["made_by"], int(row["seed"]))
                known[cell] = [float(value) for value in row["returns"].split()]
    for cell in cells():
        file = work / f"{cell.task}-{cell.algo}-{cell.made_by}-{cell.seed}.json"
        if file.exists():
            known[cell] = json.loads(file.read_text())["returns"]
    return {cell: known[cell] for cell in cells() if cell in known}


def described(work: Path, task: str) -> str:
    """The data in a line, kept in data.json for when the file is not at hand."""
    from musbo.data.files import read_batch

    known = json.loads(DATA.read_text()) if DATA.exists() else {}
    if (work / f"{task}.parquet").exists():
        batch = read_batch(work / f"{task}.parquet")
        returns = batch.returns()
        quality = f"{returns.mean():.0f} (from {returns.min():.0f} to {returns.max():.0f})"
        episodes = f"{len(batch):,} transitions, {len(returns):,} episodes"
        known[task] = f"{episodes}; the behaviour's mean return is {quality}."
        DATA.write_text(json.dumps(known, indent=1) + "\n")
    return known[task]


def spread(values: list[float]) -> str:
    """Mean and deviation over seeds."""
    return f"{statistics.mean(values):.0f}" + (f" ± {statistics.stdev(values):.0f}" if len(values) > 1 else "")


def told(work: Path) -> list[str]:
    known, lines = gathered(work), []
    with RESULTS.open("w") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*Cell._fields, "returns"])
        writer.writerows([*cell, " ".join(f"{value:.1f}" for value in known[cell])] for cell in known)
    lines += ["| logs | method | made by | seeds | return, second half of training | at the end |"]
    lines += ["|---|---|---|---|---|---|"]
    for task in dict.fromkeys(cell.task for cell in known):
        for algo, who in dict.fromkeys((cell.algo, cell.made_by) for cell in cells()):
            mine = [found for cell, found in known.items() if cell[:3] == (task, algo, who)]
            if mine:
                words = [spread([settled(found) for found in mine]), spread([found[-1] for found in mine])]
                lines.append(f"| {task} | {algo} | {who} | {len(mine)} | {words[0]} | {words[1]} |")
    lines += ["", *(f"{task}: {described(work, task)}" for task in dict.fromkeys(cell.task for cell in known))]
    missing = [" ".join(map(str, cell)) for cell in cells() if cell not in known]
    return [*lines, "", "Not run yet: " + "; ".join(missing) + "."] if missing else lines


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
    between(HERE / "README.md", "results", told(chosen.work))


if __name__ == "__main__":
    main()
