"""A multilayer perceptron for ONE example; an ensemble is the same value with a leading axis on every array.

There is no ensemble class: `vmap` of `init_mlp` makes many, `member` picks one, `vmap` maps over examples or members.
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from musbo.core.registry import stored

T = TypeVar("T")


def norm_relu(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """ReLU of a layer that is first brought to zero mean and unit variance: LayerNorm without weights of its own."""
    centred = x - jnp.mean(x)
    return jax.nn.relu(centred * jax.lax.rsqrt(jnp.mean(centred**2) + 1e-5))


ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu, "tanh": jnp.tanh, "norm_relu": norm_relu}
# Gains that keep the variance of the signal through each activation (He for ReLU, LeCun for tanh).
GAINS = {"relu": 2.0, "silu": 2.0, "tanh": 1.0, "norm_relu": 2.0}


@stored("networks/mlp")
class MLP(eqx.Module):
    """Affine layers with one activation between them; the last layer is linear."""

    weights: tuple[Float[Array, "*k _ _"], ...]
    biases: tuple[Float[Array, "*k _"], ...]
    activation: str = eqx.field(static=True)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        act = ACTIVATIONS[self.activation]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = act(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


def init_mlp(key: PRNGKeyArray, sizes: tuple[int, ...], activation: str, last_gain: float = 1.0) -> MLP:
    """Normal weights of variance gain / fan-in, zero biases; `last_gain` scales the output layer's weights.

    A layer that is normalised begins with normal biases: without them it would not see how large its input is.
    """
    keys = jax.random.split(key, len(sizes) - 1)
    weights = []
    for i, (k, n_in, n_out) in enumerate(zip(keys, sizes[:-1], sizes[1:], strict=True)):
        scale = last_gain / n_in**0.5 if i == len(sizes) - 2 else (GAINS[activation] / n_in) ** 0.5
        weights.append(scale * jax.random.normal(k, (n_in, n_out)))
    biases = [jnp.zeros(n) for n in sizes[1:]]
    if activation == "norm_relu":
        biases[:-1] = [
            jax.random.normal(jax.random.fold_in(k, 1), b.shape) for k, b in zip(keys, biases[:-1], strict=False)
        ]
    return MLP(tuple(weights), tuple(biases), activation)


def member(members: T, index: Int[Array, ""] | int) -> T:
    """The network at `index` of a stacked ensemble."""
    return jax.tree.map(lambda leaf: leaf[index], members)


def count(members: object) -> int:
    """How many networks a stacked ensemble holds."""
    return jax.tree.leaves(members)[0].shape[0]


def named_arrays(mlp: MLP, prefix: str, outputs: int | None = None) -> dict[str, Array]:
    """Weights and biases by name, of one network or of stacked ones; of the last layer only the first `outputs`."""
    found: dict[str, Array] = {}
    for i, (weight, bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
        kept = slice(outputs if i == len(mlp.weights) - 1 else None)
        found |= {f"{prefix}.w{i}": weight[..., kept], f"{prefix}.b{i}": bias[..., kept]}
    return found


def rescale_inputs(
    mlp: MLP,
    mean: tuple[Float[Array, " in"], Float[Array, " in"]],
    std: tuple[Float[Array, " in"], Float[Array, " in"]],
) -> MLP:
    """The same function of the raw input when its standardisation changes from mean[0], std[0] to mean[1], std[1]."""
    weight, bias = mlp.weights[0], mlp.biases[0]
    shift = (mean[1] - mean[0]) / std[0]
    return MLP(
        ((std[1] / std[0])[:, None] * weight, *mlp.weights[1:]),
        (bias + shift @ weight, *mlp.biases[1:]),
        mlp.activation,
    )


def affine_outputs(mlp: MLP, scale: Float[Array, " out"], shift: Float[Array, " out"]) -> MLP:
    """The network whose output is scale * (this output) + shift."""
    weights = (*mlp.weights[:-1], mlp.weights[-1] * scale[None, :])
    return MLP(weights, (*mlp.biases[:-1], mlp.biases[-1] * scale + shift), mlp.activation)
