"""Settings and states as tagged JSON plus named arrays, and both together as one safetensors file.

A value is a tree of None, numbers, strings, lists, tuples, dicts with string keys, dataclasses (so also `eqx.Module`s),
NamedTuples (the states of optax) and arrays. What JSON cannot say is tagged:

    (1, 2)             {"tuple": [1, 2]}
    nan, inf, -inf     {"float": "nan"}
    Plain(sigma=0.1)   {"type": "explore/plain", "version": 1, "fields": {"sigma": 0.1}}
    an array           {"array": "policy.layers.0.weight"}, a name among the arrays
    a typed PRNG key   {"key": {"array": ...}, "impl": "threefry2x32"}
    {"type": 1}        {"dict": {"type": 1}}, only where a dict has one of these tags as a key

Reading builds what has a name in the `registry` by calling it with its fields, and nothing else: no pickle, no import
by name, so a file from a stranger cannot run code. Fields of an older version are upgraded first. Equal values give
equal bytes, so a hash names a value.
Two things are not kept: the order of a dict's keys (they come back sorted, as from any JAX transformation) and JAX's
weak types.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from musbo import __version__
from musbo.core import formats, registry
from musbo.core.durable import write_whole
from musbo.core.errors import UserError

JSON: TypeAlias = Any
"""What `json.loads` returns."""

FORMAT = "musbo-tree"
VERSION = 3
"""1 named classes by their place in the source tree; 2 names them as the registry does, with a version; 3 carries a
digest of everything in the file."""

_TAGS = ("array", "dict", "float", "key", "tuple", "type")
_DTYPES = frozenset(
    {"float64", "float32", "float16", "complex64", "bool"}
    | {"int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"}
)
"""What safetensors can hold for NumPy; bfloat16, for one, it cannot."""


# Values to JSON


def to_json(value: Any, arrays: dict[str, np.ndarray] | None = None) -> JSON:
    """`value` as tagged JSON; its arrays are added to `arrays` under readable names, and refused without `arrays`."""
    return _to_json(value, arrays, "")


def _to_json(value: Any, arrays: dict[str, np.ndarray] | None, path: str) -> JSON:
    def inside(part: str | int, child: Any) -> JSON:
        return _to_json(child, arrays, f"{path}.{part}" if path else str(part))

    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return {"key": inside("key", jax.random.key_data(value)), "impl": str(jax.random.key_impl(value))}
    if isinstance(value, np.ndarray | jax.Array):
        return {"array": _add_array(value, arrays, path)}
    if type(value) is list:
        return [inside(i, child) for i, child in enumerate(value)]
    if type(value) is tuple:
        return {"tuple": [inside(i, child) for i, child in enumerate(value)]}
    if type(value) is dict:
        if not all(type(key) is str for key in value):
            raise TypeError(f"cannot write the dict at {path or 'the top'}: its keys must be strings")
        plain = {key: inside(key, value[key]) for key in sorted(value)}
        return {"dict": plain} if any(tag in plain for tag in _TAGS) else plain
    if _is_record(type(value)):
        fields = {name: inside(name, getattr(value, name)) for name in _fields(type(value))}
        entry = _entry(type(value), path)
        return {"type": entry.name, "version": entry.version, "fields": fields}
    raise TypeError(f"cannot write a {type(value).__name__} (at {path or 'the top'}) as JSON")


def _add_array(value: np.ndarray | jax.Array, arrays: dict[str, np.ndarray] | None, path: str) -> str:
    if arrays is None:
        raise TypeError(f"cannot write an array (at {path or 'the top'}) as JSON alone: settings hold plain numbers")
    if value.dtype.name not in _DTYPES:
        raise TypeError(f"cannot write an array of dtype {value.dtype} (at {path or 'the top'})")
    base = re.sub(r"[^A-Za-z0-9_.\-]", "_", path) or "array"
    name, count = base, 1
    while name in arrays or name == "__metadata__":  # the one name that safetensors keeps for itself
        count += 1
        name = f"{base}~{count}"
    # Safetensors reads the buffer as it lies in memory, so it has to be in C order and little-endian.
    arrays[name] = np.asarray(value, dtype=value.dtype.newbyteorder("<"), order="C")
    return name


# JSON to values


def from_json(tree: JSON, arrays: Mapping[str, np.ndarray] | None = None) -> Any:
    """The value that `to_json` wrote. Fields missing from the JSON take their defaults; unknown ones are refused."""
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, list):
        return [from_json(child, arrays) for child in tree]
    if not isinstance(tree, dict):
        raise TypeError(f"{type(tree).__name__} is not JSON")
    match tree:
        case {"array": str(name), **rest} if not rest:
            return _get_array(name, arrays)
        case {"key": data, "impl": str(impl), **rest} if not rest:
            return jax.random.wrap_key_data(from_json(data, arrays), impl=impl)
        case {"float": "nan" | "inf" | "-inf" as text, **rest} if not rest:
            return float(text)
        case {"tuple": list(children), **rest} if not rest:
            return tuple(from_json(child, arrays) for child in children)
        case {"dict": dict(plain), **rest} if not rest:
            return {key: from_json(child, arrays) for key, child in plain.items()}
        case {"type": str(name), "version": int(version), "fields": dict(fields), **rest} if not rest:
            return _build(name, version, {key: from_json(child, arrays) for key, child in fields.items()})
        case {"type": str(name), "fields": dict(fields), **rest} if not rest:  # before there were versions
            return _build(name, 1, {key: from_json(child, arrays) for key, child in fields.items()})
    if tags := [tag for tag in _TAGS if tag in tree]:
        raise UserError(f"unreadable value tagged '{tags[0]}': the file is damaged or was not written by musbo")
    return {key: from_json(child, arrays) for key, child in tree.items()}


def _get_array(name: str, arrays: Mapping[str, np.ndarray] | None) -> np.ndarray | jax.Array:
    if arrays is None or name not in arrays:
        raise UserError(f"the array '{name}' is missing: the file is damaged or was not written by musbo")
    stored = arrays[name]
    # JAX would silently narrow 64-bit numbers unless it was told to allow them; a NumPy array keeps them.
    return jnp.array(stored) if jax.dtypes.canonicalize_dtype(stored.dtype) == stored.dtype else stored


def _build(name: str, version: int, values: dict[str, Any]) -> Any:
    entry = registry.find(name)
    if entry is None:
        raise UserError(
            f"there is no {name!r} in musbo {__version__}: a newer musbo or another package defines it. Upgrade musbo, "
            "or bring in what defines it with --import MODULE (from Python: import it first)"
        )
    if not 1 <= version <= entry.version:
        raise UserError(
            f"{entry.name} version {version} is not known to musbo {__version__}, which knows it up to version "
            f"{entry.version}: upgrade musbo"
        )
    try:
        for old in range(version, entry.version):
            values = entry.upgrades[old](values)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{entry.name} version {version} is damaged: {type(error).__name__}: {error}") from error
    fields = _fields(entry.cls)
    if unknown := sorted(set(values) - set(fields)):
        raise UserError(
            f"{entry.name} has no field {', '.join(unknown)} (it has {', '.join(fields) or 'none'}): "
            "correct the name, or read this with the version of musbo that wrote it"
        )
    if missing := [field for field, required in fields.items() if required and field not in values]:
        raise UserError(
            f"{entry.name} needs the field {', '.join(missing)}, which is not given: "
            "add it, or read this with the version of musbo that wrote it"
        )
    return entry.cls(**values)


# Classes that may be written and read


def _is_record(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


def _fields(cls: Any) -> dict[str, bool]:
    """The arguments of a record's constructor, and whether each is required. Fields it computes itself are not kept."""
    if dataclasses.is_dataclass(cls):
        absent = dataclasses.MISSING
        return {
            field.name: field.default is absent and field.default_factory is absent
            for field in dataclasses.fields(cls)
            if field.init
        }
    return {name: name not in cls._field_defaults for name in cls._fields}


def _entry(cls: type, path: str) -> registry.Entry:
    entry = registry.entry_of(cls)
    if entry is None:
        raise UserError(
            f"cannot write a {cls.__module__}.{cls.__qualname__} (at {path or 'the top'}): it has no name to be found "
            "by when it is read. Give it one with @musbo.stored('kind/name')"
        )
    return entry


# One blob, one file


def encode(value: Any) -> bytes:
    """`value` as the bytes of a safetensors file whose metadata hold its JSON."""
    arrays: dict[str, np.ndarray] = {}
    manifest = {**formats.header(FORMAT, VERSION), "tree": to_json(value, arrays)}
    manifest["sha256"] = _digest(manifest, arrays)
    # One metadata key only: safetensors writes several in an order that changes from run to run.
    return safetensors.numpy.save(arrays, {"musbo": json.dumps(manifest, sort_keys=True, allow_nan=False)})


def decode(data: bytes, source: str = "the data") -> Any:
    """The value that `encode` wrote. `source` names the bytes in errors."""
    try:
        arrays = safetensors.numpy.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        manifest = json.loads(header["__metadata__"]["musbo"])
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{source} is cut short, damaged or not a file of musbo: make or copy it again") from error
    version = formats.require_known(manifest, FORMAT, VERSION, source)
    said = manifest.pop("sha256", None)
    if (said is not None or version >= 3) and said != _digest(manifest, arrays):
        raise UserError(f"{source} is damaged (it is not what its digest says): make or copy it again")
    try:
        return from_json(manifest.get("tree"), arrays)
    except UserError as error:
        raise UserError(f"{source} (written by {manifest.get('writer', 'musbo 0.1')}): {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # only a file without a digest gets here
        raise UserError(f"{source} is damaged ({error}): make or copy it again") from error


def _digest(manifest: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of everything in a file but this."""
    found = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def save(path: Path, value: Any) -> None:
    """Write `value` to `path`, whole or not at all."""
    write_whole(path, encode(value))


def load(path: Path) -> Any:
    """The value that `save` wrote to `path`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from error
    return decode(data, str(path))


def sha256(data: bytes) -> str:
    """The SHA-256 digest of `data`, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_of(file: BufferedIOBase) -> str:
    """The same of an open file, read from its beginning a part at a time."""
    file.seek(0)
    found = hashlib.sha256()
    while part := file.read(1 << 20):
        found.update(part)
    return found.hexdigest()
