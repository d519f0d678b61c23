"""A policy at work as a GIF or a video."""

import warnings
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from musbo.core.durable import write_whole
from musbo.core.errors import UserError

SUFFIXES = (".gif", ".mp4")
FRAMES_PER_SECOND = 30


def require_format(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path} would be no picture that musbo can write: end its name in {' or '.join(SUFFIXES)}.")


def write(path: Path, frames: Iterable[np.ndarray]) -> int:
    """Write `frames` to `path`, which appears when it is complete; returns how many there were."""
    require_format(path)
    for package in ("imageio", "imageio_ffmpeg") if path.suffix.lower() == ".mp4" else ("imageio",):
        if find_spec(package) is None:
            raise UserError(f"writing {path} needs the package {package}: pip install 'musbo[sim]'.")
    imageio = import_module("imageio.v3")
    pictures = list(frames)
    style: dict[str, Any] = {"fps": FRAMES_PER_SECOND, "macro_block_size": 2}
    if path.suffix.lower() == ".gif":
        style = {"duration": 1000 / FRAMES_PER_SECOND, "loop": 0}
    with warnings.catch_warnings():
        # JAX warns of every fork; this one becomes another program, ffmpeg, at once, which is safe.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        film = imageio.imwrite("<bytes>", pictures, extension=path.suffix.lower(), **style)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another --out.") from error
    write_whole(path, film)
    return len(pictures)
