"""The tables of a ledger, as this version writes them."""

import re
import sqlite3
from collections.abc import Iterator

VERSION = 3
"""1: payloads were dictionaries, and checkpoints were events. 2: payloads are stored classes (`events`). 3: everything
is covered by hashes (`seal`)."""
APPLICATION = 0x6D757362
"""SQLite's application id of our files: "musb" in ASCII."""

RULES = """
CREATE UNIQUE INDEX once ON events (kind) WHERE kind IN ('created', 'finished');
CREATE UNIQUE INDEX once_each ON events (kind, deployment) WHERE kind IN ('collected', 'trained', 'evaluated');
CREATE TRIGGER events_stay_as_they_are BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'an event cannot be changed');
END;
CREATE TRIGGER events_stay BEFORE DELETE ON events
BEGIN
    SELECT RAISE(ABORT, 'an event cannot be removed');
END;
"""
CHECKPOINT = """
CREATE TABLE checkpoint (
    one INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    time REAL NOT NULL,
    deployment INTEGER NOT NULL CHECK (deployment >= 1),
    payload TEXT NOT NULL
);
"""
SEAL = """
CREATE TABLE seal (
    one INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    events INTEGER NOT NULL,
    chain TEXT NOT NULL,
    metrics INTEGER NOT NULL,
    total TEXT NOT NULL,
    checkpoint TEXT NOT NULL
);
"""
SCHEMA = f"""
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    deployment INTEGER NOT NULL CHECK (deployment >= 0),
    payload TEXT NOT NULL,
    digest TEXT NOT NULL
);
{RULES}
{CHECKPOINT}
{SEAL}
CREATE TABLE metrics (
    deployment INTEGER NOT NULL,
    stage TEXT NOT NULL,
    step INTEGER NOT NULL,
    total INTEGER,
    row TEXT NOT NULL,
    UNIQUE (deployment, stage, step)
);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""

_OURS = {
    "table": ("events", "checkpoint", "seal", "metrics", "sqlite_sequence"),
    "index": ("once", "once_each", "sqlite_autoindex_metrics_1"),
    "trigger": ("events_stay", "events_stay_as_they_are"),
}
_COMPUTED = re.compile(r"\bVIRTUAL\b|\bAS\b", re.IGNORECASE)


def stranger(database: sqlite3.Connection) -> str | None:
    """The name of what no ledger has: a view or a computed column may have no end, and a trigger may do anything."""
    for kind, name, sql in database.execute("SELECT type, name, sql FROM sqlite_master"):
        known = name in _OURS[kind] if kind in _OURS else False
        text = str(sql or "")
        refuses = "SELECT RAISE(ABORT" in text and text.count(";") == 1
        if not known or _COMPUTED.search(text) or (kind == "trigger" and not refuses):
            return str(name)
    return None


def statements(script: str) -> Iterator[str]:
    """The statements of a script. (`executescript` would commit the transaction it is called in.)"""
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
