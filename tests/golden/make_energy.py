"""Makes energy.json: energy distances by dcor, which is installed for this alone (pip install dcor)."""

# pyright: reportMissingImports=false

import json
from importlib.metadata import version
from pathlib import Path

import dcor
import numpy as np

rng = np.random.default_rng(0)
cases = []
for n, m, d, shift in ((20, 20, 3, 0.0), (5, 9, 1, 1.0), (12, 12, 40, 0.5), (1, 4, 2, 3.0)):
    x = np.round(rng.normal(size=(n, d)), 3)
    y = np.round(1.5 * rng.normal(size=(m, d)) + shift, 3)
    cases.append({"x": x.tolist(), "y": y.tolist(), "energy_distance": float(dcor.energy_distance(x, y))})
made = {"dcor": version("dcor"), "cases": cases}
(Path(__file__).parent / "energy.json").write_text(json.dumps(made) + "\n")
