"""Writes statistics.json: what rliable says of made-up scores. Not run by the tests.

python3 -m venv /tmp/rliable
/tmp/rliable/bin/pip install --no-deps rliable==1.2.0
/tmp/rliable/bin/pip install "numpy==2.4.6" "scipy==1.17.1" "arch==7.2.0" "pandas<3" absl-py
/tmp/rliable/bin/python tests/golden/make_statistics.py
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rliable import library, metrics  # pyright: ignore[reportMissingImports]

REPS = 50_000
TAU = np.arange(0.05, 1.4, 0.15).round(2)


def make_scores() -> dict[str, np.ndarray]:
    """Two methods with different numbers of runs, ties inside and between them, outliers, and one task they share."""
    rng = np.random.default_rng(20210830)
    level = np.array([0.2, 0.5, 0.7, 0.9, 1.1])
    x = (level + 0.1 + 0.2 * rng.standard_normal((11, 5))).round(2)
    y = (level + 0.15 * rng.standard_t(3, (9, 5))).round(2)
    y[:3, 2] = x[:3, 2]
    x[0, 4] = 2.5
    return {"x": x, "y": y}


def main() -> None:
    scores = make_scores()
    np.random.seed(0)  # rliable resamples with numpy's global generator, whatever random_state it is given
    out: dict = {
        "versions": {name: version(name) for name in ("rliable", "arch", "numpy", "scipy")},
        "reps": REPS,
        "scores": {name: array.tolist() for name, array in scores.items()},
        "aggregates": {},
    }
    for key, function in (
        ("interquartile_mean", metrics.aggregate_iqm),
        ("mean", metrics.aggregate_mean),
    ):
        point, bounds = library.get_interval_estimates(scores, lambda s, f=function: np.array([f(s)]), reps=REPS)
        out["aggregates"][key] = {
            name: {"value": float(point[name][0]), "low": float(bounds[name][0, 0]), "high": float(bounds[name][1, 0])}
            for name in scores
        }
    share, bounds = library.create_performance_profile(scores, TAU, reps=REPS)
    out["profiles"] = {
        "tau": TAU.tolist(),
        **{
            name: {"share": share[name].tolist(), "low": bounds[name][0].tolist(), "high": bounds[name][1].tolist()}
            for name in scores
        },
    }
    point, bounds = library.get_interval_estimates(
        {"xy": [scores["x"], scores["y"]]},
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        reps=REPS,
    )
    out["probability_of_improvement"] = {
        "value": float(point["xy"][0]), "low": float(bounds["xy"][0, 0]), "high": float(bounds["xy"][1, 0])
    }  # fmt: skip
    Path(__file__).with_name("statistics.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
