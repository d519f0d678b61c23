"""The ledger holds what happened, in an order that makes sense, and survives kill -9 at any moment."""

import hashlib
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import musbo
from musbo.campaign.events import KINDS, Checkpoint, kind_of
from musbo.campaign.ledger import Ledger, Row
from musbo.campaign.schema import APPLICATION, VERSION
from musbo.campaign.status import Status
from musbo.core.errors import UserError
from tests.campaign.orders import Machine, attempts, example

GOLDEN = Path(__file__).parents[1] / "golden"
PLACES = [Path(musbo.__file__).parents[1], Path(__file__).parents[2]]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PLACES))}

ROUND = ["shard", "shard", "collected", "trained", "evaluated"]


def fill(ledger: Ledger, *names: str) -> None:
    """Append events named like "collected 1"."""
    for name in names:
        kind, _, deployment = name.partition(" ")
        put(ledger, kind, int(deployment or 0))


def put(ledger: Ledger, kind: str, deployment: int, mark: int = 0) -> None:
    what = example(kind, mark)
    if isinstance(what, Checkpoint):
        ledger.replace_checkpoint(what, deployment)
    else:
        ledger.append(what, deployment)


# Order


@settings(max_examples=20)
@given(attempts(25))
def test_the_ledger_holds_the_accepted_events_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, tries: list[tuple[str, int]]
) -> None:
    path, machine, expected = tmp_path_factory.mktemp("ledger") / "ledger", Machine(), []
    with Ledger(path, create=True) as ledger:
        for i, (kind, deployment) in enumerate(tries):
            if machine.accept(kind, deployment):
                put(ledger, kind, deployment, i)
                expected += [(deployment, example(kind, i))] if kind != "checkpoint" else []
            else:
                with pytest.raises(UserError):
                    put(ledger, kind, deployment, i)
    with Ledger(path, create=True) as ledger:
        assert [(event.deployment, event.what) for event in ledger.events()] == expected


@pytest.mark.parametrize(
    ("before", "name", "words"),
    [
        (["created"], "created", "this campaign is already created"),
        (["created", "collected 1"], "collected 1", "deployment 1 already has its batch"),
        (["created", "collected 1", "trained 1"], "trained 1", "deployment 1 is already trained"),
        (["created", "collected 1", "trained 1", "evaluated 1"], "evaluated 1", "deployment 1 is already evaluated"),
        (
            ["created", "collected 1", "trained 1", "evaluated 1", "finished"],
            "finished",
            "campaign is already finished",
        ),
        ([], "collected 1", "not created yet"),
        (["created"], "collected 2", "'collected' of deployment 2 cannot come now: deployment 1 waits for its batch"),
        (["created", "collected 1"], "evaluated 1", "deployment 1 waits to be trained"),
        (["created", "collected 1", "trained 1"], "checkpoint 1", "deployment 1 waits to be evaluated"),
        (
            ["created", "collected 1", "trained 1", "evaluated 1", "shard 2"],
            "finished",
            "deployment 2 waits for its batch",
        ),
    ],
)
def test_a_refusal_says_why_and_where(tmp_path: Path, before: list[str], name: str, words: str) -> None:
    with Ledger(tmp_path / "ledger", create=True) as ledger:
        fill(ledger, *before)
        with pytest.raises(UserError, match=f"{tmp_path}.*{words}"):
            fill(ledger, name)
        assert len(ledger.events()) == len(before)


# The database


def test_events_come_back_in_order_with_their_times(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", create=True) as ledger:
        fill(ledger, "created", *(f"{kind} 1" for kind in ROUND))
        assert [kind_of(event.what) for event in ledger.events()] == ["created", *ROUND]
        times = [event.time for event in ledger.events()]
        ids = [event.id for event in ledger.events()]
    assert times == sorted(times) and ids == sorted(set(ids))


def test_only_the_newest_checkpoint_is_kept(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", create=True) as ledger:
        fill(ledger, "created", "collected 1")
        for i in range(3):
            put(ledger, "checkpoint", 1, i)
        assert ledger.status().checkpoint == example("checkpoint", 2)
        fill(ledger, "stopped 1", "resumed 1")
        assert ledger.status().checkpoint == example("checkpoint", 2)
        fill(ledger, "trained 1")
        with pytest.raises(UserError, match="waits to be evaluated"):
            put(ledger, "checkpoint", 1, 3)
        assert ledger.status().checkpoint is None


def refused(path: Path, statement: str) -> bool:
    database = sqlite3.connect(path)
    try:
        database.execute(statement)
        database.commit()
        return False
    except sqlite3.IntegrityError:
        return True
    finally:
        database.close()


def test_the_database_itself_refuses_to_rewrite_history(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, create=True) as ledger:
        fill(ledger, "created", *(f"{kind} 1" for kind in ROUND), "shard 2")
    for kind in KINDS:
        there = kind in ("created", *ROUND)
        assert refused(path, f"UPDATE events SET payload = '{{}}' WHERE kind = '{kind}'") == there
        assert refused(path, f"DELETE FROM events WHERE kind = '{kind}'") == there
    for kind in ("created", "collected", "trained", "evaluated"):
        deployment = 0 if kind == "created" else 1
        row = f"(time, kind, deployment, payload) VALUES (0, '{kind}', {deployment}, '{{}}')"
        assert refused(path, f"INSERT INTO events {row}")
    with Ledger(path) as ledger:
        fill(ledger, "collected 2")
    row = "(time, deployment, payload) VALUES (0, 2, '{}')"
    assert not refused(path, f"INSERT INTO checkpoint {row}")
    assert refused(path, f"INSERT INTO checkpoint {row}")  # there is one place


# Metrics


def test_metrics_are_plain_numbers_in_the_order_of_recording(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, create=True) as ledger:
        ledger.record(1, "fit", 0, 9, {"loss": jnp.array(0.5), "n": np.int32(3), "each": np.array([1.0, math.nan])})
        ledger.record(1, "begin", 0, None, {"nan": math.nan, "inf": -math.inf, "deep": {"x": (1, jnp.array(math.nan))}})
        ledger.record(1, "fit", 1, 9, {"loss": 0.25})
        ledger.flush()
        ledger.record(1, "fit", 0, 8, {"loss": 0.125})
        ledger.record(1, "fit", 2, 8, {"loss": 1.0, "ok": True, "note": "text", "none": None})
        with pytest.raises(ValueError, match="index, of, stage"):
            ledger.record(1, "fit", 3, None, {"stage": 1, "index": 2, "of": 3})
    with Ledger(path) as ledger:
        rows = ledger.metrics()
    assert rows == [
        Row(1, "fit", 0, 8, {"loss": 0.125}),
        Row(1, "begin", 0, None, {"nan": None, "inf": None, "deep": {"x": [1, None]}}),
        Row(1, "fit", 1, 9, {"loss": 0.25}),
        Row(1, "fit", 2, 8, {"loss": 1.0, "ok": True, "note": "text", "none": None}),
    ]
    assert rows[2].plain() == {"deployment": 1, "stage": "fit", "index": 1, "of": 9, "loss": 0.25}


def test_metrics_wait_for_the_event_they_belong_to(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, create=True) as ledger, Ledger(path) as reader:
        fill(ledger, "created", "collected 1")
        ledger.record(1, "fit", 0, None, {})
        assert reader.metrics() == []
        put(ledger, "checkpoint", 1)
        assert len(reader.metrics()) == 1
        ledger.record(1, "fit", 1, None, {})
        with pytest.raises(UserError):
            put(ledger, "evaluated", 1)
        assert len(reader.metrics()) == 1
        put(ledger, "trained", 1)
        assert len(reader.metrics()) == 2


@given(st.lists(st.tuples(st.integers(1, 2), st.sampled_from("ab"), st.integers(0, 3), st.floats()), max_size=20))
def test_the_last_record_of_a_place_counts(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[int, str, int, float]]
) -> None:
    expected: dict[tuple[int, str, int], float | None] = {}
    with Ledger(tmp_path_factory.mktemp("metrics") / "ledger", create=True) as ledger:
        for deployment, stage, index, x in records:
            ledger.record(deployment, stage, index, None, {"x": x})
            expected[deployment, stage, index] = x if math.isfinite(x) else None
        found = {(row.deployment, row.stage, row.index): row.numbers["x"] for row in ledger.metrics()}
    assert found == expected and list(found) == list(expected)


# Files that are not ours


def test_a_missing_ledger_is_not_made_by_looking(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with pytest.raises(UserError, match="no campaign at"):
        Ledger(path)
    assert not path.exists()
    path.touch()  # what a process leaves that is killed while it creates the ledger
    with pytest.raises(UserError, match="no campaign at"):
        Ledger(path)
    with Ledger(path, create=True) as ledger:
        fill(ledger, "created")
    with pytest.raises(UserError, match="cannot use the ledger"):
        Ledger(tmp_path / "no" / "ledger", create=True)


def test_foreign_and_damaged_files_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no database at all" * 100)
    other = tmp_path / "other"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE cats (name)")
    database.close()
    for create in (False, True):
        with pytest.raises(UserError, match="text is damaged or not a ledger of musbo"):
            Ledger(text, create)
        with pytest.raises(UserError, match="other is a database of another program"):
            Ledger(other, create)
    cut = tmp_path / "cut"
    cut.write_bytes((GOLDEN / "run-v1" / "ledger.sqlite").read_bytes()[:9000])
    with pytest.raises(UserError, match="cut is damaged or not a ledger"), Ledger(cut) as ledger:
        ledger.events()


def test_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, create=True):
        pass
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
    database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    with pytest.raises(UserError, match="newer musbo: it has format .* Upgrade musbo"):
        Ledger(path)


def test_an_event_that_nobody_knows_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, create=True) as ledger:
        fill(ledger, "created")
    for kind, payload, words in (
        ("eaten", "{}", "an event of kind 'eaten', which musbo .* does not know"),
        ("stopped", "{}", "an event of kind stopped holds something else"),
        ("stopped", "{", "an event cannot be read"),
        ("stopped", '{"type": "event/stopped", "version": 9, "fields": {}}', "event/stopped version 9 is not known"),
        ("resumed", '{"type": "event/stopped", "version": 1, "fields": {}}', "holds something else"),
    ):
        shutil.copy(path, other := tmp_path / "other")
        forge(other, kind, payload)
        with pytest.raises(UserError, match=words), Ledger(other) as ledger:
            ledger.events()


def test_metrics_that_are_none_are_a_sentence(tmp_path: Path) -> None:
    """With hashes that are right, and in ledgers that had none."""
    sealed(tmp_path / "sound")
    for origin in (tmp_path / "sound", *(GOLDEN / name / "ledger.sqlite" for name in ("run-v1", "run-v2"))):
        for text in ("[1]", '"x"', "{", "[" * 100_000):
            shutil.copy(origin, path := tmp_path / "ledger")
            database = sqlite3.connect(path)
            database.execute("PRAGMA synchronous = OFF")
            database.execute("UPDATE metrics SET row = ?", (text,))
            if origin.name == "sound":
                rows = database.execute("SELECT deployment, stage, step, total, row FROM metrics").fetchall()
                marks = sum(int(hashlib.sha256(json.dumps(list(row)).encode()).hexdigest(), 16) for row in rows)
                database.execute("UPDATE seal SET total = ?", (f"{marks % 2**256:064x}",))
            database.commit()
            database.close()
            with pytest.raises(UserError, match="restore it from a copy"), Ledger(path) as ledger:
                ledger.metrics()


ANYTHING = """
import json, sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints
from beartype import BeartypeConf
from beartype.door import is_bearable
from musbo.campaign.events import from_text, kind_of, to_text
from musbo.campaign.ledger import Ledger
from musbo.core.errors import UserError

def places(tree, path=()):
    yield path
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(child, (*path, key))

def changed(tree, path, value):
    if not path:
        return value
    copy = tree.copy()
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy

with Ledger(Path(sys.argv[1])) as ledger:
    found = {kind_of(event.what): event.what for event in ledger.events()}
taken, refused, whole_floats = 0, 0, BeartypeConf(is_pep484_tower=True)
for kind, sound in found.items():
    tree, cls = json.loads(to_text(sound)), type(sound)
    hints = {**get_type_hints(cls), "settings": object}  # what a method is made of has checks of its own
    for path in places(tree):
        for other in ("q", [1], {"tuple": [1]}, 7.5, True, None):
            try:
                event = from_text(json.dumps(changed(tree, path, other)), cls)
            except UserError:
                refused += 1
                continue
            taken += 1
            for field in fields(event):
                value = getattr(event, field.name)
                assert is_bearable(value, hints[field.name], conf=whole_floats), (kind, path, other, value)
print(taken, refused)
"""


def test_an_event_with_anything_anywhere_is_an_event_or_a_sentence() -> None:
    """Each value of a payload in turn is something else: what is taken has the types that its class says.

    In a process of its own: in this one the classes themselves refuse another type.
    """
    done = run(ANYTHING, str(GOLDEN / "run-v3" / "ledger.sqlite"))
    assert done.returncode == 0, done.stderr
    taken, refused = map(int, done.stdout.split())
    assert refused > 1000 and taken > 100


def forge(path: Path, kind: str, payload: str) -> None:
    """Add an event whose hashes are right, as another program could."""
    database = sqlite3.connect(path)
    count, chain = database.execute("SELECT events, chain FROM seal").fetchone()
    row = (count + 1, 0.0, kind, 0, payload)
    chain = hashlib.sha256(json.dumps([chain, *row]).encode()).hexdigest()
    database.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", (*row, chain))
    database.execute("UPDATE seal SET events = ?, chain = ?", (count + 1, chain))
    database.commit()
    database.close()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("finished", '{"type": "event/finished", "version": 1, "fields": {}}'),
        ("withdrawn", '{"type": "event/withdrawn", "version": 1, "fields": {}}'),
        ("evaluated", '{"type": "event/evaluated", "version": 1, "fields": {"seconds": 1.0}}'),
    ],
)
def test_an_event_that_could_not_come_then_is_refused(tmp_path: Path, kind: str, payload: str) -> None:
    """Whoever reads does not have to think of orders that the ledger takes from nobody."""
    with Ledger(path := tmp_path / "ledger", create=True) as ledger:
        fill(ledger, "created")
    forge(path, kind, payload)
    with Ledger(path) as ledger, pytest.raises(UserError, match="event 2 cannot stand there .*restore"):
        ledger.status()


@pytest.mark.parametrize(
    ("column", "value"), [("time", "x"), ("time", -1.0), ("time", 1e300), ("deployment", "x"), ("deployment", -1)]
)
def test_rows_of_other_types_are_refused(tmp_path: Path, column: str, value: object) -> None:
    """SQLite keeps a text in a column of numbers, and its hash is right."""
    shutil.copy(GOLDEN / "campaign-v1" / "ledger.sqlite", path := tmp_path / "ledger")
    database = sqlite3.connect(path)
    database.execute("PRAGMA ignore_check_constraints = ON")
    database.execute("DROP TRIGGER events_stay_as_they_are")
    database.execute(f"UPDATE events SET {column} = ? WHERE id = 1", (value,))
    database.commit()
    database.close()
    rewritten(path, str)
    with Ledger(path) as ledger, pytest.raises(UserError, match="event 1 is no row of a ledger"):
        ledger.events()


FOREVER = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT"


@pytest.mark.parametrize(
    "script",
    [
        f"DROP TABLE metrics; CREATE VIEW metrics AS {FOREVER} 1 AS deployment, '' AS stage, x AS step, 1 AS total, "
        "'{}' AS row FROM t;",
        "DROP TABLE metrics; CREATE TABLE metrics (deployment, stage, step, total);"
        "ALTER TABLE metrics ADD COLUMN row GENERATED ALWAYS AS (hex(zeroblob(400000000))) VIRTUAL;",
        f"CREATE TRIGGER slow BEFORE INSERT ON events BEGIN {FOREVER} max(x) FROM t; END;",
        "DROP TRIGGER events_stay; CREATE TRIGGER events_stay AFTER INSERT ON events BEGIN DELETE FROM metrics; END;",
        "CREATE TABLE other (x);",
    ],
)
def test_a_ledger_that_computes_is_refused(tmp_path: Path, script: str) -> None:
    """Views and computed columns may have no end, and a trigger would run in our transactions."""
    shutil.copy(GOLDEN / "campaign-v1" / "ledger.sqlite", path := tmp_path / "ledger")
    database = sqlite3.connect(path)
    database.executescript(script)
    database.close()
    with pytest.raises(UserError, match="which no ledger of musbo has: restore it"):
        Ledger(path, writable=True)


def rewritten(path: Path, change: Callable[[str], str]) -> None:
    """Change every payload, with hashes that are right."""
    database = sqlite3.connect(path)
    for trigger in ("events_stay", "events_stay_as_they_are"):
        database.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    chain = "0" * 64
    for *row, payload, _ in database.execute("SELECT * FROM events ORDER BY id").fetchall():
        new = change(payload)
        chain = hashlib.sha256(json.dumps([chain, *row, new]).encode()).hexdigest()
        database.execute("UPDATE events SET payload = ?, digest = ? WHERE id = ?", (new, chain, row[0]))
    database.execute("UPDATE seal SET chain = ?", (chain,))
    database.commit()
    database.close()


# Changes and damage


def sealed(path: Path) -> None:
    with Ledger(path, create=True) as ledger:
        fill(ledger, "created", "shard 1", "collected 1")
        for i in range(3):
            ledger.record(1, "improve", i, 3, {"return": 1.5 * i})
        ledger.record(1, "improve", 1, 3, {"return": 9.0})  # replaces a row
        put(ledger, "checkpoint", 1)


def read_all(path: Path) -> tuple[object, ...]:
    with Ledger(path) as ledger:
        return ledger.events(), ledger.status(), ledger.metrics()


def test_the_hashes_are_what_the_format_says(tmp_path: Path) -> None:
    """By hand: every event's digest covers the one before it, and the seal covers the rest."""
    sealed(path := tmp_path / "ledger")
    database = sqlite3.connect(path)
    before = "0" * 64
    *events, (*last, chain) = database.execute("SELECT * FROM events ORDER BY id").fetchall()
    for *row, digest in (*events, (*last, chain)):
        before = hashlib.sha256(json.dumps([before, *row]).encode()).hexdigest()
        assert digest == before
    metrics = database.execute("SELECT deployment, stage, step, total, row FROM metrics").fetchall()
    total = sum(int(hashlib.sha256(json.dumps(list(row)).encode()).hexdigest(), 16) for row in metrics) % 2**256
    (checkpoint,) = database.execute("SELECT time, deployment, payload FROM checkpoint").fetchall()
    under_way = hashlib.sha256(json.dumps(list(checkpoint)).encode()).hexdigest()
    assert database.execute("SELECT * FROM seal").fetchall() == [(1, 3, chain, 3, f"{total:064x}", under_way)]
    database.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE events SET payload = replace(payload, '1', '2') WHERE id = 2", "event 2 is not what was written"),
        ("UPDATE events SET time = time + 1 WHERE id = 1", "event 1 is not what was written"),
        ("UPDATE events SET deployment = 2 WHERE id = 3", "event 3 is not what was written"),
        ("UPDATE events SET payload = CAST(payload AS BLOB) WHERE id = 3", "event 3 is not what was written"),
        ("DELETE FROM events WHERE id = 3", "it has 2 of 3 events"),
        ("DELETE FROM events WHERE id = 2", "event 3 is not what was written"),
        ("UPDATE metrics SET row = replace(row, '9.0', '8.0')", "the metrics are not what was written"),
        ("UPDATE metrics SET step = 7 WHERE step = 2", "the metrics are not what was written"),
        ("DELETE FROM metrics WHERE step = 1", "the metrics are not what was written"),
        ("UPDATE checkpoint SET payload = payload || ' '", "the checkpoint is not what was written"),
        ("DELETE FROM checkpoint", "the checkpoint is not what was written"),
        ("DELETE FROM seal", "its seal is damaged"),
        ("UPDATE seal SET total = 'x'", "its seal is damaged"),
        ("UPDATE seal SET events = 'x'", "its seal is damaged"),
    ],
)
def test_a_change_behind_our_back_is_noticed(tmp_path: Path, statement: str, words: str) -> None:
    sealed(path := tmp_path / "ledger")
    read_all(path)
    database = sqlite3.connect(path)
    for trigger in ("events_stay", "events_stay_as_they_are"):
        database.execute(f"DROP TRIGGER {trigger}")
    assert database.execute(statement).rowcount
    database.commit()
    database.close()
    with pytest.raises(UserError, match=f"was changed or damaged since it was written .{words}"):
        read_all(path)


# Kill -9

DEADLY = """
import os, signal, sqlite3, sys
from pathlib import Path

deadly, count = int(sys.argv[2]), 0

def count_down(statement):
    global count
    count += 1
    if count == deadly:
        os.kill(os.getpid(), signal.SIGKILL)

connect = sqlite3.connect

def traced(*args, **kwargs):
    database = connect(*args, **kwargs)
    database.set_trace_callback(count_down)
    return database

sqlite3.connect = traced
"""
"""Dies by SIGKILL at the statement of SQLite whose number is the second argument; 0: never."""
CAMPAIGN = (
    DEADLY
    + """
from musbo.campaign.events import Checkpoint, Collected, Evaluated, Finished, Shard, Trained
from musbo.campaign.ledger import Ledger
from musbo.campaign.status import Collect, Done, Evaluate, Finish, Train, next_step
from musbo.core.lock import lock
from tests.campaign.orders import example

with lock(Path(sys.argv[1])), Ledger(Path(sys.argv[1]) / "ledger", create=True) as ledger:
    if ledger.status().created is None:
        ledger.append(example("created"))
    while True:
        now = ledger.status()
        match next_step(now, 2):
            case Collect(d):
                if len(now.shards) < 2:
                    ledger.append(Shard(str(len(now.shards))), d)
                else:
                    ledger.append(Collected("".join(s.artefact for s in now.shards), 2, 1, None, None), d)
            case Train(d):
                start = int(now.checkpoint.state) if now.checkpoint else 0
                total = now.checkpoint.seconds if now.checkpoint else 0.0
                for i in range(start, 4):
                    total += i * d
                    ledger.record(d, "fit", i, 4, {"total": total})
                    if i % 2:
                        ledger.replace_checkpoint(Checkpoint(str(i + 1), total), d)
                ledger.append(Trained("state", "policy", total), d)
            case Evaluate(d):
                ledger.append(Evaluated(now.trained[d].seconds), d)
            case Finish():
                ledger.append(Finished())
            case Done():
                break
print(count)
"""
)


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    child = [sys.executable, "-c", script, *arguments]
    return subprocess.run(child, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def outcome(folder: Path) -> tuple[Status, list[Row]]:
    with Ledger(folder / "ledger") as ledger:
        return ledger.status(), ledger.metrics()


def test_a_campaign_killed_at_any_statement_goes_on_to_the_same_end(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = run(CAMPAIGN, str(tmp_path / "whole"), "0")
    assert whole.returncode == 0, whole.stderr
    statements = int(whole.stdout)
    expected = outcome(tmp_path / "whole")
    assert {d: item.seconds for d, item in expected[0].evaluated.items()} == {1: 6, 2: 12}
    # Each run is killed at a statement drawn at random and the next goes on from there, until one reaches the end.
    draw = random.Random(0)
    for campaign in range(3):
        folder = tmp_path / str(campaign)
        folder.mkdir()
        kills = 0
        while (done := run(CAMPAIGN, str(folder), str(draw.randint(1, statements // 2)))).returncode != 0:
            assert done.returncode == -signal.SIGKILL, done.stderr
            kills += 1
        assert kills > 0
        assert outcome(folder) == expected


WRITER = """
import sys
from pathlib import Path
from musbo.campaign.events import Checkpoint
from musbo.campaign.ledger import Ledger
from tests.campaign.orders import example

with Ledger(Path(sys.argv[1]), create=True) as ledger:
    ledger.append(example("created"))
    ledger.append(example("collected"), 1)
    for i in range(1_000_000):
        ledger.record(1, "fit", i, None, {"text": "x" * 3000})
        ledger.replace_checkpoint(Checkpoint(str(i), 0.0), 1)
        print(i, flush=True)
"""


@pytest.mark.parametrize("seed", range(6))
def test_what_was_committed_before_a_kill_is_there_whole(tmp_path: Path, seed: int) -> None:
    """The writer does nothing but commit, so the signal finds it inside SQLite."""
    path = tmp_path / "ledger"
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child, child.stdout:
        said = -1
        for _ in range(random.Random(seed).randint(1, 30)):
            said = int(child.stdout.readline())
        child.kill()
        said = max([said, *map(int, child.stdout.read().split())])
    assert child.returncode == -signal.SIGKILL
    with Ledger(path) as ledger:
        checkpoint = ledger.status().checkpoint
        assert checkpoint is not None and int(checkpoint.state) in (said, said + 1)  # it may die before the word
        assert [row.index for row in ledger.metrics()] == list(range(int(checkpoint.state) + 1))
        fill(ledger, "checkpoint 1", "trained 1", "evaluated 1", "finished")
