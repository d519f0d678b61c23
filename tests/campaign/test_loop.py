"""The circle of a campaign: whatever stops it, it goes on to the same bits; and what lies there at the end."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from musbo.algorithms.method import Foresight
from musbo.campaign import folders, loop, results
from musbo.campaign.ledger import Ledger
from musbo.campaign.loop import News
from musbo.campaign.store import Store
from musbo.core import serial
from musbo.core.errors import UserError
from musbo.data.batch import rows_of
from musbo.data.files import read_batch
from musbo.models.actor import Seeking
from musbo.models.policy import Policy
from musbo.report.live import Lines
from musbo.tasks import builtin
from tests.contract import test_recipes as contract
from tests.stories import tiny


class Crash(Exception):
    """Stands for a kill: nothing is written after it."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[News]]:
    """An uninterrupted campaign, its summary and its news."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    news: list[News] = []
    folders.create(folder, tiny.settings())
    return folder, loop.advance(folder, news.append), news


def events(folder: Path) -> list[str]:
    with Ledger(folder / folders.LEDGER) as ledger:
        return [event.kind for event in ledger.events()]


# What a whole campaign tells and leaves


def test_the_news_tell_the_circle_in_order(finished):
    _, _, news = finished
    kinds = [item.kind for item in news]
    assert [kind for kind in dict.fromkeys(kinds)] == [
        "begin", "collecting", "collected", "training", "trained", "evaluated", "finished",
    ]  # fmt: skip
    assert [item.deployment for item in news if item.kind == "evaluated"] == [1, 2]
    stages = list(dict.fromkeys(item.numbers["stage"] for item in news if item.kind == "training"))
    assert stages == ["dynamics", "labeler", "start", "check", "improve", "done"]


def test_the_ledger_holds_one_event_per_step(finished):
    folder, _, _ = finished
    kinds = [kind for kind in events(folder) if kind not in ("checkpoint", "shard")]
    assert kinds == ["created", *["batch", "trained", "evaluated"] * 2, "finished"]


def test_the_summary_says_what_came_out(finished):
    folder, summary, _ = finished
    assert summary["finished"] and summary["deployments"] == 2 and summary["transitions"] == 200
    assert summary["returns"] == [row["evaluated"]["return"] for row in summary["per_deployment"]]
    assert summary["final_return"] == summary["returns"][1]
    assert summary["evaluation_steps"] == 2 * 2 * 50  # counted apart from the transitions
    assert serial.sha256((folder / "policy.safetensors").read_bytes()) == summary["policy_sha256"]
    assert json.loads((folder / "summary.json").read_text()) == summary == results.summary(folder)


def test_the_returns_are_those_of_the_policies_that_were_handed_over(finished):
    folder, summary, _ = finished
    for d in (1, 2):
        policy, which = results.final_policy(folder, d)
        again = loop.measure(builtin.pointmass, policy, 2, loop.evaluation_seed(tiny.settings()))
        assert which == d
        assert again["return"] == summary["returns"][d - 1]


def test_settings_policy_data_and_metrics_lie_in_the_folder(finished):
    folder, summary, _ = finished
    assert serial.from_json(json.loads((folder / "settings.json").read_text())) == tiny.settings()
    assert isinstance(serial.load(folder / "policy.safetensors"), Policy)
    assert [len(read_batch(folder / "data" / f"deployment-{d}.parquet")) for d in (1, 2)] == [100, 100]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert pq.read_table(folder / "metrics.parquet").num_rows == len(rows)
    improve = [row for row in rows if row["stage"] == "improve"]
    assert [(row["deployment"], row["index"]) for row in improve] == [(d, i) for d in (1, 2) for i in (1, 2, 3, 4)]
    assert all(0 <= low <= mid <= high <= 1 for row in improve for low, mid, high in [row["U"]])
    batch = summary["per_deployment"][1]["batch"]
    assert batch["zeta"] == sorted(batch["zeta"]) and 0 <= batch["zeta_at_cap"] <= 1
    assert "zeta" not in summary["per_deployment"][0]["batch"]  # random actions have none


def test_a_method_that_rates_no_policy_is_compared_by_its_courses(tmp_path):
    """MOPO's rewards are learned from the data, so the real ones beside them are the world's own."""
    method = contract.brief(contract.method("mopo"))
    world = replace(builtin.pointmass, reward=lambda obs, act, next_obs: -1e3 * next_obs[0])  # another model reward
    asked = replace(tiny.settings(), algo="mopo", task="<pointmass>", deployments=1, batch=500, method=method)
    folders.create(tmp_path / "run", asked, given=world)
    (row,) = loop.advance(tmp_path / "run", given=world)["per_deployment"]
    found = row["evaluated"]
    assert (found["early_return"], found["early_length"]) == (pytest.approx(found["return"]), 50)
    assert np.isfinite(found["foreseen_return"]) and 0 < found["imagined_steps"] <= 50
    assert row["trained"]["imagined_return"] is None


def test_what_follows_a_log_is_not_compared(finished):
    """Courses that are right as long as the log lasts have no distance, wherever they go afterwards."""
    folder = finished[0]
    whole = read_batch(folder / "data" / "deployment-1.parquet")
    cut = np.r_[0:30, 50:70]  # pieces of 30 and of 20 steps, where an episode may have 50
    real = rows_of(
        replace(whole, truncated=np.isin(np.arange(len(whole)), (29, 69))), np.isin(np.arange(len(whole)), cut)
    )

    def courses(task, start, steps, actions):
        states = np.full((2, steps, task.obs_size), 1e3, np.float32)
        states[0, :30], states[1, :20] = real.next_obs[:30], real.next_obs[30:]
        return states, np.full(2, steps), np.zeros(2)

    with Ledger(folder / folders.LEDGER) as ledger:
        field = loop._Field(
            folder, tiny.settings(), builtin.pointmass, ledger, Store(folder / folders.STORE), print, Event(), 1.0
        )
        found = field.foresight(Foresight(courses, lambda obs, act: obs[:, 0]), real, replay=True)
    assert found == {"energy_distance": 0.0, "trajectory_mse": 0.0, "imagined_steps": 25.0, "real_steps": 25.0}


def test_a_control_with_nothing_to_pool_is_warned_of_once(tmp_path):
    """A batch of one episode has one lane, whose mean zeta is its own."""
    method = replace(tiny.method(), explore=Seeking(pooled=True))
    folders.create(tmp_path / "run", replace(tiny.settings(), deployments=4, batch=50, method=method))
    written: list[str] = []
    loop.advance(tmp_path / "run", Lines(written.append))  # of which three seek
    assert sum("zeta is pooled over a single lane in 100% of the steps" in line for line in written) == 1


def test_the_first_batch_is_uniformly_random(finished):
    act = read_batch(finished[0] / "data" / "deployment-1.parquet").act
    assert np.abs(act).max() <= 1
    assert abs(act.std() - 1 / np.sqrt(3)) < 0.06  # of a uniform distribution on [-1, 1]; 200 numbers


def test_another_seed_gives_another_policy(finished, tmp_path):
    folders.create(tmp_path / "run", tiny.settings(seed=1))
    assert loop.advance(tmp_path / "run")["policy_sha256"] != finished[1]["policy_sha256"]


# Stopped anywhere, it goes on to the same bits


@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9], ids=["every-step", "never"])
def test_a_crash_after_any_news_changes_nothing(finished, tmp_path, checkpoint_seconds):
    """One campaign, crashed again and again: each visit goes one piece of news further than the last event."""
    folder, whole, news = finished
    folders.create(tmp_path / "run", tiny.settings())
    crashes, summary = 0, None
    # Without checkpoints a visit must survive a whole training, so each one goes further than the one before.
    for patience in range(2, 10_000) if checkpoint_seconds else (2 for _ in range(10_000)):
        left = patience

        def crash(item: News) -> None:
            nonlocal left
            left -= item.kind != "begin"
            if left == 0:
                raise Crash

        try:
            summary = loop.advance(tmp_path / "run", crash, checkpoint_seconds=checkpoint_seconds)
            break
        except Crash:
            crashes += 1
    assert crashes > 10 and summary is not None
    assert summary["policy_sha256"] == whole["policy_sha256"]
    assert summary["returns"] == whole["returns"]
    assert _metrics(tmp_path / "run") == _metrics(folder)


def _metrics(folder: Path) -> set[tuple]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {(row["deployment"], row["stage"], row["index"], json.dumps(row, sort_keys=True)) for row in rows}


@pytest.mark.parametrize("kind", ["begin", "collected", "training", "trained", "evaluated"])
def test_ctrl_c_stops_cleanly_and_the_run_goes_on(finished, tmp_path, kind):
    folder, whole, _ = finished
    folders.create(tmp_path / "run", tiny.settings())
    seen: list[str] = []

    def interrupt(item: News) -> None:
        seen.append(item.kind)
        if item.kind == kind and seen.count(kind) == 1:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(loop.Stopped):
        loop.advance(tmp_path / "run", interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert events(tmp_path / "run")[-1] == "stopped"
    assert "stopping" in seen and seen[-1] == "stopped"
    assert results.whereabouts(tmp_path / "run")["now"].endswith("stopped")
    assert loop.advance(tmp_path / "run")["policy_sha256"] == whole["policy_sha256"]
    assert "resumed" in events(tmp_path / "run")


def test_a_stop_in_training_writes_a_checkpoint(tmp_path):
    folders.create(tmp_path / "run", tiny.settings())

    def interrupt(item: News) -> None:
        if item.kind == "training" and item.numbers["stage"] == "labeler":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(loop.Stopped):
        loop.advance(tmp_path / "run", interrupt)
    assert events(tmp_path / "run")[-2:] == ["checkpoint", "stopped"]
    assert results.whereabouts(tmp_path / "run")["now"] == "training deployment 1 of 2, labeler 1 of 3, stopped"


@pytest.mark.parametrize("lost", ["policy.safetensors", "summary.json", "metrics.jsonl", "data"])
def test_a_kill_inside_the_export_is_made_good(finished, tmp_path, lost, monkeypatch):
    """The export has no event of its own: until `finished` it is done again."""
    folders.create(tmp_path / "run", tiny.settings())
    original = results.write_whole

    def dies(path: Path, data: bytes) -> None:
        if path.name == lost or (lost == "data" and path.name == "metrics.jsonl"):
            raise Crash
        original(path, data)

    monkeypatch.setattr(results, "write_whole", dies)
    with pytest.raises(Crash):
        loop.advance(tmp_path / "run")
    monkeypatch.setattr(results, "write_whole", original)
    (tmp_path / "run" / ".0123456789abcdef.tmp").write_text("half a file")
    assert events(tmp_path / "run")[-1] == "evaluated"
    summary = loop.advance(tmp_path / "run")
    assert summary["policy_sha256"] == finished[1]["policy_sha256"]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {path.name for path in finished[0].iterdir()}


def test_a_finished_run_changes_no_more(finished):
    folder, summary, _ = finished
    before = events(folder)
    news: list[News] = []
    assert loop.advance(folder, news.append) == summary
    assert events(folder) == before
    assert [item.kind for item in news] == ["begin"]


def test_what_nothing_refers_to_is_swept(finished):
    folder, summary, _ = finished
    held = {row["trained"]["policy"] for row in summary["per_deployment"]}
    names = {path.name for path in (folder / folders.STORE).iterdir()}
    # Two policies, two batches and the last state.
    assert held <= names and len(names) == 5


# Creating


def test_a_process_killed_while_it_creates_leaves_nothing_behind(tmp_path, monkeypatch):
    def dies(*args: Any) -> None:
        raise Crash

    monkeypatch.setattr(os, "rename", dies)
    with pytest.raises(Crash):
        folders.create(tmp_path / "run", tiny.settings())
    monkeypatch.undo()
    assert not (tmp_path / "run").exists()
    (tmp_path / ".run.new" / "store").mkdir()
    (tmp_path / ".run.new" / "store" / ".0123456789abcdef.tmp").write_text("half a batch")
    folders.create(tmp_path / "run", tiny.settings())
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert events(tmp_path / "run") == ["created"]
    assert not (tmp_path / "run" / "store").exists()


def test_an_empty_folder_is_used_and_a_full_one_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    folders.create(tmp_path / "empty", tiny.settings())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not empty"):
        folders.create(tmp_path / "full", tiny.settings())
    with pytest.raises(UserError, match="already holds a run: continue it with `musbo resume"):
        folders.create(tmp_path / "empty", tiny.settings())
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        folders.create(tmp_path / "file", tiny.settings())
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another --out"):
        folders.create(tmp_path / "file" / "run", tiny.settings())


def test_a_task_that_changed_is_refused(tmp_path):
    folders.create(tmp_path / "run", tiny.settings())
    with pytest.raises(UserError, match="is not what this run began with"):
        loop.advance(tmp_path / "run", given=replace(builtin.pointmass, episode_steps=51))


def test_where_no_run_is(tmp_path):
    for visit in (loop.advance, results.summary, folders.open_settings, results.final_policy, results.whereabouts):
        with pytest.raises(UserError, match="holds no run"):
            visit(tmp_path)


def test_no_policy_yet(tmp_path):
    folders.create(tmp_path / "run", tiny.settings())
    with pytest.raises(UserError, match="has no trained policy yet"):
        results.final_policy(tmp_path / "run")
    assert results.whereabouts(tmp_path / "run")["now"] == "collecting deployment 1 of 2"
