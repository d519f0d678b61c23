"""Runs a bundle in the field: a policy with its exploration noise, limits, a fallback, and a recording of every step.

Needs Python 3.9 or newer and numpy. This file is part of every bundle:

    from runtime import Runtime

    with Runtime(".", fallback=my_controller, record="monday.musbo", machine="line-3") as controller:
        while running:
            action = controller.act(observation)

It is NOT a safety function. It is ordinary software without redundancy: whatever keeps people and machines safe
(interlocks, emergency stops, limits in the drives) has to work without it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import struct
import time as clocks
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import numpy as np

FORMAT, VERSION = "musbo-bundle", 2
CHECKSUMS = "SHA256SUMS"
NEEDED = ("manifest.json", "weights.npz", "golden.npz", "runtime.py", "README.md")
OPTIONAL = ("policy.onnx", "policy.h")
LIMITS = "limits.toml"
"""In the hands of the site, so no checksum covers it."""
FORMER_LIMITS = "limits.json"
"""The same in bundles of version 1."""
OFF = "off"
"""Switches a limit off: TOML has no null."""
LATCH = "latched.json"
COUNTS = "counts.json"
"""What has been counted towards the latch."""
LARGEST = 200_000_000
"""Bytes of all files of a bundle."""
LARGEST_TEXT = 1_000_000
MOST_SEEN = 100_000
"""Numbers that a policy may see at once."""
TOLERANCE = 1e-4
"""How far the policy may be from its golden actions, as a share of the half-range: machines round differently."""

SOURCES = ("policy", "limiter", "fallback", "human")
REASONS = ("", "not finite", "stale", "late", "outside the data", "latched", "recording failed")
"""Why the fallback steers."""
NOT_FINITE, STALE, LATE, OUTSIDE, LATCHED, UNRECORDED = range(1, 7)
TERMINATED, TRUNCATED, CLOSING, SHADOW, FALLBACK_FAILED = 1, 2, 4, 8, 16
"""Bits of the flags of a record."""

Number = Union[int, float]
Action = Union[Sequence[Number], np.ndarray]
Place = Union[str, "os.PathLike[str]"]
Fallback = Union[Callable[[np.ndarray], Action], Action]


class FieldError(Exception):
    """What the engineer on site can fix, in one sentence."""


# --- limits ---

PER_ACTION = ("low", "high", "change", "join", "noise", "fallback")
PER_OBSERVATION = ("obs_low", "obs_high")
SCALARS = ("stale", "late", "fallbacks", "cost")
OPTIONAL_LIMITS = ("change", "noise", "fallback", "stale", "late", "cost")
JOIN = 0.25
"""Of the half-range: the largest change of a step while control passes between the policy and the fallback."""
FALLBACKS = 10
"""So many steps of the fallback latch it."""
INTERVALS = 2
"""An observation that is older than so many control intervals is stale, and a call after a longer pause is late."""


def default_limits(
    low: Action, high: Action, obs_low: Action, obs_high: Action, interval: Optional[Number] = None
) -> dict[str, Any]:
    """The limits of a site that sets none: bounds of the task, range of the data, its interval, and a latch."""
    longest = None if interval is None else INTERVALS * interval
    half = (np.asarray(high, float) - np.asarray(low, float)) / 2
    return {
        "low": [float(x) for x in low],
        "high": [float(x) for x in high],
        "change": None,
        "join": [float(x) for x in JOIN * half],
        "noise": None,
        "obs_low": [float(x) for x in obs_low],
        "obs_high": [float(x) for x in obs_high],
        "stale": longest,
        "late": longest,
        "fallbacks": FALLBACKS,
        "cost": None,
        "fallback": None,
    }


def merge_limits(usual: dict[str, Any], given: Any, source: str) -> dict[str, Any]:
    """`usual` with what a site gives; refused where it makes no sense. One number stands for all actions."""
    if not isinstance(given, dict):
        raise FieldError(f'{source} must be a table of limits, such as {{"change": 0.1}}.')
    merged = dict(usual)
    for key, value in given.items():
        if key not in usual:
            raise FieldError(f"{source}: there is no limit {key!r}; there are {', '.join(usual)}.")
        if value is None or value == OFF:
            if key not in OPTIONAL_LIMITS:
                raise FieldError(f"{source}: {key} cannot be left out: give a number.")
            merged[key] = None
        elif key in SCALARS:
            merged[key] = _number(value, key, source)
        else:
            size = len(usual["low" if key in PER_ACTION else "obs_low"])
            merged[key] = _numbers(value, size, key, source)
    _require_limits(merged, usual, source)
    return merged


def _require_limits(limits: dict[str, Any], usual: dict[str, Any], source: str) -> None:
    for i, (low, high) in enumerate(zip(limits["low"], limits["high"])):
        if not usual["low"][i] <= low <= high <= usual["high"][i]:
            raise FieldError(
                f"{source}: low and high of action {i} must lie within {usual['low'][i]:g} and {usual['high'][i]:g}, "
                f"the bounds that the policy was trained with, not {low:g} and {high:g}."
            )
    for key in ("change", "join", "noise"):
        if limits[key] is not None and min(limits[key]) < 0:
            raise FieldError(f"{source}: {key} must be at least 0.")
    for low, high in zip(limits["obs_low"], limits["obs_high"]):
        if not low < high:
            raise FieldError(f"{source}: obs_low must lie below obs_high.")
    for key in ("stale", "late", "cost"):
        if limits[key] is not None and not limits[key] > 0:
            raise FieldError(f"{source}: {key} must be above 0.")
    if limits["fallbacks"] != int(limits["fallbacks"]) or limits["fallbacks"] < 1:
        raise FieldError(f"{source}: fallbacks is a count of at least 1, not {limits['fallbacks']:g}.")
    held = limits["fallback"]
    if held is not None and not all(a <= x <= b for a, x, b in zip(limits["low"], held, limits["high"])):
        raise FieldError(f"{source}: the constant fallback must lie within low and high.")


def _number(value: Any, key: str, source: str) -> Number:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise FieldError(f"{source}: {key} must be a finite number, not {str(value)[:60]}.")
    return value


def _numbers(value: Any, size: int, key: str, source: str) -> list[float]:
    values = [value] * size if isinstance(value, (int, float)) else value
    if not isinstance(values, list) or len(values) != size:
        raise FieldError(f"{source}: {key} must be one number or a list of {size}, not {str(value)[:60]}.")
    return [float(_number(one, key, source)) for one in values]


def _is_finite(value: Number) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


# --- reading a bundle ---


class Bundle:
    """The files of a bundle, checked: nothing is unpickled, unpacked to disk or executed."""

    def __init__(self, place: Place) -> None:
        self.place = os.fspath(place)
        files = _read_files(self.place)
        self.id = _require_checksums(files, self.place)
        self.manifest = _require_manifest(_json(files["manifest.json"], "manifest.json"))
        self.arrays = read_arrays(files["weights.npz"], "weights.npz")
        self.golden = read_arrays(files["golden.npz"], "golden.npz")
        self.limits = dict(self.manifest["limits"])
        named, other = (LIMITS, FORMER_LIMITS) if self.manifest["version"] > 1 else (FORMER_LIMITS, LIMITS)
        if other in files:
            raise FieldError(f"{other} is not read in this bundle: write its limits into {named}, and remove it.")
        if named in files:
            self.limits = merge_limits(self.limits, _limits(files[named], named), named)


def _read_files(place: str) -> dict[str, bytes]:
    known = (*NEEDED, *OPTIONAL, CHECKSUMS, LIMITS, FORMER_LIMITS)
    try:
        if os.path.isdir(place):
            found = {}
            for name in known:
                path = os.path.join(place, name)
                if os.path.islink(path):
                    raise FieldError(f"{path} is a link: copy the whole bundle again.")
                if os.path.isfile(path):
                    if os.path.getsize(path) > LARGEST:
                        raise FieldError(f"{path} is larger than any file of a bundle: copy the whole bundle again.")
                    with open(path, "rb") as file:
                        found[name] = file.read()
            return found
        with zipfile.ZipFile(place) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if len(set(names)) != len(names) or not set(names) <= set(known):
                raise FieldError(f"{place} holds files that no bundle has: copy the bundle again.")
            kinds = {member.compress_type for member in members}
            if not kinds <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} or sum(m.file_size for m in members) > LARGEST:
                raise FieldError(f"{place} is packed in a way that no bundle is: copy the bundle again.")
            return {member.filename: _unpack(archive, member) for member in members}
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FieldError(f"{place} cannot be read as a bundle ({str(error)[:100]}): copy the bundle again.") from error


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """No more than the archive says that there is."""
    with archive.open(member) as stream:
        data = stream.read(member.file_size + 1)
    if len(data) != member.file_size:
        raise FieldError(f"{member.filename} is damaged: copy the bundle again.")
    return data


def _require_checksums(files: dict[str, bytes], place: str) -> str:
    """The id of the bundle: the SHA-256 of its list of checksums."""
    for name in (*NEEDED, CHECKSUMS):
        if name not in files:
            raise FieldError(f"{place} lacks {name}: copy the whole bundle again.")
    if not files[CHECKSUMS].endswith(b"\n"):
        raise FieldError(f"{CHECKSUMS} is cut off: copy the whole bundle again.")
    listed = {}
    for line in files[CHECKSUMS].split(b"\n"):
        digest, _, name = line.partition(b"  ")
        if line:
            listed[name.decode("latin-1")] = digest.decode("latin-1")
    for name, data in files.items():
        if (
            name not in (CHECKSUMS, LIMITS, FORMER_LIMITS)
            and listed.pop(name, None) != hashlib.sha256(data).hexdigest()
        ):
            raise FieldError(f"{name} is not what was exported (its checksum differs): copy the whole bundle again.")
    if listed:
        raise FieldError(f"{place} lacks {sorted(listed)[0][:60]}: copy the whole bundle again.")
    return hashlib.sha256(files[CHECKSUMS]).hexdigest()


def _json(data: bytes, name: str) -> Any:
    if len(data) > LARGEST_TEXT:
        raise FieldError(f"{name} is too long.")
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FieldError(f"{name} is not JSON ({str(error)[:100]}): correct it, or copy the bundle again.") from error


def _require_manifest(found: Any) -> dict[str, Any]:
    damaged = "manifest.json is damaged: export the bundle again."
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FieldError("manifest.json is not that of a bundle: check that this is the folder you meant.")
    if found.get("version") not in range(1, VERSION + 1) or isinstance(found["version"], bool):
        raise FieldError(
            f"this runtime reads bundles up to version {VERSION}: use the runtime.py of the bundle itself."
        )
    found.setdefault("history", 0)  # version 1 had none
    try:
        sizes = len(found["observation"]["names"]), len(found["action"]["names"])
        low = _numbers(found["action"]["low"], sizes[1], "low", "manifest.json")
        high = _numbers(found["action"]["high"], sizes[1], "high", "manifest.json")
        seen = [_numbers(found["limits"][key], sizes[0], key, "") for key in PER_OBSERVATION]
        usual = default_limits(low, high, seen[0], seen[1])
        found["limits"] = merge_limits(usual, found["limits"], "manifest.json")
        past = found["history"]
        if isinstance(past, bool) or not isinstance(past, int) or not 0 <= past * sum(sizes) <= MOST_SEEN:
            raise FieldError(damaged)
        texts = [found["policy"]["kind"], found["policy"].get("activation", ""), found["explore"]["kind"]]
        texts += found["observation"]["names"] + found["action"]["names"]
        if not all(isinstance(text, str) for text in texts) or not isinstance(found["explore"]["default"], bool):
            raise FieldError(damaged)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FieldError(damaged) from error
    return found


def read_arrays(data: bytes, name: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file, all float32 and stored without compression, as bundles have them."""
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED or member.file_size > len(data):
                    raise ValueError("compressed")
                body = io.BytesIO(archive.read(member))
                if np.lib.format.read_magic(body) != (1, 0):
                    raise ValueError("another header")
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(body)
                values = body.read()
                if dtype != np.dtype("<f4") or fortran or len(values) != 4 * math.prod(shape):
                    raise ValueError("not an array of float32")
                array = np.frombuffer(values, "<f4").reshape(shape)
                if not np.isfinite(array).all():
                    raise ValueError("numbers that are not finite")
                arrays[member.filename[: -len(".npy")]] = array
    except Exception as error:  # zipfile and numpy raise a dozen kinds for files that are none
        raise FieldError(f"{name} is damaged ({str(error)[:100]}): copy the whole bundle again.") from error
    return arrays


# --- networks ---


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def _silu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(0.5 * x))  # x / (1 + exp(-x)) without overflow


def _norm_relu(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return _relu(centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-5)))


ACTIVATIONS = {"relu": _relu, "silu": _silu, "tanh": np.tanh, "norm_relu": _norm_relu}


class Network:
    """Affine layers with an activation between them, for rows of inputs; or k networks at once, stacked."""

    def __init__(self, arrays: dict[str, np.ndarray], prefix: str, activation: str) -> None:
        if activation not in ACTIVATIONS:
            raise FieldError(f"this runtime knows no activation {activation[:30]!r}: use the runtime.py of the bundle.")
        self.activation = ACTIVATIONS[activation]
        self.weights, self.biases = [], []
        while f"{prefix}.w{len(self.weights)}" in arrays:
            i = len(self.weights)
            self.weights.append(np.ascontiguousarray(arrays[f"{prefix}.w{i}"]))
            self.biases.append(np.expand_dims(arrays[f"{prefix}.b{i}"], -2))
        if not self.weights:
            raise FieldError(f"weights.npz has no network {prefix}: copy the whole bundle again.")

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1]):
            rows = self.activation(rows @ weight + bias)
        return rows @ self.weights[-1] + self.biases[-1]


class Frame:
    """From observations to what networks see, and from shares of the half-range to actions."""

    def __init__(self, arrays: dict[str, np.ndarray], low: np.ndarray, high: np.ndarray) -> None:
        self.mean, self.std = arrays["frame.mean"], arrays["frame.std"]
        self.centre, self.half = arrays["frame.centre"], arrays["frame.half"]
        self.low, self.high = low, high

    def see(self, obs: np.ndarray) -> np.ndarray:
        return (obs - self.mean) / self.std

    def action(self, share: np.ndarray) -> np.ndarray:
        return np.clip(self.centre + self.half * share, self.low, self.high)


class MlpPolicy:
    """The squashed mean of an MLP; where it is Gaussian, its other outputs are the spread."""

    def __init__(self, arrays: dict[str, np.ndarray], frame: Frame, activation: str, prefix: str = "policy") -> None:
        self.frame, self.size = frame, len(frame.half)
        self.network = Network(arrays, prefix, activation)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return self.frame.action(np.tanh(self.head(obs)[0]))

    def head(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and log spread, before squashing."""
        out = self.network(self.frame.see(obs))
        return out[:, : self.size], -5.0 + 3.5 * (np.tanh(out[:, self.size :]) + 1.0)

    def draw(self, obs: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """A sample: noise of the Gaussian before it is squashed."""
        mean, log_spread = self.head(obs)
        return self.frame.action(np.tanh(mean + np.exp(log_spread) * _normal(random, mean.shape)))


class SupportPolicy:
    """The best, by Q, of some actions that the data support (BCQ)."""

    def __init__(
        self, arrays: dict[str, np.ndarray], frame: Frame, activation: str, reach: Number, critic: str
    ) -> None:
        self.frame, self.reach = frame, np.float32(reach)
        self.decoder = Network(arrays, "policy.decoder", activation)
        self.nudge = Network(arrays, "policy.nudge", activation)
        self.critic = Network(arrays, "policy.critic", critic)
        self.latents = arrays["policy.latents"]

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return np.stack([self._best(row, self.latents) for row in obs])

    def draw(self, obs: np.ndarray, random: np.random.Generator) -> np.ndarray:
        drawn = random.standard_normal((len(obs), *self.latents.shape)).astype(np.float32)
        return np.stack([self._best(row, z) for row, z in zip(obs, np.clip(drawn, -0.5, 0.5))])

    def _best(self, row: np.ndarray, latents: np.ndarray) -> np.ndarray:
        x = np.repeat(self.frame.see(row)[None], len(latents), axis=0)
        share = np.tanh(self.decoder(np.concatenate([x, latents], axis=1)))
        move = self.reach * np.tanh(self.nudge(np.concatenate([x, share], axis=1)))
        share = np.clip(share + move, -1, 1)
        return self.frame.action(share[np.argmax(self.critic(np.concatenate([x, share], axis=1))[:, 0])])


class Labeler:
    """What the members of P predict as next states; where they differ, the data give little support."""

    def __init__(self, arrays: dict[str, np.ndarray], activation: str) -> None:
        self.members = Network(arrays, "labeler", activation)
        self.mean, self.std = arrays["labeler.mean"], arrays["labeler.std"]
        self.target_mean, self.target_std = arrays["labeler.target_mean"], arrays["labeler.target_std"]

    def predict(self, obs: np.ndarray, act: np.ndarray) -> np.ndarray:
        """[k, n, new]: the newest observation only, since what the policy sees of the past is known."""
        x = (np.concatenate([obs, act], axis=1) - self.mean) / self.std
        return obs[:, : len(self.target_mean)] + self.target_mean + self.target_std * self.members(x)

    def doubt(self, obs: np.ndarray, act: np.ndarray) -> np.ndarray:
        """The largest L1 distance between the predictions of two members."""
        said = self.predict(obs, act)
        pairs = [np.abs(said[a] - said[b]).sum(axis=1) for a in range(len(said)) for b in range(a)]
        return np.max(pairs, axis=0)

    def error(self, obs: np.ndarray, act: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        """The largest L1 error of a member."""
        return np.abs(self.predict(obs, act) - next_obs[:, : len(self.target_mean)]).sum(axis=2).max(axis=0)


class Mind:
    """The policy and the behaviour that collects: plain noise, noise that seeks doubt, or samples.

    A bundle of the kind `baseline` has no policy: the site's own controller acts, with bounded noise around it.
    """

    def __init__(self, bundle: Bundle) -> None:
        manifest, arrays = bundle.manifest, bundle.arrays
        self.low = np.asarray(manifest["action"]["low"], np.float32)
        self.high = np.asarray(manifest["action"]["high"], np.float32)
        try:
            self._load(manifest, arrays)
            self.check(bundle.golden)
            self._rehearse(bundle.golden)
        except (KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
            raise FieldError("the parts of the bundle do not fit together: export it again.") from error

    def _load(self, manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        said, explore = manifest["policy"], manifest["explore"]
        self.explore, self.kind = explore, explore["kind"]
        if said["kind"] == "baseline":
            self.policy: Any = None
            self.half, self.centre, self.labeler = (self.high - self.low) / 2, (self.low + self.high) / 2, None
            if self.kind != "bounded":
                raise FieldError("a bundle without a policy explores with bounded noise: export it again.")
            return
        frame = Frame(arrays, self.low, self.high)
        self.half, self.centre = frame.half, frame.centre
        if said["kind"] == "support":
            self.policy = SupportPolicy(arrays, frame, said["activation"], said["reach"], said["critic"])
        else:
            self.policy = MlpPolicy(arrays, frame, said["activation"])
        if self.kind not in ("none", "plain", "seeking", "sample", "shared"):
            raise FieldError(f"this runtime knows no exploration {self.kind[:30]!r}: use the runtime.py of the bundle.")
        self.labeler = Labeler(arrays, explore["activation"]) if self.kind == "seeking" else None
        if self.kind == "shared":
            others = range(1, max(explore["shares"]) + 1)
            self.shared = [MlpPolicy(arrays, frame, explore["activation"], f"shared_{i}") for i in others]

    def check(self, golden: dict[str, np.ndarray]) -> None:
        """Compare with what the trainer computed."""
        if self.policy is None:
            return
        obs, act = golden["obs"], golden["act"]
        found = self.policy(obs)
        if found.shape != act.shape or not len(act) or not np.all(np.abs(found - act) <= TOLERANCE * self.half):
            raise FieldError("the policy does not give the golden actions on this machine: export the bundle again.")
        if self.labeler is not None:
            near = np.isclose(self.labeler.doubt(obs, act), golden["doubt"], rtol=1e-2, atol=1e-4)
            if not near.all():
                raise FieldError("the labeler does not give the golden values on this machine: export it again.")
        if self.kind in ("sample", "shared") and isinstance(self.policy, MlpPolicy):
            near = np.isclose(self.policy.head(obs)[1], golden["log_spread"], rtol=1e-3, atol=1e-3)
            if not near.all():
                raise FieldError("the policy does not give the golden spreads on this machine: export it again.")

    def _rehearse(self, golden: dict[str, np.ndarray]) -> None:
        """Explore once with every policy: what does not work is found here, and not in the field."""
        if self.policy is None or self.kind == "none":
            return
        obs, act = golden["obs"][0], golden["act"][0]
        for key in ("sigma", "largest", "ordinary"):
            if self.explore.get(key) is not None:
                _number(self.explore[key], f"{key} of explore", "manifest.json")
        for episode in {policy: i for i, policy in enumerate(self.explore.get("shares") or [0])}.values():
            with np.errstate(all="ignore"):
                drawn, signal = self.noise(obs, act, np.random.default_rng(0), (obs, act), episode)
            if drawn.shape != act.shape or not np.isfinite(drawn).all() or not math.isfinite(signal):
                raise FieldError("the exploration of the bundle gives numbers that are none: export it again.")

    def noise(
        self, obs: np.ndarray, mean: np.ndarray, random: np.random.Generator, last: Any, episode: int, cap: Any = None
    ) -> tuple[np.ndarray, float]:
        """What is added to the policy's action, in units of the action, and its signal. `cap`: the limit `noise`."""
        if self.kind == "bounded":
            return np.float32(cap) * random.uniform(-1, 1, mean.shape).astype(np.float32), 0.0
        if self.kind == "plain":
            return self.half * np.float32(self.explore["sigma"]) * _normal(random, mean.shape), 0.0
        if self.kind == "seeking":
            first = self.half * np.float32(self.explore["sigma"]) * _normal(random, mean.shape)
            size = self.scale(obs, np.clip(mean + first, self.low, self.high), last)
            return first + self.half * np.float32(size) * _normal(random, mean.shape), size
        chosen, shares = self.policy, self.explore.get("shares") or [0]
        if number := shares[episode % len(shares)]:
            chosen = self.shared[number - 1]
        return chosen.draw(obs[None], random)[0] - mean, 0.0

    def scale(self, obs: np.ndarray, tentative: np.ndarray, last: Any) -> float:
        """The size of the noise that seeks doubt, as a share of the half-range."""
        assert self.labeler is not None
        if self.explore["lagged"]:
            distance = float(self.labeler.error(last[0][None], last[1][None], obs[None])[0]) if last else 0.0
        else:
            distance = float(self.labeler.doubt(obs[None], tentative[None])[0])
        largest = self.explore["largest"]
        if self.explore["relative"]:
            return float(largest * min(1.0, distance / max(self.explore["ordinary"], 1e-12)))
        return distance if largest is None else min(distance, largest)


def _normal(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


# --- the recording ---

MAGIC = b"MUSBOREC"
RECORDING_VERSION = 1
FIXED = "<QdIIBBHff"
"""number, time, episode, step, source, flags, reason, reward, signal; then obs, commanded, executed, noise, CRC."""


class Recorder:
    """Appends records of one width to a file, each with a checksum and on the disk before the next one begins."""

    def __init__(self, path: Place, header: dict[str, Any]) -> None:
        self.path = os.fspath(path)
        self.obs_size, self.act_size = len(header["obs"]), len(header["act"])
        self.width = struct.calcsize(FIXED) + 4 * (self.obs_size + 3 * self.act_size) + 4
        text = json.dumps(header, sort_keys=True).encode()
        begin = MAGIC + struct.pack("<II", RECORDING_VERSION, len(text)) + text
        self._header = begin + struct.pack("<I", zlib.crc32(begin))
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        except OSError as error:
            raise FieldError(f"cannot record to {self.path}: {error.strerror}; choose another file.") from error
        try:
            self._lock()
            self.count, self.episode = self._resume()
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FieldError(f"{self.path} is being written by another process: choose another file.") from error

    def _resume(self) -> tuple[int, int]:
        """Number of the next record and of the next episode. What a power cut left half written is cut off."""
        size = os.fstat(self._file).st_size
        found = os.read(self._file, len(self._header))
        if found != self._header:
            if not self._header.startswith(found) or size > len(found):
                raise FieldError(
                    f"{self.path} is another recording (of another bundle, machine or limits): choose another file."
                )
            os.ftruncate(self._file, 0)
            self._write(self._header, 0)
            _sync_folder(self.path)  # so that a power cut takes no new file away
            return 0, 0
        count = (size - len(self._header)) // self.width
        for left in (count, count - 1):
            record = self._read(left - 1) if left > 0 else None
            if left <= 0 or record is not None:
                os.ftruncate(self._file, self._place(max(left, 0)))
                return max(left, 0), 0 if record is None else record[2] + 1
        raise FieldError(f"{self.path} is damaged at its end: keep it, and record to another file.")

    def _place(self, number: int) -> int:
        return len(self._header) + number * self.width

    def _read(self, number: int) -> Optional[tuple[Any, ...]]:
        os.lseek(self._file, self._place(number), os.SEEK_SET)
        data = os.read(self._file, self.width)
        sound = len(data) == self.width and zlib.crc32(data[:-4]) == struct.unpack("<I", data[-4:])[0]
        record = struct.unpack_from(FIXED, data) if sound else None
        return record if record is not None and record[0] == number else None

    def _write(self, data: bytes, place: int) -> None:
        os.lseek(self._file, place, os.SEEK_SET)
        done = 0
        while done < len(data):
            done += os.write(self._file, data[done:])
        getattr(os, "fdatasync", os.fsync)(self._file)

    def append(
        self,
        time: Number,
        episode: int,
        step: int,
        obs: np.ndarray,
        commanded: np.ndarray,
        executed: np.ndarray,
        noise: np.ndarray,
        *,
        source: int = 0,
        flags: int = 0,
        reason: int = 0,
        reward: Number = math.nan,
        signal: Number = 0.0,
    ) -> None:
        """One record. After an OSError (a full disk, say) the same place is written again by the next one."""
        fixed = struct.pack(FIXED, self.count, time, episode, step, source, flags, reason, reward, signal)
        numbers = np.concatenate([obs, commanded, executed, noise]).astype("<f4").tobytes()
        body = fixed + numbers
        if len(body) + 4 != self.width:
            raise FieldError(f"a record has {self.obs_size} observations and {self.act_size} actions.")
        self._write(body + struct.pack("<I", zlib.crc32(body)), self._place(self.count))
        self.count += 1

    def close(self) -> None:
        os.close(self._file)


def _sync_folder(path: str) -> None:
    """Make the name of a new file durable: its folder has to be on the disk too."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows, where no folder can be opened
        return
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# --- the controller ---


class _Step:
    """A step whose end is not yet known: it is recorded when the next observation comes."""

    def __init__(self, **values: Any) -> None:
        self.values = values


class Runtime:
    """A bundle at work, one call of `act` for every control interval.

    `bundle` is the folder or the .zip. `fallback` is the site's own controller, a function of the observation, or a
    constant action; it steers when an observation is not finite, stale, late or far outside the data, and until a
    person calls `reset` once it is latched. In a bundle without a policy, which a campaign begins with, it is what
    acts, with noise of at most the limit `noise` around it. `record` names the file of the recording. `explore` chooses
    between the behaviour that collects data and the policy alone (by default as the export said). In `shadow`
    everything is computed and recorded, and `act` returns None.
    """

    def __init__(
        self,
        bundle: Place,
        *,
        fallback: Optional[Fallback] = None,
        limits: Optional[Place] = None,
        record: Optional[Place] = None,
        machine: str = "",
        explore: Optional[bool] = None,
        shadow: bool = False,
        seed: Optional[int] = None,
        clock: Optional[Callable[[], Number]] = None,
    ) -> None:
        self.bundle = Bundle(bundle)
        manifest = self.bundle.manifest
        self.limits = dict(self.bundle.limits)
        if limits is not None:
            self.limits = merge_limits(self.bundle.manifest["limits"], read_limits(limits), os.fspath(limits))
        self.shadow = shadow
        self._mind = Mind(self.bundle)
        self._explore = manifest["explore"]["default"] if explore is None else explore
        if self._explore and self._mind.kind == "none":
            raise FieldError(f"this bundle cannot explore: {manifest['explore'].get('why') or 'it was exported so'}.")
        if self._explore and self._mind.kind == "bounded" and self.limits["noise"] is None:
            raise FieldError("the limit noise says how far this bundle may explore around your controller: set it.")
        self._obs_size, self._act_size = len(manifest["observation"]["names"]), len(manifest["action"]["names"])
        self._fallback = self._fallback_of(fallback)
        self._history = manifest["history"]
        self._random = np.random.default_rng(seed)
        self._now, self._tick = clock or clocks.time, clock or clocks.monotonic
        self._previous: Optional[np.ndarray] = None
        self._last: Any = None  # what the policy saw in the step before, and what was executed then
        self._whole = np.zeros(0, np.float32)
        self._pending: Optional[_Step] = None
        self._in_episode, self._episode, self._step = False, -1, 0
        self._called = self._measured = None
        self._source, self._joining = "policy", False
        self.fallbacks, self.spent, self.latched = 0, 0.0, ""
        self.reason, self.commanded = "", np.full(self._act_size, np.nan, np.float32)
        folder = bundle if os.path.isdir(bundle) else os.path.dirname(os.fspath(bundle))
        self._latch_path = os.path.join(folder, LATCH)
        self._counts_path = os.path.join(folder, COUNTS)
        self._counted: Any = None  # what the file of the counts says
        self.uncounted = ""  # why it does not say all
        self._recall()
        self._failed = False
        self._recorder = None if record is None else Recorder(record, self._header(machine))
        if self._recorder is not None:
            self._episode = self._recorder.episode - 1

    def _header(self, machine: str) -> dict[str, Any]:
        manifest = self.bundle.manifest
        return {
            "format": "musbo-recording",
            "version": RECORDING_VERSION,
            "writer": manifest.get("writer"),
            "bundle": self.bundle.id,
            "ledger": manifest.get("ledger"),
            "task": manifest.get("task"),
            "machine": machine,
            "obs": manifest["observation"]["names"],
            "act": manifest["action"]["names"],
            "obs_units": manifest["observation"].get("units"),
            "act_units": manifest["action"].get("units"),
            "limits": self.limits,
            "explore": self._explore,
            "shares": manifest["explore"].get("shares") if self._explore else None,
        }

    def _fallback_of(self, given: Optional[Fallback]) -> Callable[[np.ndarray], Action]:
        given = self.limits["fallback"] if given is None else given
        if given is None:
            raise FieldError("give a fallback: a function of the observation, or a constant action that is harmless.")
        if callable(given):
            return given
        constant = np.asarray(given, np.float32)
        if constant.shape != (self._act_size,) or not np.isfinite(constant).all():
            raise FieldError(f"the constant fallback must be {self._act_size} finite numbers.")
        return lambda observation: constant

    # What the site calls

    def begin(self, position: Optional[Action] = None) -> None:
        """A new episode. `position` is where the actuators are, if it is known: the first action starts from there."""
        if self._in_episode:
            self.end()
        if position is not None:
            self._previous = self._action(position)
        self._in_episode, self._step, self._last = True, 0, None
        self._episode += 1
        self._called = self._measured = None

    def act(
        self,
        observation: Action,
        *,
        time: Optional[Number] = None,
        reward: Optional[Number] = None,
        cost: Number = 0.0,
    ) -> Optional[np.ndarray]:
        """The action for an observation, to be executed now; None in shadow mode.

        `time` is when it was measured (seconds, on the clock of `time.time`). `reward` and `cost` are those of the step
        that has just ended; what is given as cost is added up against the budget in the limits.
        """
        now, tick = self._now(), self._tick()
        seen = self._observation(observation)
        self._finish(reward)
        if not self._in_episode:
            self.begin()
        self.spent += cost
        finite = bool(np.isfinite(seen).all())
        whole = self._with_past(seen)
        mean = own = np.full(self._act_size, np.nan, np.float32)
        failed = False
        if self._mind.policy is None:  # called once a step: it may have a memory
            own, failed = self._fall_back(seen)
            mean = mean if failed else own
        elif finite:
            mean = self._mind.policy(whole[None])[0]
        reason = self._reason(seen, mean, now, tick, time)
        drawn = used = np.zeros(self._act_size, np.float32)
        signal, flags = 0.0, SHADOW * self.shadow
        if reason:
            wanted, failed = (own, failed) if self._mind.policy is None else self._fall_back(seen)
            flags |= FALLBACK_FAILED * failed
        else:
            if self._explore:
                cap = self.limits["noise"]
                drawn, signal = self._mind.noise(whole, mean, self._random, self._last, self._episode, cap)
                used = drawn if cap is None else np.clip(drawn, -np.float32(cap), np.float32(cap))
            wanted = np.clip(mean + used, self._mind.low, self._mind.high)
        commanded, limited = self._limit(wanted, "fallback" if reason else "policy")
        source = 2 if reason else int(limited or not np.array_equal(used, drawn))
        self.reason, self.commanded = REASONS[reason], commanded
        self._called, self._measured = tick, time
        self._whole = whole
        self._pending = _Step(
            time=now if time is None else time,
            obs=seen,
            commanded=commanded,
            executed=np.full_like(commanded, np.nan) if self.shadow else commanded,
            noise=drawn,
            source=source,
            flags=flags,
            reason=reason,
            signal=signal,
        )
        if not self.shadow:
            self._previous = commanded
        return None if self.shadow else commanded.copy()

    def executed(self, action: Action, source: str = "human") -> None:
        """What was done instead of the last command, by a person (`human`: or another controller) or an interlock."""
        if self._pending is None:
            raise FieldError("nothing was commanded yet: call act first.")
        if source not in SOURCES:
            raise FieldError(f"the source of an action is one of {', '.join(SOURCES)}, not {source!r}.")
        done = self._action(action)
        self._pending.values.update(executed=done, source=SOURCES.index(source))
        self._previous = done

    def end(
        self, observation: Optional[Action] = None, *, terminated: bool = False, reward: Optional[Number] = None
    ) -> None:
        """The episode is over. `observation` is what the last action led to: without it, that action teaches nothing.

        `terminated` says that the process itself ended it; otherwise it was only cut.
        """
        time = self._now()
        self._finish(reward)
        if observation is not None and self._in_episode:
            nothing = np.full(self._act_size, np.nan, np.float32)
            flags = CLOSING | (TERMINATED if terminated else TRUNCATED) | SHADOW * self.shadow
            self._append(
                time=time, obs=self._observation(observation), commanded=nothing, executed=nothing, noise=nothing,
                flags=flags,
            )  # fmt: skip
        self._in_episode = False

    def reset(self) -> None:
        """Unlatch, after a person has looked. Counts begin anew."""
        for path in (self._latch_path, self._counts_path):
            if os.path.exists(path):
                os.unlink(path)
        self.latched, self.fallbacks, self.spent, self._counted = "", 0, 0.0, None

    def close(self) -> None:
        """Write what is left of the last step."""
        self._finish(None)
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    # Inside

    def _observation(self, observation: Action) -> np.ndarray:
        seen = np.array(observation, np.float32)
        if seen.shape != (self._obs_size,):
            raise FieldError(f"an observation is {self._obs_size} numbers, not an array of shape {seen.shape}.")
        return seen

    def _with_past(self, seen: np.ndarray) -> np.ndarray:
        """What the policy sees: [o_t, o_{t-1}, a_{t-1}, ..., o_{t-n}, a_{t-n}], with the actions as executed.

        Before the first step of an episode, and before a step that is not in the recording as a transition, there is
        nothing: there the first observation stands, with actions in the middle of their range.
        """
        if not self._history:
            return seen
        if self._last is None:
            return np.concatenate([seen, *self._history * (seen, self._mind.centre)])
        before, done = self._last
        size = self._obs_size
        return np.concatenate([seen, before[:size], done, before[size : -(size + self._act_size)]])

    def _action(self, action: Action) -> np.ndarray:
        found = np.array(action, np.float32)
        if found.shape != (self._act_size,) or not np.isfinite(found).all():
            raise FieldError(f"an action is {self._act_size} finite numbers.")
        return found

    def _reason(self, seen: np.ndarray, mean: np.ndarray, now: Number, tick: Number, time: Optional[Number]) -> int:
        """Why the fallback has to steer; 0 if it has not."""
        reason = self._doubt(seen, mean, now, tick, time)
        if reason:
            self.fallbacks += 1
        if not self.latched and self.fallbacks >= self.limits["fallbacks"]:
            self._latch(f"{self.fallbacks} steps of the fallback, the last because of: {REASONS[reason]}")
        if not self.latched and self.limits["cost"] is not None and not self.spent <= self.limits["cost"]:
            self._latch(f"a cost of {self.spent:g}, above the budget of {self.limits['cost']:g}")
        self._remember()
        return reason or (LATCHED if self.latched else 0)

    def _doubt(self, seen: np.ndarray, mean: np.ndarray, now: Number, tick: Number, time: Optional[Number]) -> int:
        limits = self.limits
        if not (np.isfinite(seen).all() and np.isfinite(mean).all()):
            return NOT_FINITE
        if time is not None and (time == self._measured or (limits["stale"] and not now - time <= limits["stale"])):
            return STALE
        if limits["late"] and self._called is not None and not tick - self._called <= limits["late"]:
            return LATE
        if not (np.all(seen >= np.float32(limits["obs_low"])) and np.all(seen <= np.float32(limits["obs_high"]))):
            return OUTSIDE
        return UNRECORDED if self._failed else 0

    def _latch(self, why: str) -> None:
        self.latched = why
        if self.shadow:
            return
        try:  # it outlives this process
            _write_whole(self._latch_path, {"why": why, "time": self._now()})
        except OSError as error:  # the latch holds all the same, but only in this process: say so
            self.latched = f"{why} (not written to {LATCH}, so it ends with this process: {error})"

    def _remember(self) -> None:
        """Write the counts down where they have changed: a restart is no reset."""
        counted = {"bundle": self.bundle.id, "fallbacks": self.fallbacks, "spent": self.spent}
        same = self._counted or {"fallbacks": 0, "spent": 0.0}
        keys = ("fallbacks",) if self.limits["cost"] is None else ("fallbacks", "spent")
        if self.shadow or self.latched or all(counted[key] == same[key] for key in keys):
            return
        try:
            _write_whole(self._counts_path, counted)
            self._counted, self.uncounted = counted, ""
        except OSError as error:  # a full disk, say: tried again at the next step, and control goes on
            self.uncounted = f"{COUNTS} cannot be written, so its counts end with this process: {error}"

    def _recall(self) -> None:
        """What an earlier process with this bundle counted, and whether it latched."""
        if os.path.exists(self._latch_path):
            self.latched = "it was latched when it last ran"
        if not os.path.exists(self._counts_path):
            return
        try:
            with open(self._counts_path, "rb") as file:
                found = _json(file.read(LARGEST_TEXT + 1), COUNTS)
            if found["bundle"] == self.bundle.id:  # another one in the same folder has counts of its own
                self.fallbacks = int(_number(found["fallbacks"], "fallbacks", COUNTS))
                self.spent = float(_number(found["spent"], "spent", COUNTS))
                self._counted = found
        except (FieldError, OSError, KeyError, TypeError) as error:
            self.latched = self.latched or f"{COUNTS} cannot be read: {str(error)[:100]}"

    def _fall_back(self, seen: np.ndarray) -> tuple[np.ndarray, bool]:
        """The fallback's action. If it fails too, the last action is held."""
        try:
            return self._action(self._fallback(seen.copy())), False
        except Exception:  # whatever the site's function raises: an action is needed now
            held = self._previous
            middle = (np.asarray(self.limits["low"], np.float32) + np.asarray(self.limits["high"], np.float32)) / 2
            return (middle if held is None else held), True

    def _limit(self, wanted: np.ndarray, source: str) -> tuple[np.ndarray, bool]:
        """Inside the bounds and not too far from the last action; while control passes, without a jump."""
        low, high = np.float32(self.limits["low"]), np.float32(self.limits["high"])
        bounded = np.clip(wanted, low, high)
        if source != self._source:
            self._source, self._joining = source, True
        limited = bounded
        if self._previous is not None:
            for on, key in ((True, "change"), (self._joining, "join")):
                if on and self.limits[key] is not None:
                    most = np.float32(self.limits[key])
                    limited = np.clip(limited, self._previous - most, self._previous + most)
            limited = np.clip(limited, low, high)  # a person may have left the bounds
        if np.array_equal(limited, bounded):
            self._joining = False
        return limited, not np.array_equal(limited, wanted)

    def _finish(self, reward: Optional[Number]) -> None:
        if self._pending is None:
            return
        step, self._pending = self._pending.values, None
        known = np.isfinite(step["executed"]).all() and np.isfinite(step["obs"]).all()
        self._last = (self._whole, step["executed"]) if known else None
        self._append(**step, reward=math.nan if reward is None else float(reward))
        if self._failed:  # a step that is missing from the recording is missing from the past as well
            self._last = None

    def _append(self, **step: Any) -> None:
        count, self._step = self._step, self._step + 1
        if self._recorder is None:
            return
        try:
            self._recorder.append(episode=self._episode, step=count, **step)
            self._failed = False
        except OSError:  # a full disk: what is not recorded is not explored either, so the fallback steers
            self._failed = True


def _write_whole(path: str, value: Any) -> None:
    """A small file that a power cut leaves as it was or as it is to be."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path)
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise


def read_limits(path: Place) -> Any:
    """Limits from a .toml or .json file."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise FieldError(f"cannot read {name}: {error.strerror}; check the path.") from error
    return _limits(data, name)


def _limits(data: bytes, name: str) -> Any:
    return _toml(data, name) if name.endswith(".toml") else _json(data, name)


def _toml(data: bytes, name: str) -> dict[str, Any]:
    """As much of TOML as limits need: lines `name = value`, where a value is a number, a list of numbers or "off".

    Python has a reader of TOML from 3.11 on; a machine on site may be older, and one file must mean one thing.
    """
    if len(data) > LARGEST_TEXT:
        raise FieldError(f"{name} is too long.")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise FieldError(f"{name} is not text in UTF-8: write it again.") from error
    found: dict[str, Any] = {}
    key, text, begun = "", "", 0
    for number, line in enumerate(lines, 1):
        line = line.partition("#")[0].strip(" \t\r")
        if not text:
            if not line:
                continue
            key, equals, line = (part.strip(" \t") for part in line.partition("="))
            begun = number
            if not equals or not _WORD.fullmatch(key):
                raise FieldError(f"{name}, line {number}: write a limit as name = value, such as change = 0.1.")
            if key in found:
                raise FieldError(f"{name}, line {number}: {key} is there twice.")
        text += line
        if text.startswith("[") and not text.endswith("]"):
            text += " "  # a list goes on in the next line
            continue
        found[key] = _value(text, f"{name}, line {begun}: {key}")
        text = ""
    if text:
        raise FieldError(f"{name}, line {begun}: the list of {key} has no end.")
    return found


_WORD = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]{0,300})(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _value(text: str, where: str) -> Any:
    if text in ('"off"', "'off'"):
        return OFF
    if not text.startswith("["):
        return _plain_number(text, where)
    parts = [part.strip() for part in text[1:-1].split(",")]
    if parts[-1] == "":
        parts.pop()  # an empty list, or a comma after the last number
    return [_plain_number(part, where) for part in parts]


def _plain_number(text: str, where: str) -> Number:
    found = _NUMBER.fullmatch(text)
    if not found:
        raise FieldError(f'{where} must be a number, a list of numbers such as [0.1, 0.2], or "off", not {text[:40]}.')
    return float(text) if found[2] or found[3] else int(text)
