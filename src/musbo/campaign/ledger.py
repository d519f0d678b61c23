"""The ledger: an append-only SQLite table of what happened in a campaign, and a table of metrics beside it.

Every change is one transaction, so a process killed at any instant leaves the ledger before or after it, never between.
The rollback journal is the safest of SQLite's modes here: it also works on the network file systems of clusters, where
WAL does not, and leaves one file to copy. `synchronous=EXTRA` makes a commit survive a power cut as well.

What may follow what is the table in `status`; the database itself refuses a second event where there is one only, and
any change of an event. The checkpoint of a training under way is replaced by the next, so it has a table of its own.
Hashes cover all of it (`seal`), and reading computes them again: a ledger that was changed or damaged is refused.

A ledger of an older format is read through a copy in memory that is upgraded (`upgrade`); the file is upgraded when a
campaign goes on.
"""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from musbo import __version__
from musbo.campaign import seal, upgrade
from musbo.campaign.events import KINDS, Checkpoint, Event, What, from_text, kind_of, to_text
from musbo.campaign.schema import APPLICATION, SCHEMA, VERSION, statements, stranger
from musbo.campaign.status import Status, require_allowed, status
from musbo.core.errors import UserError
from musbo.core.formats import require_version
from musbo.core.inside import inside
from musbo.core.plain import plain
from musbo.core.text import parse_json


@dataclass(frozen=True)
class Row:
    """A row of metrics: one report of a training."""

    deployment: int
    stage: str
    index: int
    of: int | None
    numbers: dict[str, Any]
    """By names of the method's own; None for what is not finite."""

    def plain(self) -> dict[str, Any]:
        """The row as it goes into a file."""
        return {"deployment": self.deployment, "stage": self.stage, "index": self.index, "of": self.of, **self.numbers}


LATEST = 2.5e11
"""Seconds since 1970: what comes after the year 9000 is no time of an event."""


def _types(row: Sequence[object]) -> tuple[type, ...]:
    return tuple(map(type, row))


class Changed(Exception):
    """A ledger is not what was written."""


class Ledger:
    """The ledger in the file `path`, a context manager. With `create`, a missing one is made; else it is an error.

    With `writable`, a file of an older format is upgraded in place, after a copy of it was kept.
    """

    def __init__(self, path: Path, create: bool = False, writable: bool = False) -> None:
        self.path = path
        self._rows: list[tuple[int, str, int, int | None, str]] = []
        self._read: dict[int, Event] = {}
        for name in (path.name, f"{path.name}-journal", f"{path.name}-wal"):  # SQLite would open what they lead to
            inside(path.parent, name)
        if not create and (not path.is_file() or path.stat().st_size == 0):
            # A file of no bytes is what a process leaves that was killed while it made the ledger.
            raise UserError(f"there is no campaign at {path.parent}: start one with `musbo run`, or check the path")
        with self._explained():
            self._database = sqlite3.connect(path, timeout=60, isolation_level=None)
        try:
            with self._explained():
                self._open(create, writable)
        except BaseException:
            self._database.close()
            raise

    def _open(self, create: bool, writable: bool) -> None:
        if create and self._database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            self._prepare()
            with self._transaction():
                # Asked again inside the transaction: another process may have made it since.
                if self._database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                    for statement in statements(SCHEMA):
                        self._database.execute(statement)
                    self._write_seal(seal.Seal())
        (application,) = self._database.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION:
            raise UserError(f"{self.path} is a database of another program, not a ledger of musbo: check the path")
        if (name := stranger(self._database)) is not None:
            raise UserError(f"{self.path} holds {name[:60]!r}, which no ledger of musbo has: restore it from a copy")
        version = self._version()
        require_version(version, VERSION, str(self.path))
        if version < VERSION and writable:
            upgrade.keep_copy(self.path, version)
        elif version < VERSION:
            copy = sqlite3.connect(":memory:", isolation_level=None)
            self._database.backup(copy)
            self._database.close()
            self._database = copy
        self._prepare()
        if version < VERSION:
            # With structures that are damaged, an upgrade could lose rows without a word.
            (found,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            with self._transaction():
                if (now := self._version()) < VERSION:  # another process may have done it since
                    upgrade.upgrade(self._database, now)

    def _prepare(self) -> None:
        self._database.execute("PRAGMA synchronous = EXTRA")
        # Without this, INSERT OR REPLACE would remove rows behind the triggers' back.
        self._database.execute("PRAGMA recursive_triggers = ON")

    def _version(self) -> int:
        return self._database.execute("PRAGMA user_version").fetchone()[0]

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._database.close()

    # Events

    def append(self, what: What, deployment: int = 0) -> None:
        """Add an event, together with the metrics recorded so far; refused unless it may come next."""
        with self._explained(), self._transaction():
            self._require(what, deployment)
            before = self._seal()
            row = (self._next_id(), time.time(), kind_of(what), deployment, to_text(what))
            chain = seal.chained(before.chain, row)
            self._database.execute(
                "INSERT INTO events (id, time, kind, deployment, payload, digest) VALUES (?, ?, ?, ?, ?, ?)",
                (*row, chain),
            )
            # A checkpoint stands for a training that is under way; after the next event there is none.
            self._database.execute(
                "DELETE FROM checkpoint WHERE EXISTS (SELECT 1 FROM events "
                "WHERE kind = 'trained' AND events.deployment = checkpoint.deployment)"
            )
            under_way = before.checkpoint if self._checkpoint_row() else ""
            metrics, total = self._write_metrics(before)
            self._write_seal(seal.Seal(before.events + 1, chain, metrics, total, under_way))
        self._rows.clear()

    def replace_checkpoint(self, what: Checkpoint, deployment: int) -> None:
        """Write a checkpoint in the place of the last one, together with the metrics recorded so far."""
        with self._explained(), self._transaction():
            self._require(what, deployment)
            before = self._seal()
            row = (time.time(), deployment, to_text(what))
            self._database.execute("DELETE FROM checkpoint")
            self._database.execute("INSERT INTO checkpoint (time, deployment, payload) VALUES (?, ?, ?)", row)
            metrics, total = self._write_metrics(before)
            self._write_seal(before._replace(metrics=metrics, total=total, checkpoint=seal.digest(row)))
        self._rows.clear()

    def events(self) -> list[Event]:
        """All events, oldest first."""
        with self._explained(), self._reading():
            now, chain = self._seal(), seal.FIRST
            rows = self._database.execute("SELECT id, time, kind, deployment, payload, digest FROM events ORDER BY id")
            found = rows.fetchall()
            for *row, digest in found:
                chain = seal.chained(chain, row)
                if digest != chain:
                    raise Changed(f"event {row[0]} is not what was written")
            if (len(found), chain) != (now.events, now.chain):
                raise Changed(f"it has {len(found)} of {now.events} events")
            for *row, _ in found:
                if _types(row) != (int, float, str, int, str) or row[3] < 0 or not 0 <= row[1] <= LATEST:
                    raise Changed(f"event {row[0]!r} is no row of a ledger")
            return [self._event(*row) for *row, _ in found]

    def _event(self, i: int, when: float, kind: str, deployment: int, payload: str) -> Event:
        if i not in self._read:  # an event never changes
            if kind not in KINDS:
                raise UserError(f"{self.path} has an event of kind '{kind}', which musbo {__version__} does not know")
            try:
                self._read[i] = Event(i, when, deployment, from_text(payload, KINDS[kind]))
            except UserError as error:
                raise UserError(f"{self.path}: {error}") from error
        return self._read[i]

    def _next_id(self) -> int:
        return self._database.execute("SELECT coalesce(max(id), 0) + 1 FROM events").fetchone()[0]

    def _checkpoint_row(self) -> tuple[float, int, str] | None:
        return self._database.execute("SELECT time, deployment, payload FROM checkpoint").fetchone()

    def digest(self, event: Event) -> str:
        """The hash of an event, which stands for all events before it too."""
        with self._explained(), self._reading():
            self.events()  # refuses a chain that was changed
            return self._database.execute("SELECT digest FROM events WHERE id = ?", (event.id,)).fetchone()[0]

    def digests(self) -> list[str]:
        """The hash of every event, oldest first."""
        with self._explained(), self._reading():
            self.events()
            return [row[0] for row in self._database.execute("SELECT digest FROM events ORDER BY id")]

    def has(self, digest: str) -> bool:
        """Whether an event has this hash."""
        return digest in self.digests()

    def status(self) -> Status:
        """Where the campaign stands."""
        with self._explained(), self._reading():
            row = self._checkpoint_row()
            if (seal.digest(row) if row else "") != self._seal().checkpoint:
                raise Changed("the checkpoint is not what was written")
            return status(self.events(), (row[1], from_text(row[2], Checkpoint)) if row else None)

    def _require(self, what: What | Checkpoint, deployment: int) -> None:
        try:
            require_allowed(self.status(), what, deployment)
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from error

    # Metrics

    def record(self, deployment: int, stage: str, index: int, of: int | None, numbers: Mapping[str, Any]) -> None:
        """Note a row of metrics; it is written with the next event or `flush`. The same place again replaces it.

        So a resumed process writes again, with the same numbers, what a killed one had done since its last checkpoint.
        """
        if clash := {"deployment", "stage", "index", "of"} & set(numbers):
            raise ValueError(f"a row of metrics cannot have a column {', '.join(sorted(clash))}: that names its place")
        text = json.dumps(plain(dict(numbers)), allow_nan=False)
        self._rows.append((int(deployment), stage, int(index), of, text))

    def flush(self) -> None:
        """Write the recorded metrics."""
        if self._rows:
            with self._explained(), self._transaction():
                before = self._seal()
                metrics, total = self._write_metrics(before)
                self._write_seal(before._replace(metrics=metrics, total=total))
            self._rows.clear()

    def metrics(self) -> list[Row]:
        """All rows in the order of their first recording."""
        self.flush()
        with self._explained(), self._reading():
            now = self._seal()
            query = "SELECT deployment, stage, step, total, row FROM metrics ORDER BY rowid"
            rows = self._database.execute(query).fetchall()
            if (len(rows), seal.added(seal.FIRST, rows)) != (now.metrics, now.total):
                raise Changed("the metrics are not what was written")
            for row in rows:
                if _types(row) not in ((int, str, int, int, str), (int, str, int, type(None), str)):
                    raise Changed("its metrics are no rows of a ledger")
            return [Row(d, stage, i, of, self._numbers(row)) for d, stage, i, of, row in rows]

    def _numbers(self, text: str | bytes) -> dict[str, Any]:
        found = parse_json(text, str(self.path))
        if not isinstance(found, dict):
            raise UserError(f"{self.path} is damaged (metrics without names): restore it from a copy")
        return found

    def _write_metrics(self, before: seal.Seal) -> tuple[int, str]:
        """Write what was recorded; returns the number of all rows and the sum of their marks."""
        new = {row[:3]: row for row in self._rows}  # the last of a place counts
        place = "deployment = ? AND stage = ? AND step = ?"
        query = f"SELECT deployment, stage, step, total, row FROM metrics WHERE {place}"
        old = [row for key in new if (row := self._database.execute(query, key).fetchone()) is not None]
        self._database.executemany(
            "INSERT INTO metrics (deployment, stage, step, total, row) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (deployment, stage, step) DO UPDATE SET row = excluded.row, total = excluded.total",
            list(new.values()),
        )
        return before.metrics + len(new) - len(old), seal.added(before.total, new.values(), old)

    # Hashes

    def _seal(self) -> seal.Seal:
        row = self._database.execute("SELECT events, chain, metrics, total, checkpoint FROM seal").fetchone()
        if row is None or not seal.is_sound(found := seal.Seal(*row)):
            raise Changed("its seal is damaged")
        return found

    def _write_seal(self, now: seal.Seal) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO seal (one, events, chain, metrics, total, checkpoint) VALUES (1, ?, ?, ?, ?, ?)",
            tuple(now),
        )

    def verify(self) -> None:
        """Read everything, and check SQLite's own structures: refuses a ledger that was changed or damaged."""
        with self._explained():
            (found,) = self._database.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
        self.status()
        self.metrics()

    # SQLite

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Several reads of one state, while other processes write."""
        if self._database.in_transaction:
            yield
            return
        self._database.execute("BEGIN")
        try:
            yield
        finally:
            self._database.execute("ROLLBACK")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as sentences."""
        try:
            yield
        except sqlite3.OperationalError as error:  # locked, read-only, disk full
            if "decode" in str(error):  # text that is not UTF-8
                raise UserError(f"{self.path} is damaged ({error}): restore it from a copy") from error
            raise UserError(
                f"cannot use the ledger {self.path}: {error}; nothing was changed, so fix this and try again"
            ) from error
        except Changed as error:
            raise UserError(
                f"{self.path} was changed or damaged since it was written ({error}): restore it from a copy"
            ) from error
        except (sqlite3.DatabaseError, json.JSONDecodeError, upgrade.Damaged, OverflowError, UnicodeError) as error:
            raise UserError(
                f"{self.path} is damaged or not a ledger of musbo ({error}): check the path, or restore it from a copy"
            ) from error
