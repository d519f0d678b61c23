"""Lemma 1 on worlds that are solved exactly, and the exact identity that it comes from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.core import theory
from tests.theory.finite import World, pairs_of_models

NORMS = st.sampled_from([1, 2, np.inf])


def judged(world: World) -> np.ndarray:
    """h(s') for every (s, a): what the second model makes of each next state."""
    return theory.next_state_value(world.reward, world.values(), world.gamma)


@given(pairs_of_models(reward_of_next_state=True))
def test_the_oracle_agrees_with_stepping(pair: tuple[World, World]):
    """The linear systems of the helper, against adding up 1000 steps."""
    world, _ = pair
    chain, received = world.transition(), world.received()
    here, value, visits = world.start, 0.0, np.zeros_like(world.policy)
    for t in range(1000):
        chosen = here[:, None] * world.policy
        value += world.gamma**t * float((chosen * received).sum())
        visits += (1 - world.gamma) * world.gamma**t * chosen
        here = here @ chain
    np.testing.assert_allclose(world.value(), value, atol=1e-10 * world.scale())
    np.testing.assert_allclose(world.visits(), visits.ravel(), atol=1e-12)


@given(pairs_of_models(reward_of_next_state=True))
def test_the_telescoping_sum_is_exact(pair: tuple[World, World]):
    """V_M1 - V_M2 = κ E[h(M1) - h(M2)]: an equality, so a wrong κ, ρ, h or order of the models shows at once."""
    first, second = pair
    h1, h2 = (np.take_along_axis(judged(second), world.next_state[..., None], axis=2) for world in pair)
    difference = theory.kappa(first.gamma) * first.visits() @ (h1 - h2).ravel()
    assert difference == pytest.approx(first.value() - second.value(), abs=1e-10 * first.scale())


@given(pairs_of_models(), NORMS)
def test_lemma_1(pair: tuple[World, World], order: int | float):
    first, second = pair
    errors = theory.discrepancy(first.predictions(), second.predictions(), order)
    L_V = theory.lipschitz(second.points, second.values(), order)
    bound = theory.lemma1_bound(errors, L_V, first.gamma, first.visits())
    assert abs(first.value() - second.value()) <= bound + 1e-10 * first.scale()


@given(pairs_of_models(reward_of_next_state=True), NORMS)
def test_lemma_1_with_a_reward_of_the_next_state(pair: tuple[World, World], order: int | float):
    first, second = pair
    errors = theory.discrepancy(first.predictions(), second.predictions(), order)
    L_h = theory.lipschitz(second.points, judged(second), order)
    bound = theory.lemma1_bound(errors, L_h, first.gamma, first.visits())
    assert abs(first.value() - second.value()) <= bound + 1e-10 * first.scale()


@given(pairs_of_models(), NORMS)
def test_both_forms_agree_when_the_reward_does_not_look_ahead(pair: tuple[World, World], order: int | float):
    """r(s, a) / γ shifts h by a constant in s', which no Lipschitz constant sees."""
    world, _ = pair
    plain = theory.lipschitz(world.points, world.values(), order)
    assert theory.lipschitz(world.points, judged(world), order) == pytest.approx(plain, rel=1e-9, abs=1e-9)


def step_down() -> tuple[World, World]:
    """Two states at 0 and 1 with one action and rewards 1 and 0; γ = 1/2, start at 0. First: 0 -> 1. Second: 0 -> 0.

    Second: V = (1 + 1/2 + 1/4 + ..., 0) = (2, 0), so L_V = 2. First: V(0) = 1 + 0 = 1.
    ρ under the first, from 0: half of the weight on state 0 (error 1), half on state 1 (error 0), so E‖M1 - M2‖ = 1/2.
    κ = 1, and the bound is 1 · 2 · 1/2 = 1 = |1 - 2|: Lemma 1 holds with equality.
    """
    first = World(
        points=np.array([[0.0], [1.0]]),
        policy=np.ones((2, 1)),
        reward=np.array([[[1.0, 1.0]], [[0.0, 0.0]]]),
        gamma=0.5,
        start=np.array([1.0, 0.0]),
        next_state=np.array([[1], [1]]),
    )
    return first, first.under(np.array([[0], [1]]))


def test_lemma_1_is_tight():
    """Equality in the hand-worked world: nothing smaller than L_V, κ and ρ of the first model would do."""
    first, second = step_down()
    np.testing.assert_allclose(second.values(), [2.0, 0.0])
    assert (first.value(), second.value()) == (1.0, 2.0)
    errors = theory.discrepancy(first.predictions(), second.predictions())
    L_V = theory.lipschitz(second.points, second.values())
    assert L_V == 2.0
    assert theory.lemma1_bound(errors, L_V, 0.5, first.visits()) == 1.0


def test_half_of_the_lipschitz_constant_is_too_little():
    """The same world with L_V / 2: the bound says 1/2 where the values are 1 apart, so the test above can fail."""
    first, second = step_down()
    errors = theory.discrepancy(first.predictions(), second.predictions())
    L_V = theory.lipschitz(second.points, second.values())
    bound = theory.lemma1_bound(errors, L_V / 2, 0.5, first.visits())
    assert bound == 0.5 < abs(first.value() - second.value())


def test_the_lipschitz_constant_of_the_first_model_is_the_wrong_one():
    """V under the first model is (1, 0), L = 1: again 1/2 where the values are 1 apart."""
    first, second = step_down()
    errors = theory.discrepancy(first.predictions(), second.predictions())
    wrong = theory.lipschitz(first.points, first.values())
    assert theory.lemma1_bound(errors, wrong, 0.5, first.visits()) == 0.5 < abs(first.value() - second.value())


def test_a_reward_of_the_next_state_needs_its_own_term():
    """γ = 1/2, states at 0 and 1, reward 1 for arriving at 0. Second: stay, V(0) = 2. First: leave for good, V(0) = 0.

    Under the second model every state stays where it is: V = (2, 0), and h(s') = r / γ + V = (2 + 2, 0), L_h = 4.
    ρ of the first: half at 0 (error 1), half at 1 (error 0). Bound κ L_h E = 4 · 1/2 = 2 = |0 - 2|, tight; with L_V = 2
    alone it would be 1.
    """
    first, second = step_down()
    arriving = np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
    first = World(first.points, first.policy, arriving, first.gamma, first.start, first.next_state)
    second = first.under(second.next_state)
    errors = theory.discrepancy(first.predictions(), second.predictions())
    L_h = theory.lipschitz(second.points, judged(second))
    assert (first.value(), second.value(), L_h) == (0.0, 2.0, 4.0)
    assert theory.lemma1_bound(errors, L_h, 0.5, first.visits()) == 2.0
    L_V = theory.lipschitz(second.points, second.values())
    assert theory.lemma1_bound(errors, L_V, 0.5, first.visits()) == 1.0


def test_lipschitz_by_hand():
    """On the line 0, 1, 3 with values 0, 2, 3: slopes 2, 1, 1/2. In the plane the norm matters: (0, 0) to (3, 4)."""
    assert theory.lipschitz(np.array([[0.0], [1.0], [3.0]]), np.array([0.0, 2.0, 3.0])) == 2.0
    far = np.array([[0.0, 0.0], [3.0, 4.0]])
    slopes = [theory.lipschitz(far, np.array([0.0, 140.0]), order) for order in (1, 2, np.inf)]
    assert slopes == pytest.approx([20.0, 28.0, 35.0])


def test_lipschitz_at_the_edges():
    one, two = np.zeros((1, 1)), np.zeros((2, 1))
    assert theory.lipschitz(one, np.array([5.0])) == 0.0
    assert theory.lipschitz(two, np.array([5.0, 5.0])) == 0.0
    assert theory.lipschitz(two, np.array([5.0, 6.0])) == np.inf


def test_samples_without_weights_are_averaged():
    assert theory.lemma1_bound(np.array([1.0, 3.0]), 2.0, 0.5) == 4.0


@pytest.mark.parametrize("gamma", [-0.1, 1.0, float("nan")])
def test_a_discount_outside_its_range_is_refused(gamma: float):
    with pytest.raises(ValueError, match="gamma"):
        theory.kappa(gamma)
    with pytest.raises(ValueError, match="gamma"):
        theory.next_state_value(np.zeros(2), np.zeros(2), gamma)
