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

from benchmarks.document import between
from benchmarks.gate.campaigns import campaign
from benchmarks.gate.rules import Row, by_gate, by_imagination, by_means, calibrated, rates
from musbo.core.durable import write_whole

HERE = Path(__file__).parent
LEDGER = "verdicts.jsonl"
REPORTED = 1000  # seeds from here on
KINDS = {"next": "trained as it should be", "noisy": "noise on its weights", "earlier": "an earlier policy",
         "offset": "actions moved", "overfitted": "climbed far in models of few data"}  # fmt: skip


def carry_out(out: Path, seeds: range) -> int:
    """Every campaign that is not in the ledger yet, nor in the one that is kept here, one after the other."""
    out.mkdir(parents=True, exist_ok=True)
    ledger = out / LEDGER
    done = {row["seed"] for place in (out, HERE) if (place / LEDGER).exists() for row in read(place)}
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


def read(out: Path) -> list[Row]:
    return [json.loads(line) for line in (out / LEDGER).read_text().splitlines()]


def told(rows: list[Row]) -> list[str]:
    """The rule of the calibration, and what it and others do on the campaigns of the report."""
    first, reported = ([row for row in rows if (row["seed"] >= REPORTED) is late] for late in (False, True))
    rule, alone = calibrated(first), calibrated(first, weights=(0.0,))
    said = ", ".join(f"{name} {value:g}" for name, value in asdict(rule).items())
    lines = [f"{len(first)} campaigns for the calibration, {len(reported)} for the report. The rule: {said}.", ""]
    lines += ["| rule | bad policies that pass | clear improvements that are stopped |", "|---|---|---|"]
    lines += [rates(reported, by_gate(rule)).row("**the gate**")]
    lines += [rates(reported, by_gate(alone)).row("fitted Q alone, calibrated likewise")]
    imagined = [row for row in reported if row["imagined"] is not None]
    lines += [
        rates(imagined, by_imagination).row(f"what imagination rates best ({len(imagined)} campaigns with models)")
    ]
    lines += [rates(imagined, by_gate(rule)).row("the gate, on these campaigns")]
    lines += [rates(reported, by_means(1.0, 0.0)).row("the larger mean in the refits")]
    lines += [rates(reported, by_means(0.0, 1.0)).row("the larger mean by fitted Q")]
    lines += [rates(first, by_gate(rule)).row("the gate, on the campaigns of its calibration"), ""]
    lines += ["| the gate, by | bad policies that pass | clear improvements that are stopped |", "|---|---|---|"]
    for name in ("task", "method", "kind"):
        for value in sorted({row[name] for row in reported}):
            own = [row for row in reported if row[name] == value]
            lines.append(rates(own, by_gate(rule)).row(f"{name}: {KINDS.get(value, value)}"))
    return lines


def show(out: Path, publish: bool) -> int:
    here = {row["seed"]: row for place in (HERE, out) if (place / LEDGER).exists() for row in read(place)}
    rows = list(here.values())
    lines = told(rows)
    print("\n".join(lines))
    if publish:
        write_whole(HERE / LEDGER, "".join(json.dumps(row) + "\n" for row in sorted(rows, key=_seed)).encode())
        between(HERE / "README.md", "results", ["", *lines, ""])
    return 0


def _seed(row: Row) -> int:
    return row["seed"]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="carry out the campaigns that are missing")
    run.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the ledger is")
    run.add_argument("--seeds", type=int, nargs=2, required=True, metavar=("FIRST", "END"))
    table = verbs.add_parser("table", help="calibrate, and say how often each rule is wrong")
    table.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the ledger is")
    table.add_argument("--publish", action="store_true", help="keep the ledger here, and write into the README")
    said = parser.parse_args(words)
    if said.verb == "table":
        return show(said.out, said.publish)
    return carry_out(said.out, range(*said.seeds))


if __name__ == "__main__":
    sys.exit(main())
