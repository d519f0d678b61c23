"""A policy as affine layers alone: the observation's normaliser folded into the first, the action's range into a last.

ONNX and C are written from this. Between two layers is the activation, before the last one tanh.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from musbo.core.errors import UserError
from musbo.models.frame import AnyPolicy
from musbo.models.gaussian import GaussianPolicy
from musbo.models.policy import Policy

KNOWN = ("relu", "silu", "tanh")


@dataclass(frozen=True, eq=False)
class Folded:
    """Raw observations in, raw actions out."""

    weights: tuple[Float32[np.ndarray, "_ _"], ...]
    biases: tuple[Float32[np.ndarray, " _"], ...]
    activation: str

    def __call__(self, obs: Float32[np.ndarray, "n obs"]) -> Float32[np.ndarray, "n act"]:
        """What the layers give, in float32 as in ONNX and C."""
        x = obs
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if i < len(self.weights) - 2:
                x = _activation(self.activation, x)
            elif i == len(self.weights) - 2:
                x = np.tanh(x)
        return x


def fold(policy: AnyPolicy) -> Folded:
    """The layers of a policy that is an MLP; others are refused."""
    if isinstance(policy, Policy):
        network = policy.mlp
    elif isinstance(policy, GaussianPolicy):
        network = policy.network
    else:
        raise UserError(
            f"a {type(policy).__name__} is more than one network with a squashed output, so it cannot be written as "
            "ONNX or C: use runtime.py on site, or train another method."
        )
    if network.activation not in KNOWN:
        raise UserError(f"the activation {network.activation} cannot be written as ONNX or C: use runtime.py on site.")
    frame = policy.frame
    mean, std, centre, half = (
        np.asarray(part, np.float64)
        for part in (frame.normaliser.mean, frame.normaliser.std, frame.centre, frame.half_range)
    )
    weights = [np.asarray(weight, np.float64) for weight in network.weights]
    biases = [np.asarray(bias, np.float64) for bias in network.biases]
    weights[-1], biases[-1] = weights[-1][:, : len(half)], biases[-1][: len(half)]  # the rest is the spread
    biases[0] = biases[0] - (mean / std) @ weights[0]
    weights[0] = weights[0] / std[:, None]
    return Folded(_single([*weights, np.diag(half)]), _single([*biases, centre]), network.activation)


def _single(arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(array.astype(np.float32) for array in arrays)


def _activation(name: str, x: np.ndarray) -> np.ndarray:
    if name == "relu":
        return np.maximum(x, 0)
    return np.tanh(x) if name == "tanh" else x * (0.5 + 0.5 * np.tanh(0.5 * x))
