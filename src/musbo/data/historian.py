"""Logs of historians: values at uneven times, brought to the even steps of a controller.

Rows are sorted by machine, episode and time, and cut where the log pauses. From the first row of each part on there is
a step every `interval` seconds. A step has the value that each column's `align` says. Nothing is interpolated: where
the value is of bad quality, too old or not there, there is no step, and the episode is split.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float32, Float64, Int, Shaped

from musbo.core.errors import UserError
from musbo.data.columns import Clock, choosers_of, clock_of, flags_of, identities, labels_of, numeric, together, whole
from musbo.data.mapping import Chosen, Column, Mapping

NEARLY = 1e-6
"""Part of an interval by which a time may differ from that of a step and be the same."""
MOST = 20
"""Steps for every row of a log: a log whose rows are further apart needs a gap, or a longer interval."""
FEW = 100_000
"""Steps that are always allowed."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What is read from a table before it is put in order: one row per step."""

    blocks: dict[str, Float32[np.ndarray, "n _"]]
    """obs and act, and what there is of reward, commanded and next_obs; whoever makes transitions takes them out."""
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]
    episode: Int[np.ndarray, " n"] | None
    """Rows with different numbers are of different episodes."""
    machine: Int[np.ndarray, " n"] | None
    machines: tuple[str, ...]
    clock: Clock | None
    """What puts the rows of an episode in order."""
    time: Clock | None
    by: Int[np.ndarray, " n"] | None
    """Who chose the action, as in a batch."""
    row: Int[np.ndarray, " n"]
    """The row of the table."""
    step: Shaped[np.ndarray, " n"] | None = None


@dataclass(frozen=True)
class Resampled:
    """What was done to bring a log to even steps."""

    steps: int
    """Even steps between the first and the last row, with or without values."""
    gaps: int
    """Pauses of the log, and places where a value is missing."""
    bad: int
    """Values of bad quality."""
    unordered: int
    repeated: int
    """Values that are there twice."""
    conflicts: int
    """Values at the same time that differ."""
    lost: dict[str, int] = field(default_factory=dict)
    """Steps without a value, by column."""


@dataclass(frozen=True, eq=False)
class Grid:
    """The even steps, and the rows in their order on one axis of time on which parts lie apart."""

    order: Int[np.ndarray, " n"]
    part: Int[np.ndarray, " n"]
    at: Float64[np.ndarray, " n"]
    step_part: Int[np.ndarray, " s"]
    step_at: Float64[np.ndarray, " s"]
    interval: float
    slack: float


def evenly(data: pa.Table, mapping: Mapping, chosen: Chosen, source: str) -> tuple[Rows, Resampled]:
    """The steps of a log at which every column has a good value, and what was left out."""
    assert mapping.interval is not None
    clock = clock_of(data, chosen.time, source, mapping.time_unit, mapping.time_format)
    assert clock is not None
    machine, machines = labels_of(data, chosen.machine, source)
    group = together(identities(data, chosen.episode, source), machine)
    flags = [flags_of(data, name, source) for name in (chosen.terminated, chosen.truncated)]
    time = (clock.values - clock.values[:1]).astype(np.float64) * clock.seconds
    grid, unordered, gaps = _grid(time, group, flags[0] | flags[1], mapping, source)
    by = choosers_of(data, chosen.by, source)
    blocks: dict[str, np.ndarray] = {}
    good = np.ones(len(grid.step_at), bool)
    counts, lost = np.zeros(3, int), {}
    rewards = (chosen.reward,) if chosen.reward else ()
    wanted = {"obs": chosen.obs, "act": chosen.act, "reward": rewards, "commanded": chosen.commanded}
    for role, columns in wanted.items():
        blocks[role] = np.empty((len(grid.step_at), len(columns)), np.float32)
        for i, one in enumerate(columns):
            values, known, seen = _aligned(data, one, mapping, chosen, grid, source)
            with np.errstate(over="ignore", invalid="ignore"):
                blocks[role][:, i] = values * one.scale + one.offset
            good &= known
            counts += seen
            if missing := int(np.sum(~known)):
                lost[one.column] = missing
    inside = grid.step_part[1:] == grid.step_part[:-1]
    begins = np.append(True, ~inside | ~good[:-1])[: len(good)]
    episode = np.cumsum(begins)[good] - 1
    here = np.searchsorted(grid.at, grid.step_at + grid.slack, side="right") - 1
    row = grid.order[here]
    clock = Clock(_times(grid, time)[good], 1.0)
    steps = Rows(
        blocks={role: values[good] for role, values in blocks.items() if wanted[role]},
        terminated=_flagged(flags[0], grid)[good],
        truncated=_flagged(flags[1], grid)[good],
        episode=episode.astype(np.int64),
        machine=None if machine is None else machine[row][good],
        machines=machines,
        clock=clock,
        time=clock,
        by=None if by is None else by[row][good],
        row=row[good],
    )
    split = int(np.sum(inside & good[1:] & ~good[:-1])) if len(good) else 0
    bad, repeated, conflicts = (int(one) for one in counts)
    return steps, Resampled(len(good), gaps + split, bad, unordered, repeated, conflicts, lost)


def _grid(
    time: Float64[np.ndarray, " n"],
    group: Int[np.ndarray, " n"] | None,
    flagged: Bool[np.ndarray, " n"],
    mapping: Mapping,
    source: str,
) -> tuple[Grid, int, int]:
    """The steps, the rows that were out of order, and the pauses."""
    interval = float(mapping.interval or 0.0)
    group = np.zeros(len(time), np.int64) if group is None else group
    order = np.lexsort((time, group))
    change = group[order][1:] != group[order][:-1]
    pause = (np.diff(time[order]) > (np.inf if mapping.gap is None else mapping.gap)) & ~change
    ended = flagged[order][:-1] if mapping.episode is None else np.zeros(max(0, len(time) - 1), bool)
    part = np.cumsum(np.append(False, change | pause | ended)[: len(time)])
    first = np.flatnonzero(np.diff(part, prepend=-1))
    last = np.append(first[1:] - 1, len(time) - 1)[: len(first)]
    length = time[order][last] - time[order][first]
    count = np.floor(length / interval + NEARLY) + 1
    if count.sum() > max(FEW, MOST * len(time)):
        raise UserError(
            f"{source}: {int(count.sum()):,} steps of {interval:g} s lie between the first and the last of its "
            f"{len(time):,} rows: give gap in the mapping, so that pauses are left out, or a longer interval."
        )
    count = count.astype(int)
    begin = np.append(0.0, np.cumsum(length + 4 * interval))[: len(first)]
    step_part = np.repeat(np.arange(len(first)), count)
    number = np.arange(len(step_part)) - np.repeat(np.cumsum(count) - count, count)
    grid = Grid(
        order=order,
        part=part,
        at=begin[part] + time[order] - time[order][first][part],
        step_part=step_part,
        step_at=begin[step_part] + number * interval,
        interval=interval,
        slack=NEARLY * interval,
    )
    return grid, int(np.sum((np.diff(order) < 0) & ~change)), int(np.sum(pause))


def _times(grid: Grid, time: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " s"]:
    """The time of every step on the clock of the log."""
    first = np.flatnonzero(np.diff(grid.part, prepend=-1))
    return time[grid.order][first][grid.step_part] + grid.step_at - grid.at[first][grid.step_part]


def _aligned(
    data: pa.Table, one: Column, mapping: Mapping, chosen: Chosen, grid: Grid, source: str
) -> tuple[Float64[np.ndarray, " s"], Bool[np.ndarray, " s"], Int[np.ndarray, "3"]]:
    """A column at every step, where that is known, and how many values are bad, there twice, or in conflict."""
    column = whole(data, one.column)
    valid = np.asarray(column.is_valid())
    values = np.zeros(len(column))
    values[valid] = numeric(column.drop_null(), one.column, source)
    there = valid[grid.order]
    values = values[grid.order][there]
    good = np.isfinite(values)
    for name in {chosen.quality, one.quality} - {None}:
        good &= _good(data, str(name), mapping.good)[grid.order][there]
    values = np.where(good, values, 0.0)
    at, part = grid.at[there], grid.part[there]
    same = (np.diff(at) == 0) & (np.diff(part) == 0)
    differ = same & (values[1:] != values[:-1])
    seen = np.array([np.sum(~good), np.sum(same & ~differ), np.sum(differ)], int)
    if not len(at):
        return np.zeros(len(grid.step_at)), np.zeros(len(grid.step_at), bool), seen
    if one.align == "mean":
        return *_means(values, good, at, grid), seen
    if one.align == "next":
        index = np.searchsorted(at, grid.step_at - grid.slack, side="left")
        known = index < len(at)
        index = np.minimum(index, len(at) - 1)
        known &= at[index] < grid.step_at + grid.interval - grid.slack
    else:
        index = np.searchsorted(at, grid.step_at + grid.slack, side="right") - 1
        known = index >= 0
        index = np.maximum(index, 0)
        known &= grid.step_at - at[index] <= one.hold + grid.slack
    return values[index], known & good[index] & (part[index] == grid.step_part), seen


def _means(
    values: Float64[np.ndarray, " m"], good: Bool[np.ndarray, " m"], at: Float64[np.ndarray, " m"], grid: Grid
) -> tuple[Float64[np.ndarray, " s"], Bool[np.ndarray, " s"]]:
    """Of the values since the step before; one bad value among them makes it unknown. Parts lie further apart."""
    low = np.searchsorted(at, grid.step_at - grid.interval + grid.slack, side="right")
    high = np.searchsorted(at, grid.step_at + grid.slack, side="right")
    sums, bads = (np.append(0, np.cumsum(each)) for each in (values, ~good))
    count = high - low
    known = (count > 0) & (bads[high] == bads[low])
    return (sums[high] - sums[low]) / np.maximum(count, 1), known


def _good(data: pa.Table, name: str, good: tuple[str, ...]) -> Bool[np.ndarray, " n"]:
    """Whether each row is of good quality; an empty cell is not."""
    said = pc.utf8_lower(whole(data, name).cast(pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    known = pc.is_in(said, value_set=pa.array([one.lower() for one in good]))  # pyright: ignore[reportAttributeAccessIssue]
    return np.asarray(known)


def _flagged(flags: Bool[np.ndarray, " n"], grid: Grid) -> Bool[np.ndarray, " s"]:
    """A flag belongs to the first step at or after it, or to the last one of its part."""
    found = np.zeros(len(grid.step_at), bool)
    rows = np.flatnonzero(flags[grid.order])
    step = np.searchsorted(grid.step_at, grid.at[rows] - grid.slack, side="left")
    last = np.searchsorted(grid.step_part, grid.part[rows], side="right") - 1
    found[np.minimum(step, last)] = True
    return found
