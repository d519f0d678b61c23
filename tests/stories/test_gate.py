"""The gate from end to end: a verdict before every deployment, and its score afterwards, on the point mass."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import musbo
from musbo.campaign import gating
from musbo.campaign.events import Judged
from musbo.campaign.field_campaign import Campaign
from musbo.campaign.history import history
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.data.rewards import model_rewards
from musbo.gate.verdict import Rule
from musbo.tasks import builtin
from tests.stories.test_rounds import copy, deploy, imitating, logs

UNSURE, STRICT, EASY = Rule(pass_below=0.0, stop_above=1.0), Rule(pass_below=0.0, stop_above=0.0), Rule(pass_below=1.1)
"""Whose verdict is the same whatever the evidence."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gating, "REFIT", replace(gating.REFIT, members=2, hidden=(8,), epochs=2))
    monkeypatch.setattr(gating, "FITTED", replace(gating.FITTED, seeds=2, hidden=(8,), steps=20))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with logs and a candidate; tests take copies."""
    campaign = imitating(tmp_path_factory.mktemp("gate") / "campaign", 3, [logs(episodes=4)])
    campaign.train()
    return campaign.folder


@pytest.fixture
def campaign(trained: Path, tmp_path: Path) -> Campaign:
    return copy(trained, tmp_path / "campaign")


def ruled(monkeypatch: pytest.MonkeyPatch, rule: Rule) -> None:
    monkeypatch.setattr(gating, "Rule", lambda: rule)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_campaign_with_a_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """new, train, gate, export, ingest, train, gate, history: forecast and truth stand side by side."""
    folder, first, batch = str(tmp_path / "campaign"), tmp_path / "logs.parquet", logs(episodes=4)
    musbo.write_batch(first, batch)
    small = ["--budget", "3", "--batch-size", "100", "--preset", "quick", "--algo", "bc"]
    assert main(["new", "pointmass", "--data", str(first), "--out", folder, *small]) == 0
    assert main(["gate", folder]) == 2  # there is no policy yet
    assert "no policy to judge yet" in capsys.readouterr().err
    assert "musbo gate" in said(capsys, "train", folder)["next"]

    ruled(monkeypatch, EASY)
    verdict = said(capsys, "gate", folder)
    logged = batch.returns()
    assert (verdict["verdict"], verdict["go"], verdict["round"], verdict["candidate"]) == ("GO", True, 2, 1)
    assert verdict["incumbent"]["policy"] == "" and verdict["incumbent"]["earned"] == pytest.approx(logged.mean())
    assert verdict["margin"] == pytest.approx(0.1 * logged.std()) and verdict["earlier"] == []
    assert {theirs for _, theirs in verdict["evidence"]["models"]} == {verdict["incumbent"]["earned"]}
    assert verdict["next_step"] == "export" and "was judged a GO" in verdict["next"]
    page = Path(verdict["page"])
    assert page == Path(folder) / "gate" / f"round-2-{verdict['policy'][:8]}.html" and "GO: what is" in page.read_text()
    before = len(Campaign(folder).history())
    assert said(capsys, "gate", folder) == verdict and len(Campaign(folder).history()) == before

    bundle = Path(said(capsys, "export", folder)["folder"])
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["verdict"] == f"GO: {verdict['reasons'][0]}"
    recording = deploy(bundle, tmp_path / "monday.musbo", 1, episodes=3)
    assert main(["ingest", folder, str(recording), "--accept"]) == 0
    earned = musbo.read_batch(recording).returns().mean()
    truth = earned - logged.mean()
    row = said(capsys, "status", folder)["rounds"][1]
    assert row["forecast"]["truth"] == pytest.approx(truth, rel=1e-6)
    assert row["forecast"] == {**verdict["forecast"], **{n: row["forecast"][n] for n in ("truth", "covered", "crps")}}
    assert row["forecast"]["covered"] == (verdict["forecast"]["low"] <= truth <= verdict["forecast"]["high"])
    assert row["forecast"]["crps"] > 0

    assert main(["train", folder]) == 0
    ruled(monkeypatch, UNSURE)
    second = said(capsys, "gate", folder, "--page", str(tmp_path / "page.html"), code=4)
    assert second["incumbent"]["policy"] == verdict["policy"]
    assert second["incumbent"]["earned"] == pytest.approx(earned, rel=1e-6)
    assert second["incumbent"]["behaviour"] == pytest.approx(logged.mean())
    assert second["margin"] == pytest.approx(0.1 * abs(truth), rel=1e-5)
    assert second["earlier"] == [{"round": 2, **row["forecast"]}]
    assert any("1 earlier forecast of this campaign" in each for each in second["reasons"])
    assert "What would settle it" in (tmp_path / "page.html").read_text()

    every = said(capsys, "history", folder)["events"]
    assert [each["kind"] for each in every].count("judged") == 2
    (home,) = [each for each in every if each["kind"] == "collected" and each["deployment"] == 2]
    assert home["forecast"] == row["forecast"] and "came true" in home["text"] and "CRPS" in home["text"]
    assert main(["history", folder]) == 0
    out = capsys.readouterr().out
    assert "GO: It is forecast to earn" in out and "NEED-DATA: It is forecast" in out and "came true" in out
    assert main(["status", folder]) == 0
    out = capsys.readouterr().out
    assert "round 2: gain over the incumbent forecast" in out and "round 3: gain over the incumbent" in out
    report = Path(musbo.report(folder, film=False).page).read_text()
    assert 'id="table-forecasts"' in report and "came true" in report
    assert main(["verify", folder]) == 0


def test_what_is_not_a_go_stays(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = str(campaign.folder)
    ruled(monkeypatch, UNSURE)
    asked = said(capsys, "gate", folder, code=4)
    assert (asked["verdict"], asked["go"], asked["next_step"]) == ("NEED-DATA", False, "train")
    for part in ("nobody knows yet", "musbo train", "musbo gate", "--override"):
        assert part in asked["next"]
    assert "--bundle" not in asked["next"]  # nothing ever left
    with pytest.raises(UserError, match="judged a NEED-DATA"):
        campaign.export()
    assert campaign.status().rounds[1].verdict == f"NEED-DATA: {asked['reasons'][0]}"

    ruled(monkeypatch, STRICT)
    assert main(["gate", folder, "--margin", "0"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("NO-GO\n") and "as --margin says" in out and "the verdict as a page" in out
    with pytest.raises(UserError, match="judged a NO-GO"):
        campaign.export()

    passed = said(capsys, "gate", folder, "--override", "an expert stands by")
    assert (passed["verdict"], passed["go"], passed["override"]) == ("NO-GO", True, "an expert stands by")
    assert "its verdict, NO-GO, was overridden" in passed["next"]
    bundle = campaign.export()
    manifest = json.loads((bundle.folder / "manifest.json").read_text())
    assert manifest["verdict"].startswith("NO-GO, overridden: an expert stands by. The gate: It is forecast")
    kept = [event.what for event in campaign.history() if isinstance(event.what, Judged)]
    assert [(each.word, each.go) for each in kept] == [("NEED-DATA", False), ("NO-GO", False), ("NO-GO", True)]


def test_a_person_has_the_last_word(campaign: Campaign, monkeypatch: pytest.MonkeyPatch):
    """The forecast is scored all the same."""
    ruled(monkeypatch, UNSURE)
    gain = campaign.gate().ruling.gain
    campaign.judge(True, "replayed on last week's logs")
    bundle = campaign.export()
    campaign.ingest([deploy(bundle.folder, campaign.folder.parent / "monday.musbo", 1)], accept=True)
    (line,) = [each for each in history(campaign.folder) if each.kind == "collected" and each.deployment == 2]
    assert line.forecast is not None and line.forecast.gain == gain.mean and line.forecast.truth is not None


def test_the_candidate_that_is_named(campaign: Campaign, monkeypatch: pytest.MonkeyPatch):
    campaign.train(again=True)
    ruled(monkeypatch, EASY)
    first, second = campaign.gate(1), campaign.gate()
    assert (first.candidate, second.candidate) == (1, 2) and first.judged.policy != second.judged.policy
    assert first.ruling.evidence.models != second.ruling.evidence.models
    with pytest.raises(UserError, match="no candidate 3"):
        campaign.gate(3)
    ruled(monkeypatch, STRICT)
    campaign.gate(1, margin=0.0)
    campaign.export()  # the second one, which passed
    with pytest.raises(UserError, match="judged a NO-GO"):
        campaign.export(candidate=1)


def test_what_is_refused(campaign: Campaign):
    before = campaign.history()
    with pytest.raises(UserError, match="say why the verdict is overridden"):
        campaign.gate(override=" ")
    with pytest.raises(UserError, match="the margin is a loss"):
        campaign.gate(margin=-1.0)
    assert campaign.history() == before


def test_the_controller_of_the_site_is_the_incumbent_until_a_policy_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    campaign = imitating(tmp_path / "campaign")
    with pytest.raises(UserError, match="no policy to judge yet"):
        campaign.gate()
    began = campaign.export(limits={"noise": 0.3, "obs_low": -5.0, "obs_high": 5.0})
    campaign.ingest([deploy(began.folder, tmp_path / "sunday.musbo", 1, episodes=3)], accept=True)
    campaign.train()
    ruled(monkeypatch, UNSURE)
    found = campaign.gate()
    assert found.beside.policy == "" and found.beside.earned == found.beside.behaviour
    assert f"--bundle {began.id[:12]}" in campaign.next.text  # more data of the controller would help


def test_another_reward_counts_in_what_follows(tmp_path: Path):
    """What was forecast before is worth nothing, and truth and incumbent are in the new reward."""
    once = replace(builtin.pointmass, name="own")
    own = once.reward
    assert callable(own)
    twice = replace(once, reward=lambda obs, act, next_obs: 2 * own(obs, act, next_obs))
    folder = tmp_path / "campaign"
    campaign = Campaign.new(once, data=[logs()], algo="bc", preset="quick", budget=4, batch_size=100, out=folder)
    campaign.train()
    campaign.gate(override="to see")
    sent = campaign.export()
    campaign = Campaign(folder, task=twice)
    campaign.amend(reward=True)
    recording = deploy(sent.folder, tmp_path / "2.musbo", 1)
    campaign.ingest([recording], accept=True)
    assert campaign.status().rounds[1].forecast is None
    campaign.train()
    found = campaign.gate(override="to see")
    batch = musbo.read_batch(recording)
    assert found.beside.earned == pytest.approx(2 * model_rewards(once, batch).reshape(2, 50).sum(1).mean(), rel=1e-5)
    recording = deploy(campaign.export().folder, tmp_path / "3.musbo", 2)
    campaign.ingest([recording], accept=True)
    earned = 2 * model_rewards(once, musbo.read_batch(recording)).reshape(2, 50).sum(1).mean()
    said = campaign.status().rounds[2].forecast
    assert said is not None and said.truth == pytest.approx(earned - found.beside.earned, rel=1e-4)


def test_limits_that_it_would_touch(campaign: Campaign, monkeypatch: pytest.MonkeyPatch):
    campaign.amend(limits={"change": 1e-4})
    found = campaign.gate(margin=1.0)
    assert [each.allowed for each in found.held] == [pytest.approx(5e-5)] * 2 and all(each.over for each in found.held)
    assert sum("the runtime holds it back" in each for each in found.ruling.reasons) == 2


def test_a_page_tells_who_decides_what_matters(campaign: Campaign, monkeypatch: pytest.MonkeyPatch):
    """The verdict first; nothing is loaded from elsewhere."""
    from musbo.reporting.gate_page import write_page

    ruled(monkeypatch, UNSURE)
    found = campaign.gate(override="<b>an expert</b>")
    text = write_page(campaign.folder, found).read_text()
    heads = re.findall(r"<h2>(.*?)</h2>", text)
    assert heads == [
        "Verdict", "Forecast", "Where it would go", "Limits", "What would settle it", "Earlier forecasts", "Glossary",
    ]  # fmt: skip
    assert "&lt;b&gt;an expert&lt;/b&gt;" in text and "<b>an expert" not in text
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", text) and "<svg" in text
    plain = re.sub(r"<[^>]*>", "", text)
    assert all(name in plain for name, _ in found.ruling.evidence.outside)
    with pytest.raises(UserError, match="choose another --page"):
        write_page(campaign.folder, found, campaign.folder / "ledger.sqlite" / "page.html")
