"""What a policy becomes in one round of imagination, for alternatives that take the same operations.

    python benchmarks/fast-preset/improve.py RUN ... [--seed 7] [--limit UPDATES]

Each RUN is a finished halfcheetah campaign of `fast`. Its policy of the first deployment is improved with its last
models and all its data; real returns are means over ten episodes of 1,000 steps, imagined ones over 250 steps. Prints
improve.csv.
"""

import argparse
import csv
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from musbo.algorithms.imagined_trpo import ImaginedTRPO, State
from musbo.algorithms.recipes import settings
from musbo.campaign.folders import LEDGER, STORE, open_settings
from musbo.campaign.ledger import Ledger
from musbo.campaign.results import final_policy
from musbo.campaign.store import Store
from musbo.core import serial
from musbo.data.dataset import assemble
from musbo.data.files import read_batch
from musbo.data.scaling import Normaliser
from musbo.field.simulate import evaluate
from musbo.models.policy import Policy, renormalise
from musbo.tasks.find import find_task

EPISODES, EVALUATION_SEED = 10, 12345
ALTERNATIVES = [  # delta, rollouts, updates
    (0.03, 100, 80),
    (0.06, 100, 80),
    (0.1, 100, 80),
    (0.03, 50, 160),
    (0.06, 50, 160),
]


def last_state(run: Path) -> State:
    """What the campaign knew after its last deployment."""
    with Ledger(run / LEDGER) as ledger:
        name = ledger.events("trained")[-1].payload["state"]
    return serial.decode(Store(run / STORE).get(name), name)


def improved(run: Path, method: ImaginedTRPO, seed: int) -> tuple[float, np.ndarray]:
    """The last imagined return, and the real ones of every episode."""
    task, known = find_task("halfcheetah"), last_state(run)
    assert known.dynamics is not None
    files = sorted((run / "data").glob("deployment-*.parquet"), key=lambda file: int(file.stem.rpartition("-")[2]))
    batches = [read_batch(file) for file in files]
    data = assemble(batches, sum(map(len, batches)), open_settings(run).seed)
    first, _ = final_policy(run, 1)
    assert isinstance(first, Policy)
    scaling = known.dynamics.scaling
    policy = renormalise(first, Normaliser(scaling.obs_mean, scaling.obs_std))
    state = replace(known, stage="improve", policy=policy, update=0, checked=-1, choice=None)
    moments = list(method.train(task, data, state, jax.random.PRNGKey(seed)))
    imagined = [numbers["imagined_return"] for _, numbers in moments if numbers["stage"] == "check"]
    trained = moments[-1][0]
    return imagined[-1], np.asarray(evaluate(task, trained.policy, EPISODES, EVALUATION_SEED).returns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--limit", type=int, help="no more updates than these, to try it out")
    options = parser.parse_args()
    fast = settings("musbo", "fast", "halfcheetah")
    assert isinstance(fast, ImaginedTRPO)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["seed", "delta", "rollouts", "updates", "imagined_return", "return", "deviation"])
    for delta, rollouts, updates in ALTERNATIVES:
        method = replace(
            fast,
            trpo=replace(fast.trpo, delta=delta),
            imagine=replace(fast.imagine, rollouts=rollouts),
            updates=min(updates, options.limit or updates),
        )
        for run in options.runs:
            imagined, real = improved(run, method, options.seed)
            numbers = [f"{number:.0f}" for number in (imagined, real.mean(), real.std())]
            out.writerow([open_settings(run).seed, delta, rollouts, method.updates, *numbers])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
