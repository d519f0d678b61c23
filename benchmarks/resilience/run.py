"""What musbo withstands: the long tests that kill, crowd, fill and forge, one after the other, and three studies.

    python -m benchmarks.resilience.run --work DIR

This takes hours. Killed itself, it goes on with the same command: what has passed is in DIR, with what it said, and is
not done again. Writes results.json and the table of README.md after each part. Needs musbo[cluster], and the right to
mount a small file system.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.document import between
from benchmarks.resilience.studies import WAYS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TESTS = {
    "recorder": ("tests/data/test_recording.py", "killed_200"),
    "races": ("tests/trust/test_rounds.py", "hundred and not two_hundred"),
    "disk": ("tests/trust/test_rounds.py", "full"),
    "mutants": ("tests/trust/test_homes.py", "much"),
    "kills": ("tests/trust/test_rounds.py", "two_hundred"),
}
"""By part, the shortest first, a file and the words that choose its tests. They print what they count, as JSON."""
PYTEST = [sys.executable, "-m", "pytest", "-m", "", "-p", "no:xdist", "-q"]


def tests_of(part: str) -> list[str]:
    file, chosen = TESTS[part]
    words = [*PYTEST, "--collect-only", file, "-k", chosen]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if "::" in line]


def test(name: str, log: Path) -> dict[str, Any]:
    """One test, in a process of its own: how it ended and what it counted."""
    with log.open("w") as file:
        subprocess.run([*PYTEST, "-s", name], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
    lines = log.read_text().splitlines()
    ended = re.search(r"(passed|failed|skipped|error)", lines[-1] if lines else "")
    counters = [json.loads(line) for line in lines if line.startswith("{")]
    return {"outcome": ended[1] if ended else "killed", "counters": counters}


def study(way: str, work: Path) -> dict[str, Any]:
    return {"outcome": "passed", "policies": WAYS[way](work)}


def done(name: str, place: Path, work: Any) -> dict[str, Any]:
    """What `work` returns, with the circumstances; from an earlier call if it passed then."""
    if place.exists():
        return json.loads(place.read_text())
    print(name, flush=True)
    load, began = os.getloadavg()[0], time.monotonic()
    found = {"name": name, "commit": commit(), "load": round(load, 1), **work()}
    found["seconds"] = round(time.monotonic() - began, 1)
    if found["outcome"] == "passed":
        place.write_text(json.dumps(found))
    return found


def commit() -> str:
    """What is tested; this program itself changes other files."""
    head, changed = (
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "src", "tests"])
    )
    return f"{head[:12]}{' with changes' if changed else ''}"


def environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        **{name: version(name) for name in ("jax", "numpy", "pyarrow", "ray")},
    }


# The table


def counted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [counters for row in rows for counters in row["counters"]]


def of_kills(rows: list[dict[str, Any]]) -> tuple[str, str]:
    where = sum((Counter(each["kills"]) for each in counted(rows)), Counter[str]())
    inside = sum(count for place, count in where.items() if "ledger" in place)
    times = f"{where.total():,} kills, {inside:,} of them inside a transaction of the ledger"
    return times, "nothing lost or doubled, no deployment spent twice, the same final policy"


def of_recorder(rows: list[dict[str, Any]]) -> tuple[str, str]:
    (each,) = counted(rows)
    return f"{each['kills']:,} kills, {each['records']:,} records", f"{each['lost']:,} lost, at most one by a kill"


def of_races(rows: list[dict[str, Any]]) -> tuple[str, str]:
    (each,) = counted(rows)
    heard = ", ".join(f"{count:,} {word}" for word, count in sorted(each["answers"].items()))
    return f"{each['rounds']:,} rounds of three verbs", f"of two answers one is always done: {heard}"


def of_disk(rows: list[dict[str, Any]]) -> tuple[str, str]:
    (each,) = counted(rows)
    return (
        f"{each['tries']:,} tries of {each['verbs']} verbs",
        f"{each['refused']} refused, all done once there was room",
    )


def of_mutants(rows: list[dict[str, Any]]) -> tuple[str, str]:
    every = counted(rows)
    found = sum((Counter(each["found"]) for each in every), Counter[str]())
    slowest, peak = (max(each[key] or 0 for each in every) for key in ("slowest", "peak"))
    ends = f"{found['refused']:,} refused, {found['valid']:,} still valid"
    return f"{found.total():,} files", f"{ends}, none else; slowest {slowest:.1f} s, at most {peak / 1000:.0f} MB"


def of_studies(rows: list[dict[str, Any]]) -> tuple[str, str]:
    calm, *others = (row["policies"] for row in rows)
    same = sum(other[name]["policy"] == one["policy"] for name, one in calm.items() for other in others)
    return (
        f"{len(calm)} runs, each in {len(others)} ways",
        f"{same} of {len(calm) * len(others)} end with the same policy",
    )


SAID = {
    "kills": ("a campaign in the field killed with -9, at random instants and durable writes", of_kills),
    "recorder": ("a recorder killed with -9", of_recorder),
    "races": ("two processes that export, ingest and train at once", of_races),
    "disk": ("a disk without room", of_disk),
    "mutants": ("recordings, batches, bundles and ledgers, damaged or forged", of_mutants),
    "studies": ("a study killed twice, and on two Ray nodes of which one is lost", of_studies),
}


def table(results: dict[str, Any]) -> list[str]:
    lines = ["| what happens | how often | what comes of it | minutes |", "|---|---|---|---|"]
    for part, (what, count) in SAID.items():
        rows = results.get(part, [])
        wrong = [row["name"] for row in rows if row["outcome"] != "passed"]
        if not rows or wrong:
            lines.append(f"| {what} | {', '.join(wrong) or 'not yet'} | {'did not pass' if wrong else ''} | |")
            continue
        minutes = sum(row.get("seconds", 0) for row in rows) / 60
        lines.append(f"| {what} | {' | '.join(count(rows))} | {f'{minutes:.0f}' if minutes else ''} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a directory for what has passed, and for the studies")
    work = parser.parse_args().work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    results = json.loads((HERE / "results.json").read_text())

    def keep(part: str, rows: list[dict[str, Any]]) -> None:
        results.update({"environment": environment(), part: rows})
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        between(HERE / "README.md", "resilience", table(results))

    for part in TESTS:
        rows = []
        for i, name in enumerate(tests_of(part)):
            log = work / f"{part}-{i}.log"
            rows.append(done(name, log.with_suffix(".json"), lambda name=name, log=log: test(name, log)))
        keep(part, rows)
    keep("studies", [done(way, work / f"{way}.json", lambda way=way: study(way, work)) for way in WAYS])
    if wrong := [row["name"] for part in SAID for row in results[part] if row["outcome"] != "passed"]:
        raise SystemExit(f"did not pass: {', '.join(wrong)}; what was said is in {work}.")


if __name__ == "__main__":
    main()
