"""From a table of logs to transitions: put in order, cut into episodes, each with the observation that followed.

Where a log does not hold the next observation, it is that of the next row of the episode. The last row of an episode is
then no transition: only its observation is used, as what followed the row before. Whether that row terminated is a
property of the transition into it. An episode of a single row has no transition at all. What was left out is counted.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float32, Int, Shaped

from musbo.core.errors import UserError
from musbo.data.batch import Batch, as_flags, make_batch
from musbo.data.checks import Origin
from musbo.data.mapping import Chosen, Column, Mapping, choose, known_layout, mapping
from musbo.data.readers.frames import open_frame
from musbo.data.readers.minari_sets import open_minari
from musbo.data.readers.table import Table

_NUMBERED = np.iinfo(np.int32).max


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
) -> Logs:
    """Transitions from a frame of pandas or polars, or a table of pyarrow, one row per step.

    `obs` and `act` name columns in the task's order; `episode`, `terminated` or `truncated`, or `time` with `gap` say
    where episodes end. What `Mapping` says of each name holds here. Units: `musbo.data.Column("psi", scale=6894.76)`.
    """
    meant = mapping(
        obs=obs, act=act, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated,
        episode=episode, time=time, step=step, gap=gap, source="from_dataframe",
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
    """The transitions in a table. They are not yet checked: see `checks.require_sound`."""
    chosen = choose(mapping, table.names, table.source)
    data = table.read(chosen.names())
    source, n = table.source, data.num_rows
    terminated, truncated = (_flags(data, name, source) for name in (chosen.terminated, chosen.truncated))
    episode = _identities(data, chosen.episode, source)
    clock = _clock(data, chosen.time or chosen.step, source)
    flagged = terminated | truncated
    order = _order(episode, clock, flagged, mapping, chosen, source)
    begins, gaps = _begins(episode, clock, flagged, order, mapping.gap)
    number = np.cumsum(begins) - 1 if episode is None or gaps else episode[order]
    last = np.append(begins[1:], True)[:n]
    kept, after = (np.ones(n, bool), None) if chosen.next_obs else (~last, order[1:][~last[:-1]])
    rows = order[kept]
    obs = _block(data, chosen.obs, source)
    if after is None:
        terminated, truncated = terminated[order], truncated[order]
        if chosen.truncated is None:
            truncated = last & ~terminated
    else:
        ends = last[1:][~last[:-1]]  # the transition into the last row is the last one
        terminated = terminated[after]
        truncated = truncated[after] | (ends & ~terminated)
    alone = 0 if after is None else int(np.sum(begins & last))
    with _named(source):
        batch = make_batch(
            obs=obs[rows],
            act=_block(data, chosen.act, source)[rows],
            reward=_block(data, (chosen.reward,), source)[rows, 0] if chosen.reward else np.full(len(rows), np.nan),
            next_obs=obs[after] if after is not None else _block(data, chosen.next_obs, source)[rows],
            terminated=terminated,
            truncated=truncated,
            episode=number[kept],
            step=_numbers(data, chosen.step, source)[rows] if chosen.step and not gaps else None,
        )
    return Logs(
        source,
        batch,
        Origin(
            obs=tuple(one.column for one in chosen.obs),
            act=tuple(one.column for one in chosen.act),
            next_obs=tuple(one.column for one in chosen.next_obs),
            reward=chosen.reward.column if chosen.reward else "reward",
            row=rows,
            after=after,
        ),
        columns=table.names,
        used=tuple(chosen.names()),
        rows=n,
        successors=0 if after is None else int(np.sum(last)) - alone,
        alone=alone,
        unordered=int(np.sum((order[1:] < order[:-1]) & ~begins[1:])),
        gaps=gaps,
    )


@contextmanager
def _named(source: str) -> Iterator[None]:
    """What is said about arrays names the log that they are from."""
    try:
        yield
    except UserError as error:
        said = str(error)
        raise UserError(said if said.startswith(source) else f"{source}: {said}") from error


# Order and episodes


def _order(
    episode: Int[np.ndarray, " n"] | None,
    clock: "Clock | None",
    flagged: Bool[np.ndarray, " n"],
    mapping: Mapping,
    chosen: Chosen,
    source: str,
) -> Int[np.ndarray, " n"]:
    """The rows in the order in which they happened, episode by episode."""
    rows = np.arange(len(flagged))
    if clock is None:
        _require_adjacent(episode, chosen, source)
        return rows
    name = chosen.time or chosen.step
    if _is_ordered(episode, clock, flagged):
        return rows
    if episode is not None:
        # Episodes stay in the order in which they first appear.
        _, first, inverse = np.unique(episode, return_index=True, return_inverse=True)
        order = np.lexsort((clock.values, first[inverse]))
        inside = episode[order][1:] == episode[order][:-1]
    elif mapping.gap is not None and chosen.time:
        order = np.argsort(clock.values, kind="stable")
        inside = np.ones(len(order[1:]), bool)
    else:  # the flags cut the rows as they stand, and a clock may begin anew in every episode
        order, inside = rows, ~flagged[:-1]
    change = np.diff(clock.values[order])
    if len(same := np.flatnonzero(inside & (change == 0))):
        one, other = sorted(order[same[0] : same[0] + 2].tolist())
        raise UserError(
            f"{source}: column {name} says the same time in rows {one} and {other} of one episode, and in "
            f"{len(same):,} such pairs: remove what is there twice, or "
            + ("correct the column of the episode." if episode is not None else "name a column as episode.")
        )
    if len(back := np.flatnonzero(inside & (change < 0))):
        row = int(order[back[0] + 1])
        raise UserError(
            f"{source}: column {name} goes back in row {row}, inside an episode: sort the rows, or name a column as "
            "episode."
        )
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


def _is_ordered(episode: Int[np.ndarray, " n"] | None, clock: "Clock", flagged: Bool[np.ndarray, " n"]) -> bool:
    """Whether the rows are in order as they stand, seen without sorting: nearly all are."""
    forward = np.diff(clock.values) > 0
    if episode is None:
        return bool(np.all(forward))
    number = np.diff(episode)
    return bool(np.all((number > 0) | ((number == 0) & forward)))


def _begins(
    episode: Int[np.ndarray, " n"] | None,
    clock: "Clock | None",
    flagged: Bool[np.ndarray, " n"],
    order: Int[np.ndarray, " n"],
    gap: float | None,
) -> tuple[Bool[np.ndarray, " n"], int]:
    """Which rows, in their order, begin an episode, and how many do so because of a gap alone."""
    begins = np.ones(len(order), bool)
    if episode is not None:
        begins[1:] = episode[order][1:] != episode[order][:-1]
    else:
        begins[1:] = flagged[order][:-1]
    if gap is None or clock is None:
        return begins, 0
    late = np.append(False, np.diff(clock.values[order]) * clock.seconds > gap) & ~begins
    return begins | late, int(np.sum(late))


# Columns


@dataclass(frozen=True, eq=False)
class Clock:
    """A column of times as they are stored, and what one unit of it is in those of the gap."""

    values: Shaped[np.ndarray, " n"]
    seconds: float


def _clock(data: pa.Table, name: str | None, source: str) -> Clock | None:
    if name is None:
        return None
    column = _full(data, name, source)
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        column, kind = column.cast(pa.timestamp("ns"), safe=False), None
    elif pa.types.is_duration(kind) or pa.types.is_time(kind):
        unit = pa.duration("ns") if pa.types.is_duration(kind) else pa.time64("ns")
        column, kind = column.cast(unit, safe=False), None
    if kind is None:
        return Clock(np.asarray(column.cast(pa.int64())), 1e-9)
    values = _numeric(column, name, source, " or timestamps such as 2024-05-31T12:00:00")
    if not np.all(np.isfinite(values)):
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise UserError(
            f"{source}: column {name} is not a finite number in row {row}: the rows cannot be put in order."
        )
    return Clock(values.astype(np.int64) if values.dtype.kind in "biu" else values, 1.0)


def _identities(data: pa.Table, name: str | None, source: str) -> Int[np.ndarray, " n"] | None:
    """A whole number for each row's episode: the log's own where it has such, else by first appearance."""
    if name is None:
        return None
    column = _full(data, name, source)
    if pa.types.is_integer(column.type):
        values = np.asarray(column)
        if not len(values) or (values.min() >= 0 and values.max() <= _NUMBERED):
            return values.astype(np.int64)
    if pa.types.is_floating(column.type) and np.isnan(np.asarray(column)).any():
        row = int(np.flatnonzero(np.isnan(np.asarray(column)))[0])
        raise UserError(f"{source}: column {name} is not a number in row {row}: say which episode that row is of.")
    return np.asarray(pc.dictionary_encode(column).indices).astype(np.int64)  # pyright: ignore[reportAttributeAccessIssue]


def _flags(data: pa.Table, name: str | None, source: str) -> Bool[np.ndarray, " n"]:
    if name is None:
        return np.zeros(data.num_rows, bool)
    with _named(source):
        return as_flags(name, _numbers(data, name, source))


def _block(data: pa.Table, columns: Sequence[Column], source: str) -> Float32[np.ndarray, "n k"]:
    found = np.empty((data.num_rows, len(columns)), np.float32)
    for i, one in enumerate(columns):
        values = _numbers(data, one.column, source)
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # what float32 cannot hold becomes inf, which the checks report with its row
            if (one.scale, one.offset) == (1.0, 0.0):
                found[:, i] = values
            else:
                found[:, i] = values.astype(np.float64) * one.scale + one.offset
    return found


def _numbers(data: pa.Table, name: str, source: str) -> Shaped[np.ndarray, " n"]:
    return _numeric(_full(data, name, source), name, source)


def _numeric(column: pa.Array, name: str, source: str, or_else: str = "") -> Shaped[np.ndarray, " n"]:
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise UserError(
            f"{source}: column {name} must hold numbers{or_else}, but its type is {kind}{_first_text(column)}."
        )
    return column.to_numpy(zero_copy_only=False)


def _first_text(column: pa.Array) -> str:
    """The first text in a column that is no number."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return ""
    for row, value in enumerate(column):
        try:
            float(value.as_py())
        except ValueError:
            return f" (row {row} holds {value.as_py()[:30]!r})"
    return ""


def _full(data: pa.Table, name: str, source: str) -> pa.Array:
    """A column in one piece; refused where values are missing."""
    column = data.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_null(column.type) and not len(column):  # a file of CSV without rows
        column = column.cast(pa.float64())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise UserError(
            f"{source}: column {name} has {column.null_count:,} empty values, first in row {row}: fill them, or leave "
            "out those episodes."
        )
    return column
