"""One d3rlpy run on a batch file: train, evaluate at every checkpoint in our simulator, print one JSON object.

    PYTHONPATH=src DIR/bin/python benchmarks/agreement/peer.py hopper.parquet hopper sac 0 fast 20000

Runs in the peers' environment (run.py makes it), where PyTorch is. Networks, step sizes, minibatches and the number of
gradient steps are those of our preset, read from it.
"""

# pyright: reportMissingImports=false

import sys
from typing import Any

import d3rlpy
import numpy as np
import torch
from checkpoints import CHECKPOINTS, measured, tell
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models import VectorEncoderFactory
from d3rlpy.preprocessing import MinMaxActionScaler, StandardObservationScaler

from musbo.algorithms.model_free import ModelFree
from musbo.algorithms.recipes import Preset, recipe
from musbo.data.files import read_batch
from musbo.field.find import find_task
from musbo.learning.soft import Support


def config(method: ModelFree, scalers: dict[str, Any]) -> Any:
    def layers(sizes: tuple[int, ...]) -> VectorEncoderFactory:
        return VectorEncoderFactory(list(sizes))

    ours, rate = method.soft, method.soft.learning_rate
    shared = {
        "actor_encoder_factory": layers(ours.actor),
        "critic_encoder_factory": layers(ours.critic),
        "actor_learning_rate": rate,
        "critic_learning_rate": rate,
        "batch_size": ours.batch,
        "gamma": ours.gamma,
        "tau": ours.tau,
        **scalers,
    }
    kind = method.regulariser
    if isinstance(kind, Support):
        return d3rlpy.algos.BCQConfig(
            imitator_encoder_factory=layers(kind.generator),
            imitator_learning_rate=rate,
            lam=kind.caution,
            n_action_samples=kind.candidates,
            action_flexibility=kind.reach,
            **shared,
        )
    return d3rlpy.algos.SACConfig(temp_learning_rate=rate, **shared)


def main(file: str, name: str, algo: str, seed: int, preset: Preset, steps: int) -> None:
    torch.set_num_threads(1)
    d3rlpy.seed(seed)
    task, batch = find_task(name), read_batch(file)
    data = d3rlpy.dataset.MDPDataset(batch.obs, batch.act, batch.reward, batch.terminated, batch.truncated)
    scalers = {
        "observation_scaler": StandardObservationScaler(),
        "action_scaler": MinMaxActionScaler(minimum=task.low, maximum=task.high),
    }
    method = recipe(algo, preset, name)
    assert isinstance(method, ModelFree)
    learner = config(method, scalers).create(device="cpu")
    parts = learner.fitter(
        data, steps, n_steps_per_epoch=steps // CHECKPOINTS, logger_adapter=NoopAdapterFactory(), show_progress=False
    )
    tell([measured(task, lambda obs: learner.predict(np.asarray(obs, np.float32)), seed) for _ in parts])


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))  # type: ignore[arg-type]
