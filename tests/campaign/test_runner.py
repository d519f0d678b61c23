"""The circle of a campaign: whatever stops it, it goes on to the same bits; and what lies there at the end."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from musbo.algorithms.method import Foresight
from musbo.campaign import folders, measure, results, runner
from musbo.campaign.events import Agreement, kind_of
from musbo.campaign.ledger import Ledger
from musbo.campaign.news import Began, Completed, News, Training
from musbo.campaign.places import LEDGER, STORE
from musbo.campaign.settings import task_name
from musbo.campaign.summary import Summary, read_status, summary, whereabouts
from musbo.core import serial
from musbo.core.diagnostics import Quantiles
from musbo.core.errors import UserError
from musbo.data.batch import rows_of
from musbo.data.files import read_batch
from musbo.learning.explore import Seeking
from musbo.models.policy import Policy
from musbo.reporting.live import Lines
from musbo.tasks import builtin
from tests.contract import test_recipes as contract
from tests.stories import tiny


class Crash(Exception):
    """Stands for a kill: nothing is written after it."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary, list[News]]:
    """An uninterrupted campaign, its summary and its news."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    news: list[News] = []
    folders.create(folder, tiny.settings())
    return folder, runner.advance(folder, news.append), news


def events(folder: Path) -> list[str]:
    with Ledger(folder / LEDGER) as ledger:
        return [kind_of(event.what) for event in ledger.events()]


def name_of(news: News) -> str:
    """What a piece of news is about."""
    return type(news.what if isinstance(news, Completed) else news).__name__.lower()


# What a whole campaign tells and leaves


def test_the_news_tell_the_circle_in_order(finished):
    _, _, news = finished
    assert list(dict.fromkeys(map(name_of, news))) == [
        "began", "collecting", "collected", "training", "trained", "evaluated", "ended",
    ]  # fmt: skip
    assert [item.deployment for item in news if isinstance(item, Completed) and name_of(item) == "evaluated"] == [1, 2]
    stages = list(dict.fromkeys(item.metrics.stage for item in news if isinstance(item, Training)))
    assert stages == ["dynamics", "labeler", "start", "check", "improve", "done"]


def test_the_ledger_holds_one_event_per_step(finished):
    folder, _, _ = finished
    kinds = [kind for kind in events(folder) if kind != "shard"]
    assert kinds == ["created", *["collected", "trained", "evaluated"] * 2, "finished"]


def test_the_summary_says_what_came_out(finished):
    folder, found, _ = finished
    assert found.finished and found.deployed == 2 and found.transitions == 200
    assert found.returns == tuple(item.evaluation.episodes.mean_return for item in found.deployments)
    assert found.final_return == found.returns[1]
    assert found.evaluation_steps == 2 * 2 * 50  # counted apart from the transitions
    assert serial.sha256((folder / "policy.safetensors").read_bytes()) == found.policy_sha256
    assert found == summary(folder)
    plain = json.loads((folder / "summary.json").read_text())
    assert plain == found.plain()
    assert (plain["budget"], plain["deployed"], plain["transitions"], plain["batch_size"]) == (2, 2, 200, 100)
    assert plain["deployments"][0]["evaluation"]["episodes"]["mean_return"] == found.returns[0]


def test_the_returns_are_those_of_the_policies_that_were_handed_over(finished):
    folder, found, _ = finished
    for d in (1, 2):
        policy, which = results.final_policy(folder, d)
        again = measure.measure(builtin.pointmass, policy, 2, measure.evaluation_seed(tiny.settings()))
        assert which == d
        assert again.mean_return == found.returns[d - 1]


def test_settings_policy_data_and_metrics_lie_in_the_folder(finished):
    folder, found, _ = finished
    assert serial.from_json(json.loads((folder / "settings.json").read_text())) == tiny.settings()
    assert isinstance(serial.load(folder / "policy.safetensors"), Policy)
    assert [len(read_batch(folder / "data" / f"deployment-{d}.parquet")) for d in (1, 2)] == [100, 100]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert pq.read_table(folder / "metrics.parquet").num_rows == len(rows)
    improve = [row for row in rows if row["stage"] == "improve"]
    assert [(row["deployment"], row["index"]) for row in improve] == [(d, i) for d in (1, 2) for i in (1, 2, 3, 4)]
    assert all(0 <= low <= mid <= high <= 1 for row in improve for low, mid, high in [row["U"]])
    shown = {item.name: item.value for item in found.deployments[1].batch.findings.diagnostics}
    assert isinstance(shown["zeta"], Quantiles) and shown["zeta"].low <= shown["zeta"].median <= shown["zeta"].high
    assert 0 <= shown["zeta_at_cap"] <= 1
    assert found.deployments[0].batch.findings.diagnostics == ()  # random actions have none


def test_the_last_word_of_every_stage_is_kept(finished):
    """Of the fits their last error, of the updates the last U, and of the end what the method says then."""
    _, found, news = finished
    for d in (1, 2):
        reports = [item.metrics for item in news if isinstance(item, Training) and item.deployment == d]
        last = {report.stage: report for report in reports}
        kept = {item.name: item.value for item in found.deployments[d - 1].training.findings.diagnostics}
        assert kept["dynamics_error"] == pytest.approx(last["dynamics"].numbers["error"])
        assert [kept["U"].low, kept["U"].median, kept["U"].high] == last["improve"].numbers["U"]
        assert {item.name for item in last["done"].findings.diagnostics} <= set(kept)
        assert found.deployments[d - 1].training.forecast == last["done"].forecast


def test_a_method_that_rates_no_policy_is_compared_by_its_courses(tmp_path):
    """MOPO's rewards are learned from the data, so the real ones beside them are the world's own."""
    method = contract.brief(contract.method("mopo"))
    world = replace(builtin.pointmass, reward=lambda obs, act, next_obs: -1e3 * next_obs[0])  # another model reward
    asked = replace(tiny.settings(), algo="mopo", task="<pointmass>", budget=1, batch_size=500, method=method)
    folders.create(tmp_path / "run", asked, given=world)
    (row,) = runner.advance(tmp_path / "run", given=world).deployments
    found = row.evaluation
    assert found is not None and found.stretch is not None and found.episodes is not None
    assert (found.stretch.total, found.stretch.steps) == (pytest.approx(found.episodes.mean_return), 50)
    assert found.agreement is not None and found.agreement.imagined_return is not None
    assert np.isfinite(found.agreement.imagined_return) and 0 < found.agreement.imagined_steps <= 50
    assert row.training is not None and row.training.forecast is None
    assert row.imagined_per_step == found.agreement.imagined_return / found.agreement.imagined_steps


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

    model = Foresight(courses, lambda obs, act: obs[:, 0])
    found = measure.agreement(builtin.pointmass, model, real, whole, replay=True)
    assert found == Agreement(0.0, 0.0, 25.0, 25.0)


def test_a_control_with_nothing_to_pool_is_warned_of(tmp_path):
    """A batch of one episode has one lane, whose mean zeta is its own."""
    method = replace(tiny.method(), explore=Seeking(pooled=True))
    folders.create(tmp_path / "run", replace(tiny.settings(), budget=3, batch_size=50, method=method))
    written: list[str] = []
    runner.advance(tmp_path / "run", Lines(written.append))  # of which two seek
    assert sum("zeta is pooled over a single lane in 100% of the steps" in line for line in written) == 1  # once


def test_the_first_batch_is_uniformly_random(finished):
    act = read_batch(finished[0] / "data" / "deployment-1.parquet").act
    assert np.abs(act).max() <= 1
    assert abs(act.std() - 1 / np.sqrt(3)) < 0.06  # of a uniform distribution on [-1, 1]; 200 numbers


def test_another_seed_gives_another_policy(finished, tmp_path):
    folders.create(tmp_path / "run", tiny.settings(seed=1))
    assert runner.advance(tmp_path / "run").policy_sha256 != finished[1].policy_sha256


# Stopped anywhere, it goes on to the same bits


@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9], ids=["every-step", "never"])
def test_a_crash_after_any_news_changes_nothing(finished, tmp_path, checkpoint_seconds):
    """One campaign, crashed again and again: each visit goes one piece of news further than the last event."""
    folder, whole, news = finished
    folders.create(tmp_path / "run", tiny.settings())
    crashes, done = 0, None
    # Without checkpoints a visit must survive a whole training, so each one goes further than the one before.
    for patience in range(2, 10_000) if checkpoint_seconds else (2 for _ in range(10_000)):
        left = patience

        def crash(item: News) -> None:
            nonlocal left
            left -= not isinstance(item, Began)
            if left == 0:
                raise Crash

        try:
            done = runner.advance(tmp_path / "run", crash, checkpoint_seconds=checkpoint_seconds)
            break
        except Crash:
            crashes += 1
    assert crashes > 10 and done is not None
    assert done.policy_sha256 == whole.policy_sha256
    assert done.returns == whole.returns
    # What is said of every training is the same too, wherever it was interrupted.
    assert [item.training.findings for item in done.deployments if item.training] == [
        item.training.findings for item in whole.deployments if item.training
    ]
    assert _metrics(tmp_path / "run") == _metrics(folder)


def _metrics(folder: Path) -> set[tuple]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {(row["deployment"], row["stage"], row["index"], json.dumps(row, sort_keys=True)) for row in rows}


@pytest.mark.parametrize("kind", ["began", "collected", "training", "trained", "evaluated"])
def test_ctrl_c_stops_cleanly_and_the_run_goes_on(finished, tmp_path, kind):
    folder, whole, _ = finished
    folders.create(tmp_path / "run", tiny.settings())
    seen: list[str] = []

    def interrupt(item: News) -> None:
        seen.append(name_of(item))
        if seen[-1] == kind and seen.count(kind) == 1:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(runner.Interrupted):
        runner.advance(tmp_path / "run", interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert events(tmp_path / "run")[-1] == "stopped"
    assert "stopping" in seen and seen[-1] == "left"
    assert whereabouts(tmp_path / "run").now.endswith("stopped") and whereabouts(tmp_path / "run").stopped
    assert runner.advance(tmp_path / "run").policy_sha256 == whole.policy_sha256
    assert "resumed" in events(tmp_path / "run")


def test_a_stop_in_training_writes_a_checkpoint(tmp_path):
    folders.create(tmp_path / "run", tiny.settings())

    def interrupt(item: News) -> None:
        if isinstance(item, Training) and item.metrics.stage == "labeler":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(runner.Interrupted):
        runner.advance(tmp_path / "run", interrupt)
    assert events(tmp_path / "run")[-2:] == ["collected", "stopped"]
    checkpoint = read_status(tmp_path / "run").checkpoint
    assert checkpoint is not None and [stage for stage, _ in checkpoint.findings] == ["dynamics", "labeler"]
    assert whereabouts(tmp_path / "run").next_step == "train"
    assert whereabouts(tmp_path / "run").now == "training deployment 1 of 2, labeler 1 of 3, stopped"


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
        runner.advance(tmp_path / "run")
    monkeypatch.setattr(results, "write_whole", original)
    (tmp_path / "run" / ".0123456789abcdef.tmp").write_text("half a file")
    assert events(tmp_path / "run")[-1] == "evaluated"
    assert runner.advance(tmp_path / "run").policy_sha256 == finished[1].policy_sha256
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {path.name for path in finished[0].iterdir()}


def test_a_finished_run_changes_no_more(finished):
    folder, found, _ = finished
    before = events(folder)
    news: list[News] = []
    assert runner.advance(folder, news.append) == found
    assert events(folder) == before
    assert list(map(name_of, news)) == ["began"]


def test_what_nothing_refers_to_is_swept(finished):
    folder, found, _ = finished
    held = {item.training.policy for item in found.deployments}
    names = {path.name for path in (folder / STORE).iterdir()}
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
    (left,) = tmp_path.glob(".run.*.new")
    (left / "store").mkdir()
    (left / "store" / ".0123456789abcdef.tmp").write_text("half a batch")
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
        runner.advance(tmp_path / "run", given=replace(builtin.pointmass, episode_steps=51))


def test_where_no_run_is(tmp_path):
    for visit in (runner.advance, summary, folders.open_settings, results.final_policy, whereabouts):
        with pytest.raises(UserError, match="holds no run"):
            visit(tmp_path)


def test_no_policy_yet(tmp_path):
    folders.create(tmp_path / "run", tiny.settings())
    with pytest.raises(UserError, match="has no trained policy yet"):
        results.final_policy(tmp_path / "run")
    assert whereabouts(tmp_path / "run").now == "collecting deployment 1 of 2"
    assert whereabouts(tmp_path / "run").next_step == "collect"


# A task of one's own


OWN = """
from dataclasses import replace
from musbo.tasks.builtin import pointmass
TASK = replace(pointmass, name="own")
"""


def test_a_run_and_its_task_can_move_together(tmp_path, finished):
    """The file of a task is named by its path from the run, never by an absolute one."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "own.py").write_text(OWN)
    named = task_name(str(tmp_path / "here" / "own.py") + ":TASK")
    folders.create(tmp_path / "here" / "runs" / "run", replace(tiny.settings(), task=named))
    for file in (tmp_path / "here" / "runs" / "run").iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name
    (tmp_path / "here").rename(tmp_path / "there")
    done = runner.advance(tmp_path / "there" / "runs" / "run", trust_task=True)
    assert done.settings.task == "../../own.py:TASK"
    assert done.policy_sha256 == finished[1].policy_sha256


def test_a_task_whose_file_changed_is_warned_of(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    folders.create(tmp_path / "run", replace(tiny.settings(), task=task_name(str(tmp_path / "own.py") + ":TASK")))
    created = read_status(tmp_path / "run").creation
    assert created.task_digest == serial.sha256(OWN.encode())
    assert not folders.task_changed(tmp_path / "run", created)
    (tmp_path / "own.py").write_text(OWN + "# changed")
    seen: list[News] = []

    def stop(news: News) -> None:
        seen.append(news)
        raise Crash

    with pytest.raises(Crash):
        runner.advance(tmp_path / "run", stop, trust_task=True)
    assert isinstance(seen[0], Began) and [caution.kind for caution in seen[0].cautions] == ["changed task"]
