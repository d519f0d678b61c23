"""Diagnostics against oracles: all pairs, dcor, scipy, and a system whose error is known."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from musbo.core.errors import UserError
from musbo.learning.foresight import energy_distance, novelty, rank_correlation, reliability, trajectories_apart

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "energy.json").read_text())
NUMBERS = st.floats(-10, 10, width=32)


def some(n: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float32, st.tuples(st.integers(1, n), st.just(3)), elements=NUMBERS)


@given(some(8), some(8))
def test_novelty_against_all_pairs(batch: np.ndarray, earlier: np.ndarray):
    def unit(v: np.ndarray) -> np.ndarray:
        v = v.astype(float)
        return v / np.linalg.norm(v) if np.linalg.norm(v) > 0 else v

    pairs = [1 - unit(a) @ unit(b) for a in batch for b in earlier]
    assert novelty(batch, [earlier[:7], earlier[7:]]) == pytest.approx(np.mean(pairs), abs=1e-9)


def test_novelty_by_hand():
    x, y = np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]])
    assert novelty(x, [5 * x]) == 0 and novelty(x, [y]) == 1 and novelty(x, [-x]) == 2
    with pytest.raises(UserError, match="before"):
        novelty(x, [x[:0]])


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{len(case['x'])}x{len(case['y'])}")
def test_energy_distance_against_dcor(case: dict):
    got = energy_distance(np.array(case["x"]), np.array(case["y"]))
    assert got == pytest.approx(case["energy_distance"], rel=1e-9)


@given(some(6), some(6))
def test_energy_distance_is_a_distance_between_distributions(x: np.ndarray, y: np.ndarray):
    assert energy_distance(x, x) == pytest.approx(0, abs=1e-6)
    assert energy_distance(x, np.concatenate([x, x])) == pytest.approx(0, abs=1e-5)
    assert energy_distance(x, y) == pytest.approx(energy_distance(y, x), abs=1e-6)
    assert energy_distance(x, y) >= -1e-6


def test_trajectories_end_where_they_end():
    rng = np.random.default_rng(0)
    real = rng.normal(size=(3, 6, 2))
    imagined = real + 0.5
    imagined[0, 3:] = real[1, 5:] = 1e6  # after their ends
    mean, std = np.array([1.0, 2.0]), np.array([0.5, 2.0])
    start = rng.normal(size=(3, 2))
    found = trajectories_apart(start, imagined, real, np.array([3, 6, 6]), np.array([6, 5, 6]), mean, std)
    assert (found.imagined_steps, found.real_steps) == (5, pytest.approx(17 / 3))
    assert found.trajectory_error == pytest.approx(np.mean([(0.5 / 0.5) ** 2, (0.5 / 2.0) ** 2]))
    imagined[0, 3:], real[1, 5:] = imagined[0, 2], real[1, 4]  # they stay there
    x, y = ((part - mean) / std for part in (imagined, real))
    wanted = energy_distance(x.reshape(3, -1), y.reshape(3, -1))
    assert found.energy_distance == pytest.approx(wanted) and wanted > 0


def test_a_model_that_runs_away_at_once_is_not_spared():
    """It stays at its start, in the energy distance; there is no step to take an error of."""
    rng = np.random.default_rng(1)
    start, real = rng.normal(size=(3, 2)), rng.normal(size=(3, 6, 2))
    imagined = np.full((3, 6, 2), 1e9)
    one = np.ones(2)
    found = trajectories_apart(start, imagined, real, np.array([0, 0, 0]), np.array([6, 6, 6]), 0 * one, one)
    stay = np.repeat(start[:, None], 6, axis=1)
    assert found.trajectory_error is None
    assert found.energy_distance == pytest.approx(energy_distance(stay.reshape(3, -1), real.reshape(3, -1)))


@given(arrays(np.float32, st.just(12), elements=st.integers(-4, 4)), arrays(np.float32, st.just(12), elements=NUMBERS))
def test_rank_correlation_against_scipy(x: np.ndarray, y: np.ndarray):
    if len(set(x.tolist())) > 1 and len(set(y.tolist())) > 1:
        assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-9)
    else:
        assert np.isnan(rank_correlation(x, y))


def test_reliability_where_the_true_error_is_known():
    """Errors drawn with the deviation that was announced: in every group mean |error| is sqrt(2 / pi) of the doubt."""
    rng = np.random.default_rng(0)
    doubt = rng.uniform(0.1, 2.0, 100_000)
    error = np.abs(doubt * rng.normal(size=len(doubt)))
    groups = np.array(reliability(doubt, error))
    assert groups.shape == (10, 2) and (np.diff(groups[:, 0]) > 0).all()
    np.testing.assert_allclose(groups[:, 1] / groups[:, 0], np.sqrt(2 / np.pi), rtol=0.03)
    assert 0.4 < rank_correlation(doubt, error) < 0.8
    with pytest.raises(UserError, match="groups"):
        reliability(doubt[:3], error[:3])
