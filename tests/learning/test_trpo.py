"""The trust-region step against an independent implementation in NumPy and float64.

There the gradient is a finite difference of the surrogate, the Fisher matrix an explicit finite-difference Hessian of
the mean KL, and the direction a direct solve. Nothing is shared but the layout of the parameters.
"""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from scipy.stats import norm

from musbo.core.errors import UserError
from musbo.learning import trpo
from musbo.learning.trpo import TRPO, StepInfo, conjugate_gradients, gaussian_kl, log_ratio, trainable, trpo_step
from musbo.models.mlp import MLP
from musbo.models.policy import Policy
from tests.learning.small import f32, plain_normaliser
from tests.models.test_mlp import random_mlp

OBS, ACT, HIDDEN, N = 3, 2, 4, 60
SIZES = [(OBS, HIDDEN), (HIDDEN, ACT), (HIDDEN,), (ACT,)]  # weights, then biases, as jax flattens them
EXACT = TRPO(delta=0.01, cg_iterations=200)
WIDE = TRPO(delta=20.0, backtracks=1)  # so large that the linear direction often overshoots at the only try

compiled: Any = jax.jit(trpo_step, static_argnums=(0, 1))


class Samples(NamedTuple):
    obs: np.ndarray
    act: np.ndarray
    advantage: np.ndarray
    live: np.ndarray


@dataclass(frozen=True)
class Problem:
    policy: Policy
    samples: Samples

    def step(self, settings: TRPO, learned_sigma: bool = False) -> tuple[Policy, StepInfo]:
        return compiled(settings, learned_sigma, self.policy, *map(f32, self.samples))

    def with_samples(self, **changed: np.ndarray) -> "Problem":
        return replace(self, samples=self.samples._replace(**changed))


@cache
def problem(seed: int = 0, sigma: float = 0.4) -> Problem:
    rng = np.random.default_rng(seed)
    mlp = random_mlp(rng, "tanh", (OBS, HIDDEN, ACT))
    mlp = MLP(tuple(0.5 * w for w in mlp.weights), tuple(0.3 * b for b in mlp.biases), "tanh")
    centre, half = f32([0.5, 0.0]), f32([1.0, 0.7])
    policy = Policy(mlp, jnp.log(sigma * half), plain_normaliser(OBS), centre, half)
    obs = rng.normal(size=(N, OBS)).astype(np.float32)
    noise = np.exp(np.asarray(policy.log_sigma)) * rng.normal(size=(N, ACT))
    act = (np.asarray(policy(f32(obs))) + noise).astype(np.float32)
    live = (rng.random(N) < 0.8).astype(np.float32)
    return Problem(policy, Samples(obs, act, (live * rng.normal(size=N)).astype(np.float32), live))


# The independent implementation


def flat(policy: Policy, learned_sigma: bool) -> np.ndarray:
    return np.asarray(ravel_pytree(trainable(policy, learned_sigma))[0], np.float64)


class Oracle:
    def __init__(self, problem: Problem, learned_sigma: bool) -> None:
        self.policy = problem.policy
        self.learned = learned_sigma
        self.obs, self.act, self.advantage, self.live = (np.asarray(x, np.float64) for x in problem.samples)
        self.theta = flat(problem.policy, learned_sigma)

    def distribution(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parts = np.split(theta, np.cumsum([np.prod(size) for size in SIZES]))
        W1, W2, b1, b2 = (part.reshape(size) for part, size in zip(parts, SIZES, strict=False))
        squashed = np.tanh(np.tanh(self.obs @ W1 + b1) @ W2 + b2)
        mean = np.asarray(self.policy.centre, np.float64) + np.asarray(self.policy.half_range, np.float64) * squashed
        return mean, np.exp(parts[-1] if self.learned else np.asarray(self.policy.log_sigma, np.float64))

    def average(self, values: np.ndarray) -> float:
        return float((self.live * values).sum() / self.live.sum())

    def surrogate(self, theta: np.ndarray) -> float:
        now, then = (norm.logpdf(self.act, *self.distribution(p)).sum(axis=1) for p in (theta, self.theta))
        return self.average(np.exp(now - then) * self.advantage)

    def kls(self, theta: np.ndarray) -> np.ndarray:
        (m1, s1), (m0, s0) = self.distribution(theta), self.distribution(self.theta)
        return (np.log(s0 / s1) + (s1**2 + (m1 - m0) ** 2) / (2 * s0**2) - 0.5).sum(axis=1)

    def kl(self, theta: np.ndarray) -> float:
        return self.average(self.kls(theta))

    def gradient(self) -> np.ndarray:
        h = 1e-6 * np.eye(len(self.theta))
        return np.array([(self.surrogate(self.theta + e) - self.surrogate(self.theta - e)) / 2e-6 for e in h])

    def fisher(self, stride: int = 1) -> np.ndarray:
        """The Hessian of the mean KL at theta, by central differences (a half of each mixed one, summed)."""
        live = np.zeros_like(self.live)
        live[::stride] = self.live[::stride]
        h, n = 1e-4, len(self.theta)
        e = h * np.eye(n)

        def kl(shift: np.ndarray) -> float:
            return float((live * self.kls(self.theta + shift)).sum() / live.sum())

        hessian = np.zeros((n, n))
        for i in range(n):
            for j in range(i + 1):
                corners = kl(e[i] + e[j]) - kl(e[i] - e[j]) - kl(e[j] - e[i]) + kl(-e[i] - e[j])
                hessian[i, j] = hessian[j, i] = corners / (4 * h**2)
        return hessian

    def step(self, settings: TRPO) -> np.ndarray:
        """The full step: damped, solved directly, scaled to delta."""
        damped = self.fisher(settings.fisher_stride) + settings.damping * np.eye(len(self.theta))
        direction = scipy.linalg.solve(damped, self.gradient(), assume_a="pos")
        return np.sqrt(2 * settings.applied_delta / (direction @ damped @ direction)) * direction


def moved(problem: Problem, policy: Policy, learned_sigma: bool = False) -> np.ndarray:
    return flat(policy, learned_sigma) - flat(problem.policy, learned_sigma)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize(
    ("seed", "learned_sigma", "stride"), [(0, False, 1), (1, False, 1), (2, True, 1), (3, True, 1), (4, False, 3)]
)
def test_same_step_as_the_independent_one(seed: int, learned_sigma: bool, stride: int):
    p = problem(seed)
    settings = replace(EXACT, fisher_stride=stride)
    policy, info = p.step(settings, learned_sigma)
    oracle = Oracle(p, learned_sigma)
    wanted = float(info.fraction) * oracle.step(settings)
    got = moved(p, policy, learned_sigma)
    apart = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
    print(f"1 - cosine {1 - cosine(got, wanted):.1e}, relative distance {apart:.1e}, fraction {float(info.fraction)}")
    assert bool(info.accepted)
    assert 1 - cosine(got, wanted) <= 1e-4
    assert apart <= 1e-3


@pytest.mark.parametrize("block", [1, 7, 30])
@pytest.mark.parametrize("learned_sigma", [False, True])
def test_blocks_are_the_whole(block: int, learned_sigma: bool, monkeypatch: pytest.MonkeyPatch):
    p = problem(0)
    whole, told = p.step(EXACT, learned_sigma)
    monkeypatch.setattr(trpo, "BLOCK", block)  # of N = 60 rows: the last block of 7 is not full
    policy, info = jax.jit(partial(trpo_step, EXACT, learned_sigma))(p.policy, *map(f32, p.samples))
    np.testing.assert_allclose(flat(policy, learned_sigma), flat(whole, learned_sigma), atol=1e-5)
    np.testing.assert_allclose(info.kl, told.kl, rtol=1e-3)
    np.testing.assert_allclose(info.gain, told.gain, rtol=1e-3)
    assert int(info.tries) == int(told.tries)


def test_eight_iterations_are_eight_iterations():
    """Of textbook conjugate gradients on the explicit matrix: not yet the solution, but the same point.

    Two iterations more, and float32 has lost the conjugacy of its directions: the point depends on the machine.
    """
    p = problem(0)
    settings = replace(EXACT, cg_iterations=8)
    policy, _ = p.step(settings)
    oracle = Oracle(p, False)
    A = oracle.fisher() + 0.1 * np.eye(len(oracle.theta))
    x = np.zeros_like(oracle.theta)
    r = d = oracle.gradient()
    for _ in range(8):
        length = (r @ r) / (d @ A @ d)
        x, after = x + length * d, r - length * (A @ d)
        d = after + (after @ after) / (r @ r) * d
        r = after
    assert 1 - cosine(moved(p, policy), x) <= 1e-6
    assert 1 - cosine(x, oracle.step(EXACT)) > 1e-2  # so the test above could tell them apart


@pytest.mark.parametrize("learned_sigma", [False, True])
def test_what_is_reported_is_so(learned_sigma: bool):
    p = problem(0)
    policy, info = p.step(EXACT, learned_sigma)
    oracle = Oracle(p, learned_sigma)
    after = flat(policy, learned_sigma)
    assert float(info.kl) == pytest.approx(oracle.kl(after), rel=1e-3)
    assert float(info.gain) == pytest.approx(oracle.surrogate(after) - oracle.surrogate(oracle.theta), rel=1e-3)
    assert float(info.kl) == pytest.approx(EXACT.delta, rel=0.5)  # a small step: the quadratic model holds
    if not learned_sigma:
        np.testing.assert_array_equal(policy.log_sigma, p.policy.log_sigma)


@given(st.integers(0, 10_000), st.sampled_from([EXACT, WIDE]), st.sampled_from([0.05, 0.4]), st.booleans())
def test_the_step_keeps_its_promises(seed: int, settings: TRPO, sigma: float, learned_sigma: bool):
    """KL within 1.5 delta, the surrogate better or nothing changed: judged by the independent formulas."""
    p = problem(seed, sigma)
    policy, info = p.step(settings, learned_sigma)
    oracle = Oracle(p, learned_sigma)
    after = flat(policy, learned_sigma)
    assert oracle.kl(after) <= 1.5 * settings.delta * (1 + 1e-4)
    assert oracle.surrogate(after) >= oracle.surrogate(oracle.theta) - 1e-5
    assert bool(info.accepted) == bool(np.any(after != oracle.theta))


def untouched(p: Problem, settings: TRPO) -> StepInfo:
    policy, info = p.step(settings)
    jax.tree.map(np.testing.assert_array_equal, policy, p.policy)
    assert not bool(info.accepted)
    assert float(info.kl) == float(info.gain) == float(info.fraction) == 0
    return info


def test_a_line_search_that_fails_changes_nothing():
    failed = [p for p in map(problem, range(30)) if not bool(p.step(WIDE)[1].accepted)]
    assert len(failed) >= 3
    for p in failed:
        assert int(untouched(p, WIDE).tries) == 1
    # More tries of the same search do find a step.
    assert bool(failed[0].step(replace(WIDE, backtracks=30))[1].accepted)


def test_without_a_direction_nothing_changes():
    p = problem(0)
    for value in (0.0, np.nan, np.inf):
        bad = np.where(p.samples.live > 0, value, 0).astype(np.float32)
        assert int(untouched(p.with_samples(advantage=bad), EXACT).tries) == 0
    nobody = p.with_samples(live=np.zeros(N, np.float32), advantage=np.zeros(N, np.float32))
    untouched(nobody, EXACT)


GARBAGE = st.sampled_from([0.0, 1.0, -1e3, 1e30, 3e38, np.inf, np.nan])


@given(GARBAGE, GARBAGE, GARBAGE)
def test_dead_samples_have_no_influence(obs: float, act: float, advantage: float):
    """Not even where their numbers have overflowed: the same bits come out."""
    p = problem(0)
    dead = p.samples.live == 0
    wanted, info = p.step(EXACT)
    changed = {
        "obs": np.where(dead[:, None], np.float32(obs), p.samples.obs),
        "act": np.where(dead[:, None], np.float32(act), p.samples.act),
        "advantage": np.where(dead, np.float32(advantage), p.samples.advantage),
    }
    got, same = p.with_samples(**changed).step(EXACT)
    assert bool(info.accepted)
    jax.tree.map(np.testing.assert_array_equal, (got, same), (wanted, info))


def test_dead_samples_might_as_well_be_away():
    p = problem(0)
    alive = p.samples.live == 1
    policy, _ = p.step(EXACT)
    fewer, _ = replace(p, samples=Samples(*(x[alive] for x in p.samples))).step(EXACT)
    np.testing.assert_allclose(flat(fewer, False), flat(policy, False), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("U", [0.5, 0.37, 0.01])
def test_a_constant_coefficient_changes_nothing(U: float):
    """The step is scaled to its trust region: only the spread of U inside a batch matters."""
    p = problem(0)
    policy, _ = p.step(EXACT)
    weighted, _ = p.with_samples(advantage=np.float32(U) * p.samples.advantage).step(EXACT)
    assert np.linalg.norm(moved(p, weighted) - moved(p, policy)) < 1e-4 * np.linalg.norm(moved(p, policy))


def test_a_coefficient_that_varies_does():
    p = problem(0)
    U = np.random.default_rng(1).uniform(0.1, 1, N).astype(np.float32)
    weighted, _ = p.with_samples(advantage=U * p.samples.advantage).step(EXACT)
    assert 1 - cosine(moved(p, weighted), moved(p, p.step(EXACT)[0])) > 1e-3


def gaussians(seed: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return tuple((rng.normal(size=(1, ACT)), 0.3 * rng.normal(size=ACT)) for _ in range(2))  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(3))
def test_kl_against_monte_carlo(seed: int):
    """KL(new || old) is the mean log ratio under the new one: an order of the two that is not symmetric."""
    new, old = gaussians(seed)
    draws = new[0] + np.exp(new[1]) * np.random.default_rng(9).normal(size=(200_000, ACT))
    spread = np.broadcast_to
    ratio = log_ratio(
        (f32(spread(old[0], draws.shape)), f32(old[1])), (f32(spread(new[0], draws.shape)), f32(new[1])), f32(draws)
    )
    one, other = ((f32(m), f32(s)) for m, s in (new, old))
    exact = float(gaussian_kl(one, other)[0])
    error = float(np.std(ratio)) / np.sqrt(len(draws))
    assert float(np.mean(ratio)) == pytest.approx(exact, abs=4 * error)
    assert abs(float(gaussian_kl(other, one)[0]) - exact) > 20 * error


def test_log_ratio_against_scipy():
    new, old = gaussians(0)
    act = np.random.default_rng(1).normal(size=(1, ACT))
    wanted = [norm.logpdf(act, m, np.exp(s)).sum() for m, s in (new, old)]
    got = log_ratio((f32(old[0]), f32(old[1])), (f32(new[0]), f32(new[1])), f32(act))
    assert float(got[0]) == pytest.approx(wanted[0] - wanted[1], rel=1e-4)


def test_applied_delta():
    """As printed, or at the scale of an honest sigma: (0.1 / 0.0067)^2 is about 220."""
    assert TRPO(delta=0.1).applied_delta == 0.1
    assert TRPO(delta=0.1, literal_delta=False).applied_delta == pytest.approx(0.1 / 220)
    p = problem(0)
    _, small = p.step(replace(EXACT, delta=2.2, literal_delta=False))
    _, plain = p.step(EXACT)
    assert float(small.kl) == pytest.approx(float(plain.kl), rel=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": 0.0},
        {"delta": float("nan")},
        {"damping": -0.1},
        {"shrink": 1.0},
        {"shrink": 0.0},
        {"cg_iterations": 0},
        {"fisher_stride": 0},
        {"backtracks": 0},
    ],
)
def test_impossible_settings(wrong: dict):
    with pytest.raises(UserError):
        TRPO(**wrong)


solved: Any = jax.jit(lambda A, b, n: conjugate_gradients(lambda v: A @ v, b, n), static_argnums=2)


@given(size=st.sampled_from([1, 5]), seed=st.integers(0, 1000), iterations=st.sampled_from([2, 5]))
def test_conjugate_gradients(size: int, seed: int, iterations: int):
    """As many iterations as unknowns solve the system; fewer still say truly what is left, and how long x is."""
    random = np.random.default_rng(seed)
    root = random.normal(size=(size, size))
    A, b = root @ root.T + np.eye(size), random.normal(size=size)
    x, left = (np.asarray(v, float) for v in solved(f32(A), f32(b), iterations))
    scale = float(np.linalg.norm(A) * np.linalg.norm(b))
    np.testing.assert_allclose(left, b - A @ x, atol=1e-4 * scale)
    assert x @ (b - left) == pytest.approx(x @ A @ x, rel=1e-3)
    if iterations >= size:
        np.testing.assert_allclose(x, np.linalg.solve(A, b), atol=1e-4 * scale)


def test_conjugate_gradients_of_nothing():
    x, left = solved(f32(np.eye(3)), jnp.zeros(3), 10)
    assert not x.any() and not left.any()


class FarOracle(Oracle):
    """Means are as far apart as they would be at another sigma."""

    def __init__(self, problem: Problem, learned_sigma: bool, sigma: float) -> None:
        super().__init__(problem, learned_sigma)
        self.unit = sigma * np.asarray(self.policy.half_range, np.float64)

    def kls(self, theta: np.ndarray) -> np.ndarray:
        (m1, s1), (m0, s0) = self.distribution(theta), self.distribution(self.theta)
        return (np.log(s0 / s1) + s1**2 / (2 * s0**2) + (m1 - m0) ** 2 / (2 * self.unit**2) - 0.5).sum(axis=1)


@pytest.mark.parametrize(("learned_sigma", "at"), [(False, 0.8), (False, 0.2), (True, 0.8)])
def test_a_step_that_is_measured_at_another_sigma(learned_sigma: bool, at: float):
    p = problem(0)
    settings = replace(EXACT, delta=0.002, at_sigma=at)
    policy, info = p.step(settings, learned_sigma)
    oracle = FarOracle(p, learned_sigma, at)
    wanted = float(info.fraction) * oracle.step(settings)
    got = moved(p, policy, learned_sigma)
    assert bool(info.accepted)
    assert np.linalg.norm(got - wanted) / np.linalg.norm(wanted) <= 2e-3
    assert float(info.kl) == pytest.approx(oracle.kl(flat(policy, learned_sigma)), rel=1e-2)


def test_less_noise_does_not_shorten_the_way():
    """Two policies that differ in sigma alone: measured at one sigma, their means move as far; else in proportion."""
    far = {}
    for at in (None, 0.2):
        for sigma in (0.2, 0.05):
            p = problem(0, sigma)
            policy, info = p.step(TRPO(delta=1e-5, damping=0.0, cg_iterations=30, at_sigma=at))
            assert bool(info.accepted)
            way = np.asarray(policy(f32(p.samples.obs)) - p.policy(f32(p.samples.obs)))[p.samples.live > 0]
            far[at, sigma] = np.sqrt((way**2).mean())
    assert far[None, 0.05] / far[None, 0.2] == pytest.approx(0.25, rel=0.1)
    assert far[0.2, 0.05] / far[0.2, 0.2] == pytest.approx(1.0, rel=0.1)


def test_a_share_of_delta():
    p = problem(0)
    half, told = compiled(EXACT, False, p.policy, *map(f32, p.samples), 0.25)
    wanted, info = p.step(replace(EXACT, delta=0.25 * EXACT.delta))
    np.testing.assert_allclose(flat(half, False), flat(wanted, False), atol=1e-6)
    assert float(told.kl) == pytest.approx(float(info.kl), rel=1e-3)


def test_an_impossible_unit():
    with pytest.raises(UserError):
        TRPO(at_sigma=0.0)
