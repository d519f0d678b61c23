"""U from members whose disagreement is known by hand: they add (0, 0), (0.1, -0.2) and (0.3, 0.2) to the state.

In L1 the pairs are 0.3, 0.5 and 0.6 apart.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.core.diagnostics import Findings, Quantiles
from musbo.core.errors import UserError
from musbo.learning.imagine import Rollout
from musbo.learning.label import (
    Continuation,
    Disagreement,
    Label,
    Trust,
    disagreement,
    draw_pair,
    penalty_findings,
    temperature,
)
from musbo.models.labeler import Labeler
from tests.learning.small import acting_labeler, f32, rollout_of, shifting_labeler

T, B = 5, 300
SHIFTS = [[0.0, 0.0], [0.1, -0.2], [0.3, 0.2]]
APART = [0.3, 0.5, 0.6]
JUDGE = shifting_labeler(SHIFTS, levels=(0.7, 1.0, 1.0, 1.0))
ROLLOUT = rollout_of(np.zeros((T, B)), obs=np.random.default_rng(0).normal(size=(T + 1, B, 2)))
KEY = jax.random.PRNGKey(0)


def labelled(
    label: Label, judge: Labeler = JUDGE, rollout: Rollout = ROLLOUT, key=KEY
) -> tuple[np.ndarray, np.ndarray]:
    """U and the disagreement."""
    got, signals = label(rollout, judge, key)
    return np.asarray(got.weight), np.asarray(signals["disagreement"])


def nearest(values: np.ndarray) -> np.ndarray:
    """Index of the pair that each distance is; asserts that it is one."""
    index = np.argmin(np.abs(values[..., None] - np.array(APART)), axis=-1)
    np.testing.assert_allclose(values, np.array(APART)[index], atol=1e-4)
    return index


@pytest.mark.parametrize(("pairs", "distance"), [("max", 0.6), ("mean", 1.4 / 3)])
@pytest.mark.parametrize("alpha", [0.028, 0.28, 0.0])
def test_u_by_hand(pairs: Any, distance: float, alpha: float):
    U, apart = labelled(Disagreement(alpha=alpha, pairs=pairs))
    np.testing.assert_allclose(apart, distance, rtol=1e-4)
    np.testing.assert_allclose(U, np.exp(-alpha * distance), rtol=1e-4)
    assert U.shape == (T, B)


def test_one_pair_per_batch():
    """The same everywhere in a batch; each pair equally often over batches."""
    U, apart = labelled(Disagreement(alpha=0.28))
    pair = nearest(apart)
    assert (pair == pair[0, 0]).all()
    np.testing.assert_allclose(U, np.exp(-0.28 * APART[pair[0, 0]]), rtol=1e-4)
    few = rollout_of(np.zeros((1, 1)))
    many = jax.vmap(lambda key: disagreement("batch", "mean", few, JUDGE, key))(jax.random.split(KEY, 3000))
    np.testing.assert_allclose(np.bincount(nearest(np.asarray(many).ravel())) / 3000, 1 / 3, atol=0.03)


def test_one_pair_per_trajectory():
    _, apart = labelled(Disagreement(pairs="trajectory"))
    pair = nearest(apart)
    assert (pair == pair[:1]).all()
    np.testing.assert_allclose(np.bincount(pair[0]) / B, 1 / 3, atol=0.1)


def test_pairs_are_two_different_members():
    a, b = jax.vmap(lambda key: jnp.stack(draw_pair(4, key)))(jax.random.split(KEY, 6000)).T
    assert (np.asarray(a) != np.asarray(b)).all()
    drawn = np.bincount(np.asarray(4 * a + b), minlength=16).reshape(4, 4) / 6000
    np.testing.assert_allclose(drawn + np.eye(4) / 12, 1 / 12, atol=0.015)


@pytest.mark.parametrize("pairs", ["batch", "trajectory", "max", "mean"])
def test_samples(pairs: Any):
    """Two members with the same mean and deviation s: the difference has deviation sqrt(2) s in each of two states."""
    s = 0.2
    judge = shifting_labeler([[0.0, 0.0], [0.0, 0.0]], logvar=2 * np.log(s))
    _, apart = labelled(Disagreement(pairs=pairs, prediction="sample"), judge)
    assert apart.mean() == pytest.approx(2 * np.sqrt(2) * s * np.sqrt(2 / np.pi), rel=0.05)
    assert apart.var() == pytest.approx(2 * 2 * s**2 * (1 - 2 / np.pi), rel=0.1)
    _, means = labelled(Disagreement(pairs=pairs), judge)
    np.testing.assert_allclose(means, 0, atol=1e-6)


def test_auto_halves_at_the_90th_percentile():
    """alpha = ln 2 / p90: U is one half where the disagreement is as large as on the worst tenth of held-out data."""
    assert float(temperature(Disagreement(alpha="auto"), JUDGE)) == pytest.approx(np.log(2) / 0.7, rel=1e-5)
    judge = shifting_labeler(SHIFTS, levels=(0.6, 1.0, 1.0, 1.0))
    U, _ = labelled(Disagreement(alpha="auto", pairs="max"), judge)
    np.testing.assert_allclose(U, 0.5, rtol=1e-4)


def test_trust_is_one():
    U, apart = labelled(Trust())
    assert (U == 1).all()
    nearest(apart)  # but the disagreement is there for the log


@pytest.mark.parametrize("pairs", ["batch", "trajectory", "max"])
def test_the_executed_action_is_judged(pairs: Any):
    """Two members that differ by |a|: the action that entered the model counts, not the one that was sampled."""
    executed = np.linspace(-1, 1, T * B, dtype=np.float32).reshape(T, B, 1)
    rollout = replace(ROLLOUT, act=f32(5 * executed), executed=f32(executed))
    _, apart = labelled(Disagreement(pairs=pairs), acting_labeler(), rollout)
    np.testing.assert_allclose(apart, np.abs(executed[..., 0]), atol=1e-5)


def test_the_rest_of_the_rollout_is_untouched():
    got, _ = Disagreement()(ROLLOUT, JUDGE, KEY)
    for name in ("obs", "act", "executed", "reward", "terminated", "live", "last_obs"):
        np.testing.assert_array_equal(getattr(got, name), getattr(ROLLOUT, name))


def test_predictions_that_are_no_numbers_are_not_trusted():
    """inf - inf in a judge far outside its data: U is 0 there and nowhere else."""
    obs = np.zeros((T + 1, B, 2))
    obs[2, 3] = [3e38, 0.0]
    judge = replace(JUDGE, scaling=replace(JUDGE.scaling, target_mean=f32([3e38, 0.0])))
    U, _ = labelled(Disagreement(pairs="max"), judge, rollout_of(np.zeros((T, B)), obs=obs))
    assert U[2, 3] == 0 and (np.delete(U.ravel(), 2 * B + 3) > 0).all()


def test_one_member_cannot_disagree():
    with pytest.raises(UserError, match="at least 2 members"):
        labelled(Disagreement(), shifting_labeler([[0.0, 0.0]]))


@pytest.mark.parametrize("alpha", [-0.1, float("nan")])
def test_impossible_settings(alpha: float):
    with pytest.raises(UserError, match="alpha"):
        Disagreement(alpha=alpha)


# What labels show of their signals


def shown(findings: Findings) -> dict[str, Any]:
    return {one.name: one.value for one in findings.diagnostics}


def kinds(findings: Findings) -> list[str]:
    return [one.kind for one in findings.cautions]


WIDE, APART_10_90 = Quantiles(0.2, 0.5, 0.9), Quantiles(0.1, 0.3, 0.6)


def test_signals_are_named_and_cover_every_step():
    for label, names in ((Trust(), {"disagreement"}), (Disagreement(alpha=0.28), {"U", "disagreement"})):
        assert isinstance(label, Label)
        got, signals = label(ROLLOUT, JUDGE, KEY)
        assert set(signals) == names and all(signal.shape == (T, B) for signal in signals.values())
        assert "U" not in signals or np.array_equal(signals["U"], got.weight)


def test_findings_of_trust():
    found = Trust().findings(JUDGE, {"disagreement": APART_10_90})
    assert shown(found) == {"disagreement": APART_10_90} and kinds(found) == []
    assert found.diagnostics[0].series == "improve"


@pytest.mark.parametrize(("alpha", "wanted"), [(0.028, 0.028), ("auto", np.log(2) / 0.7)])
def test_findings_of_disagreement(alpha: Any, wanted: float):
    found = Disagreement(alpha=alpha).findings(JUDGE, {"U": WIDE, "disagreement": APART_10_90})
    assert shown(found) == {"U": WIDE, "disagreement": APART_10_90, "alpha": pytest.approx(wanted, rel=1e-5)}
    assert kinds(found) == []
    assert [one.series for one in found.diagnostics] == ["improve", "improve", ""]


@pytest.mark.parametrize(
    ("U", "said"),
    [
        (Quantiles(0.0, 0.01, 0.05), []),  # a range of 0.05 is enough
        (Quantiles(0.0, 0.01, 0.0499), ["nothing trusted"]),
        (Quantiles(0.0, 0.0, 0.0), ["nothing trusted"]),
        (Quantiles(0.05, 0.06, 0.07), ["inert"]),
        (Quantiles(0.97, 0.98, 0.99), ["inert"]),
        (Quantiles(1.0, 1.0, 1.0), ["inert"]),
        (WIDE, []),
        (None, []),  # nothing is known
    ],
)
def test_a_coefficient_that_tells_no_steps_apart(U: Quantiles | None, said: list[str]):
    found = Disagreement().findings(JUDGE, {"U": U, "disagreement": None})
    assert kinds(found) == said and shown(found)["U"] == U
    if said:
        assert U is not None and f"U from {U.low:.3f} to {U.high:.3f}" in found.cautions[0].text


@pytest.mark.parametrize(
    ("paid", "flat"),
    [
        (Quantiles(19.0, 19.5, 20.0), False),  # a twentieth of the highest
        (Quantiles(19.01, 19.5, 20.0), True),
        (Quantiles(3.0, 3.0, 3.0), True),
        (Quantiles(0.0, 1.0, 2.0), False),
        (Quantiles(0.0, 0.0, 0.0), False),  # a price of nothing is what was asked for
        (None, False),
    ],
)
def test_a_flat_penalty(paid: Quantiles | None, flat: bool):
    found = penalty_findings(paid)
    assert shown(found) == {"penalty": paid} and kinds(found) == ["flat penalty"] * flat
    assert found.diagnostics[0].series == "learn"


@pytest.mark.parametrize(("k", "alpha"), [(0.5, 0.0), (2.0, 0.28), (0.0, 0.0)])
def test_doubt_as_continuation_by_hand(k: float, alpha: float):
    """The largest disagreement is 0.6, its held-out level 0.4: half as much again as is ordinary."""
    judge = shifting_labeler(SHIFTS, levels=(0.7, 0.4, 1.0, 1.0))
    got, signals = Continuation(k, alpha)(ROLLOUT, judge, KEY)
    assert got.trust is not None
    np.testing.assert_allclose(got.trust, np.exp(-k * 0.5), rtol=1e-4)
    np.testing.assert_allclose(got.weight, np.exp(-alpha * 0.6), rtol=1e-4)
    np.testing.assert_array_equal(got.trust, signals["trust"])


def test_ordinary_disagreement_is_trusted_wholly():
    got, _ = Continuation()(ROLLOUT, shifting_labeler(SHIFTS, levels=(0.7, 0.61, 1.0, 1.0)), KEY)
    assert (np.asarray(got.trust) == 1).all()
    nowhere, _ = Continuation()(replace(ROLLOUT, obs=ROLLOUT.obs * jnp.inf), JUDGE, KEY)
    assert not np.asarray(nowhere.trust).any() and not np.asarray(nowhere.weight).any()


def test_what_is_shown_of_a_continuation():
    seen = {"trust": Quantiles(0.2, 0.8, 1.0), "disagreement": Quantiles(0.1, 0.2, 0.3)}
    shown = Continuation().findings(JUDGE, seen)
    assert [d.name for d in shown.diagnostics] == ["trust", "disagreement"] and not shown.cautions
    with pytest.raises(UserError):
        Continuation(k=-1.0)
    with pytest.raises(UserError):
        Continuation(alpha=-1.0)
