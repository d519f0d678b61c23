"""The ledger holds what happened, in an order that makes sense, and survives kill -9 at any moment."""

import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import musbo
from musbo.campaign.ledger import APPLICATION, VERSION, Ledger, lock
from musbo.campaign.steps import KINDS, Done, Status, next_step, status
from musbo.core.errors import UserError
from tests.campaign.orders import Machine, attempts

GOLDEN = Path(__file__).parents[1] / "golden"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(musbo.__file__).parents[1])}

ROUND = ["shard", "shard", "batch", "checkpoint", "trained", "evaluated"]


def fill(ledger: Ledger, *names: str) -> None:
    """Append events named like "batch 1"."""
    for name in names:
        kind, _, deployment = name.partition(" ")
        ledger.append(kind, int(deployment or 0), {"name": name})


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
                ledger.append(kind, deployment, {"i": i})
                expected.append((kind, deployment, {"i": i}))
            else:
                with pytest.raises(UserError):
                    ledger.append(kind, deployment, {"i": i})
    with Ledger(path, create=True) as ledger:
        assert [(event.kind, event.deployment, event.payload) for event in ledger.events()] == expected


@pytest.mark.parametrize(
    ("before", "name", "words"),
    [
        (["created"], "created", "this campaign is already created"),
        (["created", "batch 1"], "batch 1", "deployment 1 already has its batch"),
        (["created", "batch 1", "trained 1"], "trained 1", "deployment 1 is already trained"),
        (["created", "batch 1", "trained 1", "evaluated 1"], "evaluated 1", "deployment 1 is already evaluated"),
        (["created", "batch 1", "trained 1", "evaluated 1", "finished"], "finished", "campaign is already finished"),
        ([], "batch 1", "not created yet"),
        (["created"], "batch 2", "'batch' of deployment 2 cannot come now: deployment 1 waits for its batch"),
        (["created", "batch 1"], "evaluated 1", "deployment 1 waits to be trained"),
        (["created", "batch 1", "trained 1"], "checkpoint 1", "deployment 1 waits to be evaluated"),
        (["created", "batch 1", "trained 1", "evaluated 1", "shard 2"], "finished", "deployment 2 waits for its batch"),
    ],
)
def test_a_refusal_says_why_and_where(tmp_path: Path, before: list[str], name: str, words: str) -> None:
    with Ledger(tmp_path / "ledger", create=True) as ledger:
        fill(ledger, *before)
        with pytest.raises(UserError, match=f"{tmp_path}.*{words}"):
            fill(ledger, name)
        assert len(ledger.events()) == len(before)
        with pytest.raises(ValueError, match="no kind of event"):
            ledger.append("eaten", 1, {})


# The database


def test_events_of_one_kind_and_their_times(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", create=True) as ledger:
        fill(ledger, "created", *(f"{kind} 1" for kind in ROUND))
        assert [event.payload["name"] for event in ledger.events("shard")] == ["shard 1", "shard 1"]
        assert [event.kind for event in ledger.events()] == ["created", *ROUND]
        times = [event.time for event in ledger.events()]
        ids = [event.id for event in ledger.events()]
    assert times == sorted(times) and ids == sorted(set(ids))


def test_only_the_newest_checkpoint_is_kept(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", create=True) as ledger:
        fill(ledger, "created", "batch 1")
        for i in range(3):
            ledger.replace_checkpoint(1, {"i": i})
        assert [event.payload for event in ledger.events("checkpoint")] == [{"i": 2}]
        assert status(ledger.events()).checkpoint == {"i": 2}
        fill(ledger, "trained 1")
        with pytest.raises(UserError, match="waits to be evaluated"):
            ledger.replace_checkpoint(1, {"i": 3})
        assert status(ledger.events()).checkpoint is None


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
        update = refused(path, f"UPDATE events SET payload = '{{}}' WHERE kind = '{kind}'")
        assert update == (kind in ("created", *ROUND))
    for kind in ("created", "batch", "trained", "evaluated"):
        assert refused(path, f"DELETE FROM events WHERE kind = '{kind}'")
        deployment = 0 if kind == "created" else 1
        row = f"(time, kind, deployment, payload) VALUES (0, '{kind}', {deployment}, '{{}}')"
        assert refused(path, f"INSERT INTO events {row}")
    # What something newer stands for may go, and only that.
    assert not refused(path, "DELETE FROM events WHERE kind = 'shard' AND deployment = 1")
    assert refused(path, "DELETE FROM events WHERE kind = 'shard' AND deployment = 2")
    assert not refused(path, "DELETE FROM events WHERE kind = 'checkpoint'")
    with Ledger(path) as ledger:
        fill(ledger, "batch 2", "checkpoint 2")
        assert ledger.events()[-1].id == 10  # a number is not used twice
    assert refused(path, "DELETE FROM events WHERE kind = 'checkpoint'")


# Metrics


def test_metrics_are_plain_numbers_in_the_order_of_recording(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, create=True) as ledger:
        ledger.record(1, "fit", 0, {"loss": jnp.array(0.5), "n": np.int32(3), "each": np.array([1.0, math.nan])})
        ledger.record(1, "begin", 0, {"nan": math.nan, "inf": -math.inf, "deep": {"x": (1, jnp.array(math.nan))}})
        ledger.record(1, "fit", 1, {"loss": 0.25})
        ledger.flush()
        ledger.record(1, "fit", 0, {"loss": 0.125})
        ledger.record(1, "fit", 2, {"loss": 1.0, "ok": True, "note": "text", "none": None})
        with pytest.raises(ValueError, match="index, stage"):
            ledger.record(1, "fit", 3, {"stage": 1, "index": 2})
    with Ledger(path) as ledger:
        assert ledger.metrics() == [
            {"deployment": 1, "stage": "fit", "index": 0, "loss": 0.125},
            {"deployment": 1, "stage": "begin", "index": 0, "nan": None, "inf": None, "deep": {"x": [1, None]}},
            {"deployment": 1, "stage": "fit", "index": 1, "loss": 0.25},
            {"deployment": 1, "stage": "fit", "index": 2, "loss": 1.0, "ok": True, "note": "text", "none": None},
        ]


def test_metrics_wait_for_the_event_they_belong_to(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, create=True) as ledger, Ledger(path) as reader:
        fill(ledger, "created", "batch 1")
        ledger.record(1, "fit", 0, {})
        assert reader.metrics() == []
        ledger.replace_checkpoint(1, {})
        assert len(reader.metrics()) == 1
        ledger.record(1, "fit", 1, {})
        with pytest.raises(UserError):
            ledger.append("evaluated", 1, {})
        assert len(reader.metrics()) == 1
        ledger.append("trained", 1, {})
        assert len(reader.metrics()) == 2


@given(st.lists(st.tuples(st.integers(1, 2), st.sampled_from("ab"), st.integers(0, 3), st.floats()), max_size=20))
def test_the_last_record_of_a_place_counts(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[int, str, int, float]]
) -> None:
    expected: dict[tuple[int, str, int], float | None] = {}
    with Ledger(tmp_path_factory.mktemp("metrics") / "ledger", create=True) as ledger:
        for deployment, stage, index, x in records:
            ledger.record(deployment, stage, index, {"x": x})
            expected[deployment, stage, index] = x if math.isfinite(x) else None
        found = {(row["deployment"], row["stage"], row["index"]): row["x"] for row in ledger.metrics()}
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
    cut.write_bytes((GOLDEN / "ledger-v1.sqlite").read_bytes()[:5000])
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
    with pytest.raises(UserError, match="newer musbo .* upgrade"):
        Ledger(path)


def test_the_ledger_of_format_1_is_still_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    shutil.copy(GOLDEN / "ledger-v1.sqlite", path)
    with Ledger(path) as ledger:
        assert status(ledger.events()) == Status(
            settings={"task": "pendulum", "deployments": 2},
            batches={1: {"file": "b1"}},
            shards=({"file": "s3"},),
            trained={1: {"state": "t1", "policy": "p1"}},
            evaluated={1: {"returns": [1.5, -2.0]}},
        )
        assert [event.payload for event in ledger.events("checkpoint")] == [{"state": "c2"}]
        assert ledger.events("created")[0].time == 1.7e9 + 1
        assert ledger.metrics() == [
            {"deployment": 1, "stage": "fit", "index": 0, "loss": 0.5},
            {"deployment": 1, "stage": "fit", "index": 1, "loss": None},
        ]
        fill(ledger, "batch 2", "checkpoint 2", "trained 2", "evaluated 2", "finished")
        assert next_step(status(ledger.events()), 2) == Done()


# Kill -9

CAMPAIGN = """
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

from musbo.campaign.ledger import Ledger, lock
from musbo.campaign.steps import Collect, Done, Evaluate, Finish, Train, next_step, status

with lock(Path(sys.argv[1])), Ledger(Path(sys.argv[1]) / "ledger", create=True) as ledger:
    if status(ledger.events()).settings is None:
        ledger.append("created", 0, {})
    while True:
        now = status(ledger.events())
        match next_step(now, 2):
            case Collect(d):
                if len(now.shards) < 2:
                    ledger.append("shard", d, {"shard": len(now.shards)})
                else:
                    ledger.append("batch", d, {"shards": [shard["shard"] for shard in now.shards]})
            case Train(d):
                start = now.checkpoint["next"] if now.checkpoint else 0
                total = now.checkpoint["total"] if now.checkpoint else 0
                for i in range(start, 4):
                    total += i * d
                    ledger.record(d, "fit", i, {"total": total})
                    if i % 2:
                        ledger.replace_checkpoint(d, {"next": i + 1, "total": total})
                ledger.append("trained", d, {"total": total})
            case Evaluate(d):
                ledger.append("evaluated", d, {"score": now.trained[d]["total"]})
            case Finish():
                ledger.append("finished", 0, {})
            case Done():
                break
print(count)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    child = [sys.executable, "-c", script, *arguments]
    return subprocess.run(child, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def outcome(folder: Path) -> tuple[Status, list[dict[str, Any]]]:
    with Ledger(folder / "ledger") as ledger:
        return status(ledger.events()), ledger.metrics()


def test_a_campaign_killed_at_any_statement_goes_on_to_the_same_end(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = run(CAMPAIGN, str(tmp_path / "whole"), "0")
    assert whole.returncode == 0, whole.stderr
    statements = int(whole.stdout)
    expected = outcome(tmp_path / "whole")
    assert expected[0].evaluated == {1: {"score": 6}, 2: {"score": 12}}
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
from musbo.campaign.ledger import Ledger

with Ledger(Path(sys.argv[1]), create=True) as ledger:
    ledger.append("created", 0, {})
    ledger.append("batch", 1, {})
    for i in range(1_000_000):
        ledger.record(1, "fit", i, {"text": "x" * 3000})
        ledger.replace_checkpoint(1, {"i": i})
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
        (checkpoint,) = ledger.events("checkpoint")
        assert checkpoint.payload["i"] in (said, said + 1)  # it may die between the commit and the word
        assert [row["index"] for row in ledger.metrics()] == list(range(checkpoint.payload["i"] + 1))
        fill(ledger, "checkpoint 1", "trained 1", "evaluated 1", "finished")


# One process at a time

HOLDER = """
import sys
from pathlib import Path
from musbo.campaign.ledger import lock

with lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_run_one_campaign_and_a_dead_one_lets_go(tmp_path: Path) -> None:
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path)],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        with child, child.stdout:
            assert child.stdout.readline() == "held\n"
            for _ in range(2):  # to be refused does not disturb the lock
                with (
                    pytest.raises(UserError, match=rf"another process \(pid {child.pid}\) is running this campaign"),
                    lock(tmp_path),
                ):
                    pass
            child.kill()
        with lock(tmp_path):
            pass


def test_a_lock_is_for_one_holder_in_a_process_too(tmp_path: Path) -> None:
    with lock(tmp_path):
        with pytest.raises(UserError, match="already"), lock(tmp_path / "." / ""):
            pass
        refused = run(HOLDER, str(tmp_path))
        assert f"another process (pid {os.getpid()})" in refused.stderr
    assert run(HOLDER, str(tmp_path)).returncode == 0
    with pytest.raises(UserError, match="cannot lock"), lock(tmp_path / "none"):
        pass
    with pytest.raises(KeyError), lock(tmp_path):
        raise KeyError
    with lock(tmp_path):
        pass
