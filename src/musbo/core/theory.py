"""How much a model's error can cost: Lemma 1 and Proposition 1 of the paper, in the form that its proofs support.

Two deterministic models M1 and M2 share a policy π, a discount γ and a reward. Running j steps under M1 and the rest
under M2, and letting j grow, tells their values apart one step at a time (the W_j of the appendix):

    V_M1 - V_M2 = κ E[ h(M1(s, a)) - h(M2(s, a)) ],    κ = γ / (1 - γ),    (s, a) ~ ρ_M1,

where ρ_M1 is the discounted state-action distribution under the *first* model and h what the *second* makes of a next
state s': h = V_M2 for a reward r(s, a), and h = r(s, a, ·) / γ + V_M2 for a reward r(s, a, s'). With L_V the Lipschitz
constant of h this gives

    Lemma 1          |V_M1 - V_M2| <= κ L_V E‖M1(s, a) - M2(s, a)‖,                              (s, a) ~ ρ_M1;
    Proposition 1    V_true >= V_model E[U(s, a)],                                               (s, a) ~ ρ_true,
                     U(s, a) = 1 - κ L_V ‖M_true(s, a) - M_model(s, a)‖ / V_model,               V_model > 0,

the second being the first with M1 = M_true and M2 = M_model. The paper's definition of U leaves out L_V and takes the
expectation under the model; ``tests/theory`` keeps small worlds in which either slip makes the bound false.

The functions take samples of (s, a), with weights where a distribution is known exactly. Any norm will do as long as
``lipschitz`` and the discrepancies use the same one.
"""

import numpy as np
from jaxtyping import Float


def kappa(gamma: float) -> float:
    """κ = γ / (1 - γ): the discounted number of steps that an error in a next state is felt for."""
    if not 0 <= gamma < 1:
        raise ValueError(f"gamma must be in [0, 1), and is {gamma}")
    return gamma / (1 - gamma)


def discrepancy(
    next1: Float[np.ndarray, "n obs"], next2: Float[np.ndarray, "n obs"], order: int | float = 2
) -> Float[np.ndarray, " n"]:
    """‖M1(s, a) - M2(s, a)‖ for predictions of the same n state-action pairs; ``order`` as in numpy.linalg.norm."""
    return np.linalg.norm(next1 - next2, ord=order, axis=-1)


def next_state_value(
    reward: Float[np.ndarray, "*pairs n"], value: Float[np.ndarray, " n"], gamma: float
) -> Float[np.ndarray, "*pairs n"]:
    """h(s') = r(s, a, s') / γ + V(s') at n next states: what takes the place of V when the reward looks at s'."""
    if not 0 < gamma < 1:
        raise ValueError(f"gamma must be in (0, 1) for a reward of the next state, and is {gamma}")
    return reward / gamma + value


def lipschitz(
    points: Float[np.ndarray, "n obs"], values: Float[np.ndarray, "*pairs n"], order: int | float = 2
) -> float:
    """L_V over a finite set: the largest |h(x) - h(y)| / ‖x - y‖, over all pairs of points and all leading axes.

    On a sample of a larger space this is a lower bound of the true constant. Two values at one point make it infinite.
    """
    first, second = np.triu_indices(len(points), k=1)
    if first.size == 0:
        return 0.0
    rise = np.abs(values[..., first] - values[..., second])
    run = discrepancy(points[first], points[second], order)
    # Equal values need no slope, not even between two copies of a point.
    slope = np.divide(rise, run, out=np.full_like(rise, np.inf), where=run > 0)
    return float(np.where(rise == 0, 0.0, slope).max())


def lemma1_bound(
    errors: Float[np.ndarray, " n"], lipschitz: float, gamma: float, weights: Float[np.ndarray, " n"] | None = None
) -> float:
    """κ L_V E‖M1 - M2‖, which |V_M1 - V_M2| does not exceed. ``errors`` are discrepancies at (s, a) ~ ρ_M1."""
    return kappa(gamma) * lipschitz * float(np.average(errors, weights=weights))


def coefficient(
    errors: Float[np.ndarray, " n"], lipschitz: float, gamma: float, value_model: float
) -> Float[np.ndarray, " n"]:
    """U_true(s, a) = 1 - κ L_V ‖M_true - M_model‖ / V_model: 1 where the model is exact, less where it is not."""
    if not value_model > 0:
        raise ValueError(f"the coefficient is a share of V_model, which must be positive and is {value_model}")
    return 1 - kappa(gamma) * lipschitz * errors / value_model


def proposition1_bound(
    errors: Float[np.ndarray, " n"],
    lipschitz: float,
    gamma: float,
    value_model: float,
    weights: Float[np.ndarray, " n"] | None = None,
) -> float:
    """V_model E[U_true], which V_true does not fall below. ``errors`` are discrepancies at (s, a) ~ ρ_true."""
    return value_model * float(np.average(coefficient(errors, lipschitz, gamma, value_model), weights=weights))
