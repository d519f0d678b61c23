"""A campaign in the field whose processes are killed, run out of disk or meet each other."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from musbo.campaign.events import Collected, Exported, Trained
from musbo.campaign.field_campaign import Campaign
from musbo.campaign.history import history
from musbo.cli import main
from tests.stories.test_rounds import copy, deploy, logs, sent
from tests.trust.storm import VERBS, Storm, outcome

__all__ = ["sent"]

ROOT = Path(__file__).parents[2]


def test_a_killed_campaign_goes_on_to_the_same_policy(tmp_path: Path):
    storm = Storm(0, "bc")
    lasting = storm.calm(tmp_path / "calm", tmp_path / "calm-field")
    where = storm.killed(tmp_path / "other", tmp_path / "field", 4, lasting / 2, "judge")
    storm.close()
    assert any(name.startswith("judge") for name in where)
    assert outcome(Campaign(tmp_path / "other")) == outcome(Campaign(tmp_path / "calm"))


@pytest.mark.long
@pytest.mark.parametrize(("algo", "wanted"), [("bc", 160), ("musbo", 40)])
def test_two_hundred_kills(tmp_path: Path, algo: str, wanted: int):
    """At random instants and at random durable writes, by turns."""
    storm, where = Storm(1, algo), Counter[str]()
    storm.calm(tmp_path / "first", tmp_path / "first-field")  # which compiles
    lasting = storm.calm(tmp_path / "calm", tmp_path / "calm-field")
    calm = outcome(Campaign(tmp_path / "calm"))
    aims = itertools.cycle(VERBS)
    while where.total() < wanted:
        other, field = tmp_path / "other", tmp_path / "other-field"
        where += storm.killed(other, field, 20, lasting / 2, next(aims))
        assert outcome(Campaign(other)) == calm
        print(algo, where.total(), flush=True)
        shutil.rmtree(other)
        shutil.rmtree(field)
    storm.close()
    print(json.dumps({"method": algo, "kills": where}))
    verbs = {name.partition(",")[0] for name in where}
    assert algo != "bc" or set(VERBS) <= verbs
    assert any("ledger" in name for name in where)


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


def ready_for(folder: Path, rounds: int) -> Campaign:
    """A campaign whose training is short: the race is about the rest."""
    campaign = Campaign.new(
        "pointmass", data=[logs()], algo="bc", preset="quick", budget=rounds + 2, batch_size=100, out=folder
    )
    campaign.train()
    return campaign


def test_two_processes_at_once(tmp_path: Path):
    campaign = ready_for(tmp_path / "campaign", 1)
    assert race(campaign.folder, tmp_path, 1)["done"] >= 3
    raced(campaign.folder, 1)


@pytest.mark.long
def test_two_processes_at_once_for_a_hundred_rounds(tmp_path: Path):
    campaign = ready_for(tmp_path / "campaign", 100)
    heard = race(campaign.folder, tmp_path, 100)
    print(json.dumps({"rounds": 100, "answers": heard}))
    assert heard["told"] > 50
    raced(campaign.folder, 100)


# A small disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path, left: int) -> Path:
    """A file that leaves so many bytes."""
    room = os.statvfs(disk)
    file = disk / "other"
    file.write_bytes(bytes(max(room.f_bavail * room.f_frsize - left, 0)))
    return file


def test_every_verb_on_a_disk_that_is_full(small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Each is refused with a sentence or done whole, and works once there is room."""
    folder = str(small_disk / "campaign")
    recording, field = tmp_path / "1.musbo", small_disk / "campaign" / "bundles"
    new = ["new", "pointmass", "--algo", "bc", "--preset", "quick", "--budget", "1", "--batch-size", "100"]
    verbs = [
        [*new, "--out", folder], ["amend", folder, "--limits", str(tmp_path / "limits.toml")], ["export", folder],
        ["ingest", folder, str(recording), "--accept"], ["train", folder], ["judge", folder, "--go", "calm"],
        ["export", folder],
    ]  # fmt: skip
    (tmp_path / "limits.toml").write_text("change = 0.5\n")
    refused = 0
    for words in verbs:
        if words[0] == "ingest":
            deploy(next(field.glob("round-1-*[!p]")), recording, 1)
        for left in (0, 4_000, 20_000):
            filler = fill(small_disk, left)
            before = history(Path(folder)) if (Path(folder) / "ledger.sqlite").exists() else []
            code = main(words)
            said = capsys.readouterr().err
            assert code in (0, 2) and "Traceback" not in said
            if code:
                refused += 1
                assert re.search("No space left|full", said), said
                assert words[0] == "train" or not before or history(Path(folder)) == before
            filler.unlink()
        assert main(words) == 0 or words[0] == "new"  # which may have been done
        assert Campaign(folder).verify().problems == ()
    status = Campaign(folder).status()
    # Beside what `capsys` holds: it is seen with -s alone.
    print(json.dumps({"verbs": len(verbs), "tries": 3 * len(verbs), "refused": refused}), file=sys.__stdout__)
    assert refused >= len(verbs) and status.next.verb == "done"
    assert [each.state for each in status.rounds] == ["returned"] and status.summary.transitions == 100
