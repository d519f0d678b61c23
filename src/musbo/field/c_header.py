"""A folded policy as a C header: C99, float, no allocation, nothing but math.h."""

import numpy as np

from musbo.field.folded import Folded

ACTIVATIONS = {"relu": "x > 0.0f ? x : 0.0f", "tanh": "tanhf(x)", "silu": "x / (1.0f + expf(-x))"}
PER_LINE = 8


def c_header(policy: Folded, about: str, history: int = 0) -> str:
    """`musbo_policy(observation, action)`; `about` goes into the comment at the top."""
    sizes = [policy.weights[0].shape[0], *(weight.shape[1] for weight in policy.weights)]
    widest = max(sizes)
    lines = [
        "/*",
        *(f" * {line}".rstrip() for line in about.splitlines()),
        " */",
        "#ifndef MUSBO_POLICY_H",
        "#define MUSBO_POLICY_H",
        "#include <math.h>",
        "",
        f"#define MUSBO_OBSERVATIONS {sizes[0]}",
        f"#define MUSBO_ACTIONS {sizes[-1]}",
        *([f"#define MUSBO_HISTORY {history}"] if history else []),
        "",
    ]
    for i, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        # One row for each output, so that the sums run along memory.
        lines += _array(f"musbo_w{i}", weight.T.ravel()) + _array(f"musbo_b{i}", bias)
    lines += [
        "static float musbo_activation(float x) {",
        f"    return {ACTIVATIONS[policy.activation]};",
        "}",
        "",
        "static void musbo_affine(const float *w, const float *b, int n_in, int n_out, const float *x, float *y) {",
        "    for (int i = 0; i < n_out; i++) {",
        "        float sum = b[i];",
        "        for (int j = 0; j < n_in; j++) sum += w[i * n_in + j] * x[j];",
        "        y[i] = sum;",
        "    }",
        "}",
        "",
        "static void musbo_policy(const float observation[MUSBO_OBSERVATIONS], float action[MUSBO_ACTIONS]) {",
        f"    float x[{widest}], y[{widest}];",
        "    for (int i = 0; i < MUSBO_OBSERVATIONS; i++) x[i] = observation[i];",
    ]
    for i, (n_in, n_out) in enumerate(zip(sizes[:-2], sizes[1:-1], strict=True)):
        squash = "tanhf(y[i])" if i == len(sizes) - 3 else "musbo_activation(y[i])"
        lines += [
            f"    musbo_affine(musbo_w{i}, musbo_b{i}, {n_in}, {n_out}, x, y);",
            f"    for (int i = 0; i < {n_out}; i++) x[i] = {squash};",
        ]
    last = len(sizes) - 2
    lines += [
        f"    musbo_affine(musbo_w{last}, musbo_b{last}, {sizes[-2]}, {sizes[-1]}, x, action);",
        "}",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _array(name: str, values: np.ndarray) -> list[str]:
    words = [f"{float(value):.9e}f" for value in values]  # nine digits give back the same float
    rows = [", ".join(words[i : i + PER_LINE]) for i in range(0, len(words), PER_LINE)]
    return [f"static const float {name}[{len(words)}] = {{", *(f"    {row}," for row in rows), "};", ""]
