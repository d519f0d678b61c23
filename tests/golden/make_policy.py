"""Makes the golden policy: `python -m tests.golden.make_policy`. `tests/campaign/test_api.py` has what it does.

It is never made again: newer versions have to read it.
"""

from pathlib import Path

import jax.numpy as jnp

from musbo.core import serial
from musbo.data.scaling import Normaliser
from musbo.models.mlp import MLP
from musbo.models.policy import Policy

PLACE = Path(__file__).parent / "policy-v1.safetensors"


def main() -> None:
    if PLACE.exists():
        raise SystemExit(f"{PLACE} is there: a golden file is never made again")
    weights = (jnp.array([[1.0, 0.5], [-1.0, 2.0]]), jnp.array([[0.5], [-0.25]]))
    mlp = MLP(weights, (jnp.array([0.25, 0.0]), jnp.array([0.125])), "tanh")
    normaliser = Normaliser(jnp.array([1.0, -1.0]), jnp.array([2.0, 0.5]))
    serial.save(PLACE, Policy(mlp, jnp.array([-1.5]), normaliser, jnp.array([3.0]), jnp.array([2.0])))


if __name__ == "__main__":
    main()
