"""How often the gate lets a bad policy pass, and how often it stops a good one, on small simulated campaigns.

    python -m benchmarks.gate run --out ../gate --seeds 0 300       # resumable; about half a minute each on one core
    python -m benchmarks.gate run --out ../gate --seeds 1000 1300
    python -m benchmarks.gate table --out ../gate --publish         # calibrates on the first, reports on the others

Seeds below 1000 are for the calibration, from 1000 on for the report. The plant needs its package:
`pip install --no-deps industrial_benchmark_python==2.0`.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.gate.campaigns import campaign

LEDGER = "verdicts.jsonl"


def carry_out(out: Path, seeds: range) -> int:
    """Every campaign that is not in the ledger yet, one after the other."""
    out.mkdir(parents=True, exist_ok=True)
    ledger = out / LEDGER
    done = {json.loads(line)["seed"] for line in ledger.read_text().splitlines()} if ledger.exists() else set[int]()
    for seed in seeds:
        if seed in done:
            continue
        began = time.perf_counter()
        found = asdict(campaign(seed))
        with ledger.open("a") as file:
            file.write(json.dumps(found) + "\n")
        gained = found["candidate"] - found["incumbent"]
        what = f"{found['task']}, {found['method']}, {found['kind']}: gain {gained:.4g}"
        print(f"{seed}: {what}, {time.perf_counter() - began:.0f} s", flush=True)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="carry out the campaigns that are missing")
    run.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the ledger is")
    run.add_argument("--seeds", type=int, nargs=2, required=True, metavar=("FIRST", "END"))
    said = parser.parse_args(words)
    return carry_out(said.out, range(*said.seeds))


if __name__ == "__main__":
    sys.exit(main())
