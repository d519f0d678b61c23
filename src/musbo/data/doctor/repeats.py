"""What is there twice: rows that repeat the one before, and episodes that are copies of others."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from musbo.data.batch import Batch
from musbo.data.finding import Finding, first_few, said_rows
from musbo.data.logs import Logs

RARELY = 0.05
"""Share of repeated rows up to which they are called so: a plant at rest repeats itself."""
SHORTEST = 3
"""Rows of an episode whose copy is noticed."""


def repeated_rows(logs: Logs) -> Iterator[Finding]:
    batch = logs.batch
    same = batch.episode[1:] == batch.episode[:-1]
    moves = np.zeros(len(same), bool)
    for block in (batch.obs, batch.act):
        for values in block.T:
            moves |= values[1:] != values[:-1]
    wrong = np.flatnonzero(same & ~moves) + 1
    if not len(wrong) or len(wrong) > RARELY * np.sum(same):
        return
    rows = logs.origin.rows(wrong)
    yield Finding(
        "repeated rows",
        "warning",
        f"observation and action are the same as in the row before in {said_rows(rows)}",
        "remove rows that were written twice",
        row=int(rows[0]),
        rows=len(rows),
        episodes=first_few(batch.episode[wrong]),
        machines=logs.machines_of(wrong),
    )


def repeated_episodes(every: Sequence[Logs], earlier: Mapping[bytes, str]) -> Iterator[Finding]:
    """Copies of episodes, in the same log, in another one, or among `earlier` ones, named by their digest."""
    known = dict(earlier)
    for logs in every:
        found: list[tuple[int, int, str]] = []
        for digest, number, start in episode_digests(logs.batch):
            if digest in known:
                found.append((number, start, known[digest]))
            known.setdefault(digest, f"episode {number} of {logs.source}")
        if not found:
            continue
        first = found[0]
        finding = Finding(
            "repeated episodes",
            "warning",
            f"{len(found):,} episodes are copies of others: episode {first[0]} is {first[2]}",
            "leave out what is there twice",
            row=int(logs.origin.rows(np.array([first[1]]))[0]),
            rows=len(found),
            episodes=first_few(np.array([number for number, _, _ in found])),
        )
        yield replace(finding, source=logs.source)


def episode_digests(batch: Batch) -> Iterator[tuple[bytes, int, int]]:
    """Digest, number and first row of every episode that is long enough."""
    for start, length in zip(batch.starts().tolist(), batch.lengths().tolist(), strict=True):
        if length < SHORTEST:
            continue
        digest = hashlib.blake2b(digest_size=16)
        for block in (batch.obs, batch.act):
            digest.update(np.ascontiguousarray(block[start : start + length]).tobytes())
        yield digest.digest(), int(batch.episode[start]), start
