"""What does more data cost? Time of a fit's epoch and of a TRPO update, and memory, against the size of D_all.

    python benchmarks/speed/growth.py

The data are synthetic transitions of halfcheetah's shape, the settings those of the preset `fast`. Every size has a
process of its own, whose capacity is that size, and goes through the calls that training makes: assemble D_all, measure
its scaling, make the rows, fit the dynamics for one epoch, draw start states, update. The peak of its memory is noted
after each. Then, in one process whose capacity is the budget of all deployments, the same with more and more of them
done. Writes growth.json and the tables of README.md. `--small` is a smoke test, and writes to `.small`.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from report import write_tables

HERE = Path(__file__).parent
SIZES = [50_000, 150_000, 500_000, 1_500_000, 5_000_000]
DEPLOYMENTS = [1, 2, 5, 10, 20]
BATCH = 50_000
EPISODE = 1000
UPDATES = 5

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    import jax

    began = time.perf_counter()
    result = jax.block_until_ready(work())
    return result, time.perf_counter() - began


def peak_mb() -> float:
    """The most that this process has held; Linux counts in KiB, macOS in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def batches(count: int, rows: int) -> Iterator[Any]:
    """Synthetic batches: states, actions and a small noisy change; episodes of 1,000 steps."""
    from musbo.data.batch import make_batch

    for number in range(count):
        random = np.random.default_rng(number)
        obs, act, change = (random.standard_normal((rows, width), np.float32) for width in (17, 6, 17))
        last = (np.arange(rows) + 1) % min(EPISODE, rows // 4) == 0
        last[-1] = True
        yield make_batch(
            obs=obs,
            act=act,
            reward=obs[:, 8],
            next_obs=obs + 0.1 * change,
            terminated=np.zeros(rows, bool),
            truncated=last,
        )


def visit(capacity: int, deployments: int, rows: int, epochs: int, narrow: bool) -> dict[str, Any]:
    """Times of one training step with `deployments` batches of `rows` in a D_all of this capacity."""
    import jax
    import jax.numpy as jnp

    from musbo.algorithms import recipes
    from musbo.algorithms.imagined_trpo import places, update
    from musbo.data.dataset import assemble
    from musbo.data.scaling import measure
    from musbo.field.find import find_task
    from musbo.learning import fit, objectives
    from musbo.models import dynamics, labeler

    task = find_task("halfcheetah")
    settings = recipes.recipe("musbo", "quick" if narrow else "fast", task.name)
    k_M, k_P, k_fit, k_begin, k_places, k_update, k_outer = jax.random.split(jax.random.PRNGKey(0), 7)
    peaks = {"imports": peak_mb()}

    data, assemble_s = timed(lambda: assemble(batches(deployments, rows), capacity, seed=0))
    peaks["assemble"] = peak_mb()
    scaling, measure_s = timed(lambda: measure(data, learn_reward=False))
    peaks["scaling"] = peak_mb()
    objectives.dynamics_rows(task, data, scaling)  # compiles
    made, rows_s = timed(lambda: objectives.dynamics_rows(task, data, scaling))
    peaks["rows"] = peak_mb()

    # The epoch. The number of minibatches is no part of its shape: one minibatch compiles it.
    begun = objectives.begin_dynamics(task, settings.dynamics, None, scaling, k_M)
    few = fit.Rows(made.x, made.y, made.train[: settings.dynamics.batch], made.heldout[:1])
    error = objectives.SquaredError()
    once = replace(settings.dynamics, epochs=1)  # a longer fit would begin its second epoch while the first is timed
    next(fit.epochs(once, error, few, begun, k_fit))
    taken = [timed(lambda: next(fit.epochs(once, error, made, begun, k_fit))[0].networks)[1] for _ in range(epochs)]
    peaks["fit"] = peak_mb()

    # The update
    P = settings.labeler
    M = dynamics.Dynamics(begun.networks, scaling)
    levels = labeler.Levels(*(jnp.ones(()) for _ in range(4)))
    judge = labeler.Labeler(labeler.init_members(k_P, task, P.hidden, P.activation, P.members), scaling, levels)
    state = settings.begin(task, k_begin)
    initial, anywhere, _ = places(settings.imagine, task, data, k_places)

    def one(index: int) -> Any:
        where = (initial, anywhere, jnp.asarray(index), k_update, k_outer)
        first = jnp.asarray(index == 0), jnp.ones(())
        return update(settings, task, state.policy, state.value, M, judge, *where, *first)[:2]

    jax.block_until_ready(one(0))
    updates = [timed(lambda i=i: one(i))[1] for i in range(1, UPDATES + 1)]
    peaks["update"] = peak_mb()
    return {
        "transitions": deployments * rows,
        "capacity": capacity,
        "deployments": deployments,
        "data_mb": sum(leaf.nbytes for leaf in jax.tree.leaves(data)) / 1e6,
        "peak_mb": peaks,
        "assemble_s": assemble_s,  # with the making of the synthetic numbers
        "prepare_s": measure_s + rows_s,
        "epoch_s": statistics.median(taken),
        "update_s": statistics.median(updates),
        "epochs_s": taken,
        "updates_s": updates,
    }


def child(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Visits one after the other, in a new process."""
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--jobs", json.dumps(jobs)], stdout=subprocess.PIPE, check=True
    )
    return json.loads(answer.stdout)


def exponent(x: list[float], y: list[float]) -> float:
    """Slope of y against x, both logarithmic."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def summary(sizes: list[dict[str, Any]], deployments: list[dict[str, Any]]) -> dict[str, float]:
    n = [row["transitions"] for row in sizes]
    peaks = [max(row["peak_mb"].values()) for row in sizes]
    slope, constant = np.polyfit([row["data_mb"] for row in sizes], peaks, 1)
    updates = [row["update_s"] for row in sizes]
    return {
        "epoch_exponent": exponent(n, [row["epoch_s"] for row in sizes]),
        "update_exponent": exponent(n, updates),
        "update_spread": max(updates) / min(updates),
        "memory_slope": float(slope),
        "memory_constant_mb": float(constant),
        "deployments_exponent": exponent(
            [row["deployments"] for row in deployments], [row["epoch_s"] for row in deployments]
        ),
    }


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['transitions']:>9,} transitions of {row['capacity']:>9,}: epoch {row['epoch_s']:8.3f} s, "
        f"update {row['update_s']:7.4f} s, data {row['data_mb']:6.0f} MB, "
        f"peak {max(row['peak_mb'].values()):6.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, help=f"transitions in D_all (default: {SIZES})")
    parser.add_argument("--deployments", nargs="+", type=int, help=f"done so far (default: {DEPLOYMENTS})")
    parser.add_argument("--batch", type=int, help=f"transitions per deployment (default: {BATCH:,})")
    parser.add_argument("--small", action="store_true", help="tiny sizes and networks, to see that everything runs")
    parser.add_argument("--out", type=Path, help="where to write (default: here; with --small: .small)")
    parser.add_argument("--jobs", type=json.loads, help=argparse.SUPPRESS)  # in a process that this one started
    options = parser.parse_args()
    if options.jobs:  # without the compilation cache: each of them compiles, and needs the memory for it
        print(json.dumps([visit(**job) for job in options.jobs]))
        return
    small = options.small
    sizes = sorted(options.sizes or ([2000, 4000, 8000] if small else SIZES))
    counts = sorted(options.deployments or ([1, 2] if small else DEPLOYMENTS))
    batch = options.batch or (1000 if small else BATCH)
    out = options.out or (HERE / ".small" if small else HERE)
    out.mkdir(parents=True, exist_ok=True)

    by_size = []
    for size in sizes:
        # Whole batches, so that every row is filled; small sizes are repeated, being short.
        count = max(1, size // batch)
        rows = size // count
        job = {"capacity": count * rows, "deployments": count, "rows": rows, "narrow": small}
        by_size += child([{**job, "epochs": max(1, min(5, sizes[-1] // (4 * size)))}])
        print(line(by_size[-1]), flush=True)
    capacity = max(counts) * batch
    shared = {"capacity": capacity, "rows": batch, "epochs": 3, "narrow": small}
    by_deployment = child([{**shared, "deployments": count} for count in counts])
    for row in by_deployment:
        row.pop("peak_mb")  # the peak of the process, which went through all of them
        print(
            f"after {row['deployments']:>2} deployments: epoch {row['epoch_s']:.3f} s, update {row['update_s']:.4f} s"
        )
    found = {
        "environment": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            **{package: version(package) for package in ("jax", "numpy")},
        },
        "sizes": by_size,
        "deployments": by_deployment,
        "summary": summary(by_size, by_deployment),
    }
    for name, value in found["summary"].items():
        print(f"{name}: {value:.3f}")
    (out / "growth.json").write_text(json.dumps(found, indent=1) + "\n")
    write_tables(out)


if __name__ == "__main__":
    main()
