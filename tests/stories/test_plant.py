"""A plant that is a TOML file: ranges, interval and history go from the file into the bundle, and the campaign goes on.

And a reward function that changes between two visits is noticed.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import musbo
from musbo.campaign.events import Amended
from musbo.campaign.field_campaign import Campaign
from musbo.campaign.history import history
from musbo.campaign.homecoming import Unaccepted
from musbo.campaign.news import Began, News
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.data.batch import Batch, make_batch
from musbo.data.readers.recording import recording_header
from musbo.field.runtime import Runtime
from musbo.tasks.task import Task
from tests.stories import tiny

PLANT = """
name = "basin"
interval = 0.5
history = 2
episode_steps = 20
reward = "learned"
terminated = "never"

[[observation]]
name = "level"
unit = "m"
low = 0
high = 3

[[action]]
name = "valve"
low = -1
high = 1
change = 0.5

[[action]]
name = "pump"
low = 0
high = 4
"""


class Basin:
    """What is done shows two steps later."""

    def __init__(self, seed: int) -> None:
        self.level, self.due = np.random.default_rng(seed).uniform(1, 2), [0.0, 0.0]

    def step(self, act: np.ndarray) -> tuple[np.ndarray, float]:
        self.due.append(0.05 * float(act[0]) + 0.01 * (float(act[1]) - 2))
        self.level = float(np.clip(self.level + self.due.pop(0), 0.05, 2.95))
        return np.array([self.level], np.float32), -abs(self.level - 1.5)


def logs(episodes: int = 6) -> Batch:
    random, rows = np.random.default_rng(0), []
    for episode in range(episodes):
        basin = Basin(episode)
        obs = np.array([basin.level], np.float32)
        for step in range(20):
            act = random.uniform([-1, 0], [1, 4]).astype(np.float32)
            after, reward = basin.step(act)
            rows.append((obs, act, reward, after, step == 19, episode, step))
            obs = after
    columns = (np.array(column) for column in zip(*rows, strict=True))
    names = ("obs", "act", "reward", "next_obs", "truncated", "episode", "step")
    return make_batch(**dict(zip(names, columns, strict=True)), terminated=np.zeros(len(rows), bool))


def deploy(bundle: Path, recording: Path) -> Path:
    with Runtime(bundle, fallback=[0, 2], record=recording, seed=0, machine="basin-1") as controller:
        for episode in range(3):
            basin = Basin(100 + episode)
            obs, reward = np.array([basin.level], np.float32), None
            controller.begin()
            for _ in range(20):
                act = controller.act(obs, reward=reward)
                assert act is not None
                obs, reward = basin.step(act)
            controller.end(obs, reward=reward)
    return recording


def test_from_the_file_to_the_field_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "plant.toml").write_text(PLANT)
    campaign = Campaign.new(
        str(tmp_path / "plant.toml"), data=[logs()], preset="quick", budget=3, batch_size=60, method=tiny.method(),
        out=tmp_path / "campaign",
    )  # fmt: skip
    campaign.train()
    made = campaign.export()
    manifest = Runtime(made.folder, fallback=[0, 2]).bundle.manifest
    assert (manifest["interval"], manifest["history"], manifest["episode_steps"]) == (0.5, 2, 20)
    assert manifest["observation"] == {"names": ["level"], "units": ["m"]}
    limits = manifest["limits"]
    assert limits["change"] == [0.5, 4.0]  # the pump has no limit but its range
    data = logs()
    margin = np.ptp(data.obs) + data.obs.std()
    assert limits["obs_low"] == [0.0] and data.obs.min() - margin < 0  # the file says what is possible
    assert limits["obs_high"] == pytest.approx([min(3.0, data.obs.max() + margin)])
    assert limits["stale"] == limits["late"] == 1.0  # two intervals
    assert "one every 0.5 seconds" in (made.folder / "README.md").read_text()
    recording = deploy(made.folder, tmp_path / "r.musbo")
    header = recording_header(recording, "it")
    assert (header["obs"], header["obs_units"], header["act_units"]) == (["level"], ["m"], ["", ""])
    came = campaign.ingest([recording], accept=True)
    assert (came.round, came.transitions) == (2, 60)
    assert "the interval of task basin is 0.5 seconds" in " ".join(each.text for each in came.findings)  # no clock here
    campaign.train()
    assert campaign.next.verb == "export" and campaign.export().id != made.id
    assert musbo.load_policy(tmp_path / "campaign").obs_size == 1 + 2 * (1 + 2)
    shown = campaign.status().learned
    assert [each.name for each in shown] == ["learned_reward_apart", "learned_reward_correlation"]
    assert main(["status", str(campaign.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["learned"] == {each.name: each.value for each in shown}
    assert main(["status", str(campaign.folder)]) == 0
    out = capsys.readouterr().out
    assert "learned reward against recorded, on held-out real data: " in out
    assert "correlation of the learned reward, on held-out real data: " in out


def test_the_first_round_without_data_knows_what_the_file_says(tmp_path: Path):
    """There is no policy that would see the past; the ranges, the interval and the largest changes hold."""
    (tmp_path / "plant.toml").write_text(PLANT)
    campaign = Campaign.new(
        str(tmp_path / "plant.toml"), preset="quick", budget=3, batch_size=60, method=tiny.method(),
        out=tmp_path / "campaign",
    )  # fmt: skip
    made = campaign.export()
    manifest = Runtime(made.folder, fallback=[0, 2]).bundle.manifest
    assert (manifest["history"], manifest["interval"], manifest["round"]) == (0, 0.5, 1)
    limits = manifest["limits"]
    assert (limits["obs_low"], limits["obs_high"], limits["change"]) == ([0.0], [3.0], [0.5, 4.0])
    np.testing.assert_allclose(limits["noise"], [0.2, 0.4])
    page = (made.folder / "README.md").read_text()
    assert "no policy in this bundle" in page and "one every 0.5 seconds" in page and "sees the past" not in page
    assert campaign.ingest([deploy(made.folder, tmp_path / "r.musbo")], accept=True).transitions == 60
    campaign.train()
    second = campaign.export()
    assert Runtime(second.folder, fallback=[0, 2]).bundle.manifest["history"] == 2
    back = campaign.export(bundle=made.id)  # to the controller of the site
    manifest = Runtime(back.folder, fallback=[0, 2]).bundle.manifest
    assert (manifest["policy"]["kind"], manifest["round"], manifest["limits"]) == ("baseline", 2, limits)
    assert (back.folder / "limits.toml").read_bytes() == (made.folder / "limits.toml").read_bytes()


def test_a_reward_that_changed_is_noticed_and_wants_amend(tmp_path: Path):
    task = Task("basin", 1, 2, (-1.0, 0.0), (1.0, 4.0), 20, reward=_before)
    data = replace(logs(), reward=-np.abs(logs().next_obs[:, 0] - 1.5))
    campaign = Campaign.new(
        task, data=[data], preset="quick", budget=2, batch_size=60, method=tiny.method(), out=tmp_path / "campaign"
    )
    now = replace(task, reward=_after)
    with pytest.raises(UserError, match="gives other values than when this run.*musbo amend"):
        Campaign(campaign.folder, task=now).train()
    Campaign(campaign.folder, task=now).amend(reward=True, reason="the level has another set point")
    with pytest.raises(UserError, match="gives other values"):
        campaign.train()
    amended = Campaign(campaign.folder, task=now)
    with amended._opened() as runner:
        runner.collect(1)
        batch = runner.batch(1)
        np.testing.assert_allclose(batch.reward, -np.abs(batch.next_obs[:, 0] - 1.0), rtol=1e-5)
    said = [event.what.reason for event in amended.history() if isinstance(event.what, Amended)]
    assert said == ["the level has another set point"]
    assert amended.verify().problems == ()


@pytest.mark.parametrize("at", ["declared", "brought", "home"])
def test_a_reward_that_changed_in_one_corner_is_noticed(tmp_path: Path, at: str):
    """Far from what is usual: at the end of a declared range, or where one transition was."""
    low, high = ((0.0,), (300.0,)) if at == "declared" else ((), ())
    task = Task("basin", 1, 2, (-1.0, 0.0), (1.0, 4.0), 20, reward=_before, obs_low=low, obs_high=high)
    spiked, corner = logs(), 250.0
    if at != "declared":
        corner = 80.0
        spiked.obs[7], spiked.next_obs[6] = 81.0, 81.0
    brought = spiked if at == "brought" else logs()
    brought = replace(brought, reward=-np.abs(brought.next_obs[:, 0] - 1.5))
    campaign = Campaign.new(
        task, data=[brought], algo="bc", preset="quick", budget=3, batch_size=60, out=tmp_path / "campaign"
    )
    if at == "home":
        campaign.train()
        bundle = campaign.export()
        campaign.ingest([replace(spiked, reward=-np.abs(spiked.next_obs[:, 0] - 1.5))], bundle=bundle.id, accept=True)
    now = replace(task, reward=lambda o, a, n: jnp.where(n[0] > corner, 0.0, _before(o, a, n)))
    where = {"declared": "made-up transitions", "brought": "of deployment 1", "home": "of deployment 2"}[at]
    changed = Campaign(campaign.folder, task=now)
    with pytest.raises(UserError, match=f"gives other values.*{where}.*musbo amend .* --reward"):
        changed.train()
    changed.amend(reward=True)
    with pytest.raises(UserError, match=f"gives other values.*{where}"):
        campaign.train()
    changed.train()
    assert changed.verify().problems == ()


def _before(obs, act, next_obs):
    return -abs(next_obs[0] - 1.5)


def _after(obs, act, next_obs):
    return -abs(next_obs[0] - 1.0)


BELOW = "def reward(obs, act, next_obs):\n    return -abs(next_obs[0] - 1.5)\n"


OTHERS = {
    "name": ('name = "level"', 'name = "height"', "the name of observation 0 is height and was level"),
    "unit": ('unit = "m"', 'unit = "cm"', "the unit of observation level is cm and was m"),
    "range": ("high = 3", "high = 5", "the upper end of the range of observation level is 5 and was 3"),
    "change": ("change = 0.5", "change = 0.25", "the largest change in a step of action valve is 0.25 and was 0.5"),
    "interval": ("interval = 0.5", "interval = 2.0", "the interval is 2 and was 0.5"),
}


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign whose task names a function, with a bundle in the field; tests take copies."""
    place = tmp_path_factory.mktemp("declared")
    (place / "plant.toml").write_text(PLANT.replace('"learned"', '"reward.py:reward"'))
    (place / "reward.py").write_text(BELOW)
    campaign = Campaign.new(
        str(place / "plant.toml"), data=[logs()], algo="bc", preset="quick", budget=3, batch_size=60,
        out=place / "campaign",
    )  # fmt: skip
    campaign.train()
    assert campaign.export().notes == ()
    return place


@pytest.mark.parametrize("what", OTHERS)
def test_another_definition_is_said_and_wants_amend(
    declared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
):
    shutil.copytree(declared, tmp_path / "here")
    old, new, said = OTHERS[what]
    folder, plant = tmp_path / "here" / "campaign", tmp_path / "here" / "plant.toml"
    plant.write_text(plant.read_text().replace(old, new, 1))
    campaign = Campaign(folder, trust_task=True)
    seen: list[News] = []
    campaign.train(observe=seen.append)
    assert isinstance(seen[0], Began)
    made = campaign.export()
    for text in (seen[0].cautions[0].text, made.notes[-1]):
        assert said in text and f"`musbo amend {folder} --definition`" in text
    recording = deploy(made.folder, tmp_path / "r.musbo")
    with pytest.raises(Unaccepted, match="warning.*the definition of the task has changed") as refused:
        campaign.ingest([recording])
    assert said in str([each.text for each in refused.value.findings])
    assert main(["export", str(folder), "--trust-task"]) == 0 and said in capsys.readouterr().out
    assert main(["amend", str(folder), "--definition", "--trust-task"]) == 0
    assert campaign.export().notes == () and campaign.next.verb == "ingest"  # the policy is as good as before
    assert not any(each.kind == "task changed" for each in campaign.ingest([recording], accept=True).findings)
    assert [line.text for line in history(folder) if line.kind == "amended"] == ["definition"]


def test_a_file_that_says_the_same_in_other_words_is_a_note(declared: Path, tmp_path: Path):
    shutil.copytree(declared, tmp_path / "here")
    reward = tmp_path / "here" / "reward.py"
    reward.write_text("# how far the level is off\n" + reward.read_text())
    campaign = Campaign(tmp_path / "here" / "campaign", trust_task=True)
    assert any("but not its definition or its values" in note for note in campaign.export().notes)


def test_what_cannot_be_amended_is_named(declared: Path, tmp_path: Path):
    shutil.copytree(declared, tmp_path / "here")
    plant = tmp_path / "here" / "plant.toml"
    plant.write_text(plant.read_text().replace("history = 2", "history = 3"))
    campaign = Campaign(tmp_path / "here" / "campaign", trust_task=True)
    for verb in (campaign.train, campaign.export, lambda: campaign.amend(definition=True)):
        with pytest.raises(
            UserError, match=r"began with \(the history is 3 and was 2\): restore it, or start anew with"
        ):
            verb()


def test_a_copy_on_another_machine_needs_no_other_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The TOML file and the Python that it names are kept, in the version that counts; nothing runs without a word."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "plant.toml").write_text(PLANT.replace('"learned"', '"reward.py:reward"'))
    (here / "reward.py").write_text(BELOW)
    Campaign.new(
        str(here / "plant.toml"), data=[logs()], algo="bc", preset="quick", budget=3, batch_size=60,
        out=here / "campaign",
    )  # fmt: skip
    shutil.copytree(here / "campaign", there / "campaign")
    left = there / ".other.0123456789abcdef.new"  # by a process that was killed
    shutil.copytree(here / "campaign", left)
    Campaign.new(str(here / "plant.toml"), algo="bc", preset="quick", budget=1, batch_size=60, out=there / "other")
    assert not left.exists()
    shutil.rmtree(here)
    with pytest.raises(UserError, match=f"{there}.*Python code, reward.py:reward.*--trust-task"):
        Campaign(there / "campaign").train()
    campaign = Campaign(there / "campaign", trust_task=True)
    campaign.train()
    assert "file of the task has changed" not in capsys.readouterr().err
    # Another version is kept beside the first one, whatever its file is called.
    (there / "new.toml").write_text(PLANT.replace('"learned"', '"own.py:reward"'))
    (there / "own.py").write_text(BELOW.replace("1.5", "1.0"))
    Campaign(campaign.folder, task=str(there / "new.toml")).amend(reward=True)
    (there / "new.toml").unlink()
    (there / "own.py").unlink()
    with campaign._opened() as runner:
        np.testing.assert_allclose(runner.batch(1).reward, -np.abs(logs().next_obs[:, 0] - 1.0), rtol=1e-5)
    kept = sorted((campaign.folder / "task").glob("*/*.py"))
    assert [path.name for path in kept] in (["reward.py", "own.py"], ["own.py", "reward.py"])
    for path in kept:
        path.write_text(BELOW.replace("1.5", "2.0"))
    with pytest.raises(UserError, match="is not what was kept of the task"):
        campaign.train(again=True)


def test_python_of_another_folder_cannot_be_kept(tmp_path: Path):
    (tmp_path / "reward.py").write_text(BELOW)
    (tmp_path / "inner").mkdir()
    place = tmp_path / "inner" / "plant.toml"
    place.write_text(PLANT.replace('"learned"', '"../reward.py:reward"'))
    with pytest.raises(UserError, match=r"names \.\./reward.py: put it into the same folder"):
        Campaign.new(str(place), preset="quick", budget=1, batch_size=60, out=tmp_path / "campaign")
    assert not (tmp_path / "campaign").exists()
