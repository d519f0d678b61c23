"""A policy at work as a GIF or a video."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from musbo.core.errors import UserError

SUFFIXES = (".gif", ".mp4")
FRAMES_PER_SECOND = 30


def require_format(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path} would be no picture that musbo can write: end its name in {' or '.join(SUFFIXES)}.")


def write(path: Path, frames: Iterable[np.ndarray]) -> int:
    """Write `frames` to `path`, which appears when it is complete; returns how many there were."""
    require_format(path)
    try:
        import imageio.v3 as imageio

        if path.suffix.lower() == ".mp4":
            import imageio_ffmpeg  # noqa: F401  # imageio finds it by itself, but says nothing clear where it is missing
    except ImportError as error:
        raise UserError(f"writing {path} needs {error.name}: pip install 'musbo[sim]'.") from error
    part = path.with_name(f".{path.stem}.part{path.suffix.lower()}")
    pictures = list(frames)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".gif":
            imageio.imwrite(part, pictures, duration=1000 / FRAMES_PER_SECOND, loop=0)
        else:
            imageio.imwrite(part, pictures, fps=FRAMES_PER_SECOND, macro_block_size=2)
        part.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; choose another --out.") from error
    finally:
        part.unlink(missing_ok=True)
    return len(pictures)
