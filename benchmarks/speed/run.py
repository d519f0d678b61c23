"""How fast is the work of a campaign, beside what a user would pick instead and beside the machine's own limit?

    python benchmarks/speed/run.py

Ours and the peer's run in turns (ours, peer, ours, peer, ...), warmed up, each with all cores. The peers live in a
process and an environment of their own, which is made under `.peers` the first time (PyTorch for the CPU, mbrl-lib,
sb3-contrib); `--peers PYTHON` names one that exists. A run measures everything once, with several turns whose median
counts; there are three runs, and the worst is reported. Writes results.json, environment.json and the tables of
README.md. `--small` is a smoke test of a minute: it says nothing about speed, and writes to `.small` instead.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

from limit import Rates, Shape
from report import write_tables
from works import FULL, SMALL, WORKS, Sizes, Work

from musbo.core.compilation import keep_compiled

HERE = Path(__file__).parent
TORCH, SB3, MBRL = "torch==2.13.0", "sb3-contrib==2.9.2", "mbrl==0.2.0"
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
PAUSE = 0.3  # seconds before every measurement: idle threads of the other side spin for a while before they sleep
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "XLA_FLAGS")
SQUARE = Shape(1024, 1024, 1024)  # the machine's matrix rate, in one number


def make_peers(folder: Path) -> Path:
    """The Python of the peers' environment, made if it is not there yet."""
    python, done = folder / "bin" / "python", folder / "installed"
    if done.exists():
        return python
    print(f"making the peers' environment in {folder}", flush=True)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    # mbrl pins an old hydra, and needs little of what it asks for; PyTorch's own index has the build without CUDA.
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [*pip, "--no-deps", TORCH, "--extra-index-url", CPU_WHEELS],
        [*pip, TORCH, SB3, "hydra-core", "omegaconf", "gymnasium", "tqdm", "termcolor", "matplotlib"],
        [*pip, "--no-deps", MBRL],
    ):
        subprocess.run(command, check=True)
    done.touch()
    return python


class Peers:
    """The peers' process: a question, an answer."""

    def __init__(self, python: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in (*THREADS, "PYTHONPATH")}
        self._process = subprocess.Popen(
            [str(python), str(HERE / "peers.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def __enter__(self) -> "Peers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, ask: str, **more: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": ask, **more}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the peers\' process has ended"}')
        if "error" in answer:
            sys.exit(answer["error"])
        return answer


def measure(work: Work, sizes: Sizes, peers: Peers, rates: Rates, turns: int) -> dict[str, Any]:
    """One run of one work."""
    ours = work.prepare(sizes)
    ours.run()  # compiles
    ours.run()
    if work.case is not None:
        peers.ask("prepare", case=work.case(sizes))
    mine, theirs, tries, counted = [], [], 0, {}
    for _ in range(turns):
        time.sleep(PAUSE)
        began = time.perf_counter()
        tries = ours.run()
        mine.append(time.perf_counter() - began)
        if work.case is not None:
            time.sleep(PAUSE)
            counted = peers.ask("run")
            theirs.append(counted.pop("seconds"))
    time.sleep(PAUSE)
    ours_s = statistics.median(mine)
    limit_s = rates.seconds(ours.products(tries))
    row = {"ours_s": ours_s, "limit_s": limit_s, "limit_fraction": limit_s / ours_s, "ours_turns_s": mine}
    row["square_gflops"] = rates(SQUARE) / 1e9
    if tries:
        row["ours_tries"] = tries
    if theirs:
        peer_s = statistics.median(theirs)
        row |= {"peer_s": peer_s, "ratio": peer_s / ours_s, "peer_turns_s": theirs}
        row |= {f"peer_{name}": value for name, value in counted.items()}
    return row


def worst(work: Work, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of a work: its worst ratio with the times behind it, and its worst share of the limit."""
    slow = min(runs, key=lambda run: run["ratio"] if work.peer else run["limit_fraction"])
    far = min(runs, key=lambda run: run["limit_fraction"])
    row: dict[str, Any] = {
        "work": work.name,
        "ours_s": slow["ours_s"],
        "peer": work.peer,
        "peer_s": slow.get("peer_s"),
        "ratio": slow.get("ratio"),
        "limit_s": far["limit_s"],
        "limit_fraction": far["limit_fraction"],
    }
    reached = all(row[name] >= least for name, least in work.wanted.items())
    return {**row, "about": work.about, "wanted": work.wanted, "reached": reached, "runs": runs}


def line(row: dict[str, Any]) -> str:
    beside = f"{row['peer_s']:9.4f} s, ratio {row['ratio']:5.2f}" if row.get("peer_s") else " " * 24
    return f"ours {row['ours_s']:9.4f} s, peer {beside}, {row['limit_fraction']:4.0%} of the limit"


def processor() -> str:
    """The model's name, where Linux says it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    names = [text.partition(":")[2].strip() for text in text.splitlines() if text.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def environment(peers: dict[str, Any], rates: Rates) -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "ours": {name: version(name) for name in ("jax", "jaxlib", "equinox", "optax", "numpy")},
        "peers": peers,
        "variables": {name: os.environ[name] for name in THREADS if name in os.environ},
        "load_before": round(os.getloadavg()[0], 2),
        "matrix_rate_gflops": rates.gigaflops(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="the worst of them is reported (default: 3; with --small 1)")
    parser.add_argument(
        "--turns", type=int, help="of each side in a run; the median counts (default: 3; with --small 1)"
    )
    parser.add_argument("--only", nargs="+", choices=list(WORKS), metavar="WORK", default=list(WORKS),
                        help=f"some of {', '.join(WORKS)}; the other rows of results.json stay")  # fmt: skip
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="of an environment that has the peers")
    parser.add_argument("--out", type=Path, help="where to write (default: here; with --small: .small)")
    options = parser.parse_args()
    out = options.out or (HERE / ".small" if options.small else HERE)
    out.mkdir(parents=True, exist_ok=True)
    keep_compiled()  # as the program itself does
    python = options.peers or make_peers(HERE / ".peers")
    sizes, budget, usual = (SMALL, 0.02, 1) if options.small else (FULL, 0.4, 3)
    n_runs, turns = options.runs or usual, options.turns or usual
    chosen = [work for name, work in WORKS.items() if name in options.only]
    runs: dict[str, list[dict[str, Any]]] = {work.name: [] for work in chosen}
    about: dict[str, Any] = {}
    for number in range(1, n_runs + 1):
        with Peers(python) as peers:
            rates = Rates(lambda shape, p=peers: p.ask("rate", shape=shape, budget=budget)["rate"], budget)
            versions = peers.ask("about")
            print(f"run {number} of {n_runs}: {rates(SQUARE) / 1e9:.0f} GFLOP/s at {SQUARE}", flush=True)
            for work in chosen:
                runs[work.name].append(measure(work, sizes, peers, rates, turns))
                print(f"  {work.name:<14} {line(runs[work.name][-1])}", flush=True)
            about = environment(versions, rates)

    print("worst of the runs")
    rows = {row["work"]: row for row in _read(out / "results.json")}
    for work in chosen:
        rows[work.name] = worst(work, runs[work.name])
        print(f"  {work.name:<14} {line(rows[work.name])}")
    ordered = [rows[name] for name in WORKS if name in rows]
    (out / "results.json").write_text(json.dumps(ordered, indent=1) + "\n")
    (out / "environment.json").write_text(json.dumps(about, indent=1) + "\n")
    write_tables(out)


def _read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.exists() else []


if __name__ == "__main__":
    main()
