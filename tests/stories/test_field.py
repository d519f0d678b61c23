"""From a run to the field and back: export, a controller with numpy alone beside a plant, and its recording as data."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import musbo
from musbo.campaign import folders, runner
from musbo.campaign.bundles import export
from musbo.campaign.events import Evaluated, Trained
from musbo.campaign.news import Completed
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.field.runtime import Bundle, FieldError, Runtime
from tests.stories import tiny

# The plant is much like the point mass: a double integrator, in episodes of 50 steps.
CONTROLLER = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from runtime import Runtime

random = np.random.default_rng(0)
with Runtime(sys.argv[1], fallback=[0.0, 0.0], record=sys.argv[2], explore=True, seed=1) as controller:
    for episode in range(3):
        position, velocity = random.uniform(-1, 1, 2), np.zeros(2)
        controller.begin()
        reward = None
        for step in range(50):
            action = controller.act(np.concatenate([position, velocity]), reward=reward)
            velocity = velocity + 0.1 * action
            position = position + 0.1 * velocity
            reward = -float(position @ position) - 0.01 * float(action @ action)
        controller.end(np.concatenate([position, velocity]), reward=reward)
assert "jax" not in sys.modules and "musbo" not in sys.modules
"""


def acted(controller: Runtime, obs: np.ndarray) -> np.ndarray:
    act = controller.act(obs)
    assert act is not None
    return act


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of MUSBO."""
    folder = tmp_path_factory.mktemp("field") / "run"
    assert main(["run", "pointmass", "--preset", "quick", *tiny.FLAGS, "--out", str(folder), "--json"]) == 0
    return folder


def test_out_to_the_field_and_back(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "limits.toml").write_text("change = 0.5\nnoise = 0.2\n")
    words = ["export", str(run), "--out", str(tmp_path / "site"), "--limits", str(tmp_path / "limits.toml")]
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["deployment"] == 2 and said["notes"] == [] and not said["explores"]
    assert Bundle(tmp_path / "site").id == Bundle(tmp_path / "site.zip").id == said["id"]
    recording = tmp_path / "monday.musbo"
    words = [sys.executable, "-I", "-c", CONTROLLER, str(tmp_path / "site"), str(recording)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    batch = musbo.read_batch(recording)
    assert len(batch) == 150 and len(batch.starts()) == 3
    assert np.all(np.abs(np.diff(batch.act[:50], axis=0)) <= 0.5 + 1e-6)
    assert main(["check", str(recording), "--task", "pointmass"]) == 0
    again = ["--data", str(recording), "--out", str(tmp_path / "next"), *tiny.METHOD]
    assert main(["run", "pointmass", "--preset", "quick", "--budget", "1", "--episodes", "2", *again, "--json"]) == 0


def test_the_bundle_acts_as_the_run_does(run: Path, tmp_path: Path):
    made = musbo.export(run, out=tmp_path / "site")
    policy, controller = musbo.load_policy(run), Runtime(made.folder, fallback=[0, 0])
    for obs in np.random.default_rng(0).uniform(-1, 1, (50, 4)):
        np.testing.assert_allclose(acted(controller, obs), policy(obs), atol=1e-5)


def test_exporting_again_changes_nothing_and_keeps_the_sites_limits(run: Path):
    made = export(run)
    assert made.folder == run / "bundles" / "deployment-2" and made.archive.name == "deployment-2.zip"
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in made.folder.iterdir()}
    assert set(before) == set(made.files)
    assert export(run) == made
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in made.folder.iterdir()}
    (made.folder / "limits.toml").write_text("change = 0.25\n")
    assert export(run).id == made.id
    assert Runtime(made.archive, fallback=[0, 0]).limits["change"] == [0.25, 0.25]
    assert main(["verify", str(run)]) == 0


def test_an_unfinished_run_explores(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Before its last deployment a run exports the behaviour that collects the next batch."""
    folder = tmp_path / "half"
    folders.create(folder, tiny.settings())

    def stop(kind: type) -> Callable[[object], None]:
        def observe(news: object) -> None:
            if isinstance(news, Completed) and isinstance(news.what, kind):
                raise KeyboardInterrupt

        return observe

    with pytest.raises(UserError, match="has no trained policy yet"):
        export(folder)
    with pytest.raises(KeyboardInterrupt):
        runner.advance(folder, stop(Trained))
    made = export(folder)
    with pytest.raises(KeyboardInterrupt):
        runner.advance(folder, stop(Evaluated))
    assert export(folder) == made  # the run has gone on, the policy is the same
    assert made.deployment == 1 and made.explores
    manifest = json.loads((made.folder / "manifest.json").read_text())
    assert manifest["explore"]["kind"] == "seeking" and manifest["explore"]["default"]
    assert main(["export", str(folder)]) == 0
    assert "explores to collect the next batch" in capsys.readouterr().out


def test_what_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    made = export(run, out=tmp_path / "site")
    (tmp_path / "changed").mkdir()
    shutil.copytree(made.folder, tmp_path / "changed" / "site")
    (tmp_path / "changed" / "site" / "policy.h").write_text("other")
    (tmp_path / "wrong.toml").write_text("speed = 1")
    for words, message in (
        (["--out", str(tmp_path / "taken")], "holds something else already: remove it, or choose another --out"),
        (["--out", str(tmp_path / "changed" / "site")], "policy.h is not what was exported"),
        (["--out", str(tmp_path / "new"), "--limits", str(tmp_path / "wrong.toml")], "there is no limit 'speed'"),
        (["--out", str(tmp_path / "new"), "--limits", str(tmp_path / "absent.toml")], "cannot be read"),
    ):
        capsys.readouterr()
        assert main(["export", str(run), *words]) == 2
        assert message in capsys.readouterr().err
    assert (tmp_path / "taken" / "file").read_text() == "mine" and not (tmp_path / "new").exists()
    assert main(["export", str(tmp_path / "taken")]) == 2
    with pytest.raises(FieldError, match="lacks"):
        Bundle(tmp_path / "taken")


@pytest.mark.parametrize("algo", ["sac", "bcq", "bc"])
def test_other_methods(tmp_path: Path, algo: str):
    words = ["run", "pointmass", "--algo", algo, "--preset", "quick", "--budget", "1", "--batch-size", "100"]
    small = {"sac": ["--steps", "20"], "bcq": ["--steps", "20"], "bc": []}[algo]
    assert main([*words, *small, "--episodes", "1", "--out", str(tmp_path / "run"), "--json"]) == 0
    made = musbo.export(tmp_path / "run")
    policy, controller = musbo.load_policy(tmp_path / "run"), Runtime(made.folder, fallback=[0, 0])
    for obs in np.random.default_rng(0).uniform(-1, 1, (20, 4)):
        np.testing.assert_allclose(acted(controller, obs), policy(obs), atol=1e-5)
    assert ("policy.onnx" in made.files) == (algo != "bcq")
    exploring = Runtime(made.folder, fallback=[0, 0], explore=True, seed=0)
    drawn = [acted(exploring, np.zeros(4)) for _ in range(10)]
    assert np.std(drawn, axis=0).max() > 0
