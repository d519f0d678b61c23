"""Batches to test with."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from musbo.data.batch import Batch

MakeBatch = Callable[..., Batch]


@pytest.fixture(scope="session")
def make() -> MakeBatch:
    """A function that makes a sound batch of random walks, from the lengths of its episodes."""

    def make(lengths: Sequence[int], seed: int = 0, obs_size: int = 4, act_size: int = 2) -> Batch:
        rng = np.random.default_rng(seed)
        walks = [rng.normal(size=(length + 1, obs_size)).astype(np.float32) for length in lengths]
        n = sum(lengths)
        last = np.zeros(n, bool)
        last[np.cumsum(lengths) - 1] = True
        terminated = last & (rng.random(n) < 0.5)
        return Batch(
            obs=np.concatenate([walk[:-1] for walk in walks]),
            act=rng.uniform(-1, 1, (n, act_size)).astype(np.float32),
            reward=rng.normal(size=n).astype(np.float32),
            next_obs=np.concatenate([walk[1:] for walk in walks]),
            terminated=terminated,
            truncated=last & ~terminated,
            episode=np.repeat(np.arange(len(lengths)), lengths).astype(np.int32),
            step=np.concatenate([np.arange(length) for length in lengths]).astype(np.int32),
            by=np.zeros(n, np.int8),
        )

    return make
