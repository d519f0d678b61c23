"""Jumps of unit: a column that is multiplied by a factor, or moved, from some episode, file or machine on.

Every episode is cut into pieces. Of each piece we take where a column is (median) and how far it moves (deviation
inside the piece, and of the changes from row to row). Behaviour changes all of these by degrees and by different
amounts; another unit moves both measures of scale by one factor, at one place, and leaves them steady on either side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64, Int

from musbo.data.finding import Finding
from musbo.data.logs import Logs

PIECE, SHORTEST = 100, 8
"""Rows of a piece: at most, and at least."""
EACH, EPISODES = 4, 3
"""Pieces and episodes that are needed on either side: what one episode does is behaviour."""
PLAIN = 5.0
"""A factor that needs no more than one episode of a file or a machine."""
FACTOR = 1.7
"""The least change of scale that is called a jump: degrees Celsius to Fahrenheit is 1.8."""
CLEAR = 6.0
"""Deviations on either side by which the sides differ."""
AGREE = 0.3
"""By how much the two measures of the scale may differ, in logarithms."""
MOST = 2000
"""Pieces that are looked at, evenly spread over the logs."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Of each piece: its log, its episode, its first row and its machine, and three numbers of every column."""

    log: Int[np.ndarray, " p"]
    episode: Int[np.ndarray, " p"]
    row: Int[np.ndarray, " p"]
    machine: Int[np.ndarray, " p"]
    centre: Float64[np.ndarray, "p obs"]
    spread: Float64[np.ndarray, "p obs"]
    change: Float64[np.ndarray, "p obs"]


def unit_jumps(every: Sequence[Logs]) -> Iterator[Finding]:
    """Jumps of scale or of place in the columns of the observation, within a log and from one to the next."""
    if len({logs.batch.obs.shape[1] for logs in every}) != 1:
        return
    names = list(dict.fromkeys(name for logs in every for name in logs.machines))
    pieces = cut(every, names)
    found = [finding for i in range(pieces.centre.shape[1]) for finding in _of_column(every, names, pieces, i)]
    # Where most of the columns jump, the machine may just do something else.
    most = len(found) >= 3 and 2 * len(found) > pieces.centre.shape[1]
    yield from (replace(finding, level="note") if most else finding for finding in found)


def cut(every: Sequence[Logs], names: Sequence[str]) -> Pieces:
    places, episode = [], 0
    for number, logs in enumerate(every):
        for start, length in zip(logs.batch.starts().tolist(), logs.batch.lengths().tolist(), strict=True):
            parts = max(1, round(length / PIECE))
            edges = np.linspace(start, start + length, parts + 1).astype(int)
            places += [
                (number, episode, a, b)
                for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
                if b - a >= SHORTEST
            ]
            episode += 1
    if len(places) > MOST:
        places = [places[i] for i in np.linspace(0, len(places) - 1, MOST).astype(int)]
    centre, spread, change, machine = [], [], [], []
    for number, _, a, b in places:
        part = every[number].batch.obs[a:b].astype(np.float64)
        centre.append(np.median(part, axis=0))
        spread.append(np.std(part, axis=0))
        change.append(np.std(np.diff(part, axis=0), axis=0))
        codes = every[number].machine
        machine.append(-1 if codes is None else names.index(every[number].machines[codes[a]]))
    width = every[0].batch.obs.shape[1]
    log, episodes, row = (np.array([place[i] for place in places], int) for i in (0, 1, 2))
    blocks = (np.array(values, float).reshape(len(places), width) for values in (centre, spread, change))
    return Pieces(log, episodes, row, np.array(machine, int), *blocks)


def _of_column(every: Sequence[Logs], names: Sequence[str], pieces: Pieces, i: int) -> Iterator[Finding]:
    for machine, name in enumerate(names if len(names) > 1 else ()):
        if what := _compared(pieces, i, here := pieces.machine == machine, PLAIN):
            at = int(np.flatnonzero(here)[0])
            yield _finding(every, pieces, at, i, f"on machine {name} {what} as on the others", name)
            return
    order = np.arange(len(pieces.log))
    sides = [(pieces.log == number, "in the others") for number in range(len(every) if len(every) > 2 else 0)]
    sides += [(order >= after, "before") for after in _candidates(pieces, i)]
    for here, where in sides:
        at = int(np.argmax(here))
        new_log = at > 0 and pieces.log[at] != pieces.log[at - 1]
        if what := _compared(pieces, i, here, PLAIN if new_log else np.inf):
            yield _finding(every, pieces, at, i, f"{what} as {where}", None)
            return


def _candidates(pieces: Pieces, i: int) -> list[int]:
    """Where an episode begins and the sides differ most, for the logarithm of the scale and for the place."""
    alive = pieces.change[:, i] > 0
    scale = np.log(np.where(alive, pieces.change[:, i], 1.0))
    begins = np.diff(pieces.episode) != 0
    found = []
    for values in (scale, pieces.centre[:, i]):
        n = len(values)
        if n < 2 * EACH or not np.any(begins):
            continue
        left = np.cumsum(values)[:-1]
        count = np.arange(1, n)
        apart = np.abs(left / count - (values.sum() - left) / (n - count)) * np.sqrt(count * (n - count))
        apart = np.where(begins & (count >= EACH) & (n - count >= EACH), apart, -1.0)
        found.append(int(np.argmax(apart)) + 1)
    return found


def _compared(pieces: Pieces, i: int, here: Bool[np.ndarray, " p"], plain: float) -> str | None:
    """What is different about a column in the pieces `here`, or None; a factor of `plain` needs few episodes."""
    centre, spread, change = pieces.centre[:, i], pieces.spread[:, i], pieces.change[:, i]
    alive = (spread > 0) & (change > 0)
    one, other = here & alive, ~here & alive
    if min(np.sum(one), np.sum(other)) < EACH:
        return None
    many = min(len(np.unique(pieces.episode[side])) for side in (one, other)) >= EPISODES
    by_spread, clear_spread = _apart(np.log(np.where(alive, spread, 1.0)), one, other)
    by_change, clear_change = _apart(np.log(np.where(alive, change, 1.0)), one, other)
    agree = abs(by_spread - by_change) < AGREE and min(abs(by_spread), abs(by_change)) > np.log(FACTOR) - AGREE / 2
    surer, factor = max((clear_spread, by_spread), (clear_change, by_change))
    certain = min(clear_spread, clear_change) * np.sqrt(np.sum(one) * np.sum(other) / np.sum(alive)) > CLEAR
    if agree and abs(factor) > np.log(FACTOR if many else plain) and surer > CLEAR and certain:
        return f"is about {np.exp(factor):.3g} times as large"
    moved, clear = _apart(centre, one, other)
    inside = float(np.median(spread[alive]))
    if many and clear > CLEAR and abs(moved) > 2 * CLEAR * inside and abs(by_spread) < AGREE:
        return f"is {moved:+.4g} away from where it was, with the same spread,"
    return None


def _apart(values: np.ndarray, one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The difference of the two means, and the same in deviations of the sides."""
    with np.errstate(divide="ignore"):
        difference = float(np.mean(values[one]) - np.mean(values[other]))
        pooled = float(np.sqrt((np.var(values[one], ddof=1) + np.var(values[other], ddof=1)) / 2))
    return difference, abs(difference) / max(pooled, 1e-12)


def _finding(every: Sequence[Logs], pieces: Pieces, at: int, i: int, what: str, machine: str | None) -> Finding:
    logs = every[pieces.log[at]]
    name, start = logs.origin.name("obs", i), int(pieces.row[at])
    row = int(logs.origin.rows(np.array([start]))[0])
    found = Finding(
        "jump of unit",
        "warning",
        f"{name} {what}" + ("" if machine else f", from row {row} of {logs.source} on"),
        "see whether the unit or the calibration changed, and bring it back with scale and offset in the mapping",
        (name,),
        row,
        episodes=(int(logs.batch.episode[start]),),
        machines=(machine,) if machine else logs.machines_of(np.array([start])),
    )
    return replace(found, source=logs.source)
