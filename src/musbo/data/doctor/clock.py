"""The clock of a log: steps that are missing or late, rows that were out of order, a clock that goes back."""

from collections.abc import Iterator

import numpy as np

from musbo.data.doctor.interval import usual_interval
from musbo.data.finding import Finding, first_few, said_rows
from musbo.data.logs import Logs

MISSING = 1.75
"""Intervals between two rows of an episode from which on a step is missing between them."""
JITTER = 0.25
"""Part of the interval by which a step may be early or late."""
SELDOM = 0.01
"""Share of late steps that is a note; above it, a warning."""


def clock(logs: Logs) -> Iterator[Finding]:
    if logs.unordered:
        what = f"{logs.unordered:,} rows came after a later row of their episode, and were sorted by their time"
        yield Finding(
            "reordered", "note", what, "nothing, if the order of the file does not matter", rows=logs.unordered
        )
    if logs.time is None or logs.until is None:
        return
    took = logs.until - logs.time
    yield from _steps(logs, took)
    yield from _back_inside(logs, took)
    yield from _back(logs, logs.time)


def _steps(logs: Logs, took: np.ndarray) -> Iterator[Finding]:
    known, interval = np.isfinite(took), usual_interval(took)
    if interval is None:
        return
    wide = np.flatnonzero(known & (took >= MISSING * interval))
    if len(wide):
        lost = int(np.sum(np.round(took[wide] / interval) - 1))
        rows = logs.origin.rows(wide)
        yield Finding(
            "missing steps",
            "warning",
            f"{lost:,} steps are missing in {len(wide):,} places, first after row {rows[0]} ({took[wide[0]]:g} where "
            f"{interval:g} is usual)",
            "set gap in the mapping to a little more than the usual interval, so that episodes end there",
            row=int(rows[0]),
            rows=len(wide),
            episodes=first_few(logs.batch.episode[wide]),
            machines=logs.machines_of(wide),
        )
    known &= took >= 0
    off = np.flatnonzero(known & (np.abs(took - interval) > JITTER * interval) & (took < MISSING * interval))
    if len(off):
        rows, share = logs.origin.rows(off), len(off) / int(np.sum(known))
        yield Finding(
            "late steps",
            "warning" if share > SELDOM else "note",
            f"{len(off):,} steps ({share:.1%}) are early or late by more than {JITTER:.0%} of the usual {interval:g}, "
            f"first after row {rows[0]} ({took[off[0]]:g})",
            "give interval in the mapping to bring the log to even steps, or leave out those episodes",
            row=int(rows[0]),
            rows=len(off),
            episodes=first_few(logs.batch.episode[off]),
            machines=logs.machines_of(off),
        )


def _back_inside(logs: Logs, took: np.ndarray) -> Iterator[Finding]:
    """Where steps say the order, and the clock was set back meanwhile; other rows are refused or sorted."""
    wrong = np.flatnonzero(took < 0)
    if not len(wrong):
        return
    rows = logs.origin.rows(wrong)
    yield Finding(
        "clock goes back",
        "warning",
        f"the time goes back after {said_rows(rows)}, inside an episode (by {-took[wrong[0]]:g})",
        "see whether the clock was set; the order of the rows is that of their steps",
        row=int(rows[0]),
        rows=len(rows),
        episodes=first_few(logs.batch.episode[wrong]),
        machines=logs.machines_of(wrong),
    )


def _back(logs: Logs, time: np.ndarray) -> Iterator[Finding]:
    """Episodes of one machine that begin before the one in front of them has ended."""
    starts = logs.batch.starts()
    ends = starts + logs.batch.lengths() - 1
    machine = np.zeros(len(starts), int) if logs.machine is None else logs.machine[starts]
    before = time[ends[:-1]]
    back = (time[starts[1:]] < before) & (machine[1:] == machine[:-1])
    if not np.any(back) or np.mean(back) > 0.5:  # a clock that begins anew in every episode
        return
    wrong = starts[1:][back]
    rows = logs.origin.rows(wrong)
    yield Finding(
        "clock goes back",
        "warning",
        f"the time goes back at the beginning of {len(wrong):,} of {len(starts):,} episodes, first in row {rows[0]}",
        "see whether the clock was set, or name the column of the machine if several ran at once",
        row=int(rows[0]),
        rows=len(wrong),
        episodes=first_few(logs.batch.episode[wrong]),
        machines=logs.machines_of(wrong),
    )
