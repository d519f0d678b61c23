"""The results that are kept with the bench. A run that is among them is done, wherever it was carried out."""

import csv
from collections.abc import Mapping
from pathlib import Path

from benchmarks.generality import work
from benchmarks.generality.plan import ENTRIES, Run
from benchmarks.generality.work import Seen

Kept = Mapping[Run, Seen]


def read(path: Path) -> dict[Run, Seen]:
    """The whole runs of a results.csv; none without the file."""
    if not path.exists():
        return {}
    entries = {entry.name: entry for entry in ENTRIES}
    found = dict[Run, list[dict[str, str]]]()
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["task"] in entries:
                run = Run(entries[row["task"]], row["method"], row["preset"], int(row["seed"]))
                found.setdefault(run, []).append(row)
    return {run: _seen(rows) for run, rows in found.items() if len(rows) == run.entry.budget}


def _seen(rows: list[dict[str, str]]) -> Seen:
    rows = sorted(rows, key=lambda row: int(row["deployment"]))
    cost = rows[-1]["core_seconds"]
    return Seen("done", tuple(float(row["return"]) for row in rows), float(cost) if cost else None, rows[-1]["source"])


def look(out: Path, run: Run, kept: Kept) -> Seen:
    """How far a run is, here or among what is kept."""
    seen = work.look(out, run)
    return kept.get(run, seen) if seen.state != "done" else seen
