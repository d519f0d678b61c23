"""Bundles to test with: policies of every kind with random weights, and the actors that explore around them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from musbo.data.scaling import Normaliser, Scaling
from musbo.field.bundle import About, Columns, Contents, Seen, baseline_contents, contents
from musbo.learning.explore import Plain, Seeking
from musbo.models.actor import SampleActor, SharedActor
from musbo.models.frame import Frame
from musbo.models.gaussian import GaussianPolicy
from musbo.models.labeler import Labeler, Levels, init_members
from musbo.models.mlp import MLP, init_mlp
from musbo.models.policy import Policy, PolicySettings, init_policy
from musbo.models.support import Support, SupportPolicy
from musbo.tasks.task import Task

OBS, ACT = 5, 3
TASK = Task("mill", OBS, ACT, (-1.0, 0.0, -200.0), (1.0, 4.0, 300.0), 100, reward=lambda s, a, n: jnp.sum(n))
NORMALISER = Normaliser(jnp.array([0.0, 3.0, -40.0, 1.0, 0.5]), jnp.array([1.0, 0.2, 15.0, 3.0, 0.01]))
NAMES = Columns(("torque", "feed", "pitch", "load", "gap"), ("N m", "m/s", "", "t", "mm"))
ACTS = Columns(("speed", "valve", "lift"), ("1/s", "", "mm"))
ABOUT = About("mill", NAMES, ACTS, 100, 0, 0.5, (), 2, "0" * 64, {"musbo": "test"}, explores=True)


def observations(n: int, seed: int = 0) -> np.ndarray:
    """Two standard deviations around the mean: what a policy meets and a little more."""
    x = 2 * np.random.default_rng(seed).standard_normal((n, OBS))
    return (np.asarray(NORMALISER.mean) + np.asarray(NORMALISER.std) * x).astype(np.float32)


def squashed(activation: Any = "relu", hidden: tuple[int, ...] = (32, 32), seed: int = 0) -> Policy:
    key = jax.random.key(seed)
    policy = init_policy(key, TASK, PolicySettings(hidden, activation))
    return replace(policy, normaliser=NORMALISER, mlp=_lively(policy.mlp, key))


def gaussian(activation: str = "relu", seed: int = 1) -> GaussianPolicy:
    key = jax.random.key(seed)
    return GaussianPolicy(_lively(init_mlp(key, (OBS, 24, 24, 2 * ACT), activation), key), frame())


def support(seed: int = 2) -> SupportPolicy:
    keys = jax.random.split(jax.random.key(seed), 5)
    latent = 2 * ACT
    parts = Support(
        init_mlp(keys[0], (OBS + ACT, 16, 2 * latent), "relu"),
        init_mlp(keys[1], (OBS + latent, 16, ACT), "relu"),
        init_mlp(keys[2], (OBS + ACT, 16, ACT), "relu"),
    )
    critics = jax.vmap(lambda k: init_mlp(k, (OBS + ACT, 16, 1), "norm_relu"))(jax.random.split(keys[3], 2))
    return SupportPolicy(parts, critics, jax.random.normal(keys[4], (10, latent)), frame(), reach=0.15)


def frame() -> Frame:
    return Frame(NORMALISER, jnp.asarray(TASK.centre), jnp.asarray(TASK.half_range))


def _lively(mlp: MLP, key: jax.Array) -> MLP:
    """With biases, and with outputs that use the whole range."""
    biases = tuple(0.3 * jax.random.normal(jax.random.fold_in(key, i), b.shape) for i, b in enumerate(mlp.biases))
    last = mlp.weights[-1] / jnp.std(mlp.weights[-1]) / mlp.weights[-1].shape[0] ** 0.5
    return MLP((*mlp.weights[:-1], last), biases, mlp.activation)


def labeler(hidden: tuple[int, ...] = (24, 24), k: int = 3, activation: str = "silu") -> Labeler:
    members = init_members(jax.random.key(3), TASK, hidden, activation, k)
    ends = NORMALISER.mean - 3 * NORMALISER.std, NORMALISER.mean + 3 * NORMALISER.std
    scaling = Scaling(
        NORMALISER.mean, NORMALISER.std, jnp.asarray(TASK.centre), jnp.asarray(TASK.half_range),
        0.1 * NORMALISER.mean, 0.3 * NORMALISER.std, *ends,
    )  # fmt: skip
    levels = (jnp.asarray(x) for x in (5.0, 20.0, 30.0, 4.0))
    return Labeler(members, scaling, Levels(*levels))


def actors() -> dict[str, tuple[Any, Any]]:
    """Policy and actor by the kind of exploration."""
    policy, judge = squashed(), labeler()
    lead = gaussian()
    return {
        "plain": (policy, Plain(0.1).actor(policy, None)),
        "seeking": (policy, Seeking().actor(policy, judge)),
        "raw": (policy, Seeking(zeta_scale="raw").actor(policy, judge)),
        "lagged": (policy, Seeking(zeta="lagged").actor(policy, judge)),
        "sample": (lead, SampleActor(lead)),
        "shared": (lead, SharedActor(lead, gaussian(seed=7))),
        "shared by three": (lead, SharedActor(lead, gaussian(seed=7), gaussian(seed=8))),
        "support": (support(), SampleActor(support())),
    }


def made(policy: Any, actor: Any = None, limits: dict[str, Any] | None = None) -> Contents:
    sample = observations(200)
    margin = 20 * np.asarray(NORMALISER.std)
    seen = Seen(sample, sample.min(axis=0) - margin, sample.max(axis=0) + margin)
    return contents(policy, actor or Plain(0.1).actor(squashed(), None), seen, ABOUT, limits or {})


def baseline(limits: dict[str, Any] | None = None) -> Contents:
    """The first bundle of a campaign in the field: no policy, noise around the site's own controller."""
    seen = (np.full(OBS, -1e30, np.float32), np.full(OBS, 1e30, np.float32))
    return baseline_contents((TASK.low, TASK.high), seen, replace(ABOUT, deployment=0, round=1), limits or {})


def ship(folder: Path, kind: str = "plain", limits: dict[str, Any] | None = None) -> Path:
    """A bundle in `folder`."""
    write(folder, made(*actors()[kind], limits).files)
    return folder


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
