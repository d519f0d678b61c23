"""A CSV of 5,000 rows, with column names of its own and no next observation, from nothing to a trained policy.

What a person types and writes is counted: four commands, six lines of Python and six edits of a printed mapping.
"""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import musbo
from musbo.cli import main

# The task of the story, as its user writes it.
TASK = """
import musbo


def reward(obs, act, next_obs):
    return -next_obs[0] ** 2 - next_obs[1] ** 2 - 0.01 * (act[0] ** 2 + act[1] ** 2)


BOAT = musbo.Task(
    name="boat", obs_size=4, act_size=2, act_low=(-1.0, -1.0), act_high=(1.0, 1.0), episode_steps=50, reward=reward
)
"""
EDITS = {
    # In the printed mapping, everything that is a number was put into obs: the forces are moved, the rest deleted.
    '  "Force E",\n  "Force N",\n': "",
    "act = []": 'act = ["Force E", "Force N"]',
    '  "Battery",\n': "",
    '# episode = ""': 'episode = "Trip"',
    '"V east (cm/s)"': '{ column = "V east (cm/s)", scale = 0.01 }',
    '"V north (cm/s)"': '{ column = "V north (cm/s)", scale = 0.01 }',
}
TRIPS, STEPS = 100, 50


def drive(act, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Rows of (east, north, velocities, forces) of one trip, and what it earned."""
    state, rows, earned = np.concatenate([rng.uniform(-1, 1, 2), np.zeros(2)]), [], 0.0
    for _ in range(STEPS):
        force = np.clip(act(state), -1, 1)
        rows.append(np.concatenate([state, force]))
        before = state[2:]
        after = before + 0.1 * force
        state = np.concatenate([state[:2] + 0.05 * (before + after), after])
        earned += -float(state[:2] @ state[:2]) - 0.01 * float(force @ force)
    return np.asarray(rows), earned


def record(path: Path) -> list[float]:
    """The log as a boat's computer would write it, newest trip first; returns what each trip earned."""
    rng = np.random.default_rng(0)
    lines, earned = ["Trip;Time;East;North;V east (cm/s);V north (cm/s);Force E;Force N;Battery"], []
    for trip in reversed(range(TRIPS)):
        rows, total = drive(lambda state: rng.uniform(-1, 1, 2), rng)
        earned.append(total)
        for t in reversed(range(STEPS)):
            x, y, vx, vy, fx, fy = rows[t]
            clock = f"2024-05-{1 + trip // 24:02}T{trip % 24:02}:{t // 6:02}:{t % 6}0"
            numbers = (x, y, 100 * vx, 100 * vy, fx, fy, 100 - t / 10)
            lines.append(";".join([f"trip-{trip}", clock, *(f"{value:.6f}".replace(".", ",") for value in numbers)]))
    path.write_text("\n".join(lines) + "\n")
    return earned


class Desk:
    """Where the user sits: counts commands."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.commands = capsys, 0

    def type(self, line: str) -> tuple[int, str, str]:
        self.commands += 1
        code = main(shlex.split(line)[1:])
        out, error = self.capsys.readouterr()
        return code, out, error


def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, desk: Desk, settings: str) -> list[float]:
    monkeypatch.chdir(tmp_path)
    earned = record(tmp_path / "boat.csv")
    (tmp_path / "boat.py").write_text(TASK)
    written = len([line for line in TASK.splitlines() if line.strip()])
    # Without a mapping, the error says what to do.
    code, _, error = desk.type("musbo run boat.py:BOAT --data boat.csv --budget 1")
    assert code == 2 and "`musbo mapping boat.csv > mapping.toml` prints one to fill in" in error
    code, text, _ = desk.type("musbo mapping boat.csv")
    assert code == 0 and 'time = "Time"' in text
    for old, new in EDITS.items():
        assert text.count(old) == 1 + old.startswith('"V'), old  # once in the list of what there is, once in obs
        text = new.join(text.rsplit(old, 1))
    (tmp_path / "mapping.toml").write_text(text)
    code, out, _ = desk.type("musbo check boat.csv --mapping mapping.toml --task boat.py:BOAT")
    assert code == 0, out
    assert "5,000 rows, 100 episodes, 4,900 transitions, 100 last rows used only as the observation after" in out
    assert "4,900 rows out of order in time, which were sorted" in out
    assert "reward from the formula of the task" in out and "not used: Battery" in out
    assert "nothing wrong was found for task boat.py:BOAT" in out
    run = "musbo run boat.py:BOAT --data boat.csv --mapping mapping.toml --budget 1 --out run --json"
    code, out, error = desk.type(f"{run} {settings}")
    assert code == 0, error
    assert json.loads(out)["transitions"] == 4900 and "boat.csv: 5,000 rows" in error
    assert (desk.commands, written, len(EDITS)) == (4, 6, 6)
    return earned


def test_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    story(tmp_path, monkeypatch, Desk(capsys), "--preset quick --algo bc")  # cloning alone: the long form has MUSBO
    policy = musbo.load_policy(tmp_path / "run")
    assert np.all(np.abs(policy(np.random.default_rng(0).normal(size=(50, 4)))) <= 1)
    batch = musbo.read_batch(tmp_path / "run" / "data" / "deployment-1.parquet")
    # Velocities are in metres per second, and rows in the order of their time.
    moved = 0.05 * (batch.obs[:, 2:] + batch.next_obs[:, 2:])
    np.testing.assert_allclose(batch.next_obs[:, :2], batch.obs[:, :2] + moved, atol=2e-6)
    wanted = -(batch.next_obs[:, :2] ** 2).sum(1) - 0.01 * (batch.act**2).sum(1)
    np.testing.assert_allclose(batch.reward, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_and_the_policy_is_better_than_what_made_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    earned = story(tmp_path, monkeypatch, Desk(capsys), "--preset quick")
    policy, rng = musbo.load_policy(tmp_path / "run"), np.random.default_rng(1)
    after = [drive(policy, rng)[1] for _ in range(10)]
    print(f"per trip: {np.mean(earned):.1f} logged, {np.mean(after):.1f} with the policy")
    assert np.mean(after) > np.mean(earned) / 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "run pointmass --mapping m.toml",
            "--mapping says what the columns of --data mean: give the files",
        ),
        ("check nowhere.csv", "nowhere.csv cannot be read: No such file"),
        ("mapping nowhere.csv", "nowhere.csv cannot be read: No such file"),
        ("check logs.csv --mapping nowhere.toml", "nowhere.toml cannot be read: No such file"),
        ("check logs.csv --task pointmas", "Did you mean pointmass?"),
    ],
)
def test_refused(words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs.csv").write_text("obs_0,act_0,episode\n1,2,3\n")
    assert main(words.split()) == 2
    assert sentence in capsys.readouterr().err


def test_check_says_what_a_run_would_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "logs.csv").write_text("obs_0,act_0,episode\n1,2,3\n1,5,3\n2,0,3\n")
    words = ["check", str(tmp_path / "logs.csv"), "--task", "pendulum"]
    assert main([*words]) == 2
    assert "error: obs has shape (2, 1), but task pendulum needs (2, 3)" in capsys.readouterr().out
    assert main([*words, "--json"]) == 2
    (seen,) = json.loads(capsys.readouterr().out)
    assert (seen["rows"], seen["transitions"], seen["successors"]) == (3, 2, 1)
    assert seen["findings"][0]["level"] == "error" and seen["ranges"][1]["high"] == 2.0


def test_the_doctor_as_json_and_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rng = np.random.default_rng(0)
    rows = [
        (day, t, *rng.normal(size=2), rng.uniform(-1, 1), *rng.normal(size=1)) for day in range(20) for t in range(30)
    ]
    names = "day,t,temp_<b>,flow,valve,cash"
    lines = [f"{day},{t},{temp},{flow if day != 3 else 0.5},{valve},{cash}" for day, t, temp, flow, valve, cash in rows]
    (tmp_path / "plant.csv").write_text("\n".join([names, *lines]) + "\n")
    said = 'obs = ["temp_<b>", "flow"]\nact = ["valve"]\nepisode = "day"\ntime = "t"\n'
    (tmp_path / "m.toml").write_text(said)
    (tmp_path / "twice.csv").write_text("\n".join([names, *lines, lines[-1]]) + "\n")
    page = tmp_path / "out.html"
    words = ["check", str(tmp_path / "plant.csv"), "--mapping", str(tmp_path / "m.toml")]
    assert main([*words, "--page", str(page), "--planned", "600"]) == 0
    out = capsys.readouterr().out
    assert "note: 580 transitions came home, fewer than the 600" in out and str(page) in out
    assert "warning: flow stays at one value for 20 steps or more in one place, the longest from row 90" in out
    text = page.read_text()
    assert "Check of plant.csv" in text and text.count("<figure") == 3 and "temp_<b>" not in text
    assert 'href="figures/' not in text and 'href="tables/' not in text
    # A log that cannot be read as steps is a finding, beside those of the others.
    assert main(["check", str(tmp_path / "twice.csv"), *words[1:], "--json", "--page", str(page)]) == 2
    plant, twice = json.loads(capsys.readouterr().out)
    assert plant["transitions"] == 580
    (finding,) = twice["findings"]
    assert (finding["kind"], finding["level"], finding["row"]) == ("duplicated steps", "error", 599)
    assert finding["columns"] == ["t"] and "would be refused" in page.read_text()
    # The same file again, as what was deployed before.
    assert main([*words, "--earlier", str(tmp_path / "plant.csv")]) == 0
    assert "warning: 20 episodes are copies of others" in capsys.readouterr().out
