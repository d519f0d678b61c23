"""A campaign in the field whose processes are killed, run out of disk or meet each other."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from musbo.campaign.events import Collected, Exported, Trained
from musbo.campaign.field_campaign import Campaign
from tests.stories.test_rounds import begin, copy, deploy, sent

__all__ = ["sent"]

ROOT = Path(__file__).parents[2]
WORKER = """
import os, signal, sys
from pathlib import Path
from tests.trust.test_rounds import finish, kill_at
kill_at(int(sys.argv[3]))
finish(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def finish(folder: Path, field: Path) -> Campaign:
    """Do every verb that is left, as people would: whatever was killed before is simply said again."""
    campaign = Campaign(folder)
    while (step := campaign.next.verb) != "done":
        number = campaign.status().rounds[-1].number
        if step == "train":
            campaign.train(checkpoint_seconds=0.0)
        elif step == "export":
            campaign.export()
        else:
            recording = field / f"{number}.musbo"
            if not recording.exists():
                part = field / f"{number}.part"
                part.unlink(missing_ok=True)
                os.rename(deploy(campaign.export().folder, part, number), recording)
            campaign.ingest([recording], accept=True)
    campaign.train()
    campaign.export()
    return campaign


def kill_at(count: int) -> None:
    """Die by SIGKILL at the durable write of this number: before a rename, after a sync, inside a transaction."""
    from musbo.campaign.ledger import Ledger

    left = [count]

    def dying(function):  # type: ignore[no-untyped-def]
        def call(*words, **more):  # type: ignore[no-untyped-def]
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*words, **more)

        return call

    if count:
        os.fsync, os.replace, os.rename = dying(os.fsync), dying(os.replace), dying(os.rename)
        Ledger._write_seal = dying(Ledger._write_seal)
        Ledger.append = dying(Ledger.append)


def outcome(campaign: Campaign) -> tuple[object, ...]:
    """What must not depend on who was killed when."""
    events = [event.what for event in campaign.history()]
    counts = Counter(type(what).__name__ for what in events)
    assert counts["Collected"] == counts["Trained"] == campaign.status().summary.settings.budget
    assert counts["Exported"] == counts["Collected"]  # without the logs, with the final policy
    assert campaign.verify().problems == ()
    batches = [what.artefact for what in events if isinstance(what, Collected)]
    policies = [what.policy for what in events if isinstance(what, Trained)]
    return batches, policies, campaign.status().summary.transitions


def killed_on_the_way(folder: Path, field: Path, kills: int, largest: int) -> int:
    field.mkdir()
    lots, done = random.Random(0), 0
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    for i in range(kills + 1):
        count = lots.randint(1, largest) if i < kills else 0
        words = [sys.executable, "-c", WORKER, str(folder), str(field), str(count)]
        process = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT)
        assert process.returncode in (0, -signal.SIGKILL), process.stderr
        done += process.returncode != 0
        if process.returncode == 0:
            break
    return done


def test_a_killed_campaign_goes_on_to_the_same_policy(sent: Path, tmp_path: Path):
    (tmp_path / "calm").mkdir()
    calm = finish(copy(sent, tmp_path / "one").folder, tmp_path / "calm")
    other = copy(sent, tmp_path / "other")
    assert killed_on_the_way(other.folder, tmp_path / "stormy", 3, 25)
    assert outcome(other) == outcome(calm)


@pytest.mark.long
def test_two_hundred_kills(sent: Path, tmp_path: Path):
    (tmp_path / "calm").mkdir()
    calm = outcome(finish(copy(sent, tmp_path / "one").folder, tmp_path / "calm"))
    kills = 0
    for i in range(1000):
        other = copy(sent, tmp_path / f"{i}")
        kills += killed_on_the_way(other.folder, tmp_path / f"{i}-field", 20, 12)
        assert outcome(Campaign(other.folder)) == calm
        shutil.rmtree(other.folder)
        if kills >= 200:
            return
    pytest.fail("too few were killed")


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from musbo.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("limit", [0, 3000])
def test_a_full_disk_is_a_sentence_and_the_campaign_goes_on(sent: Path, tmp_path: Path, limit: int):
    campaign = copy(sent, tmp_path / "campaign")
    recording = deploy(campaign.export().folder, tmp_path / "monday.musbo", 1)
    before = campaign.history()
    words = [sys.executable, "-c", FULL, str(limit), "ingest", str(campaign.folder), str(recording), "--accept"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MUSBO_CACHE": "off"}
    process = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert process.returncode == 2 and "Traceback" not in process.stderr, process.stderr
    assert "cannot" in process.stderr and campaign.history() == before
    assert campaign.ingest([recording], accept=True).transitions == 100


RIVAL = """
import sys
from pathlib import Path
from musbo.campaign.field_campaign import Campaign
from musbo.core.errors import UserError
campaign, recordings, told = Campaign(Path(sys.argv[1])), Path(sys.argv[2]), 0
print("ready", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    try:
        if verb == "ingest":
            said = "again" if campaign.ingest([recordings / words[0]], accept=True).again else "done"
        else:
            getattr(campaign, verb)()
            said = "done"
    except UserError as error:
        said = "told" if "another process (pid" in str(error) else f"refused {error}"
    print(said, flush=True)
"""


def race(folder: Path, field: Path, rounds: int) -> Counter[str]:
    """Two processes are told to do the same thing at once, verb by verb."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", RIVAL, str(folder), str(field)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    rivals = [subprocess.Popen(words, **pipes) for _ in range(2)]
    heard: Counter[str] = Counter()

    def both(line: str) -> None:
        for rival in rivals:
            assert rival.stdin
            rival.stdin.write(line + "\n")
            rival.stdin.flush()
        answers = [(rival.stdout.readline() if rival.stdout else "").split(" ")[0].strip() for rival in rivals]
        assert set(answers) <= {"done", "again", "told"} and {"done", "again"} & set(answers), answers
        heard.update(answers)

    try:
        for rival in rivals:
            assert rival.stdout and rival.stdout.readline() == "ready\n"
        for number in range(2, 2 + rounds):
            both("export")
            place = next((folder / "bundles").glob(f"round-{number}-*[!p]"))
            deploy(place, field / f"{number}.musbo", number, steps=10)
            both(f"ingest {number}.musbo")
            both("train")
    finally:
        for rival in rivals:
            if rival.stdin:
                rival.stdin.close()
            rival.wait()
            if rival.stdout:
                rival.stdout.close()
    return heard


def raced(folder: Path, rounds: int) -> None:
    events = Counter(type(event.what) for event in Campaign(folder).history())
    assert (events[Exported], events[Collected], events[Trained]) == (rounds, rounds + 1, rounds + 1)
    assert Campaign(folder).verify().problems == ()


def test_two_processes_at_once(tmp_path: Path):
    campaign = begin(tmp_path / "campaign")
    campaign.train()
    assert race(campaign.folder, tmp_path, 1)["done"] >= 3
    raced(campaign.folder, 1)


@pytest.mark.long
def test_two_processes_at_once_for_a_hundred_rounds(tmp_path: Path):
    campaign = begin(tmp_path / "campaign", budget=102)
    campaign.train()
    assert race(campaign.folder, tmp_path, 100)["told"] > 50
    raced(campaign.folder, 100)
