"""BRAC on hopper's logs with several coefficients, on a seed that is not reported: how the coefficient was chosen.

    python benchmarks/agreement/coefficient.py hopper.parquet 0.1 1 3

Writes coefficient.csv: return of the deterministic policy and mean Q of the data, every 1,000 gradient steps.
"""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from checkpoints import measured  # pyright: ignore[reportMissingImports]
from ours import act  # pyright: ignore[reportMissingImports]

from musbo.algorithms.model_free import ModelFree
from musbo.algorithms.recipes import recipe
from musbo.core.compilation import keep_compiled
from musbo.data.dataset import assemble
from musbo.data.files import read_batch
from musbo.field.find import find_task
from musbo.learning.soft import Nearness

SEED, STEPS, EVERY = 10, 10_000, 1000


def main(file: str, *coefficients: str) -> None:
    keep_compiled()
    task, batch = find_task("hopper"), read_batch(file)
    base = recipe("brac", "fast", "hopper")
    assert isinstance(base, ModelFree)
    data = assemble([batch], len(batch), SEED)
    k_begin, k_train = jax.random.split(jax.random.PRNGKey(SEED))
    rows = []
    for c in coefficients:
        method = replace(base, steps=STEPS, regulariser=Nearness(float(c)))
        for state, metrics in method.train(task, data, method.begin(task, k_begin), k_train):
            if metrics.stage == "learn" and metrics.index % EVERY == 0:
                policy = method.regulariser.policy(state.networks.parts, state.networks.critics, state.frame)  # type: ignore[arg-type]
                found = measured(task, lambda obs, p=policy: np.asarray(act(p, jnp.asarray(obs))), SEED)
                rows.append([c, SEED, metrics.index, f"{found:.0f}", f"{metrics.numbers['Q']:.1f}"])
    with (Path(__file__).parent / "coefficient.csv").open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([["coefficient", "seed", "step", "return", "Q"], *rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
