"""A campaign without a simulator: bundles leave, recordings come home, and nothing is lost, doubled or mixed up."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import musbo
from musbo.campaign import folders
from musbo.campaign.field_campaign import Campaign
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.data.batch import make_batch
from musbo.field.runtime import Runtime
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
    with pytest.raises(UserError, match="budget is spent"):
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
    assert main(["new", "pointmass", "--out", folder, *words]) == 2  # no logs
    assert said("new", "pointmass", "--data", str(first), "--out", folder, *words)["next_step"] == "train"
    assert said("train", folder)["next_step"] == "export"
    bundle = said("export", folder)
    assert bundle["next_step"] == "ingest" and said("export", folder)["id"] == bundle["id"]
    assert said("withdraw", folder, "2")["next_step"] == "export"
    assert said("export", folder)["id"] == bundle["id"]
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
    with pytest.raises(UserError, match="nothing has left for round 3"):
        campaign.ingest([late], accept=True)
    assert campaign.export().id == bundle.id  # the same policy goes out again
    campaign.ingest([late], accept=True)
    campaign.train()
    assert campaign.next.verb == "done" and campaign.verify().problems == ()


def test_what_was_called_back_is_refused(campaign: Campaign, tmp_path: Path):
    recording = deploy(campaign.export().folder, tmp_path / "monday.musbo", 1)
    campaign.withdraw(2)
    with pytest.raises(UserError, match="nothing has left for round 2"):
        campaign.ingest([recording], accept=True)
    with pytest.raises(UserError, match="nothing to call back"):
        campaign.withdraw(2)
    assert campaign.status().summary.deployed == 1


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
    campaign.amend(budget=1)
    assert campaign.next.verb == "done"
    campaign.amend(budget=5, limits={"change": 0.25}, reason="the valve is slow")
    assert Runtime(campaign.export().folder, fallback=[0, 0]).limits["change"] == [0.25, 0.25]
    assert campaign.status().summary.settings.budget == 5


def test_a_run_in_a_simulator_is_no_campaign_in_the_field(tmp_path: Path):
    folders.create(tmp_path / "run", tiny.settings())
    with pytest.raises(UserError, match="field is a simulator"):
        Campaign(tmp_path / "run")


def test_the_golden_campaign_opens_and_goes_on(tmp_path: Path):
    campaign = copy(Path(__file__).parents[1] / "golden" / "campaign-v1", tmp_path / "campaign")
    assert campaign.verify().problems == () and campaign.next.verb == "ingest"
    assert campaign.status().rounds[1].called_back == 1 and campaign.status().summary.settings.budget == 4
    assert campaign.ingest([campaign.folder / "monday.musbo"], accept=True).transitions == 100
