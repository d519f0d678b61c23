"""The MLP against NumPy, and networks that stay the same function when their scaling changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.models.mlp import MLP, affine_outputs, count, init_mlp, member, rescale_inputs
from tests.learning.small import f32, stack

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "norm_relu": lambda x: np.maximum(
        (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5), 0
    ),
}
SIZES = (3, 5, 4, 2)


def random_mlp(rng: np.random.Generator, activation: str, sizes: tuple[int, ...] = SIZES) -> MLP:
    """Biases too: `init_mlp` leaves them at zero, where a mistake about them would not show."""
    weights = tuple(f32(rng.normal(size=pair)) for pair in zip(sizes[:-1], sizes[1:], strict=True))
    return MLP(weights, tuple(f32(rng.normal(size=n)) for n in sizes[1:]), activation)


def forward(mlp: MLP, x: np.ndarray) -> np.ndarray:
    weights, biases = ([np.asarray(a, np.float64) for a in arrays] for arrays in (mlp.weights, mlp.biases))
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = ACTIVATIONS[mlp.activation](x @ weight + bias)
    return x @ weights[-1] + biases[-1]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_against_numpy(activation: str):
    rng = np.random.default_rng(0)
    mlp = random_mlp(rng, activation)
    x = rng.normal(size=(20, SIZES[0]))
    np.testing.assert_allclose(jax.vmap(mlp)(f32(x)), forward(mlp, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("activation", "gain"), [("relu", 2.0), ("silu", 2.0), ("tanh", 1.0)])
def test_initial_weights(activation: str, gain: float):
    mlp = init_mlp(jax.random.PRNGKey(0), (200, 300, 400), activation, last_gain=0.1)
    assert np.var(mlp.weights[0]) == pytest.approx(gain / 200, rel=0.05)
    assert np.std(mlp.weights[1]) == pytest.approx(0.1 / np.sqrt(300), rel=0.05)
    assert all(not np.any(bias) for bias in mlp.biases)


def test_members_of_a_stack():
    rng = np.random.default_rng(0)
    networks = [random_mlp(rng, "tanh") for _ in range(3)]
    together = stack(*networks)
    assert count(together) == 3
    x = f32(rng.normal(size=SIZES[0]))
    for i, network in enumerate(networks):
        np.testing.assert_array_equal(member(together, i)(x), network(x))
        np.testing.assert_array_equal(member(together, jnp.asarray(i))(x), network(x))


SPREAD = st.floats(0.1, 10.0)
CENTRE = st.floats(-5.0, 5.0)


def columns(n: int, values: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    return st.lists(values, min_size=n, max_size=n).map(lambda v: np.asarray(v, np.float32))


@given(columns(3, CENTRE), columns(3, SPREAD), columns(3, CENTRE), columns(3, SPREAD))
def test_other_inputs_same_function(mean0: np.ndarray, std0: np.ndarray, mean1: np.ndarray, std1: np.ndarray):
    rng = np.random.default_rng(0)
    old = random_mlp(rng, "silu")
    new = rescale_inputs(old, (f32(mean0), f32(mean1)), (f32(std0), f32(std1)))
    x = mean0 + std0 * rng.normal(size=(20, 3))
    np.testing.assert_allclose(forward(new, (x - mean1) / std1), forward(old, (x - mean0) / std0), rtol=1e-3, atol=1e-2)


@given(columns(2, SPREAD), columns(2, CENTRE))
def test_other_outputs(scale: np.ndarray, shift: np.ndarray):
    rng = np.random.default_rng(0)
    old = random_mlp(rng, "relu")
    x = rng.normal(size=(20, 3))
    new = affine_outputs(old, f32(scale), f32(shift))
    np.testing.assert_allclose(forward(new, x), scale * forward(old, x) + shift, rtol=1e-4, atol=1e-4)
