"""A folded policy as an ONNX model: Gemm nodes and activations, opset 13, one observation at a time.

ONNX is protobuf, and this little of it is written by hand: a field is its number and wire type, then its value.
"""

import numpy as np

from musbo import __version__
from musbo.field.folded import Folded

OPSET, IR = 13, 7
FLOAT = 1
NODES = {"relu": "Relu", "tanh": "Tanh"}


def onnx_bytes(policy: Folded, about: str) -> bytes:
    """The model with input `observation` [1, obs] and output `action` [1, act]; `about` is its description."""
    graph, last = b"", "observation"
    tensors = b""
    for i, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        tensors += _field(5, _tensor(f"w{i}", weight)) + _field(5, _tensor(f"b{i}", bias))
        final = i == len(policy.weights) - 1
        out = "action" if final else f"layer{i}"
        graph += _node("Gemm", [last, f"w{i}", f"b{i}"], out)
        if final:
            break
        kind = "tanh" if i == len(policy.weights) - 2 else policy.activation
        last = f"active{i}"
        if kind == "silu":
            graph += _node("Sigmoid", [out], f"sigmoid{i}") + _node("Mul", [out, f"sigmoid{i}"], last)
        else:
            graph += _node(NODES[kind], [out], last)
    graph += _field(2, b"policy") + tensors
    graph += _field(11, _value("observation", policy.weights[0].shape[0]))
    graph += _field(12, _value("action", policy.weights[-1].shape[1]))
    return (
        _number(1, IR)
        + _field(2, b"musbo")
        + _field(3, __version__.encode())
        + _field(6, about.encode())
        + _field(7, graph)
        + _field(8, _field(1, b"") + _number(2, OPSET))
    )


def _node(kind: str, inputs: list[str], output: str) -> bytes:
    body = b"".join(_field(1, name.encode()) for name in inputs)
    return _field(1, body + _field(2, output.encode()) + _field(3, output.encode()) + _field(4, kind.encode()))


def _tensor(name: str, array: np.ndarray) -> bytes:
    dims = b"".join(_number(1, size) for size in array.shape)
    return dims + _number(2, FLOAT) + _field(8, name.encode()) + _field(9, array.astype("<f4").tobytes())


def _value(name: str, size: int) -> bytes:
    shape = b"".join(_field(1, _number(1, dim)) for dim in (1, size))
    return _field(1, name.encode()) + _field(2, _field(1, _number(1, FLOAT) + _field(2, shape)))


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes(found) + bytes([value])
