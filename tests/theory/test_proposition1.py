"""Proposition 1 as its proof supports it, and worlds in which the form that is printed in the paper is false."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from musbo.core import theory
from tests.theory.finite import World, pairs_of_models


def raised(world: World) -> World:
    """The same world with every reward raised until V is positive everywhere; no Lipschitz constant changes."""
    lift = 1.0 - float(world.reward.min())
    return World(world.points, world.policy, world.reward + lift, world.gamma, world.start, world.next_state)


@given(pairs_of_models(), st.sampled_from([1, 2, np.inf]))
def test_proposition_1(pair: tuple[World, World], order: int | float):
    true, model = (raised(world) for world in pair)
    errors = theory.discrepancy(true.predictions(), model.predictions(), order)
    L_V = theory.lipschitz(model.points, model.values(), order)
    bound = theory.proposition1_bound(errors, L_V, true.gamma, model.value(), true.visits())
    assert true.value() >= bound - 1e-10 * true.scale()


@given(pairs_of_models(reward_of_next_state=True), st.sampled_from([1, 2, np.inf]))
def test_proposition_1_with_a_reward_of_the_next_state(pair: tuple[World, World], order: int | float):
    true, model = (raised(world) for world in pair)
    errors = theory.discrepancy(true.predictions(), model.predictions(), order)
    h = theory.next_state_value(model.reward, model.values(), model.gamma)
    L_h = theory.lipschitz(model.points, h, order)
    bound = theory.proposition1_bound(errors, L_h, true.gamma, model.value(), true.visits())
    assert true.value() >= bound - 1e-10 * true.scale()


@given(pairs_of_models())
def test_proposition_1_is_lemma_1_from_below(pair: tuple[World, World]):
    """V_model E[U] is V_model less the bound of Lemma 1, however U is spread over the pairs (s, a)."""
    true, model = (raised(world) for world in pair)
    errors = theory.discrepancy(true.predictions(), model.predictions())
    L_V = theory.lipschitz(model.points, model.values())
    bound = theory.proposition1_bound(errors, L_V, true.gamma, model.value(), true.visits())
    below = model.value() - theory.lemma1_bound(errors, L_V, true.gamma, true.visits())
    assert bound == pytest.approx(below, abs=1e-9 * true.scale())


@given(pairs_of_models())
def test_the_coefficient_lies_between_0_and_1_when_the_model_is_good(pair: tuple[World, World]):
    """The paper's remark: no error above V_model / (κ L_V) means U in [0, 1], and 1 just where the model is exact."""
    true, model = (raised(world) for world in pair)
    errors = theory.discrepancy(true.predictions(), model.predictions())
    L_V = theory.lipschitz(model.points, model.values())
    assume(L_V > 1e-9 and errors.max() > 0)
    largest = model.value() / (theory.kappa(true.gamma) * L_V)
    # The same pattern of errors, shrunk so that the worst of them sits at the edge of the remark's range.
    U = theory.coefficient(errors * min(1.0, largest / errors.max()), L_V, true.gamma, model.value())
    assert U.min() >= -1e-9 and U.max() <= 1
    np.testing.assert_array_equal(U == 1, errors == 0)


def test_the_printed_form_is_false_without_L_V():
    """Rewards in other units break the paper's U, which weighs a distance between states against a return.

    Two states at 0 and 1, one action, γ = 1/2 (so κ = 1), start at 0, rewards 10 at state 0 and 0 at state 1.
    Model: both states stay. V_model = (10 + 5 + 2.5 + ..., 0) = (20, 0), L_V = 20.
    True:  0 -> 1, then stay. V_true(0) = 10.

    Errors: 1 at state 0, 0 at state 1. ρ_model from 0 is all on state 0; ρ_true is a half on each.
    As printed, expectation under the model: 20 (1 - 1 · 1 / 20) = 19 > 10.   False.
    As printed, expectation under the truth: 20 (1 - 1 · (1/2) / 20) = 19.5 > 10.   False.
    With L_V / 2, expectation under the truth: 20 (1 - 1 · 10 · (1/2) / 20) = 15 > 10.   False: half is too little.
    With L_V, expectation under the truth: 20 (1 - 1 · 20 · (1/2) / 20) = 10 <= 10.   True, and tight.
    """
    model = World(
        points=np.array([[0.0], [1.0]]),
        policy=np.ones((2, 1)),
        reward=np.array([[[10.0, 10.0]], [[0.0, 0.0]]]),
        gamma=0.5,
        start=np.array([1.0, 0.0]),
        next_state=np.array([[0], [1]]),
    )
    true = model.under(np.array([[1], [1]]))
    errors = theory.discrepancy(true.predictions(), model.predictions())
    L_V = theory.lipschitz(model.points, model.values())

    assert (true.value(), model.value(), L_V) == (10.0, 20.0, 20.0)
    # L_V = 1 is the paper's U, in which the constant does not appear.
    as_printed = theory.proposition1_bound(errors, 1.0, 0.5, 20.0, model.visits())
    under_the_truth = theory.proposition1_bound(errors, 1.0, 0.5, 20.0, true.visits())
    with_half = theory.proposition1_bound(errors, L_V / 2, 0.5, 20.0, true.visits())
    with_all = theory.proposition1_bound(errors, L_V, 0.5, 20.0, true.visits())
    assert [as_printed, under_the_truth, with_half, with_all] == pytest.approx([19.0, 19.5, 15.0, 10.0])


def test_the_printed_form_is_false_under_the_model_even_with_L_V():
    """A small error leads to a place where the model is far wrong, and where the model itself never goes.

    States A = 0, B = 1, C = 10 on a line, one action, γ = 1/2 (so κ = 1), start at A, rewards 1, 1, 0.
    Model: every state stays. V_model = (2, 2, 0); slopes A-B 0, B-C 2/9, A-C 2/10, so L_V = 2/9.
    True:  A -> B -> C, then stay. V_true(A) = 1 + 1/2 + 0 = 1.5.

    Errors: 1 at A, 9 at B, 0 at C. ρ_model from A is all on A; ρ_true is 1/2, 1/4, 1/4.
    Under the model: 2 (1 - (2/9) · 1 / 2) = 2 - 2/9 = 16/9 = 1.777... > 1.5.   False.
    Under the truth: E‖·‖ = 1/2 + 9/4 = 11/4; 2 - (2/9) (11/4) = 2 - 11/18 = 25/18 = 1.388... <= 1.5.   True.
    """
    model = World(
        points=np.array([[0.0], [1.0], [10.0]]),
        policy=np.ones((3, 1)),
        reward=np.repeat(np.array([1.0, 1.0, 0.0]), 3).reshape(3, 1, 3),
        gamma=0.5,
        start=np.array([1.0, 0.0, 0.0]),
        next_state=np.array([[0], [1], [2]]),
    )
    true = model.under(np.array([[1], [2], [2]]))
    errors = theory.discrepancy(true.predictions(), model.predictions())
    L_V = theory.lipschitz(model.points, model.values())

    assert (true.value(), model.value()) == (1.5, 2.0)
    under_the_model = theory.proposition1_bound(errors, L_V, 0.5, 2.0, model.visits())
    under_the_truth = theory.proposition1_bound(errors, L_V, 0.5, 2.0, true.visits())
    assert [L_V, under_the_model, under_the_truth] == pytest.approx([2 / 9, 16 / 9, 25 / 18])
    assert under_the_truth <= true.value() < under_the_model


@pytest.mark.parametrize("value_model", [0.0, -3.0, float("nan")])
def test_a_share_of_nothing_is_refused(value_model: float):
    with pytest.raises(ValueError, match="positive"):
        theory.coefficient(np.ones(2), 1.0, 0.5, value_model)
