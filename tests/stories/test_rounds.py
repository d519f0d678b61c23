"""A campaign without a simulator: bundles leave, recordings come home, and nothing is lost, doubled or mixed up."""

import json
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import musbo
from musbo.campaign import folders
from musbo.campaign.events import Exported
from musbo.campaign.field_campaign import Campaign
from musbo.campaign.history import history
from musbo.campaign.runner import looked_at
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.data.batch import make_batch
from musbo.field.runtime import Runtime
from musbo.tasks import builtin
from tests.stories import tiny


def plant(random: np.random.Generator) -> Iterator[tuple[np.ndarray, float]]:
    """A double integrator, much like the point mass: yields observation and last reward, and is sent an action."""
    position, velocity, reward = random.uniform(-1, 1, 2), np.zeros(2), 0.0
    while True:
        action = yield np.concatenate([position, velocity]), reward  # type: ignore[misc]
        action = np.asarray(action)
        velocity = velocity + 0.1 * action
        position = position + 0.1 * velocity
        reward = -float(position @ position) - 0.01 * float(action @ action)


def deploy(bundle: Path, recording: Path, seed: int, steps: int = 50, episodes: int = 2) -> Path:
    """What the site does: numpy alone."""
    random = np.random.default_rng(seed)
    with Runtime(bundle, fallback=[0.0, 0.0], record=recording, seed=seed) as controller:
        for _ in range(episodes):
            world = plant(random)
            obs, reward = next(world)
            controller.begin()
            for step in range(steps):
                action = controller.act(obs, reward=reward if step else None)
                obs, reward = world.send(action)  # type: ignore[attr-defined]
            controller.end(obs, reward=reward)
    return recording


def logs(seed: int = 7, steps: int = 50, episodes: int = 2) -> musbo.Batch:
    """What the site's own controller did before."""
    random, rows = np.random.default_rng(seed), []
    for episode in range(episodes):
        world = plant(random)
        obs, _ = next(world)
        for step in range(steps):
            act = np.clip(-obs[:2] - obs[2:] + random.normal(0, 0.3, 2), -1, 1)
            after, reward = world.send(act)  # type: ignore[attr-defined]
            rows.append((obs, act, reward, after, step == steps - 1, episode, step))
            obs = after
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    names = ("obs", "act", "reward", "next_obs", "truncated", "episode", "step")
    return make_batch(**dict(zip(names, columns, strict=True)), terminated=np.zeros(len(rows), bool))


def begin(place: Path, budget: int = 3) -> Campaign:
    return Campaign.new(
        "pointmass", data=[logs()], preset="quick", budget=budget, batch_size=100, method=tiny.method(), out=place
    )


def imitating(place: Path, budget: int = 3, data: Sequence[musbo.Batch] = ()) -> Campaign:
    """With a method whose training is short, for what does not depend on it."""
    return Campaign.new("pointmass", data=data, algo="bc", preset="quick", budget=budget, batch_size=100, out=place)


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign whose round 2 is in the field; tests take copies."""
    folder = tmp_path_factory.mktemp("rounds") / "campaign"
    campaign = begin(folder)
    campaign.train()
    campaign.export()
    return folder


@pytest.fixture
def campaign(sent: Path, tmp_path: Path) -> Campaign:
    return copy(sent, tmp_path / "campaign")


def copy(folder: Path, place: Path) -> Campaign:
    shutil.copytree(folder, place)
    return Campaign(place)


def test_a_whole_campaign_from_python(tmp_path: Path):
    campaign = begin(tmp_path / "campaign")
    assert campaign.next.verb == "train"
    with pytest.raises(UserError, match="nothing to export yet"):
        campaign.export()
    campaign.train()
    assert campaign.next.verb == "export"
    sizes = (30, 120)  # neither is what was planned
    for number, steps in zip((2, 3), sizes, strict=True):
        bundle = campaign.export()
        assert bundle.explores and campaign.next.verb == "ingest"
        before = campaign.history()
        assert campaign.export() == bundle and campaign.history() == before
        recording = deploy(bundle.folder, tmp_path / f"{number}.musbo", number, steps)
        came = campaign.ingest([recording], accept=True)
        assert (came.round, came.transitions, came.again) == (number, 2 * steps, False)
        assert any("than planned" in finding.kind for finding in came.findings)
        before = campaign.history()
        assert campaign.ingest([recording]).again and campaign.history() == before
        assert campaign.next.verb == "train"
        campaign.train()
    assert campaign.next.verb == "done"
    final = campaign.export()
    assert not final.explores and campaign.status().summary.deployed == 3
    with pytest.raises(UserError, match="left when the budget was spent: nothing is awaited"):
        campaign.ingest([deploy(final.folder, tmp_path / "final.musbo", 9)])
    said = campaign.status()
    assert [each.state for each in said.rounds] == ["returned"] * 3
    assert said.summary.transitions == 100 + 60 + 240
    assert campaign.verify().problems == ()
    assert (campaign.folder / "policy.safetensors").is_file()
    campaign.amend(budget=4)
    assert campaign.next.verb == "export" and campaign.export().explores


def test_a_whole_campaign_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder, first = str(tmp_path / "campaign"), tmp_path / "logs.parquet"
    musbo.write_batch(first, logs())

    def said(*words: str, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*words, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    words = ["--budget", "2", "--batch-size", "100", "--preset", "quick", *tiny.METHOD]
    assert said("new", "pointmass", "--data", str(first), "--out", folder, *words)["next_step"] == "train"
    assert said("train", folder)["next_step"] == "export"
    bundle = said("export", folder)
    assert bundle["next_step"] == "ingest" and said("export", folder)["id"] == bundle["id"]
    assert said("withdraw", folder, "2")["next_step"] == "export"
    bundle = said("export", folder)
    assert not said("abandon", folder, "2", "--never-ran")["spent"]
    assert said("export", folder, "--bundle", bundle["id"][:6])["id"] == bundle["id"]
    recording = deploy(Path(bundle["folder"]), tmp_path / "monday.musbo", 1)
    assert said("ingest", folder, str(recording), "--accept")["next_step"] == "train"
    assert said("ingest", folder, str(recording))["again"]
    status = said("status", folder)
    assert (status["budget"], status["deployed"], status["next_step"], status["transitions"]) == (2, 2, "train", 200)
    assert said("train", folder)["next_step"] == "done"
    final = said("export", folder)
    assert not final["explores"] and said("status", folder)["deployed"] == 2
    assert main(["verify", folder, final["folder"], final["archive"]]) == 0
    for verb in ("status", "history"):
        assert main([verb, folder]) == 0
    assert "exported" in capsys.readouterr().out


def test_a_round_that_is_spent_brings_no_data(campaign: Campaign, tmp_path: Path):
    bundle = campaign.export()
    with pytest.raises(UserError, match="round 3 has no bundle in the field"):
        campaign.abandon(3, spent="lost")
    with pytest.raises(UserError, match="say why"):
        campaign.abandon(2, spent=" ")
    campaign.abandon(2, spent="the disk was lost")
    said = campaign.status()
    assert said.summary.deployed == 2 and said.rounds[1].reason == "the disk was lost"
    assert [each.state for each in said.rounds] == ["returned", "abandoned", "candidate"]
    late = deploy(bundle.folder, tmp_path / "late.musbo", 1)
    after = campaign.export()  # the same policy, for another round
    assert after.id != bundle.id and golden_of(after) == golden_of(bundle)
    with pytest.raises(UserError, match="belongs to round 2, which was abandoned as spent"):
        campaign.ingest([late], accept=True)
    campaign.ingest([deploy(after.folder, tmp_path / "3.musbo", 1)], accept=True)
    campaign.train()
    assert campaign.next.verb == "done" and campaign.verify().problems == ()


def test_what_was_called_back_is_refused(campaign: Campaign, tmp_path: Path):
    recording = deploy(campaign.export().folder, tmp_path / "monday.musbo", 1)
    first = campaign.export().id
    campaign.withdraw(2)
    assert campaign.status().rounds[1].called_back == 1 and campaign.status().rounds[1].state == "withdrawn"
    with pytest.raises(UserError, match="called back from round 2: if it ran after all, `musbo export .* --bundle"):
        campaign.ingest([recording], accept=True)
    with pytest.raises(UserError, match="nothing to call back"):
        campaign.withdraw(2)
    assert campaign.status().summary.deployed == 1
    assert campaign.export().id != first  # recordings of the two can be told apart
    with pytest.raises(UserError, match="called back from round 2"):
        campaign.ingest([recording], accept=True)
    assert campaign.export(bundle=first).id == first  # it ran after all
    assert campaign.ingest([recording], accept=True).transitions == 100


def test_a_withdrawn_round_is_shown_with_its_reason_and_costs_nothing(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
):
    before = campaign.status().summary
    assert main(["withdraw", str(campaign.folder), "2", "--reason", "the valve sticks"]) == 0
    assert "what left for it was called back" in capsys.readouterr().out
    said = campaign.status()
    (back,) = said.rounds[1].withdrawals
    assert said.rounds[1].state == "withdrawn" and back.reason == "the valve sticks"
    assert (said.summary.deployed, said.summary.transitions) == (before.deployed, before.transitions)
    when = datetime.fromtimestamp(back.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    assert main(["status", str(campaign.folder)]) == 0
    out = capsys.readouterr().out
    sentence = f"round 2 was withdrawn on {when}, and nothing was spent: the valve sticks"
    assert "withdrawn" in out and sentence in out
    assert main(["status", str(campaign.folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["rounds"][1]["withdrawals"] == [{"time": back.time, "reason": "the valve sticks"}]
    assert (shown["deployed"], shown["next_step"]) == (1, "export")
    assert main(["history", str(campaign.folder)]) == 0
    assert "called back, and nothing is spent: the valve sticks" in capsys.readouterr().out
    written = musbo.report(campaign.folder, film=False)
    page = Path(written.page).read_text()
    assert f"R{sentence[1:]}." in page and "<td>withdrawn</td>" in page

    # It is open: what follows decides what it is.
    campaign.judge(False, "too bold")
    assert campaign.status().rounds[1].state == "gated"
    campaign.judge(True, "calm after all")
    campaign.export()
    assert campaign.status().rounds[1].state == "exported"
    campaign.judge(False, "too bold, seen too late")
    campaign.abandon(2)
    row = campaign.status().rounds[1]
    assert (row.state, row.withdrawals[1].reason) == ("withdrawn", "it never ran")
    assert campaign.status().summary.deployed == 1
    assert campaign.next.verb == "train" and "NO-GO" in campaign.next.text


def test_looking_says_what_comes_next_too(campaign: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder, sent = str(campaign.folder), campaign.export()

    def said(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*words]) == code
        return capsys.readouterr().out

    text = campaign.next.text
    for words in (["history", folder], ["verify", folder]):
        assert f"next: {text}" in said(*words)
    shown = json.loads(said("history", folder, "--json"))
    assert (shown["next_step"], shown["next"]) == ("ingest", text)
    assert [each["kind"] for each in shown["events"]][:2] == ["created", "collected"]
    shown = json.loads(said("verify", folder, str(sent.archive), "--json"))
    assert (shown[folder]["next_step"], shown[folder]["next"]) == ("ingest", text)
    assert "as its README.md says" in shown[str(sent.archive)]["next"]
    shutil.copytree(folder, tmp_path / "copy")
    campaign.withdraw(2)
    assert "next:" not in said("verify", folder, str(tmp_path / "copy"))  # where they part, that is what comes first

    campaign = Campaign(tmp_path / "copy")
    file = str(deploy(sent.folder, tmp_path / "monday.musbo", 1))
    words = ["check", file, "--campaign", str(campaign.folder)]
    warned = any(finding.level == "warning" for seen in campaign.check([file]).seen for finding in seen.findings)
    bring = f"bring them home: `musbo ingest {campaign.folder} {file}{' --accept' * warned}`"
    assert bring in said(*words).splitlines()[-1]
    shown = json.loads(said(*words, "--json"))
    assert shown["next_step"] == "ingest" and bring in shown["next"] and shown["logs"][0]["transitions"] == 100
    stranger = str(deploy(sent.folder, tmp_path / "short.musbo", 1, steps=1, episodes=1))
    assert "correct what is wrong" in said("check", stranger, "--campaign", str(campaign.folder), code=2)
    campaign.ingest([file], accept=True)
    assert json.loads(said(*words, "--json"))["next"] == campaign.next.text
    assert "next: give --task" in said("check", file)
    assert f"`musbo new pointmass --data {file}`" in said("check", file, "--task", "pointmass")


def test_a_bundle_and_a_campaign_are_verified_from_python(campaign: Campaign):
    sent = campaign.export()
    for place in (campaign.folder, str(campaign.folder), sent.folder, sent.archive):
        found = musbo.verify(place)
        assert isinstance(found, musbo.Verified) and found.problems == ()
    assert musbo.verify(campaign.folder) == campaign.verify()
    (sent.folder / "policy.h").write_text("/* another */")
    assert "policy.h is not what was exported" in musbo.verify(sent.folder).problems[0]
    (policy, *_) = (campaign.folder / "store").glob("*.safetensors")
    policy.write_bytes(policy.read_bytes()[:-1])
    assert "is damaged" in musbo.verify(campaign.folder).problems[0]
    (campaign.folder / "ledger.sqlite").write_bytes(b"nothing")
    with pytest.raises(UserError):
        musbo.verify(campaign.folder)


def test_errors_and_warnings_change_nothing(campaign: Campaign, tmp_path: Path):
    before = campaign.history()
    batch = logs(3)
    musbo.write_batch(tmp_path / "unnamed.parquet", batch)
    with pytest.raises(UserError, match="nothing says which bundle made these data"):
        campaign.ingest([tmp_path / "unnamed.parquet"])
    batch.obs[5] = np.nan
    musbo.write_batch(tmp_path / "broken.parquet", batch)
    with pytest.raises(UserError, match="error"):
        campaign.ingest([tmp_path / "broken.parquet"], accept=True)
    with pytest.raises(UserError, match="cannot be read"):
        campaign.ingest([tmp_path / "missing.musbo"], accept=True)
    assert campaign.history() == before


def test_copies_that_went_on_apart_are_found_out(sent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one, other = copy(sent, tmp_path / "one"), copy(sent, tmp_path / "other")
    recording = deploy(one.export().folder, tmp_path / "2.musbo", 1)
    for each in (one, other):  # both have the round open, and both are right
        each.ingest([recording], accept=True)
        each.train()
    assert main(["verify", str(one.folder), str(other.folder)]) == 0
    assert "part after event" in capsys.readouterr().out
    assert main(["verify", str(one.folder), str(other.folder), "--json"]) == 0
    assert "part after event" in json.loads(capsys.readouterr().out)[str(other.folder)]["copy"]
    assert "part after event" in (one.parts_from(other) or "")
    stranger = deploy(other.export().folder, tmp_path / "3.musbo", 2)
    for network in ("policy", "dynamics"):
        with pytest.raises(UserError, match="change the size of a network"):
            one.train(again=True, settings={f"{network}.hidden": (8,)})
    one.export()
    before = one.history()
    with pytest.raises(UserError, match="no event here has this hash.*copy of this one that went on"):
        one.ingest([stranger], accept=True)
    assert one.history() == before
    other.ingest([stranger], accept=True)


def test_a_recording_belongs_to_the_copy_that_exported_its_bundle(sent: Path, tmp_path: Path):
    """Copied while nothing was in the field: what left one of the two comes home there, and nowhere else."""
    original = copy(sent, tmp_path / "original")
    original.withdraw(2)
    moved = copy(original.folder, tmp_path / "moved")
    first = deploy(moved.export().folder, tmp_path / "moved.musbo", 1)
    with pytest.raises(UserError, match="never left this campaign, though it knows"):
        original.ingest([first], accept=True)
    original.export(limits={"noise": 0.1})  # it goes on by itself, with another bundle
    other = deploy(original.export(limits={"noise": 0.1}).folder, tmp_path / "original.musbo", 2)
    for home, own, strange in ((moved, first, other), (original, other, first)):
        before = home.history()
        with pytest.raises(UserError, match="never left this campaign, though it knows the campaign up to event"):
            home.ingest([strange], accept=True)
        (seen,) = home.check([strange]).seen
        assert [each.kind for each in seen.findings if each.level == "error"] == ["another bundle"]
        assert home.history() == before
        assert home.ingest([own], accept=True).transitions == 100
        with pytest.raises(UserError, match="a copy that went on by itself exported it, so ingest it there"):
            home.ingest([strange], accept=True)
        home.train()
    # What leaves from now on follows an event that the other never had.
    third = {each.folder.name: deploy(each.export().folder, tmp_path / f"{each.folder.name}-3.musbo", 3)
             for each in (moved, original)}  # fmt: skip
    for home, strange in ((moved, third["original"]), (original, third["moved"])):
        with pytest.raises(UserError, match="no event here has this hash.*copy of this one that went on"):
            home.ingest([strange], accept=True)
        assert home.ingest([third[home.folder.name]], accept=True).round == 3
        assert home.verify().problems == ()


def test_another_candidate_takes_the_place_of_the_first(campaign: Campaign):
    first = campaign.export()
    campaign.train(again=True, settings={"updates": 2})
    second = campaign.export()
    assert first.id != second.id and campaign.status().rounds[1].candidates == 2
    assert campaign.export(bundle=first.id[:10]).id == first.id
    with pytest.raises(UserError, match="0 bundles of this campaign begin"):
        campaign.export(bundle="zz")
    assert campaign.verify().problems == ()


def test_the_budget_and_the_limits_can_be_amended(campaign: Campaign):
    with pytest.raises(UserError, match="too small"):
        campaign.amend(budget=0)
    before = campaign.history()
    for bad, message in (({"changes": 1}, "no limit 'changes'"), ({"low": -3.0}, "must lie within -1 and 1")):
        with pytest.raises(UserError, match=message):
            campaign.amend(limits=bad)
    assert campaign.history() == before
    campaign.amend(budget=1)
    assert campaign.next.verb == "done"
    campaign.amend(budget=5, limits={"change": 0.25}, reason="the valve is slow")
    limits = Runtime(campaign.export(limits={"noise": 0.1}).folder, fallback=[0, 0]).limits
    assert limits["change"] == [0.25, 0.25] and limits["noise"] == [0.1, 0.1]
    assert campaign.status().summary.settings.budget == 5


def test_limits_are_amended_one_by_one(campaign: Campaign):
    campaign.amend(limits={"change": 0.25, "low": [-0.5, -1.0], "stale": 2.0})
    before = campaign.history()
    with pytest.raises(UserError, match="the constant fallback must lie within low and high"):
        campaign.amend(limits={"fallback": [-0.8, 0.0]})  # against the limit of before
    assert campaign.history() == before
    campaign.amend(limits={"noise": 0.1, "stale": "off"})
    limits = Runtime(campaign.export().folder, fallback=[0, 0]).limits
    assert (limits["change"], limits["low"], limits["noise"]) == ([0.25, 0.25], [-0.5, -1.0], [0.1, 0.1])
    assert limits["stale"] is None


def test_another_reward_wants_an_amendment_and_another_policy(sent: Path, tmp_path: Path):
    shutil.copytree(sent, tmp_path / "campaign")
    other = replace(builtin.pointmass, reward=lambda obs, act, after: -10.0 * jnp.sum(after[:2] ** 2))
    campaign = Campaign(tmp_path / "campaign", task=other)
    campaign.withdraw(2)
    for verb in (campaign.train, campaign.export):
        with pytest.raises(UserError, match="gives other values than when this run.*amend .* --reward"):
            verb()
    campaign.amend(reward=True, reason="the position alone matters")
    assert campaign.next.verb == "train" and "the reward has changed" in campaign.next.text
    with pytest.raises(UserError, match="gives other values"):  # now it is the old one that is another
        Campaign(tmp_path / "campaign").train()
    campaign.train(again=True, settings={"updates": 1})
    assert campaign.next.verb == "export"
    recording = deploy(campaign.export().folder, tmp_path / "2.musbo", 1)
    campaign.ingest([recording], accept=True)
    batch = musbo.data.read_logs(recording).batch
    wanted = -10 * (batch.next_obs[:, :2] ** 2).sum(axis=1)
    with looked_at(campaign.folder, other) as runner:
        np.testing.assert_allclose(runner.batch(2).reward, wanted, rtol=1e-4, atol=1e-5)


def test_a_status_that_is_watched_ends_with_ctrl_c(
    sent: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pause)
    assert main(["status", str(sent), "--watch", "0.5"]) == 130
    assert pauses == [0.5] * 3 and capsys.readouterr().out.count("next: round 2 of 3") == 3


def test_a_damaged_recording_in_the_store_is_found(campaign: Campaign, tmp_path: Path):
    recording = deploy(campaign.export().folder, tmp_path / "monday.musbo", 1)
    campaign.ingest([recording], accept=True)
    (kept,) = (campaign.folder / "store").glob("*.musbo")
    assert kept.read_bytes() == recording.read_bytes() and campaign.verify().problems == ()
    kept.write_bytes(kept.read_bytes()[:-1])
    assert "is damaged" in campaign.verify().problems[0]


def golden_of(bundle: musbo.Bundle) -> bytes:
    """What a bundle's policy does."""
    return (bundle.folder / "golden.npz").read_bytes() + (bundle.folder / "weights.npz").read_bytes()


def manifest_of(bundle: musbo.Bundle) -> dict[str, Any]:
    return json.loads((bundle.folder / "manifest.json").read_text())


def test_the_first_round_without_data_is_the_controller_of_the_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "campaign"
    words = ["--budget", "2", "--batch-size", "100", "--preset", "quick", "--algo", "bc"]
    assert main(["new", "pointmass", "--out", str(folder), *words]) == 0
    assert "your own controller runs first" in capsys.readouterr().out
    assert main(["train", str(folder)]) == 0
    assert "nothing was trained" in capsys.readouterr().out
    campaign = Campaign(folder)
    assert campaign.status().rounds[0].state == "candidate"
    with pytest.raises(UserError, match="no candidate yet"):
        campaign.train(again=True)
    with pytest.raises(UserError, match="no policy to judge yet"):
        campaign.judge(True, "fine")
    with pytest.raises(UserError, match="no candidate yet: your own controller"):
        campaign.export(candidate=1)
    first = campaign.export(limits={"noise": 0.3, "obs_low": -5.0, "obs_high": 5.0})
    assert first.explores and first.deployment == 0 and manifest_of(first)["round"] == 1
    campaign.abandon(1, spent="the disk was lost")
    assert campaign.status().rounds[1].state == "candidate" and campaign.next.verb == "export"
    campaign.amend(budget=3, limits={"noise": 0.3})
    second = campaign.export()
    assert manifest_of(second)["policy"] == {"kind": "baseline"} and manifest_of(second)["round"] == 2
    recording = deploy(second.folder, tmp_path / "monday.musbo", 1)
    assert campaign.ingest([recording], accept=True).round == 2
    batch = musbo.data.read_logs(recording).batch
    assert np.abs(batch.act).max() <= 0.3 and set(batch.by) == {0}  # around the constant 0
    campaign.train()
    third = campaign.export()
    assert manifest_of(third)["policy"]["kind"] == "mlp" and third.deployment == 2
    assert campaign.export(bundle=second.id).deployment == 0  # back to the controller of the site
    assert campaign.verify().problems == ()


def test_every_deployment_may_be_lost(tmp_path: Path):
    campaign = imitating(tmp_path / "campaign", budget=1)
    campaign.export()
    campaign.abandon(1, spent="fire")
    assert campaign.next.verb == "done"
    campaign.train()
    with pytest.raises(UserError, match="nothing to export yet"):
        campaign.export()
    assert campaign.verify().problems == ()


def test_a_recording_belongs_to_its_round_alone(campaign: Campaign, tmp_path: Path):
    bundle = campaign.export()
    here = [
        deploy(bundle.folder, tmp_path / f"{name}.musbo", i) for i, name in enumerate(("monday", "tuesday", "late"))
    ]
    campaign.ingest(here[:2], accept=True)
    before = campaign.history()
    assert campaign.ingest(here[:1]).again and campaign.ingest(here[1::-1]).again  # some of them, in any order
    with pytest.raises(
        UserError, match="late.musbo: it belongs to round 2, which is closed: monday.musbo, tuesday.musbo"
    ):
        campaign.ingest(here, accept=True)
    campaign.train()
    back = campaign.export(bundle=bundle.id)
    assert back.id != bundle.id and golden_of(back) == golden_of(bundle)
    assert campaign.export(bundle=bundle.id) == back and campaign.export(bundle=back.id) == back
    with pytest.raises(UserError, match="belongs to round 2, which is closed"):
        campaign.ingest([here[2]], accept=True)
    new = deploy(back.folder, tmp_path / "wednesday.musbo", 9)
    with pytest.raises(UserError, match="monday.musbo: it came home in round 2 already, and wednesday.musbo did not"):
        campaign.ingest([here[0], new], accept=True)
    both = campaign.check([here[0], new]).seen
    assert [f.kind for seen in both for f in seen.findings if f.level == "error"] == ["came home already"]
    assert len(campaign.history()) == len(before) + 3
    assert campaign.ingest([new], accept=True).round == 3
    assert campaign.verify().problems == ()


def test_a_header_that_names_another_head_is_refused(campaign: Campaign, tmp_path: Path):
    recording = deploy(campaign.export().folder, tmp_path / "monday.musbo", 1)
    data = bytearray(recording.read_bytes())
    at = data.index(b'"ledger": "') + len(b'"ledger": "')
    data[at : at + 64] = b"0" * 64
    end = 16 + int.from_bytes(data[12:16], "little")
    data[end : end + 4] = zlib.crc32(data[:end]).to_bytes(4, "little")
    (tmp_path / "forged.musbo").write_bytes(data)
    with pytest.raises(UserError, match="its header was changed"):
        campaign.ingest([tmp_path / "forged.musbo"], accept=True)


def test_candidates_are_judged_and_one_is_chosen(
    campaign: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    campaign.withdraw(2)
    campaign.judge(False, "opens both valves at once")
    assert campaign.status().rounds[1].state == "gated" and campaign.next.verb == "train"
    with pytest.raises(UserError, match="judged a NO-GO .opens both valves at once"):
        campaign.export()
    with pytest.raises(UserError, match="judged a NO-GO"):
        campaign.export(bundle=manifest_id(campaign))
    campaign.train(again=True, settings={"updates": 2})
    assert campaign.status().rounds[1].state == "candidate"  # nobody has looked at this one
    assert main(["judge", str(campaign.folder), "--go", "calm on the logs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["next_step"] == "export"
    second = campaign.export()
    assert manifest_of(second)["verdict"] == "GO: calm on the logs"
    campaign.judge(True, "the expert insists", candidate=1)
    with pytest.raises(UserError, match="no candidate 3"):
        campaign.export(candidate=3)
    first = campaign.export(candidate=1)
    assert manifest_of(first)["verdict"] == "GO: the expert insists" and golden_of(first) != golden_of(second)
    assert campaign.export() == first  # it counts from now on
    assert campaign.status().summary.settings.method == tiny.method()  # with its own settings
    row = campaign.status().rounds[1]
    assert (row.candidates, row.verdict, len(row.bundles)) == (2, "GO: the expert insists", 3)
    campaign.ingest([deploy(second.folder, tmp_path / "2.musbo", 1)], accept=True)
    made = {each.number: each for each in campaign.status().rounds}[2]
    lines = [line for line in history(campaign.folder) if line.kind in ("trained", "candidate", "collected")]
    assert lines[-1].imagined == made.promised == lines[-2].imagined != lines[-3].imagined  # of the one that ran
    batch = musbo.data.read_logs(tmp_path / "2.musbo").batch
    assert lines[-1].real == pytest.approx(float(batch.reward.mean()), rel=1e-5)
    assert main(["history", str(campaign.folder)]) == 0
    out = capsys.readouterr().out
    assert "imagined reward" in out and "real reward" in out and "NO-GO: opens both valves at once" in out


def manifest_id(campaign: Campaign) -> str:
    """The first bundle that ever left."""
    return next(event.what.bundle for event in campaign.history() if isinstance(event.what, Exported))


def test_a_candidate_after_the_end_replaces_the_final_policy(tmp_path: Path):
    campaign = imitating(tmp_path / "campaign", 1, [logs()])
    campaign.train()
    assert campaign.next.verb == "done"  # plain offline learning
    first = campaign.export()
    before = (campaign.folder / "policy.safetensors").read_bytes()
    campaign.train(again=True)
    assert (campaign.folder / "policy.safetensors").read_bytes() != before and campaign.verify().problems == ()
    assert campaign.export().id != first.id
    assert golden_of(campaign.export(candidate=1)) == golden_of(first)
    assert (campaign.folder / "policy.safetensors").read_bytes() == before and campaign.verify().problems == ()
    assert campaign.status().summary.deployed == 1


def test_going_back_keeps_to_the_limits_of_now_and_explores_only_for_data(campaign: Campaign, tmp_path: Path):
    old = campaign.export(limits={"noise": 0.05})
    campaign.amend(budget=1, limits={"change": 0.25})
    back = campaign.export(bundle=old.id)
    limits = Runtime(back.folder, fallback=[0, 0]).limits
    assert limits["change"] == [0.25, 0.25] and limits["noise"] == [0.05, 0.05]
    assert old.explores and not back.explores and manifest_of(back)["round"] is None


def test_the_doctor_looks_before_anything_comes_home(
    campaign: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    recording = deploy(campaign.export().folder, tmp_path / "monday.musbo", 1, steps=20)
    before = campaign.history()
    (seen,) = campaign.check([recording]).seen
    assert seen.transitions == 40 and {"fewer than planned"} <= {finding.kind for finding in seen.findings}
    assert main(["check", str(recording), "--campaign", str(campaign.folder)]) == 0
    capsys.readouterr()
    campaign.withdraw(2)
    (seen,) = campaign.check([recording]).seen
    assert [f.kind for f in seen.findings if f.level == "error"] == ["another bundle", "no open round"]
    assert main(["check", str(recording), "--campaign", str(campaign.folder), "--json"]) == 2
    assert "called back" in capsys.readouterr().out
    assert len(campaign.history()) == len(before) + 1


def test_each_file_of_logs_is_a_deployment(tmp_path: Path):
    campaign = imitating(tmp_path / "campaign", data=[logs(1), logs(2)])
    campaign.train()
    assert campaign.status().summary.deployed == 2 and campaign.status().rounds[-1].number == 3
    with pytest.raises(UserError, match="4 batches were given for a budget of 3"):
        imitating(tmp_path / "other", data=[logs(i) for i in range(4)])


def test_a_run_in_a_simulator_is_no_campaign_in_the_field(tmp_path: Path):
    folders.create(tmp_path / "run", tiny.settings())
    with pytest.raises(UserError, match="field is a simulator"):
        Campaign(tmp_path / "run")


def test_a_campaign_in_the_field_is_not_resumed(sent: Path, capsys: pytest.CaptureFixture[str]):
    """Its verbs are others, and the sentence names the one that comes next."""
    before = Campaign(sent).history()
    assert main(["resume", str(sent)]) == 2
    said = capsys.readouterr().err
    assert "musbo train, export, ingest" in said and f"musbo ingest {sent}" in said and "Traceback" not in said
    with pytest.raises(UserError, match="from Python: musbo.Campaign"):
        musbo.resume(sent)
    assert Campaign(sent).history() == before


def test_the_golden_campaign_opens_and_goes_on(tmp_path: Path):
    campaign = copy(Path(__file__).parents[1] / "golden" / "campaign-v1", tmp_path / "campaign")
    assert campaign.verify().problems == () and campaign.next.verb == "ingest"
    assert campaign.status().rounds[1].called_back == 1 and campaign.status().summary.settings.budget == 4
    assert campaign.ingest([campaign.folder / "monday.musbo"], accept=True).transitions == 100


def test_a_bundle_of_version_1_goes_out_again(tmp_path: Path):
    campaign = copy(Path(__file__).parents[1] / "golden" / "campaign-v1", tmp_path / "campaign")
    old = campaign.status().rounds[1].bundles[0]
    campaign.amend(limits={"change": 0.5})
    back = campaign.export(bundle=old)
    manifest = manifest_of(back)
    assert back.id != old and (manifest["version"], manifest["round"], manifest["history"]) == (2, 2, 0)
    assert "limits.json" not in back.files and "limits.toml" in back.files
    assert Runtime(back.folder, fallback=[0, 0]).limits["change"] == [0.5, 0.5]
    assert campaign.ingest([deploy(back.folder, tmp_path / "r.musbo", 1)], accept=True).transitions == 100
    assert campaign.verify().problems == ()


def test_the_golden_campaign_that_begins_without_data_goes_on(tmp_path: Path):
    campaign = copy(Path(__file__).parents[1] / "golden" / "campaign-v2", tmp_path / "campaign")
    assert campaign.verify().problems == ()
    again = campaign.export(bundle=campaign.status().rounds[1].bundles[-1])  # of version 1, for the same round
    assert again.id == campaign.status().rounds[1].bundles[-1] and "limits.json" in again.files
    first, second = campaign.status().rounds
    assert (first.state, first.candidates, second.state, second.candidates) == ("returned", 0, "exported", 2)
    assert campaign.ingest([campaign.folder / "sunday.musbo"]).again
    assert campaign.ingest([campaign.folder / "monday.musbo"], accept=True).transitions == 100
    assert [line.text for line in history(campaign.folder) if line.kind == "judged"][1].endswith("GO: calm")
