"""How long until something happens?

    python benchmarks/speed/start.py

`musbo --help` against a bare `python -c "import numpy"`, in turns. And the time from the start of `musbo run` to its
first TRPO update (a batch is collected, both ensembles are fitted and the policy is cloned on the way), for the first
run, with an empty compilation cache, and for a second one of the same settings, which finds the compiled programs
there. The cache is one of its own: the user's is neither read nor filled. Everything is imported once before, so that
the first run does not also wait for the disk. Writes start.json and the tables of README.md. `--small` is a smoke test,
and writes to `.small`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from report import write_tables

HERE = Path(__file__).parent
HELP = ["-m", "musbo", "--help"]
NUMPY = ["-c", "import numpy"]
WORD = "first update"


def seconds(words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def measure_help(turns: int) -> dict[str, Any]:
    for words in (HELP, NUMPY):  # files into the memory of the system
        seconds(words)
    ours, bare = zip(*((seconds(HELP), seconds(NUMPY)) for _ in range(turns)), strict=True)
    musbo_s, numpy_s = statistics.median(ours), statistics.median(bare)
    return {"musbo_s": musbo_s, "numpy_s": numpy_s, "ratio": musbo_s / numpy_s, "musbo": ours, "numpy": bare}


def until_first_update(task: str, preset: str, batch: int | None, out: Path) -> None:
    """In a process of its own: do as `musbo run` does, say when the first update is done, and end."""
    import musbo
    from musbo.campaign.news import News, Training

    def observe(news: News) -> None:
        if isinstance(news, Training) and news.metrics.stage == "improve":
            print(WORD, flush=True)
            os._exit(0)

    musbo.run(task, preset=preset, batch_size=batch, out=out, observe=observe)  # type: ignore[arg-type]
    sys.exit("the run ended without an update")


def one_run(work: Path, name: str, options: argparse.Namespace) -> float:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION_CACHE")}
    words = [str(Path(__file__).resolve()), "--child", str(work / name), "--task", options.task]
    words += ["--preset", options.preset, *(["--batch", str(options.batch)] if options.batch else [])]
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "XDG_CACHE_HOME": str(work / "cache")},
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        taken = time.perf_counter() - began
    if said != WORD:
        sys.exit(f"the run said {said!r} and ended with {process.returncode}")
    return taken


def measure_runs(options: argparse.Namespace, runs: int) -> dict[str, Any]:
    """Pairs of a first and a second run, each pair with a new cache; the worst pair counts."""
    subprocess.run([sys.executable, "-c", "import musbo.campaign.api"], check=True)
    pairs = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as work:
            first, second = (one_run(Path(work), name, options) for name in ("first", "second"))
        pairs.append({"first_s": first, "second_s": second, "ratio": second / first})
        print(f"first update after {first:.1f} s, in the second run after {second:.1f} s: {second / first:.2f}")
    worst = max(pairs, key=lambda pair: pair["ratio"])
    return {"task": options.task, "preset": options.preset, **worst, "runs": pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, help="of --help and the bare import (default: 15; with --small 2)")
    parser.add_argument("--runs", type=int, help="pairs of a first and a second run (default: 3; with --small 1)")
    parser.add_argument("--task", default="pendulum", help="what is run (default: pendulum, as `musbo run` does)")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--batch", type=int, help="transitions of the first batch (default: the preset's)")
    parser.add_argument("--small", action="store_true", help="the point mass and a small batch")
    parser.add_argument("--out", type=Path, help="where to write (default: here; with --small: .small)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)  # in a process that this one started
    options = parser.parse_args()
    if options.child:
        return until_first_update(options.task, options.preset, options.batch, options.child)
    if options.small:
        options.task, options.batch = "pointmass", options.batch or 200
    out = options.out or (HERE / ".small" if options.small else HERE)
    out.mkdir(parents=True, exist_ok=True)

    said = measure_help(options.turns or (2 if options.small else 15))
    print(f"musbo --help {said['musbo_s']:.3f} s, import numpy {said['numpy_s']:.3f} s: ratio {said['ratio']:.2f}")
    found = {
        "environment": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            **{package: version(package) for package in ("jax", "numpy")},
        },
        "help": said,
        "first_update": measure_runs(options, options.runs or (1 if options.small else 3)),
    }
    (out / "start.json").write_text(json.dumps(found, indent=1) + "\n")
    write_tables(out)


if __name__ == "__main__":
    main()
