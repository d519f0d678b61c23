"""What a policy becomes in one round of imagination, for alternatives that take the same operations.

    python benchmarks/fast-preset/improve.py RUN ... [--from DEPLOYMENT] [--seed 7] [--limit UPDATES]

Each RUN is a finished halfcheetah campaign of `fast`. Its policy of an earlier deployment is improved with its last
models and all its data; real returns are means over twenty episodes of 1,000 steps, imagined ones over the horizon.
Prints improve.csv.
"""

import argparse
import csv
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from musbo.algorithms.imagined_trpo import ImaginedTRPO, State
from musbo.algorithms.recipes import recipe
from musbo.campaign.folders import open_settings
from musbo.campaign.places import STORE
from musbo.campaign.results import final_policy
from musbo.campaign.store import Store
from musbo.campaign.summary import read_status
from musbo.core import serial
from musbo.data.dataset import assemble
from musbo.data.files import read_batch
from musbo.data.scaling import Normaliser
from musbo.field.find import find_task
from musbo.field.simulate import evaluate
from musbo.models.policy import Policy, renormalise

EPISODES, EVALUATION_SEED = 20, 12345
ALTERNATIVES = [("initial", 100, 250), ("mixed", 100, 250), ("mixed", 250, 100)]  # starts, rollouts, horizon


def last_state(run: Path) -> State:
    """What the campaign knew after its last deployment."""
    trained = read_status(run).trained
    name = trained[max(trained)].state
    return serial.decode(Store(run / STORE).get(name), name)


def improved(run: Path, method: ImaginedTRPO, earlier: int, seed: int) -> tuple[float, np.ndarray]:
    """The last imagined return, and the real ones of every episode."""
    task, known = find_task("halfcheetah"), last_state(run)
    assert known.dynamics is not None
    files = sorted((run / "data").glob("deployment-*.parquet"), key=lambda file: int(file.stem.rpartition("-")[2]))
    batches = [read_batch(file) for file in files]
    data = assemble(batches, sum(map(len, batches)), open_settings(run).seed)
    first, _ = final_policy(run, earlier)
    assert isinstance(first, Policy)
    scaling = known.dynamics.scaling
    policy = renormalise(first, Normaliser(scaling.obs_mean, scaling.obs_std))
    state = replace(known, stage="improve", policy=policy, update=0, checked=-1, choice=None)
    moments = list(method.train(task, data, state, jax.random.PRNGKey(seed)))
    imagined = [metrics.numbers["imagined_return"] for _, metrics in moments if metrics.stage == "check"]
    trained = moments[-1][0]
    return imagined[-1], np.asarray(evaluate(task, trained.policy, EPISODES, EVALUATION_SEED).returns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--from", dest="earlier", type=int, default=1, metavar="DEPLOYMENT")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--limit", type=int, help="no more updates than these, to try it out")
    options = parser.parse_args()
    fast = recipe("musbo", "fast", "halfcheetah")
    assert isinstance(fast, ImaginedTRPO)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["seed", "from", "starts", "rollouts", "horizon", "updates", "imagined_return", "return", "deviation"])
    for starts, rollouts, horizon in ALTERNATIVES:
        method = replace(
            fast,
            imagine=replace(fast.imagine, starts=starts, rollouts=rollouts, horizon=horizon),
            updates=min(fast.updates, options.limit or fast.updates),
        )
        for run in options.runs:
            imagined, real = improved(run, method, options.earlier, options.seed)
            numbers = [f"{number:.0f}" for number in (imagined, real.mean(), real.std())]
            place = [open_settings(run).seed, options.earlier, starts, rollouts, horizon, method.updates]
            out.writerow([*place, *numbers])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
