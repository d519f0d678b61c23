"""Sensors that do not measure: dead on one machine, stuck for a while, at the end of their range, or coarse."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float32, Int

from musbo.data.finding import SHOWN, Finding, first_few
from musbo.data.logs import Logs

LONG = 20
"""Steps without any change that count as stuck, in a column that changes at nearly every step."""
AT_REST = 0.1
"""Part of their usual change that the other observations move at least while one is stuck."""
RARELY = 0.05
"""Share of steps without a change that such a column may have otherwise, and of rows at the end of its range."""
FEW = 20
"""Rows below which a machine is not judged by itself."""
FINE, COARSE = 0.01, 0.2
"""A sensor's step, in standard deviations: what is finer is not mentioned, what is coarser is a warning."""
LEVELS = 5
"""Different values that a sensor has at least: a switch, or what is clipped and mostly 0, has fewer."""
SAMPLE = 100_000
"""Rows that are sorted to see the steps of a sensor."""


def sensors(logs: Logs) -> Iterator[Finding]:
    """Findings about single columns of the observation."""
    inside = logs.batch.episode[1:] == logs.batch.episode[:-1]
    for i in range(logs.batch.obs.shape[1]):
        name, values = logs.origin.name("obs", i), np.ascontiguousarray(logs.batch.obs[:, i])
        if np.all(values == values[0]):
            continue  # which the checks say
        yield from _dead(logs, name, values)
        yield from _stuck(logs, name, values, inside)
        yield from _quantised(name, values)
    yield from _saturated(logs)


def _dead(logs: Logs, name: str, values: Float32[np.ndarray, " n"]) -> Iterator[Finding]:
    for machine, rows in logs.by_machine():
        if len(rows) >= FEW and len(logs.machines) > 1 and np.all(values[rows] == values[rows[0]]):
            what = f"{name} is {values[rows[0]]:g} in all {len(rows):,} rows of machine {machine}, and moves on others"
            first = int(logs.origin.rows(rows[:1])[0])
            yield Finding(
                "dead", "warning", what, "see whether the sensor is connected", (name,), first, len(rows),
                machines=(machine,),
            )  # fmt: skip


def _stuck(
    logs: Logs, name: str, values: Float32[np.ndarray, " n"], inside: Bool[np.ndarray, " m"]
) -> Iterator[Finding]:
    same = (values[1:] == values[:-1]) & inside
    start, length = _runs(same)
    # A column that stays at the end of its range is saturated, which is another finding.
    long = (length >= LONG) & (values[start] != values.min()) & (values[start] != values.max())
    long[long] = _others_move(logs.batch.obs, inside, start[long], length[long])
    held = np.zeros(len(same), bool)
    for first, steps in zip(start[length >= LONG], length[length >= LONG], strict=True):
        held[first : first + steps] = True
    rest, moves = int(np.sum(inside & ~held)), int(np.sum(inside & ~same))
    if not np.any(long) or moves < RARELY * np.sum(inside) or np.sum(same & ~held) > RARELY * rest:
        return
    rows = logs.origin.rows(start[long])
    worst = int(np.argmax(length[long]))
    yield Finding(
        "stuck",
        "warning",
        f"{name} stays at one value for {LONG} steps or more in {_times(len(rows))}, the longest from row {rows[worst]}"
        f" ({values[start[long][worst]]:g} for {length[long][worst]:,} steps), and else changes at nearly every step",
        "see whether the sensor or its connection fails, and leave out those episodes if it does",
        (name,),
        int(rows[0]),
        int(np.sum(length[long])) + len(rows),
        first_few(logs.batch.episode[start[long]]),
        logs.machines_of(start[long]),
    )


def _others_move(
    obs: Float32[np.ndarray, "n obs"],
    inside: Bool[np.ndarray, " m"],
    start: Int[np.ndarray, " r"],
    length: Int[np.ndarray, " r"],
) -> Bool[np.ndarray, " r"]:
    """Whether the other observations move during each run: a machine at rest has no stuck sensors."""
    if obs.shape[1] < 3 or not len(start):
        return np.ones(len(start), bool)
    few = obs[: min(len(obs), SAMPLE)]
    usual = np.array([np.mean(np.abs(np.diff(column))[inside[: len(few) - 1]]) for column in few.T.astype(np.float64)])
    found = np.ones(len(start), bool)
    for i, (first, steps) in enumerate(zip(start, length, strict=True)):
        moved = np.mean(np.abs(np.diff(obs[first : first + steps + 1].astype(np.float64), axis=0)), axis=0)
        found[i] = np.median(moved / np.where(usual > 0, usual, 1.0)) > AT_REST
    return found


def _times(n: int) -> str:
    return "one place" if n == 1 else f"{n:,} places"


def _runs(same: Bool[np.ndarray, " m"]) -> tuple[Int[np.ndarray, " r"], Int[np.ndarray, " r"]]:
    """Where runs of true begin, and how long they are."""
    edges = np.diff(same.astype(np.int8), prepend=0, append=0)
    start = np.flatnonzero(edges == 1)
    return start, np.flatnonzero(edges == -1) - start


def _saturated(logs: Logs) -> Iterator[Finding]:
    """All such columns in one finding: bodies whose speeds are clipped have many."""
    found: list[tuple[str, int, str]] = []
    for i, values in enumerate(logs.batch.obs.T):
        for end in (values.min(), values.max()):
            count, name = int(np.sum(values == end)), logs.origin.name("obs", i)
            if count >= max(FEW, RARELY * len(values)) and len(np.unique(values[:SAMPLE])) > FEW:
                found.append((name, count, f"{name} is {end:g} in {count / len(values):.0%} of the rows"))
    if found:
        shown = ", ".join(text for _, _, text in found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
        yield Finding(
            "saturated",
            "note",
            f"observations are often at the end of their range ({shown})",
            "see whether the sensor ends there; what lies beyond cannot be learnt",
            tuple(dict.fromkeys(name for name, _, _ in found)),
            rows=max(count for _, count, _ in found),
        )


def _quantised(name: str, values: Float32[np.ndarray, " n"]) -> Iterator[Finding]:
    sample = values[:: max(1, len(values) // SAMPLE)].astype(np.float64)
    levels = np.unique(sample)
    spread = float(np.std(sample))
    if len(levels) < LEVELS or len(levels) > len(sample) // 5:
        return
    gaps = np.diff(levels)
    step = float(gaps.min())
    # Values near the largest are stored with an error of a few parts in ten million.
    if step < FINE * spread or step < 1e-5 * float(np.abs(levels).max()):
        return
    if np.any(np.abs(gaps / step - np.round(gaps / step)) > 0.05):
        return
    coarse = step >= COARSE * spread
    what = f"{name} has {len(levels)} different values, {step:.4g} apart, which is {step / spread:.2g} of its deviation"
    do = "smaller changes cannot be learnt from it: log it with more digits if there are more"
    yield Finding("quantised", "warning" if coarse else "note", what, do, (name,), rows=len(values))
