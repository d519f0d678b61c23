"""What a run is made with."""

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax
import numpy as np

import musbo
from musbo.core.cores import usable_cores

SIMULATORS = ("gymnasium", "mujoco", "dm_control")


def versions() -> dict[str, str]:
    """What a run was made with: what decides on its bits, and its simulators."""
    return {
        "musbo": f"{musbo.__version__} (source {_source()})",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        **{name: found for name in ("jaxlib", "equinox", "optax", *SIMULATORS) if (found := _version(name))},
        "platform": platform.platform(),
        "device": jax.devices()[0].platform,
        # XLA divides its loops by this number, which a cell of a study is told.
        "cores": str(len(usable_cores())),
    }


@cache
def _source() -> str:
    """A hash of the package as it is here: between two releases the number says nothing."""
    folder, found = Path(musbo.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
