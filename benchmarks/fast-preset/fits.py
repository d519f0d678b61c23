"""How well M and P are fitted for how many operations: alternatives on the batches of one campaign.

    python benchmarks/fast-preset/fits.py RUN [--only NUMBER ...] > fits.csv

RUN is the directory of a halfcheetah campaign of at least four deployments. As in a campaign, models are fitted on the
first deployment, then on two and on three, each time from the weights before. `heldout` is the error on held-out
episodes, `next` that on the batch that the next policy brought, in parts of the variance; `operations` is relative to
the first line of its kind. Two members of M and three of P; on one core for the numbers of fits.csv (`taskset -c 0`).
"""

import argparse
import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from musbo.algorithms.recipes import recipe
from musbo.data.dataset import assemble
from musbo.data.files import read_batch
from musbo.data.scaling import measure
from musbo.field.find import find_task
from musbo.learning import fit, objectives
from musbo.models.dynamics import Dynamics
from musbo.models.labeler import Labeler

FITS = 3
WIDE = (200,) * 4
ALTERNATIVES: dict[str, list[dict[str, Any]]] = {
    "M": [
        {"batch": 250, "learning_rate": 3e-3, "max_steps": 10_000},
        {"batch": 250, "learning_rate": 3e-3, "max_steps": 7000},
        {"batch": 250, "learning_rate": 3e-3, "max_steps": 5000},
        {"batch": 125, "learning_rate": 3e-3, "max_steps": 10_000},
        {"batch": 125, "learning_rate": 2e-3, "max_steps": 10_000},
        {"batch": 125, "learning_rate": 5e-3, "max_steps": 10_000},
        {"batch": 125, "learning_rate": 8e-3, "max_steps": 10_000},
        {"batch": 125, "learning_rate": 3e-3, "max_steps": 7000},
        {"batch": 125, "learning_rate": 5e-3, "max_steps": 7000},
        {"batch": 125, "learning_rate": 3e-3, "max_steps": 5000},
        {"batch": 64, "learning_rate": 3e-3, "max_steps": 20_000},
        {"batch": 125, "learning_rate": 3e-3, "max_steps": 10_000, "hidden": (256,) * 3},
        {"batch": 125, "learning_rate": 3e-3, "max_steps": 15_000, "epochs": 80, "hidden": (200,) * 3},
        {"batch": 125, "learning_rate": 3e-3, "max_steps": 15_000, "epochs": 80, "hidden": (160,) * 4},
        {"batch": 125, "learning_rate": 5e-3, "max_steps": 10_000, "hidden": (160,) * 4},
        {"batch": 125, "learning_rate": 3e-3, "max_steps": 22_000, "epochs": 80, "hidden": (128,) * 4},
        {"batch": 125, "learning_rate": 5e-3, "max_steps": 15_000, "epochs": 80, "hidden": (128,) * 4},
    ],
    "P": [
        {"batch": 250, "learning_rate": 3e-3, "max_steps": 3400},
        {"batch": 125, "learning_rate": 3e-3, "max_steps": 3400},
        {"batch": 125, "learning_rate": 5e-3, "max_steps": 3400},
        {"batch": 125, "learning_rate": 5e-3, "max_steps": 5000, "hidden": (128,) * 4},
    ],
}


def products(change: dict[str, Any]) -> float:
    """Operations up to a factor: minibatches x rows x weights."""
    sizes = (23, *change.get("hidden", WIDE), 17)
    return change["max_steps"] * change["batch"] * sum(a * b for a, b in zip(sizes[:-1], sizes[1:], strict=True))


def fitted(which: str, change: dict[str, Any], run: Path) -> dict[str, list[float]]:
    """Errors after each of the fits."""
    task = find_task("halfcheetah")
    batches = [read_batch(run / "data" / f"deployment-{d}.parquet") for d in range(1, FITS + 2)]
    seed = json.loads((run / "settings.json").read_text())["fields"]["seed"]
    musbo = recipe("musbo", "fast", "halfcheetah")
    chosen = replace(musbo.dynamics, members=2) if which == "M" else musbo.labeler
    chosen = replace(chosen, **({"hidden": WIDE} | change))
    error = objectives.SquaredError() if which == "M" else objectives.GaussianLikelihood()
    before: Any = None
    found: dict[str, list[float]] = {"heldout": [], "next": []}
    for d in range(1, FITS + 1):
        data = assemble(batches[:d], sum(map(len, batches)), seed)
        scaling = measure(data, learn_reward=False)
        key = jax.random.PRNGKey(d)
        begin = objectives.begin_dynamics if which == "M" else objectives.begin_labeler
        rows_of = objectives.dynamics_rows if which == "M" else objectives.labeler_rows
        rows = rows_of(task, data, scaling)
        begun = begin(task, chosen, before, scaling, key)
        state = [state for state, _ in fit.epochs(chosen, error, rows, begun, key)][-1]
        if which == "M":
            before = Dynamics(state.best, scaling)
        else:
            before = Labeler(state.best, scaling, objectives.measure_levels(state.best, scaling, data))
        new = assemble([batches[d]], len(batches[d]), seed)
        unseen = rows_of(task, new, scaling)
        members = [jax.tree.map(lambda leaf, k=k: leaf[k], state.best) for k in range(chosen.members)]
        found["heldout"].append(float(np.mean(state.best_error)) / task.obs_size)
        errors = [float(np.mean(error.errors(m, unseen.x, unseen.y))) for m in members]
        found["next"].append(float(np.mean(errors)) / task.obs_size)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--only", nargs="+", type=int, help="numbers of the alternatives, from 0")
    options = parser.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["model", "hidden", "batch", "learning_rate", "minibatches", "operations", "heldout", "next"])
    numbered = [(which, change) for which, changes in ALTERNATIVES.items() for change in changes]
    for number, (which, change) in enumerate(numbered):
        if options.only and number not in options.only:
            continue
        found = fitted(which, change, options.run)
        shape = "x".join(map(str, change.get("hidden", WIDE)))
        share = products(change) / products(ALTERNATIVES[which][0])
        errors = [" ".join(f"{e:.4f}" for e in found[kind]) for kind in ("heldout", "next")]
        out.writerow(
            [which, shape, change["batch"], change["learning_rate"], change["max_steps"], f"{share:.2f}", *errors]
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
