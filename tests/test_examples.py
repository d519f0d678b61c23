"""Every example runs, with settings so small that it takes seconds."""

from pathlib import Path
from types import ModuleType

import numpy as np

from musbo.algorithms.recipes import ALGORITHMS
from musbo.tasks import modules
from tests.stories import tiny

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    """As `--import` does, once; a method that it adds does not stay, since other tests go through all methods."""
    known = dict(ALGORITHMS)
    module = modules.load(str(EXAMPLES / f"{name}.py"), "an example")
    ALGORITHMS.clear()
    ALGORITHMS.update(known)
    return module


def test_no_example_is_forgotten():
    """The label of morel_halt, and the program, are tested in tests/learning/test_halt_example.py."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"own_task", "offline", "morel_halt"}


def test_own_task(tmp_path, capsys):
    result = load("own_task").main(budget=2, batch_size=200, episodes=2, method=tiny.method(), out=tmp_path / "run")
    assert len(result.returns) == 2 and result.policy(np.zeros(2)).shape == (1,)
    assert "return after each deployment" in capsys.readouterr().out


def test_own_task_has_the_reward_and_the_end_that_its_simulator_has():
    example = load("own_task")
    state, act = np.array([3.9, 1.0], np.float32), np.array([1.0], np.float32)
    after, reward = example.step(state, act)
    # By hand: velocity 1 + 0.2 (2 - 0.5) = 1.3, depth 3.9 + 0.2 * 1.3 = 4.16.
    np.testing.assert_allclose(after, [4.16, 1.3], rtol=1e-6)
    np.testing.assert_allclose(reward, 1 - 4.16**2 - 0.05, rtol=1e-6)
    assert bool(example.terminated(after)) and not bool(example.terminated(state))


def test_offline(tmp_path, capsys):
    before, after = load("offline").main(days=4, out=tmp_path / "run", batch_size=192, method=tiny.method())
    assert np.isfinite([before, after]).all()
    assert "reward per day" in capsys.readouterr().out
