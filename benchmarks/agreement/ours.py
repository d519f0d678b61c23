"""One run of ours on a batch file: train, evaluate at every checkpoint, print one JSON object.

python benchmarks/agreement/ours.py hopper.parquet hopper sac 0 fast 20000
"""

import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from checkpoints import CHECKPOINTS, measured, tell  # pyright: ignore[reportMissingImports]

from musbo.algorithms.model_free import ModelFree
from musbo.algorithms.recipes import Preset, recipe
from musbo.campaign import flags
from musbo.core.compilation import keep_compiled
from musbo.data.dataset import assemble
from musbo.data.files import read_batch
from musbo.field.find import find_task
from musbo.models.frame import AnyPolicy

WITH_SETTINGS = {"brac-1.0": ("brac", ["--regulariser.coefficient", "1.0"])}


@jax.jit
def act(policy: AnyPolicy, obs: jax.Array) -> jax.Array:
    return policy(obs)


def main(file: str, name: str, algo: str, seed: int, preset: Preset, steps: int) -> None:
    keep_compiled()
    task, batch = find_task(name), read_batch(file)
    algo, words = WITH_SETTINGS.get(algo, (algo, []))
    method = flags.parse(recipe(algo, preset, name), words)
    assert isinstance(method, ModelFree)
    method = replace(method, steps=steps)
    data = assemble([batch], len(batch), seed)
    k_begin, k_train = jax.random.split(jax.random.PRNGKey(seed))
    returns = []
    for state, metrics in method.train(task, data, method.begin(task, k_begin), k_train):
        if metrics.stage == "learn" and metrics.index % (steps // CHECKPOINTS) == 0:
            networks = state.networks
            policy = method.regulariser.policy(networks.parts, networks.critics, state.frame)
            returns.append(measured(task, lambda obs, p=policy: np.asarray(act(p, jnp.asarray(obs))), seed))
    tell(returns)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))  # type: ignore[arg-type]
