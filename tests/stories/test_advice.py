"""A task with two faults, from the command line: the run says so, in the order of weight, everywhere and once."""

import json
import re
from pathlib import Path

import pytest

from musbo.cli import main
from tests.stories import tiny

TASK = """
from dataclasses import replace
from musbo.tasks.builtin import pointmass, pointmass_reward

TENTH = replace(
    pointmass, name="tenth", reward=lambda o, a, n: 0.1 * pointmass_reward(o, a, n), terminated="learned"
)
"""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "mine.py").write_text(TASK)
    words = ["run", f"{folder / 'mine.py'}:TENTH", "--preset", "quick", *tiny.FLAGS, "--out", str(folder / "run")]
    assert main(words) == 0
    return folder / "run"


def test_the_faults_are_named_in_order(faulty: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["status", str(faulty), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kinds = [each["kind"] for each in found["advice"]]
    assert kinds[0] in ("reward formula", "reward disagrees") and kinds.index("no terminations") < kinds.index(
        "few episodes"
    )
    assert len(kinds) == len(set(kinds))
    recorded = [item["batch"]["rewards"] for item in found["deployments"]]
    for each in recorded:
        assert each["formula"] == pytest.approx(0.1 * each["recorded"], rel=1e-4)
    assert [item["batch"]["terminations"] for item in found["deployments"]] == [0, 0]
    assert "things to look at" in found["verdict"]


def test_the_end_of_a_run_is_a_picture_and_a_numbered_list(faulty: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["resume", str(faulty), "--trust-task"]) == 0
    out, progress = capsys.readouterr()
    assert re.search(
        r"^return  \S+ [▁▂▃▄▅▆▇█]{3} \S+   random actions, then the policy after each deployment$", out, re.M
    )
    assert re.search(r"^After 2 deployments \(200 transitions\) the policy earns ", out, re.M)
    numbered = re.findall(r"^  (\d+)\. (.*)$", out, re.M)
    assert [number for number, _ in numbered] == [str(i) for i in range(1, len(numbered) + 1)]
    assert numbered[0][1].startswith("The reward formula ") and out.count("The reward formula ") == 1
    assert "warning" not in progress  # it was said when it arose


def test_the_page_begins_with_the_verdict(faulty: Path, tmp_path: Path):
    assert main(["report", str(faulty), "--trust-task", "--out", str(tmp_path / "page")]) == 0
    text = re.sub(r'<span class="term"[^>]*>(.*?)</span>', r"\1", (tmp_path / "page" / "index.html").read_text())
    first = text[text.index("<section") : text.index("</section>")]
    assert "<h2>Verdict</h2>" in first and "things to look at" in first
    assert first.index("The reward formula ") < first.index("Termination is learned")
    assert "data:image/webp;base64," in text  # the point mass at work
    for word in ("foresight", "courses", "doubtful"):  # ours, and not of the field
        assert word not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL).lower(), word
