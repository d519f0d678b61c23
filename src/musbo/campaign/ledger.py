"""The ledger: an append-only SQLite table of what happened in a campaign, and a table of metrics beside it.

Every change is one transaction, so a process killed at any instant leaves the ledger before or after it, never between.
The rollback journal is the safest of SQLite's modes here: it also works on the network file systems of clusters, where
WAL does not, and leaves one file to copy. `synchronous=EXTRA` makes a commit survive a power cut as well.

What may follow what is the table in `steps`; the database itself refuses a second event where there is one only, and
any change of an event, except that checkpoints and shards may go once something newer stands for them.
"""

import fcntl
import json
import math
import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from musbo.campaign.steps import Event, require_allowed, status
from musbo.core.errors import UserError

LEDGER = "ledger.sqlite"  # its name in the directory of a campaign
VERSION = 1
APPLICATION = 0x6D757362
"""SQLite's application id of our files: "musb" in ASCII."""

_SCHEMA = f"""
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    deployment INTEGER NOT NULL CHECK (deployment >= 0),
    payload TEXT NOT NULL
);
CREATE UNIQUE INDEX once ON events (kind) WHERE kind IN ('created', 'finished');
CREATE UNIQUE INDEX once_each ON events (kind, deployment) WHERE kind IN ('batch', 'trained', 'evaluated');
CREATE TRIGGER events_stay_as_they_are BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'an event cannot be changed');
END;
CREATE TRIGGER events_stay BEFORE DELETE ON events
WHEN NOT (
    (OLD.kind = 'checkpoint' AND EXISTS (
        SELECT 1 FROM events WHERE id > OLD.id AND (
            kind = 'checkpoint' OR (kind = 'trained' AND deployment = OLD.deployment))))
    OR (OLD.kind = 'shard' AND EXISTS (
        SELECT 1 FROM events WHERE id > OLD.id AND kind = 'batch' AND deployment = OLD.deployment))
)
BEGIN
    SELECT RAISE(ABORT, 'an event cannot be removed');
END;
CREATE TABLE metrics (
    deployment INTEGER NOT NULL,
    stage TEXT NOT NULL,
    step INTEGER NOT NULL,
    row TEXT NOT NULL,
    UNIQUE (deployment, stage, step)
);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


class Ledger:
    """The ledger in the file `path`, a context manager. With `create`, a missing one is made; else it is an error."""

    def __init__(self, path: Path, create: bool = False) -> None:
        self.path = path
        self._rows: list[tuple[int, str, int, str]] = []
        if not create and (not path.is_file() or path.stat().st_size == 0):
            # A file of no bytes is what a process leaves that was killed while it made the ledger.
            raise UserError(f"there is no campaign at {path.parent}: start one with `musbo run`, or check the path")
        with self._explained():
            self._database = sqlite3.connect(path, timeout=60, isolation_level=None)
        try:
            with self._explained():
                self._open(create)
        except BaseException:
            self._database.close()
            raise

    def _open(self, create: bool) -> None:
        self._database.execute("PRAGMA synchronous = EXTRA")
        # Without this, INSERT OR REPLACE would remove rows behind the triggers' back.
        self._database.execute("PRAGMA recursive_triggers = ON")
        if create and self._database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            with self._transaction():
                # Asked again inside the transaction: another process may have made it since.
                if self._database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                    for statement in _statements(_SCHEMA):
                        self._database.execute(statement)
        (application,) = self._database.execute("PRAGMA application_id").fetchone()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise UserError(f"{self.path} is a database of another program, not a ledger of musbo: check the path")
        if version > VERSION:
            raise UserError(
                f"{self.path} was written by a newer musbo (format {version}, this one reads up to {VERSION}): "
                "upgrade musbo"
            )

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

    def append(self, kind: str, deployment: int, payload: dict[str, Any]) -> None:
        """Add an event, together with the metrics recorded so far; refused unless it may come next."""
        with self._explained(), self._transaction():
            self._insert(kind, deployment, payload)
            self._write_metrics()
        self._rows.clear()

    def replace_checkpoint(self, deployment: int, payload: dict[str, Any]) -> None:
        """Add a checkpoint and drop the older ones, together with the metrics recorded so far."""
        with self._explained(), self._transaction():
            newest = self._insert("checkpoint", deployment, payload)
            self._database.execute("DELETE FROM events WHERE kind = 'checkpoint' AND id < ?", (newest,))
            self._write_metrics()
        self._rows.clear()

    def events(self, kind: str | None = None) -> list[Event]:
        """All events, or those of one kind, oldest first."""
        with self._explained():
            rows = self._database.execute(
                "SELECT id, time, kind, deployment, payload FROM events WHERE ?1 IS NULL OR kind = ?1 ORDER BY id",
                (kind,),
            ).fetchall()
            return [Event(i, when, what, d, json.loads(payload)) for i, when, what, d, payload in rows]

    def _insert(self, kind: str, deployment: int, payload: dict[str, Any]) -> int:
        try:
            require_allowed(status(self.events()), kind, deployment)
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from error
        row = self._database.execute(
            "INSERT INTO events (time, kind, deployment, payload) VALUES (?, ?, ?, ?)",
            (time.time(), kind, deployment, _dumps(payload)),
        )
        assert row.lastrowid is not None  # SQLite sets it after every INSERT
        return row.lastrowid

    # Metrics

    def record(self, deployment: int, stage: str, index: int, row: dict[str, Any]) -> None:
        """Note a row of metrics; it is written with the next event or `flush`. The same place again replaces it.

        So a resumed process writes again, with the same numbers, what a killed one had done since its last checkpoint.
        """
        if clash := {"deployment", "stage", "index"} & set(row):
            raise ValueError(f"a row of metrics cannot have a column {', '.join(sorted(clash))}: that names its place")
        self._rows.append((int(deployment), stage, int(index), _dumps(row)))

    def flush(self) -> None:
        """Write the recorded metrics."""
        if self._rows:
            with self._explained(), self._transaction():
                self._write_metrics()
            self._rows.clear()

    def metrics(self) -> list[dict[str, Any]]:
        """All rows in the order of their first recording: deployment, stage, index and the columns. NaN is None."""
        self.flush()
        with self._explained():
            rows = self._database.execute("SELECT deployment, stage, step, row FROM metrics ORDER BY rowid").fetchall()
        return [{"deployment": d, "stage": stage, "index": i, **json.loads(row)} for d, stage, i, row in rows]

    def _write_metrics(self) -> None:
        self._database.executemany(
            "INSERT INTO metrics (deployment, stage, step, row) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (deployment, stage, step) DO UPDATE SET row = excluded.row",
            self._rows,
        )

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
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as sentences."""
        try:
            yield
        except sqlite3.OperationalError as error:  # locked, read-only, disk full
            raise UserError(
                f"cannot use the ledger {self.path}: {error}; nothing was changed, so mend this and try again"
            ) from error
        except (sqlite3.DatabaseError, json.JSONDecodeError) as error:
            raise UserError(
                f"{self.path} is damaged or not a ledger of musbo ({error}): check the path, or restore it from a copy"
            ) from error


def _statements(script: str) -> Iterator[str]:
    """The statements of a script. (`executescript` would commit the transaction it is called in.)"""
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _dumps(row: dict[str, Any]) -> str:
    return json.dumps(_plain(row), allow_nan=False)


def _plain(value: Any) -> Any:
    """`value` as plain JSON: arrays as lists, and null where a number is not finite."""
    if hasattr(value, "__array__"):  # of NumPy or JAX; the ledger opens quickly because it imports no JAX
        value = np.asarray(value).tolist()
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# One process at a time

_held: set[Path] = set()
"""The locks of this process: the kernel's own lock only keeps other processes out."""


@contextmanager
def lock(folder: Path, what: str = "campaign") -> Iterator[None]:
    """Hold what is in `folder` for this process alone. The kernel lets go when the process dies, however it dies.

    A POSIX record lock, not `flock`: a forked worker does not inherit it, so no orphan keeps a dead campaign locked.
    """
    path = folder.resolve() / "lock"
    if path in _held:
        raise UserError(f"this process (pid {os.getpid()}) is running the {what} {folder} already")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a+"))  # not "w": if we are refused it must keep the holder's name
        except OSError as error:
            raise UserError(f"cannot lock the {what} {folder}: {error.strerror}; check the path") from error
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # POSIX allows either
            file.seek(0)
            pid, _, host = file.read().strip().partition(" ")
            raise UserError(
                f"another process (pid {pid or 'unknown'}) is running this {what} ({folder}, on host "
                f"{host or 'unknown'}): let it end or stop it first"
            ) from error
        _held.add(path)
        try:
            file.truncate(0)
            file.write(f"{os.getpid()} {socket.gethostname()}\n")
            file.flush()
            yield
        finally:
            _held.discard(path)  # closing the file lets go of the lock
