"""The guides for the field are followed to the letter: every command in them runs, in its order, on the point mass."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import musbo
from musbo.cli import main
from tests.stories import tiny
from tests.stories.test_rounds import deploy, logs

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"
CAMPAIGN = Path("campaigns/line-3")


def commands(guide: str) -> list[list[str]]:
    """Every command in it that has arguments, in a block or in the text."""
    text = (GUIDES / guide).read_text()
    lines = re.findall(r"^(?: {4})?(musbo [^`\n]*)$|`(musbo [^`]*)`", text, re.MULTILINE)
    found = [shlex.split((block or inline).partition("#")[0]) for block, inline in lines]
    return [words for words in found if len(words) > 2]


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (GUIDES / guide).read_text(), re.MULTILINE | re.DOTALL)


def newest() -> Path:
    """The bundle that left last."""
    return musbo.Campaign(CAMPAIGN, trust_task=True).export().folder


def follow(words: list[str]) -> None:
    """One command; what the site would have sent by then is there."""
    if words[1] == "new":  # the guide has two ways to begin
        shutil.rmtree(CAMPAIGN, ignore_errors=True)
    if words[1] == "verify":
        for place in ("here", "there"):
            shutil.copytree(CAMPAIGN, f"{place}/line-3", dirs_exist_ok=True)
    seed = len(list(Path().glob("*.musbo")))
    for name in [word for word in words if word.endswith(".musbo") and not Path(word).exists()]:
        deploy(newest(), Path(name), seed := seed + 1)
    small = ["--preset", "quick", *tiny.METHOD] if words[1] == "new" else []
    assert main([*words[1:], *small]) == 0, shlex.join(words)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the guides speak of."""
    monkeypatch.chdir(tmp_path)
    Path("my_task.py").write_text("from musbo.tasks.builtin import pointmass as TASK\n")
    Path("limits.toml").write_text("noise = 0.3\n")
    musbo.write_batch("logs.parquet", logs())
    return tmp_path


def test_the_guides_of_a_campaign(site: Path):
    first, back = commands("first-campaign.md"), commands("go-back.md")
    verbs = [words[1] for words in first + back]
    assert {"check", "new", "train", "export", "ingest", "status", "judge", "amend", "verify"} <= {*verbs[: len(first)]}
    assert {"history", "withdraw", "export", "train", "abandon", "ingest", "verify"} <= {*verbs[len(first) :]}
    for words in first:
        follow([*words, "--accept"] if words[1] == "ingest" else words)
    said = musbo.Campaign(CAMPAIGN, trust_task=True).status()
    assert said.rounds[-1].state == "exported" and said.rounds[-1].number == 3
    assert said.summary.settings.budget == 8
    earlier = said.rounds[-2].bundles[0]

    sent = Path("sent")
    for words in back:
        words = [earlier[:6] if word == "3f9a21" else word for word in words]
        match words[1]:
            case "abandon" | "ingest":  # each is what to do in one case, and not after the other
                shutil.rmtree(sent, ignore_errors=True)
                newest()
                shutil.copytree(CAMPAIGN, sent)
                files = ["wednesday.musbo", "--accept"]
                follow([*(word for word in words if word != "FILES"), *(files if "FILES" in words else [])])
                shutil.rmtree(CAMPAIGN)
                shutil.copytree(sent, CAMPAIGN)
            case "export" if "--candidate" in words:  # the other guide judged it a NO-GO
                musbo.Campaign(CAMPAIGN).judge(True, "looked at again", candidate=1)
                follow(words)
            case _:
                follow(words)


MACHINE = """
import time


class Running:
    left = 60

    def __bool__(self):
        self.left -= 1
        return self.left >= 0


def read_sensors():
    return [1.0, 0.0, 0.01 * running.left], time.time()


def write_actuators(action):
    assert action.shape == (1,) and abs(action[0]) <= 2


running = Running()
"""
"""What the guide leaves to the site: here a pendulum that slows down."""


def test_the_guide_of_the_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    mine = "from dataclasses import replace\n\nfrom musbo.tasks.builtin import pendulum\n\n"
    Path("my_task.py").write_text(f"{mine}TASK = replace(pendulum, name='mine')\n")
    Path("limits.toml").write_text(blocks("field.md", "toml")[0])
    small = ["--preset", "quick", "--episodes", "1", *tiny.METHOD]
    run = ["run", "pendulum", "--budget", "1", "--batch-size", "400", "--out", "runs/pendulum-musbo-quick-s0"]
    assert main([*run, *small]) == 0
    export, check, again = commands("field.md")
    follow(export)

    site, (python, onnx) = tmp_path / "to-site", blocks("field.md", "python")[:2]
    subprocess.run([sys.executable, "-c", MACHINE + python], cwd=site, check=True)
    monkeypatch.chdir(site)
    exec(onnx, names := {})
    assert names["action"].shape == (1, 1)
    include, _, body = blocks("field.md", "c")[0].partition("\n")
    Path("main.c").write_text(f"{include}\nint main(void) {{\n{body}\nreturn !(action[0] <= 2);\n}}\n")
    subprocess.run(["gcc", "-Wno-maybe-uninitialized", "main.c", "-o", "main", "-lm"], check=True)
    subprocess.run(["./main"], check=True)

    monkeypatch.chdir(tmp_path)
    shutil.copy(site / "monday.musbo", "monday.musbo")
    follow(check)
    follow([*again, *small])


def test_the_tutorial_of_a_campaign_on_the_command_line(site: Path):
    """What its Python makes, the task, the logs and the machine, is what its commands are for."""
    tutorial = "../tutorials/first-campaign.md"
    machine, controller, task, _, _, week, *_ = blocks(tutorial, "python")
    exec(machine + controller + task, names := {})
    logs = musbo.data.from_dataframe(
        names["frame"], obs=["water", "inflow"], act=["power"], reward="reward", episode="day", time="step"
    )
    musbo.write_batch("logs.parquet", logs.batch)
    Path("tank.py").write_text(task.replace("task = ", "TASK = "))
    every = commands(tutorial)
    assert [words[1] for words in every] == ["check", "new", "train", "export", "ingest", "status"]
    for words in every:
        if words[1] == "ingest":
            names["bundle"] = musbo.Campaign("campaigns/tank", trust_task=True).export()
            with (
                pytest.MonkeyPatch.context() as patch
            ):  # the block adds the folder of the bundle, whose runtime is loaded
                patch.setattr(sys, "path", [*sys.path])
                patch.delitem(sys.modules, "runtime", raising=False)
                exec(week, names)
        follow(words)
    assert musbo.Campaign("campaigns/tank", trust_task=True).status().summary.deployed == 2


def test_the_guide_of_historians(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    shown = blocks("historian-csv.md", "text")[0]
    more = [f"2024-05-31T13:{i:02}:00Z,north,{80 + i % 3},4.0,0.{i % 7},Good\n" for i in range(60)]
    Path("plant.csv").write_text(shown + "".join(more))
    Path("mapping.toml").write_text(blocks("historian-csv.md", "toml")[0])
    lines = ["import musbo", "", "", "def reward(obs, act, next_obs):", "    return -((next_obs[0] - 80) ** 2)", "", ""]
    task = "TASK = musbo.Task('plant', 2, 1, (0.0,), (1.0,), 100, reward=reward)"
    Path("plant.py").write_text("\n".join([*lines, task, ""]))
    (check,) = commands("historian-csv.md")
    follow(check)
    assert "59 transitions" in capsys.readouterr().out and "flow" in Path("check.html").read_text()
