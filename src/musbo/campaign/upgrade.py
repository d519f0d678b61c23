"""Ledgers of older formats: one function for every format that was ever written, which makes it the next one.

The caller holds a transaction, so an upgrade happens whole or not at all.
"""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from musbo.algorithms import former_metrics
from musbo.algorithms.method import Forecast
from musbo.campaign import events, seal
from musbo.campaign.schema import CHECKPOINT, RULES, SEAL, VERSION, statements
from musbo.campaign.settings import TaskShape
from musbo.core import serial
from musbo.core.diagnostics import Caution, Findings
from musbo.core.durable import write_whole
from musbo.core.inside import inside


class Damaged(Exception):
    """An event lacks what its format has."""


def keep_copy(path: Path, version: int) -> None:
    """A copy of the file beside it, before it is upgraded: `ledger.v1.sqlite`, say."""
    place = inside(path.parent, path.with_suffix(f".v{version}{path.suffix}").name)
    if not place.exists():
        write_whole(place, path.read_bytes())  # the campaign is locked, so nobody writes to it


def upgrade(database: sqlite3.Connection, version: int) -> None:
    """Make a ledger of format `version` one of today."""
    try:
        for old in range(version, VERSION):
            _STEPS[old](database)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error


# From 1 to 2


def _from_1(database: sqlite3.Connection) -> None:
    for trigger in ("events_stay", "events_stay_as_they_are"):
        database.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    for index in ("once", "once_each"):
        database.execute(f"DROP INDEX IF EXISTS {index}")
    for statement in statements(CHECKPOINT):
        database.execute(statement)
    rows = database.execute("SELECT id, time, kind, deployment, payload FROM events ORDER BY id").fetchall()
    for i, time, kind, deployment, text in rows:
        payload = json.loads(text)
        if kind == "checkpoint":
            database.execute("DELETE FROM checkpoint")  # the newest counts
            database.execute(
                "INSERT INTO checkpoint (time, deployment, payload) VALUES (?, ?, ?)",
                (time, deployment, events.to_text(_checkpoint(database, deployment, payload))),
            )
            database.execute("DELETE FROM events WHERE id = ?", (i,))
        else:
            name = {"batch": "collected"}.get(kind, kind)
            found = events.to_text(_EVENTS[kind](payload))
            database.execute("UPDATE events SET kind = ?, payload = ? WHERE id = ?", (name, found, i))
    database.execute(
        "DELETE FROM checkpoint WHERE EXISTS (SELECT 1 FROM events "
        "WHERE kind = 'trained' AND events.deployment = checkpoint.deployment)"
    )
    for statement in statements(RULES):
        database.execute(statement)
    database.execute("ALTER TABLE metrics ADD COLUMN total INTEGER")
    database.execute(
        "UPDATE metrics SET total = coalesce(json_extract(row, '$.epochs'), json_extract(row, '$.updates'))"
    )
    database.execute("PRAGMA user_version = 2")


# From 2 to 3


def _from_2(database: sqlite3.Connection) -> None:
    database.execute("DROP TRIGGER events_stay_as_they_are")
    database.execute("ALTER TABLE events ADD COLUMN digest TEXT NOT NULL DEFAULT ''")
    chain = seal.FIRST
    rows = database.execute("SELECT id, time, kind, deployment, payload FROM events ORDER BY id").fetchall()
    for row in rows:
        chain = seal.chained(chain, row)
        database.execute("UPDATE events SET digest = ? WHERE id = ?", (chain, row[0]))
    for statement in statements(RULES):
        if "events_stay_as_they_are" in statement:
            database.execute(statement)
    metrics = database.execute("SELECT deployment, stage, step, total, row FROM metrics").fetchall()
    total = seal.added(seal.FIRST, metrics)
    under_way = database.execute("SELECT time, deployment, payload FROM checkpoint").fetchone()
    for statement in statements(SEAL):
        database.execute(statement)
    now = seal.Seal(len(rows), chain, len(metrics), total, seal.digest(under_way) if under_way else "")
    database.execute("INSERT INTO seal (events, chain, metrics, total, checkpoint) VALUES (?, ?, ?, ?, ?)", tuple(now))
    database.execute("PRAGMA user_version = 3")


# The payloads of format 1


def _created(old: dict[str, Any]) -> events.Created:
    task = old["task"]
    shape = TaskShape(**{**task, "act_low": tuple(task["act_low"]), "act_high": tuple(task["act_high"])})
    brought = tuple(
        events.Brought(item["batch"], item["source"], item["size"], tuple(item.get("warnings", ())))
        for item in old["data"]
    )
    return events.Created(serial.from_json(old["settings"]), shape, old["versions"], brought)


def _collected(old: dict[str, Any]) -> events.Collected:
    source = old.get("source")
    odd = tuple(Caution(f"{source}: {text}", f"{source}: {text}") for text in old.get("warnings", ()))
    return events.Collected(
        artefact=old["batch"],
        transitions=old["size"],
        episodes=old["n_episodes"],
        mean_return=old["batch_return"],
        mean_length=old["batch_length"],
        source=source,
        novelty=old.get("novelty"),
        extra_steps=old.get("extra_steps") or 0,
        seconds=old.get("seconds") or 0.0,
        findings=Findings(cautions=odd) + former_metrics.of_batch(old),
    )


def _trained(old: dict[str, Any]) -> events.Trained:
    promised = (old.get("imagined_return"), old.get("imagined_length"), old.get("imagined_horizon"))
    forecast = None if promised == (None, None, None) else Forecast(*promised)
    return events.Trained(old["state"], old["policy"], old["seconds"], forecast, former_metrics.of_training(old))


def _evaluated(old: dict[str, Any]) -> events.Evaluated:
    episodes = agreement = stretch = None
    if "returns" in old:
        episodes = events.Episodes(
            tuple(old["returns"]), old["return"], old["spread"], old["model_return"], old["length"], old["speed"],
            old["steps"],
        )  # fmt: skip
    if "energy_distance" in old:
        agreement = events.Agreement(
            old["energy_distance"], old["trajectory_mse"], old["imagined_steps"], old["real_steps"],
            old.get("foreseen_return"),
        )  # fmt: skip
    if old.get("early_length") is not None:
        stretch = events.Stretch(old["early_return"], old["early_length"])
    return events.Evaluated(old.get("seconds") or 0.0, old.get("skipped"), episodes, agreement, stretch)


def _checkpoint(database: sqlite3.Connection, deployment: int, old: dict[str, Any]) -> events.Checkpoint:
    rows = database.execute("SELECT stage, row FROM metrics WHERE deployment = ? ORDER BY rowid", (deployment,))
    last = {stage: json.loads(row) for stage, row in rows.fetchall()}
    found = tuple((stage, former_metrics.of_stage(stage, row)) for stage, row in last.items())
    return events.Checkpoint(old["state"], old["seconds"], found)


_EVENTS: dict[str, Callable[[dict[str, Any]], events.What]] = {
    "created": _created,
    "shard": lambda old: events.Shard(old["shard"], former_metrics.signal(old), old["extra_steps"]),
    "batch": _collected,
    "trained": _trained,
    "evaluated": _evaluated,
    "stopped": lambda old: events.Stopped(),
    "resumed": lambda old: events.Resumed(old["versions"]),
    "finished": lambda old: events.Finished(),
}
_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _from_1, 2: _from_2}
