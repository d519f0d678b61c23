"""Runs of the bench, each in a process and on a core of its own, and what each of them has cost.

A directory of work has `runs/NAME` (the campaign), `runs/NAME.log` (what it said) and `records/NAME.json` (what it is,
and the core-seconds of every attempt). An attempt whose end nobody saw has no core-seconds, and then nobody knows what
the run has cost.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from benchmarks.generality.plan import Entry, Run
from musbo.campaign.places import LEDGER
from musbo.campaign.summary import summary
from musbo.cluster.cell import command
from musbo.core.cores import usable_cores
from musbo.core.durable import write_whole
from musbo.core.errors import UserError
from musbo.core.lock import lock

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Seen:
    """How far a run is."""

    state: Literal["missing", "unfinished", "done"]
    returns: tuple[float | None, ...] = ()
    """After each deployment so far."""
    core_seconds: float | None = None
    """None: unknown."""
    source: str = ""
    """A hash of the musbo that began it."""


def folder_of(out: Path, run: Run) -> Path:
    return out / "runs" / run.name


def look(out: Path, run: Run) -> Seen:
    folder = folder_of(out, run)
    if not (folder / LEDGER).exists():
        return Seen("missing")
    found = summary(folder)
    if (found.settings.budget, found.settings.batch_size) != (run.entry.budget, run.entry.batch_size):
        raise UserError(f"{folder} was begun with another budget: remove it, or choose another --out.")
    attempts = _attempts(out, run)
    known = [seconds for seconds in attempts if seconds is not None]
    cost = sum(known) if attempts and len(known) == len(attempts) else None
    source = found.versions["musbo"].partition("source ")[2].rstrip(")")
    return Seen("done" if found.finished else "unfinished", found.returns, cost, source)


def _record(out: Path, run: Run) -> Path:
    return out / "records" / f"{run.name}.json"


def _attempts(out: Path, run: Run) -> list[float | None]:
    path = _record(out, run)
    return json.loads(path.read_text())["attempts"] if path.exists() else []


def _note(out: Path, run: Run, attempts: Sequence[float | None]) -> None:
    path = _record(out, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({"run": asdict(run), "attempts": attempts}, indent=1).encode())


def begun(out: Path) -> list[Run]:
    """Every run that was ever begun there."""
    found = [json.loads(path.read_text())["run"] for path in sorted((out / "records").glob("*.json"))]
    return [Run(**{**each, "entry": Entry(**each["entry"])}) for each in found]


def carry_out(out: Path, wanted: Sequence[Run], jobs: int = 1) -> list[str]:
    """Every run that is not done, `jobs` at a time; returns those that failed, with the reason.

    Ctrl-C has the runs write down where they are; a later call goes on with them.
    """
    cores = usable_cores()
    if not 1 <= jobs <= len(cores):
        raise UserError(f"--jobs must lie between 1 and the {len(cores)} cores of this machine, not {jobs}.")
    (out / "runs").mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    with lock(out, "bench"):
        waiting = [run for run in wanted if look(out, run).state != "done"]
        total, free = len(waiting), cores[:jobs]
        running: dict[int, tuple[Run, int, subprocess.Popen]] = {}
        try:
            while waiting or running:
                while waiting and free:
                    run, core = waiting.pop(0), free.pop()
                    child = _start(out, run, core)
                    running[child.pid] = run, core, child
                time.sleep(POLL_SECONDS)
                for pid in list(running):
                    if (ended := _ended(pid)) is not None:
                        run, core, child = running.pop(pid)
                        free.append(core)
                        child.returncode, seconds = ended
                        _note(out, run, [*_attempts(out, run)[:-1], seconds])
                        text = _told(out, run, child.returncode, seconds)
                        failed += [text] if look(out, run).state != "done" else []
                        print(f"{total - len(waiting) - len(running)} of {total}: {text}", flush=True)
        except KeyboardInterrupt:
            for _, _, child in running.values():
                child.send_signal(signal.SIGINT)
            for pid, (run, _, child) in running.items():
                _, status, usage = os.wait4(pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
                _note(out, run, [*_attempts(out, run)[:-1], usage.ru_utime + usage.ru_stime])
            raise
    return failed


def _start(out: Path, run: Run, core: int) -> subprocess.Popen:
    folder = folder_of(out, run)
    _note(out, run, [*_attempts(out, run), None])
    with (out / "runs" / f"{run.name}.log").open("ab") as log:
        # A group of its own: Ctrl-C reaches the bench alone, which passes it on once.
        return subprocess.Popen(command([core], folder, run.words(folder)), stdout=log, stderr=log, process_group=0)


def _ended(pid: int) -> tuple[int, float] | None:
    """Its exit code and core-seconds, when it is over."""
    found, status, usage = os.wait4(pid, os.WNOHANG)
    return (os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime) if found else None


def _told(out: Path, run: Run, code: int, seconds: float) -> str:
    """What came of an attempt, in a line."""
    seen = look(out, run)
    if seen.state == "done":
        return f"{run.name}: {shown(seen.returns)}, {seconds:.0f} core-seconds"
    lines = (out / "runs" / f"{run.name}.log").read_text(errors="replace").strip().splitlines()
    reason = f"killed by signal {-code}" if code < 0 else lines[-1] if lines else "it wrote nothing"
    return f"{run.name} failed: {reason}"


def shown(returns: Sequence[float | None]) -> str:
    """The returns of the deployments, one after the other."""
    return " ".join(
        "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" for value in returns
    )


def listing(found: Mapping[Run, Seen]) -> list[str]:
    """What is done of every run, one line each."""
    lines = []
    for run, seen in found.items():
        cost = "" if seen.core_seconds is None else f"  {seen.core_seconds:.0f} core-seconds"
        lines.append(f"{seen.state:10}  {run.name}  {shown(seen.returns)}{cost}".rstrip())
    done = sum(line.startswith("done") for line in lines)
    return [*lines, f"{done} of {len(lines)} runs are done"]
