"""The line that scores lie on: 0 is the random policy, 1 our SAC with ten times the samples in forty deployments.

Both ends are measured once, by `reference`, and kept in references.csv.
"""

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.generality import work
from benchmarks.generality.plan import Entry, Run
from musbo.core.durable import write_whole
from musbo.reporting.statistics import normalise

HIGHEST = 1.5  # a score is clipped to [0, 1.5], so that no single task decides
SEED = 99
PRESET = "fast"
DEPLOYMENTS, TIMES, LAST = 40, 10, 2
"""Of the reference: its deployments, how many times the samples it has, and how many of its last returns count."""
RANDOM_EPISODES = 50
RANDOM_BATCH = 100  # nothing is learned from it


@dataclass(frozen=True)
class Reference:
    """The two ends of a task's line, and what they were measured with."""

    task: str
    random: float
    sac: float
    transitions: int
    core_seconds: float | None
    source: str


def score(value: float, reference: Reference) -> float:
    """Of a return."""
    return float(np.clip(normalise(np.asarray([value]), reference.random, reference.sac), 0.0, HIGHEST)[0])


def reference_runs(entry: Entry) -> tuple[Run, Run]:
    """The run of random actions, and that of SAC; SAC takes about one gradient step per transition."""
    size = TIMES * entry.budget * entry.batch_size // DEPLOYMENTS
    random = Entry(entry.name, 1, RANDOM_BATCH, entry.own)
    long = Entry(entry.name, DEPLOYMENTS, size, entry.own)
    return Run(random, "random", PRESET, SEED, RANDOM_EPISODES), Run(long, f"sac steps={size}", PRESET, SEED)


def measured(out: Path, entries: Iterable[Entry]) -> dict[str, Reference]:
    """The references whose runs are done in `out`."""
    found = {}
    for entry in entries:
        runs = reference_runs(entry)
        random, sac = (work.look(out, run) for run in runs)
        if random.state == sac.state == "done":
            ends = [value for value in sac.returns[-LAST:] if value is not None]
            zero = random.returns[-1]
            assert zero is not None and len(ends) == LAST, "a simulator measures every deployment"
            budget = runs[1].entry.budget * runs[1].entry.batch_size
            one = statistics.mean(ends)
            found[entry.name] = Reference(entry.name, zero, one, budget, sac.core_seconds, sac.source)
    return found


def read(path: Path) -> dict[str, Reference]:
    """The references that are kept; none without the file."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["task"]: Reference(
            row["task"], float(row["random"]), float(row["sac"]), int(row["transitions"]),
            float(row["core_seconds"]) if row["core_seconds"] else None, row["source"],
        )
        for row in rows
    }  # fmt: skip


def write(path: Path, references: Mapping[str, Reference], order: Sequence[str]) -> None:
    """Keep them, in the order of the bench."""
    text = io.StringIO()
    table = csv.DictWriter(text, [field.name for field in fields(Reference)], lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(references[name]) for name in order if name in references)
    write_whole(path, text.getvalue().encode())
