"""Runs of every format that was ever written open, say the same as then, and go on.

`tests/golden/run-v1` was made by version 0.1 from the campaign of `tests/stories/tiny` (with a check at every update):
killed in the third update of its second training. `run-v1.json` is what that version said of it, and what it ended with
when it went on.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from musbo.algorithms.imagined_trpo import State
from musbo.campaign import runner, schema
from musbo.campaign.ledger import Ledger
from musbo.campaign.summary import read_status, summary, whereabouts
from musbo.core import serial
from musbo.core.diagnostics import Quantiles
from musbo.core.errors import UserError
from musbo.models.policy import Policy
from tests.campaign.test_ledger import DEADLY, ENVIRONMENT

GOLDEN = Path(__file__).parents[1] / "golden"
RUNS = sorted(path for path in GOLDEN.glob("run-v*") if path.is_dir())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / "run-v1", tmp_path / "run")
    return tmp_path / "run"


def version(path: Path) -> int:
    database = sqlite3.connect(path)
    (found,) = database.execute("PRAGMA user_version").fetchone()
    database.close()
    return found


def test_there_is_a_golden_run_of_every_format():
    assert [version(path / "ledger.sqlite") for path in RUNS] == list(range(1, schema.VERSION + 1))


@pytest.mark.parametrize("golden", RUNS, ids=lambda path: path.name)
def test_a_run_of_every_format_is_read_without_being_touched(golden: Path, tmp_path: Path):
    shutil.copytree(golden, tmp_path / "run")
    before = (tmp_path / "run" / "ledger.sqlite").read_bytes()
    found = summary(tmp_path / "run")
    assert found.deployed == 2 and found.transitions == 200 and not found.finished
    assert found.settings.budget == 2 and found.settings.batch_size == 100
    assert whereabouts(tmp_path / "run").now.startswith("training deployment 2 of 2, check 2")
    assert (tmp_path / "run" / "ledger.sqlite").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["ledger.sqlite", "settings.json", "store"]


def test_format_1_says_what_it_said_then(run: Path):
    old = json.loads((GOLDEN / "run-v1.json").read_text())["first"]
    first, second = summary(run).deployments
    assert (first.batch.transitions, first.batch.episodes) == (old["batch"]["size"], old["batch"]["n_episodes"])
    assert first.batch.mean_return == old["batch"]["batch_return"]
    assert first.training is not None and first.evaluation is not None
    assert first.training.policy_sha256 == old["trained"]["policy_sha256"]
    forecast = first.training.forecast
    assert forecast is not None and forecast.total == old["trained"]["imagined_return"]
    episodes, agreement, stretch = first.evaluation.episodes, first.evaluation.agreement, first.evaluation.stretch
    assert episodes is not None and agreement is not None and stretch is not None
    assert (episodes.mean_return, episodes.deviation) == (old["evaluated"]["return"], old["evaluated"]["spread"])
    assert list(episodes.returns) == old["evaluated"]["returns"]
    assert agreement.energy_distance == old["evaluated"]["energy_distance"]
    assert agreement.trajectory_error == old["evaluated"]["trajectory_mse"]
    assert stretch.total == old["evaluated"]["early_return"]
    found = {diagnostic.name: diagnostic.value for diagnostic in first.diagnostics}
    for name in ("U", "disagreement"):
        assert found[name] == Quantiles(*old["trained"][name])
    for name in ("dynamics_error", "labeler_error", "alpha", "rank_correlation", "imagined_cut", "path_disagreement"):
        assert found[name] == old["trained"][name]
    assert {caution.kind for caution in first.cautions} == {"inert", "cut"}
    assert {diagnostic.name for diagnostic in second.batch.findings.diagnostics} == {"zeta", "zeta_at_cap"}


def test_format_1_goes_on_to_the_end_that_it_would_have_had(run: Path):
    """The bits are those of one machine; elsewhere the numbers are close."""
    expected = json.loads((GOLDEN / "run-v1.json").read_text())
    before = (run / "ledger.sqlite").read_bytes()
    done = runner.advance(run)
    assert done.finished
    assert list(done.returns) == pytest.approx(expected["returns"], rel=1e-3)
    assert version(run / "ledger.sqlite") == schema.VERSION
    assert (run / "ledger.v1.sqlite").read_bytes() == before
    dynamics = [d for d in done.deployments[1].diagnostics if d.name == "dynamics_error"]
    assert len(dynamics) == 1 and dynamics[0].value is not None  # from before the kill, by the metrics of then
    assert done == summary(run)
    old, forecast = expected["second"], done.deployments[1].training.forecast  # type: ignore[union-attr]
    assert forecast is not None and forecast.total == pytest.approx(old["imagined_return"], rel=1e-3)


def test_the_file_is_upgraded_once(run: Path):
    for _ in range(2):
        with Ledger(run / "ledger.sqlite", writable=True) as ledger:
            assert ledger.status().deployment == 2
    assert sorted(path.name for path in run.glob("ledger*")) == ["ledger.sqlite", "ledger.v1.sqlite"]
    assert version(run / "ledger.v1.sqlite") == 1


KILLED = (
    DEADLY
    + """
from musbo.campaign.ledger import Ledger

with Ledger(Path(sys.argv[1]), writable=True):
    pass
print(count)
"""
)


def test_an_upgrade_that_is_killed_happened_whole_or_not_at_all(run: Path, tmp_path: Path):
    path = run / "ledger.sqlite"
    original, expected = path.read_bytes(), summary(run)

    def upgrade(deadly: int) -> subprocess.CompletedProcess[str]:
        child = [sys.executable, "-c", KILLED, str(path), str(deadly)]
        return subprocess.run(child, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    whole = upgrade(0)
    assert whole.returncode == 0, whole.stderr
    statements = int(whole.stdout)
    assert statements > 20
    for deadly in (*range(6, statements, max(1, statements // 6)), statements - 1):
        path.write_bytes(original)
        assert upgrade(deadly).returncode == -9
        assert version(path) in (1, schema.VERSION)
        assert summary(run) == expected


def test_a_damaged_ledger_of_format_1_is_a_sentence(run: Path):
    database = sqlite3.connect(run / "ledger.sqlite")
    database.execute("DROP TRIGGER events_stay_as_they_are")
    database.execute("UPDATE events SET payload = '{}' WHERE kind = 'batch'")
    database.commit()
    database.close()
    with pytest.raises(UserError, match="ledger.sqlite is damaged"):
        summary(run)


def test_the_states_of_format_1_are_read(run: Path):
    """A policy, the state after the first training, and that of the checkpoint, with a choice of version 1."""
    found = [serial.load(path) for path in (run / "store").glob("*.safetensors")]
    policies = [value for value in found if isinstance(value, Policy)]
    states = [value for value in found if isinstance(value, State)]
    assert len(policies) == 1 and len(states) == 2
    (choice,) = [state.choice for state in states if state.choice is not None]
    assert np.isfinite(choice.rating.returns).all() and np.isnan(choice.rating.length)


@pytest.mark.parametrize(("said", "steps"), [(7, 7), (None, 0), ("absent", 0)])
def test_the_steps_of_an_oracle_are_carried_over(tmp_path: Path, said: object, steps: int):
    shutil.copytree(GOLDEN / "run-v1", tmp_path / "run")
    database = sqlite3.connect(tmp_path / "run" / "ledger.sqlite")
    database.execute("DROP TRIGGER IF EXISTS events_stay_as_they_are")
    (text,) = database.execute("SELECT payload FROM events WHERE kind = 'batch' AND deployment = 1").fetchone()
    payload = json.loads(text)
    payload.pop("extra_steps", None)
    payload |= {} if said == "absent" else {"extra_steps": said}
    database.execute("UPDATE events SET payload = ? WHERE kind = 'batch' AND deployment = 1", (json.dumps(payload),))
    database.commit()
    database.close()
    assert read_status(tmp_path / "run").collected[1].extra_steps == steps
