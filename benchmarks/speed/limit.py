"""The limit of a piece of work: the time of the matrix products that its algorithm needs, and of nothing else.

A product (m, k) @ (k, n) takes 2 m k n operations, and rate(shape) is the best of NumPy, PyTorch and JAX for that very
shape, measured in the same run. Only what the algorithm needs is counted: backpropagation needs no gradient of the
network's input, conjugate gradients from zero need one Fisher product per iteration and no more. Activations, random
numbers, the optimiser and the movement of data are free. So 1 cannot be reached; the distance from it is the overhead.

NumPy is all that is imported here: the peers' process, which has no JAX, measures PyTorch with the same functions.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

TRIAL_SECONDS = 0.05  # calls of one trial take at least this long together
SHORT = 10**8  # operations: below it the call itself would count, so JAX repeats the product inside one program


class Shape(NamedTuple):
    """(m, k) @ (k, n)."""

    m: int
    k: int
    n: int

    @property
    def operations(self) -> int:
        return 2 * self.m * self.k * self.n

    def __str__(self) -> str:
        return f"{self.m}x{self.k}x{self.n}"


Products = Counter[Shape]
"""How often each product occurs."""


def times(count: int, products: Products) -> Products:
    return Counter({shape: count * n for shape, n in products.items()})


def together(parts: Iterable[Products]) -> Products:
    total: Products = Counter()
    for part in parts:
        total.update(part)
    return total


# The products of a network with these layer sizes, on this many rows


def forward(rows: int, sizes: Sequence[int]) -> Products:
    """x @ W of every layer."""
    return Counter(Shape(rows, n_in, n_out) for n_in, n_out in zip(sizes, sizes[1:], strict=False))


def backward(rows: int, sizes: Sequence[int]) -> Products:
    """x' @ g for the gradient of every W; g @ W' for the gradient of every layer's input except the first's."""
    layers = list(zip(sizes, sizes[1:], strict=False))
    weights = Counter(Shape(n_in, rows, n_out) for n_in, n_out in layers)
    inputs = Counter(Shape(rows, n_out, n_in) for n_in, n_out in layers[1:])
    return together([weights, inputs])


def fisher(rows: int, sizes: Sequence[int]) -> Products:
    """One product J' D J v: push v forward (x @ dW, and dx @ W except in the first layer), then pull back."""
    pushed = forward(rows, sizes[1:])  # dx @ W
    return together([forward(rows, sizes), pushed, backward(rows, sizes)])


# The products of each work


def fit(steps: int, members: int, batch: int, sizes: Sequence[int]) -> Products:
    """Minibatch updates of an ensemble."""
    return times(steps * members, together([forward(batch, sizes), backward(batch, sizes)]))


def rollout(rollouts: int, horizon: int, policy: Sequence[int], dynamics: Sequence[int]) -> Products:
    """Imagined steps: at each the policy and one member of the ensemble on all trajectories."""
    return times(horizon, together([forward(rollouts, policy), forward(rollouts, dynamics)]))


def trpo(samples: int, stride: int, iterations: int, tries: int, policy: Sequence[int]) -> Products:
    """One gradient of the surrogate, a Fisher product per iteration, a forward pass per try of the line search.

    The forward pass of the gradient is also what the Fisher products are linearised around. The curvature along the
    solution, which scales the step, follows from the last residual: it needs no product of its own.
    """
    return together(
        [
            forward(samples, policy),
            backward(samples, policy),
            times(iterations, fisher(-(-samples // stride), policy)),
            times(tries, forward(samples, policy)),
        ]
    )


def labels(samples: int, labeler: Sequence[int]) -> Products:
    """Two members' mean predictions: the half of the outputs that are log-variances is not needed."""
    return times(2, forward(samples, labeler))


def ridge(samples: int, features: int) -> Products:
    """Values of all samples, then the normal equations of the next baseline."""
    return Counter([Shape(samples, features, 1), Shape(features, samples, features), Shape(features, samples, 1)])


# Rates


def seconds_per_call(call: Callable[[int], object], budget: float) -> float:
    """Least time of one call, where call(n) makes n of them; `budget` is about how many seconds may be spent.

    The least, because a limit is what the machine can do when nothing disturbs it.
    """
    call(1)
    began = time.perf_counter()
    call(1)
    once = max(time.perf_counter() - began, 1e-9)
    n = max(1, round(TRIAL_SECONDS / once))
    trials = []
    while len(trials) < 3 or sum(trials) * n < budget:
        began = time.perf_counter()
        call(n)
        trials.append((time.perf_counter() - began) / n)
    return min(trials)


def operands(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal(shape[:2], np.float32), random.standard_normal(shape[1:], np.float32)


def numpy_rate(shape: Shape, budget: float) -> float:
    """Operations per second."""
    a, b = operands(shape)
    out = np.empty((shape.m, shape.n), np.float32)

    def call(n: int) -> None:
        for _ in range(n):
            np.matmul(a, b, out=out)

    return shape.operations / seconds_per_call(call, budget)


def torch_rate(shape: Shape, budget: float) -> float:
    import torch  # pyright: ignore[reportMissingImports]

    a, b = (torch.from_numpy(x) for x in operands(shape))
    out = torch.empty(shape.m, shape.n)

    def call(n: int) -> None:
        for _ in range(n):
            torch.mm(a, b, out=out)

    return shape.operations / seconds_per_call(call, budget)


def jax_rate(shape: Shape, budget: float) -> float:
    import jax
    import jax.numpy as jnp

    a, b = (jnp.asarray(x) for x in operands(shape))
    once = jax.jit(jnp.matmul)

    def call(n: int) -> None:
        for _ in range(n):
            once(a, b).block_until_ready()

    rate = shape.operations / seconds_per_call(call, budget)
    if shape.operations >= SHORT:
        return rate

    @jax.jit
    def many(a: jax.Array, b: jax.Array, n: jax.Array) -> jax.Array:
        # Each product depends on the one before, so that none is left out or moved out of the loop.
        return jax.lax.fori_loop(0, n, lambda _, b: b + 1e-30 * jnp.max(a @ b), b)

    inside = seconds_per_call(lambda n: many(a, b, jnp.asarray(n)).block_until_ready(), budget)
    return max(rate, shape.operations / inside)


class Rates:
    """rate(shape) of one run; what was measured once is not measured again."""

    def __init__(self, peers: Callable[[Shape], float], budget: float) -> None:
        self._peers, self._budget = peers, budget
        self.measured: dict[Shape, dict[str, float]] = {}

    def __call__(self, shape: Shape) -> float:
        if shape not in self.measured:
            self.measured[shape] = {
                "numpy": numpy_rate(shape, self._budget),
                "torch": self._peers(shape),
                "jax": jax_rate(shape, self._budget),
            }
        return max(self.measured[shape].values())

    def seconds(self, products: Products) -> float:
        """The limit."""
        return sum(count * shape.operations / self(shape) for shape, count in products.items())

    def gigaflops(self) -> dict[str, dict[str, float]]:
        """All that was measured, in 10^9 operations per second."""
        ordered = sorted(self.measured.items(), key=lambda item: item[0].operations)
        return {str(shape): {name: round(x / 1e9, 2) for name, x in each.items()} for shape, each in ordered}
