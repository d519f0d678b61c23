"""A bundle: the files that go into the field. What they hold is a function of the run, so exporting twice gives the
same bytes.

The policy goes in three forms: weights for `runtime.py`, ONNX and C. Exploration and limits are in the runtime alone.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32

from musbo.core.errors import UserError
from musbo.core.formats import header
from musbo.core.plain import plain
from musbo.field import runtime
from musbo.field.c_header import c_header
from musbo.field.folded import fold
from musbo.field.limits_file import limits_text
from musbo.field.onnx_file import onnx_bytes
from musbo.field.readme import readme
from musbo.models.actor import Actor, Shippable, Shipped
from musbo.models.frame import AnyPolicy
from musbo.models.gaussian import GaussianPolicy
from musbo.models.mlp import member, named_arrays
from musbo.models.policy import Policy
from musbo.models.support import SupportPolicy

GOLDEN = 64
"""Golden vectors, at most."""
ORDER = """The observation is one vector, newest first: the observation now, then for 1 to {n} steps before it the
observation and the action that was executed. Before the first step of an episode, the first observation stands there,
with the middle of the range of every action.
"""
EXACT = 1e-4
"""ONNX and C are left out where folding costs more than this share of the half-range."""
AROUND = 0.2
"""Noise around the site's own controller, as a share of the half-range: at most so much, where the limits do not say.
Its deviation is 0.12, about the noise that BREMEN collects with."""
NO_POLICY = "there is no policy yet: the controller of the site acts, and data are collected around it"


Ends: TypeAlias = tuple[Float32[np.ndarray, " _"], Float32[np.ndarray, " _"]]
"""The smallest and the largest values of a vector."""


@dataclass(frozen=True, eq=False)
class Seen:
    """The observations of a run's data: some of them as the policy sees them, and the range of all with a margin."""

    sample: Float32[np.ndarray, "n seen"]
    low: Float32[np.ndarray, " obs"]
    high: Float32[np.ndarray, " obs"]


@dataclass(frozen=True)
class Columns:
    """What the numbers of an observation or an action are, in their order."""

    names: tuple[str, ...]
    units: tuple[str, ...]


@dataclass(frozen=True)
class About:
    """What the manifest says of a policy's origin."""

    task: str
    observation: Columns
    action: Columns
    episode_steps: int
    history: int
    """Past observations and actions that the policy sees."""
    interval: float | None
    change: tuple[float | None, ...]
    """The largest change of each action in a step, where the task says it; empty: it does not."""
    deployment: int
    ledger: str
    """Hash of an event of the run, which stands for all events before it: of a run in a simulator the training of the
    policy, of a campaign in the field the last event before the bundle left."""
    versions: Mapping[str, str]
    explores: bool
    """Whether the runtime explores unless it is told otherwise: while deployments are left."""
    round: int | None = None
    """The deployment that its recordings are the batch of; None where none is awaited."""
    verdict: str | None = None
    """What was said of the policy before it left."""


@dataclass(frozen=True, eq=False)
class Contents:
    """The files of a bundle by name, and what is not in it."""

    files: dict[str, bytes]
    explores: bool
    notes: tuple[str, ...]

    @property
    def id(self) -> str:
        return hashlib.sha256(self.files[runtime.CHECKSUMS]).hexdigest()

    @property
    def limits(self) -> str:
        """The file of its limits: one that left before may be of version 1."""
        return runtime.LIMITS if runtime.LIMITS in self.files else runtime.FORMER_LIMITS


def contents(policy: AnyPolicy, actor: Actor, seen: Seen, about: About, limits: Mapping[str, Any]) -> Contents:
    """The bundle of a policy and of the actor that collects with it; `limits` are what the user sets."""
    frame = policy.frame
    low, high = np.asarray(frame.centre - frame.half_range), np.asarray(frame.centre + frame.half_range)
    arrays = {
        "frame.mean": frame.normaliser.mean,
        "frame.std": frame.normaliser.std,
        "frame.centre": frame.centre,
        "frame.half": frame.half_range,
    }
    said, own = _policy(policy)
    obs = seen.sample[np.linspace(0, len(seen.sample) - 1, min(GOLDEN, len(seen.sample))).astype(int)]
    act = np.asarray(jax.jit(lambda x: policy(x))(obs))
    shipped = Shipped("none", why=f"{type(actor).__name__} is not known to runtime.py")
    if isinstance(actor, Shippable):
        try:
            shipped = actor.ship(jnp.asarray(obs), jnp.asarray(act))
        except (TypeError, ValueError) as error:  # whatever JAX says about shapes
            raise UserError("the arrays of what collects do not fit together: the state is damaged.") from error
    forms, missing = _forms(policy, obs, act, about)
    return _packed(
        about,
        merged((low, high), (seen.low, seen.high), about.change, about.interval, limits),
        (low, high),
        said,
        shipped,
        npz_bytes(arrays | own | shipped.arrays),
        npz_bytes({"obs": obs, "act": act, **shipped.golden}),
        forms,
        tuple(note for note in (missing, shipped.why and f"the runtime will not explore: {shipped.why}") if note),
    )


def baseline_contents(bounds: Ends, seen: Ends, about: About, limits: Mapping[str, Any]) -> Contents:
    """The bundle of a campaign that has no policy yet: the site's own controller, with bounded noise around it.

    `bounds` are those of the action, `seen` the range of the observations as far as the task declares it.
    """
    noise = (AROUND * (bounds[1] - bounds[0]) / 2).tolist()
    return _packed(
        about,
        merged(bounds, seen, about.change, about.interval, {"noise": noise, **limits}),
        bounds,
        {"kind": "baseline"},
        Shipped("bounded"),
        npz_bytes({}),
        npz_bytes({}),
        {},
        (NO_POLICY,),
    )


def merged(
    bounds: Ends, seen: Ends, change: tuple[float | None, ...], interval: float | None, limits: Mapping[str, Any]
) -> dict[str, Any]:
    """The usual limits, with those that the user sets; `change` and `interval` are what the task says."""
    low, high = (end.tolist() for end in bounds)
    usual = runtime.default_limits(low, high, seen[0].tolist(), seen[1].tolist(), interval)
    if any(change):  # what has no limit of its own may go from end to end
        usual["change"] = [float(b - a if most is None else most) for most, a, b in zip(change, low, high, strict=True)]
    try:
        return runtime.merge_limits(usual, dict(limits), "the limits")
    except runtime.FieldError as error:
        raise UserError(str(error)) from error


def _packed(
    about: About,
    limits: dict[str, Any],
    bounds: Ends,
    policy: dict[str, Any],
    explore: Shipped,
    weights: bytes,
    golden: bytes,
    forms: dict[str, bytes],
    notes: tuple[str, ...],
) -> Contents:
    explores = about.explores and explore.kind != "none"
    manifest = {
        **header(runtime.FORMAT, runtime.VERSION),
        "task": about.task,
        "deployment": about.deployment,
        "round": about.round,
        "ledger": about.ledger,
        "verdict": about.verdict,
        "observation": plain(about.observation),
        "action": {**plain(about.action), "low": bounds[0].tolist(), "high": bounds[1].tolist()},
        "interval": about.interval,
        "episode_steps": about.episode_steps,
        "history": about.history,
        "policy": policy,
        "explore": {"kind": explore.kind, "default": explores, "why": explore.why, **explore.numbers},
        "limits": limits,
        "versions": dict(about.versions),
    }
    files = {
        "manifest.json": json_bytes(manifest),
        "weights.npz": weights,
        "golden.npz": golden,
        "runtime.py": Path(runtime.__file__).read_bytes(),
        runtime.LIMITS: limits_text(limits).encode(),
        **forms,
    }
    files["README.md"] = readme(manifest, tuple(forms), notes).encode()
    files[runtime.CHECKSUMS] = checksums(files)
    return Contents(files, explores, notes)


def checksums(files: Mapping[str, bytes]) -> bytes:
    """As `sha256sum` writes them, of all files but the limits, which the site may change."""
    covered = sorted(set(files) - {runtime.LIMITS, runtime.CHECKSUMS})
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in covered).encode()


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    """All files in an archive; equal files give equal bytes."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, files[name])
    return sink.getvalue()


def npz_bytes(arrays: Mapping[str, Any]) -> bytes:
    """Arrays of float32 as npz, without compression."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            body = io.BytesIO()
            np.lib.format.write_array(body, np.ascontiguousarray(array, "<f4"), version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), body.getvalue())
    return sink.getvalue()


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


# The policy


def _policy(policy: AnyPolicy) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the manifest says of a policy, and its arrays."""
    if isinstance(policy, Policy):
        return {"kind": "mlp", "activation": policy.mlp.activation}, named_arrays(policy.mlp, "policy")
    if isinstance(policy, GaussianPolicy):
        said = {"kind": "gaussian", "activation": policy.network.activation}
        return said, named_arrays(policy.network, "policy")
    if isinstance(policy, SupportPolicy):
        critic = member(policy.critics, 0)
        said = {"kind": "support", "activation": policy.support.decoder.activation, "critic": critic.activation}
        arrays = named_arrays(policy.support.decoder, "policy.decoder") | named_arrays(
            policy.support.nudge, "policy.nudge"
        )
        arrays |= named_arrays(critic, "policy.critic") | {"policy.latents": policy.latents}
        return said | {"reach": float(policy.reach)}, arrays
    raise UserError(
        f"a policy of the kind {type(policy).__name__} cannot be exported: the runtime knows networks only, so train "
        "another method."
    )


def _forms(policy: AnyPolicy, obs: np.ndarray, act: np.ndarray, about: About) -> tuple[dict[str, bytes], str]:
    """The policy as ONNX and C, or why it is not there."""
    try:
        folded = fold(policy)
    except UserError as error:
        return {}, str(error)
    error = float(np.max(np.abs(folded(obs) - act) / np.asarray(policy.frame.half_range)))
    if not error <= EXACT:
        return {}, (
            f"the policy as ONNX or C would be off by {error:.1g} of the half-range, because some observations are "
            "large beside their spread: use runtime.py on site, or shift these observations in the task"
        )
    text = (
        f"Policy of task {about.task} after deployment {about.deployment}: raw observation in, raw action out.\n"
        + (ORDER.format(n=about.history) if about.history else "")
        + "Limits, fallback, exploration and recording are in runtime.py. This is no safety function."
    )
    return {"policy.onnx": onnx_bytes(folded, text), "policy.h": c_header(folded, text, about.history).encode()}, ""
