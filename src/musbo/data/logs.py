"""From a table of logs to transitions: put in order, cut into episodes, each with the observation that followed.

Where a log does not hold the next observation, it is that of the next row of the episode. The last row of an episode is
then no transition: only its observation is used, as what followed the row before. Whether that row terminated is a
property of the transition into it. An episode of a single row has no transition at all. What was left out is counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Float32, Int

from musbo.core.errors import UserError
from musbo.core.memory import give_back
from musbo.data.batch import Batch, batch_of
from musbo.data.checks import Origin
from musbo.data.columns import (
    Clock,
    block_of,
    choosers_of,
    clock_of,
    flags_of,
    identities,
    labels_of,
    named,
    names_in,
    numbers_of,
    require_flat,
    together,
)  # fmt: skip
from musbo.data.finding import Finding, Refused
from musbo.data.historian import Resampled, Rows, evenly
from musbo.data.mapping import GOOD, Chosen, Column, Mapping, choose, known_layout, mapping
from musbo.data.readers.frames import open_frame
from musbo.data.readers.minari_sets import open_minari
from musbo.data.readers.table import Table
from musbo.data.said import NOTHING, Said

LARGE = 100_000
"""Rows of a log from which on memory is given back to the system on the way."""


@dataclass(frozen=True, eq=False)
class Logs:
    """A batch that was read from logs, and what was done to them on the way."""

    source: str
    batch: Batch
    origin: Origin
    """What the log calls its columns and rows, for what is said about the batch."""
    columns: tuple[str, ...] = ()
    """All that the log has."""
    used: tuple[str, ...] = ()
    """Those that were read."""
    rows: int = 0
    successors: int = 0
    """Last rows of episodes: only their observation was used, as what followed the row before."""
    alone: int = 0
    """Rows that are an episode by themselves and were dropped."""
    unordered: int = 0
    """Rows that came after a later one of their episode; they were sorted."""
    gaps: int = 0
    """Episodes that begin after a gap in time."""
    time: Float[np.ndarray, " n"] | None = None
    """When each transition begins, in seconds where the log has timestamps, else in the unit of its time."""
    until: Float[np.ndarray, " n"] | None = None
    """The time of the next row of the episode; not a number where there is none."""
    machine: Int[np.ndarray, " n"] | None = None
    """The machine of each transition: an index into `machines`."""
    machines: tuple[str, ...] = ()
    commanded: Float32[np.ndarray, "n act"] | None = None
    """Actions as they were commanded, where the log has them beside those that were executed."""
    resampled: Resampled | None = None
    """What was done to bring the log to even steps."""
    bundles: tuple[str, ...] = ()
    """The bundles that were at work, where the log says."""
    told: tuple[Finding, ...] = ()
    """What the reader of its format has to say."""

    def by_machine(self) -> Iterator[tuple[str, Int[np.ndarray, " m"]]]:
        """The transitions of each machine; all of them under an empty name where the log names none."""
        if self.machine is None:
            yield "", np.arange(len(self.batch))
            return
        for i, name in enumerate(self.machines):
            if len(rows := np.flatnonzero(self.machine == i)):
                yield name, rows

    def machines_of(self, rows: Int[np.ndarray, " m"]) -> tuple[str, ...]:
        """The machines of some transitions."""
        return () if self.machine is None else tuple(self.machines[i] for i in np.unique(self.machine[rows]))

    def __len__(self) -> int:
        return len(self.batch)

    def __str__(self) -> str:
        """What was read, as a sentence."""
        parts = [f"{self.rows:,} rows", f"{len(self.batch.starts()):,} episodes", f"{len(self):,} transitions"]
        if self.successors:
            parts.append(f"{self.successors:,} last rows used only as the observation after")
        if self.alone:
            parts.append(f"{self.alone:,} rows dropped that are alone in their episode")
        if self.unordered:
            parts.append(f"{self.unordered:,} rows out of order in time, which were sorted")
        if self.gaps:
            parts.append(f"{self.gaps:,} episodes begun after a gap")
        return f"{self.source}: {', '.join(parts)}"


def from_dataframe(
    frame: Any,
    *,
    obs: str | Column | Sequence[str | Column],
    act: str | Column | Sequence[str | Column],
    reward: str | Column | None = None,
    next_obs: str | Column | Sequence[str | Column] = (),
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    time: str | None = None,
    step: str | None = None,
    gap: float | None = None,
    machine: str | None = None,
    commanded: str | Column | Sequence[str | Column] = (),
    by: str | None = None,
    bundle: str | None = None,
    interval: float | None = None,
    quality: str | None = None,
    good: Sequence[str] = GOOD,
    time_unit: str = "s",
    time_format: str | None = None,
) -> Logs:
    """Transitions from a frame of pandas or polars, or a table of pyarrow, one row per step.

    `obs` and `act` name columns in the task's order; `episode`, `terminated` or `truncated`, or `time` with `gap` say
    where episodes end. What `Mapping` says of each name holds here. Units: `musbo.data.Column("psi", scale=6894.76)`.
    """
    meant = mapping(
        obs=obs, act=act, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated,
        episode=episode, time=time, step=step, gap=gap, machine=machine, commanded=commanded, by=by, bundle=bundle,
        interval=interval, quality=quality, good=good, time_unit=time_unit, time_format=time_format,
        source="from_dataframe",
    )  # fmt: skip
    return transitions(open_frame(frame, "the frame"), meant)


def from_minari(dataset: Any) -> Logs:
    """Transitions from a `minari.MinariDataset`, or from one that Minari has on this machine, by its name."""
    name = dataset if isinstance(dataset, str) else dataset.spec.dataset_id
    table = open_minari(dataset, f"minari:{name}")
    return transitions(table, known_layout(table.names, table.source))


def from_batch(batch: Batch, source: str) -> Logs:
    """A batch that a program made."""
    return Logs(source, batch, Origin(), rows=len(batch))


def transitions(table: Table, mapping: Mapping) -> Logs:
    """The transitions in a table. They are not yet checked: see `checks.require_sound` and `doctor.examine`."""
    chosen = choose(mapping, table.names, table.source)
    source = table.source
    data = table.read(chosen.names())
    require_flat(data, source)
    read, done = (
        (_rows(data, mapping, chosen, source), None)
        if mapping.interval is None
        else evenly(data, mapping, chosen, source)
    )
    bundles, row_count = names_in(data, chosen.bundle), data.num_rows
    del data  # of a large log, what was read is not kept beside what is made of it
    if row_count >= LARGE:
        pa.default_memory_pool().release_unused()
        give_back()
    n = len(read.terminated)
    flagged = read.terminated | read.truncated
    order = _order(read, flagged, mapping, chosen, source)
    by_flags = chosen.episode is None and done is None
    begins, gaps = _begins(read, flagged, order, by_flags, None if done else mapping.gap)
    number = (
        np.cumsum(begins, dtype=np.int32) - 1
        if by_flags or gaps or read.machine is not None
        else _picked(read.episode, order)
    )
    last = np.append(begins[1:], True)[:n]
    after = None if "next_obs" in read.blocks else order[1:][~last[:-1]]
    kept = np.ones(n, bool) if after is None else ~last
    rows = order[kept]
    if after is None:
        terminated, truncated = read.terminated[order], read.truncated[order]
        if chosen.truncated is None:
            truncated = last & ~terminated
    else:
        ends = last[1:][~last[:-1]]  # the transition into the last row is the last one
        terminated = read.terminated[after]
        truncated = read.truncated[after] | (ends & ~terminated)
    alone = 0 if after is None else int(np.sum(begins & last))
    # One block after the other, each out of the rows: of a large log there is room for one of them twice.
    act, commanded = (_picked(read.blocks.pop(name, None), rows) for name in ("act", "commanded"))
    reward = read.blocks.pop("reward", None)
    next_obs = _picked(read.blocks.pop("next_obs"), rows) if after is None else read.blocks["obs"][after]
    with named(source):
        numbers = {
            "obs": _picked(read.blocks.pop("obs"), rows),
            "act": act,
            "reward": np.full(len(rows), np.nan) if reward is None else reward[rows, 0],
            "next_obs": next_obs,
        }
        step = None if gaps else _picked(read.step, rows)
        batch = batch_of(numbers, (terminated, truncated), number[kept], step, _picked(read.by, rows), copy=False)
    time = until = None
    if read.time is not None:
        seconds = (read.time.values - read.time.values[:1]) * read.time.seconds
        following = np.append(seconds[order][1:], np.nan)
        time, until = seconds[rows], np.where(last, np.nan, following)[kept]
    return Logs(
        source,
        batch,
        Origin(
            obs=tuple(one.column for one in chosen.obs),
            act=tuple(one.column for one in chosen.act),
            next_obs=tuple(one.column for one in chosen.next_obs),
            reward=chosen.reward.column if chosen.reward else "reward",
            row=read.row[rows],
            after=None if after is None else read.row[after],
            said={
                block: tuple(_said(one, table) for one in columns)
                for block in ("obs", "act", "next_obs", "commanded")
                if (columns := getattr(chosen, block))
            },
        ),
        columns=table.names,
        used=tuple(chosen.names()),
        rows=row_count,
        successors=0 if after is None else int(np.sum(last)) - alone,
        alone=alone,
        unordered=int(np.sum((order[1:] < order[:-1]) & ~begins[1:])) + (done.unordered if done else 0),
        gaps=gaps + (done.gaps if done else 0),
        time=time,
        until=until,
        machine=_picked(read.machine, rows),
        machines=read.machines,
        commanded=commanded,
        resampled=done,
        bundles=bundles,
        told=table.told,
    )


def _said(one: Column, table: Table) -> Said:
    """Who converts a column knows what comes out."""
    found = table.said.get(one.column, NOTHING)
    unit = "" if (one.scale, one.offset) != (1.0, 0.0) else one.unit or found.unit
    return replace(found, unit=unit, column=one.column)


def _picked(values: np.ndarray | None, rows: Int[np.ndarray, " m"]) -> Any:
    """Some rows; the array itself where that is all of them in their order."""
    if values is None or (len(rows) == len(values) and bool(np.all(rows[1:] > rows[:-1]))):
        return values
    return values[rows]


def _rows(data: pa.Table, mapping: Mapping, chosen: Chosen, source: str) -> Rows:
    """The rows of a table as they stand."""
    machine, machines = labels_of(data, chosen.machine, source)
    time = clock_of(data, chosen.time, source, mapping.time_unit, mapping.time_format)
    by_step = _order_column(chosen) == chosen.step
    blocks = {"obs": chosen.obs, "act": chosen.act, "commanded": chosen.commanded, "next_obs": chosen.next_obs}
    blocks["reward"] = (chosen.reward,) if chosen.reward else ()
    return Rows(
        blocks={name: block_of(data, columns, source) for name, columns in blocks.items() if columns},
        terminated=flags_of(data, chosen.terminated, source),
        truncated=flags_of(data, chosen.truncated, source),
        episode=together(identities(data, chosen.episode, source), machine),
        machine=machine,
        machines=machines,
        clock=clock_of(data, chosen.step, source) if by_step else time,
        time=time,
        by=choosers_of(data, chosen.by, source),
        row=np.arange(data.num_rows, dtype=np.int32),
        step=numbers_of(data, chosen.step, source) if chosen.step else None,
    )


def _order_column(chosen: Chosen) -> str | None:
    """The column that puts the rows of an episode in order: its steps where they are counted, else the time."""
    return chosen.step if chosen.step and (chosen.episode or not chosen.time) else chosen.time


# Order and episodes


def _order(
    read: Rows, flagged: Bool[np.ndarray, " n"], mapping: Mapping, chosen: Chosen, source: str
) -> Int[np.ndarray, " n"]:
    """The rows in the order in which they happened, episode by episode."""
    rows = np.arange(len(flagged), dtype=np.int32)
    episode, clock = read.episode, read.clock
    if clock is None:
        _require_adjacent(episode, chosen, source)
        return rows
    name = _order_column(chosen)
    if _is_ordered(episode, clock, flagged):
        return rows
    by_time = chosen.episode is not None or (mapping.gap is not None and chosen.time is not None)
    if episode is not None:
        # Episodes, or machines, stay in the order in which they first appear.
        _, first, inverse = np.unique(episode, return_index=True, return_inverse=True)
        order = np.lexsort((clock.values, first[inverse])) if by_time else np.argsort(first[inverse], kind="stable")
        inside = episode[order][1:] == episode[order][:-1]
        inside &= by_time | ~flagged[order][:-1]
    elif by_time:
        order = np.argsort(clock.values, kind="stable")
        inside = np.ones(len(order[1:]), bool)
    else:  # the flags cut the rows as they stand, and a clock may begin anew in every episode
        order, inside = rows, ~flagged[:-1]
    change = np.diff(clock.values[order])
    if len(same := np.flatnonzero(inside & (change == 0))):
        one, other = sorted(read.row[order[same[0] : same[0] + 2]].tolist())
        pairs = f"rows {one} and {other} of one episode, and in {len(same):,} such pairs"
        what = f"column {name} says the same time in {pairs}"
        column = "correct the column of the episode" if episode is not None else "name a column as episode"
        do = f"remove what is there twice, or {column}"
        raise Refused(Finding("duplicated steps", "error", what, do, (name or "",), one, len(same), source=source))
    if len(back := np.flatnonzero(inside & (change < 0))):
        row = int(read.row[order[back[0] + 1]])
        what = f"column {name} goes back in row {row}, inside an episode"
        do = "sort the rows, or name a column as episode"
        raise Refused(Finding("clock goes back", "error", what, do, (name or "",), row, len(back), source=source))
    return order


def _require_adjacent(episode: Int[np.ndarray, " n"] | None, chosen: Chosen, source: str) -> None:
    """Without a time, rows of an episode that stand apart cannot be put in order."""
    if episode is None or np.all(np.diff(episode) >= 0):
        return
    starts = np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))
    _, first = np.unique(episode[starts], return_index=True)
    if len(again := np.setdiff1d(np.arange(len(starts)), first)):
        raise UserError(
            f"{source}: an episode appears again in row {starts[again[0]]}, after another one: name a column as time, "
            f"or sort the rows by {chosen.episode}; if these are two episodes, give each a name of its own."
        )


def _is_ordered(episode: Int[np.ndarray, " n"] | None, clock: Clock, flagged: Bool[np.ndarray, " n"]) -> bool:
    """Whether the rows are in order as they stand, seen without sorting: nearly all are."""
    forward = np.diff(clock.values) > 0
    if episode is None:
        return bool(np.all(forward))
    number = np.diff(episode)
    return bool(np.all((number > 0) | ((number == 0) & forward)))


def _begins(
    read: Rows,
    flagged: Bool[np.ndarray, " n"],
    order: Int[np.ndarray, " n"],
    by_flags: bool,
    gap: float | None,
) -> tuple[Bool[np.ndarray, " n"], int]:
    """Which rows, in their order, begin an episode, and how many do so because of a gap alone."""
    begins = np.zeros(len(order), bool)
    begins[:1] = True
    if read.episode is not None:
        begins[1:] |= read.episode[order][1:] != read.episode[order][:-1]
    if by_flags:
        begins[1:] |= flagged[order][:-1]
    if gap is None or read.time is None:
        return begins, 0
    late = np.append(False, np.diff(read.time.values[order]) * read.time.seconds > gap) & ~begins
    return begins | late, int(np.sum(late))
