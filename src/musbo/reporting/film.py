"""A policy at work as one picture that moves, small enough to stand in a page."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

Frame = UInt8[np.ndarray, "height width 3"]
SIDE, MILLISECONDS, STILLS = 240, 40, 8
TRIES = ((1, 75), (1, 50), (2, 50), (2, 30), (4, 30))
"""Every how many frames one is kept, and the quality of each: the first that is small enough is taken."""
LARGEST = 1_500_000
"""Bytes of a film in a page, before base64 adds a third."""


@dataclass(frozen=True)
class Film:
    """Pictures as data URIs."""

    moving: str | None
    """None where none can be made that is small enough."""
    stills: tuple[str, ...]
    """Spread evenly over the episode."""
    steps: tuple[int, ...]
    """Of the stills."""


def film(frames: Sequence[Frame], largest: int = LARGEST) -> Film:
    """A film of at most `largest` bytes, and stills."""
    small = [shrunk(frame) for frame in frames]
    steps = tuple(int(i) for i in np.unique(np.linspace(0, len(small) - 1, STILLS).astype(int)))
    return Film(moving(small, largest), tuple(_uri("png", _png(small[i])) for i in steps), steps)


def shrunk(frame: Frame) -> UInt8[np.ndarray, "less narrower 3"]:
    """Every n-th pixel, so that the smaller side is little more than SIDE."""
    step = max(1, min(frame.shape[:2]) // SIDE)
    return np.ascontiguousarray(frame[::step, ::step])


def moving(frames: Sequence[Frame], largest: int) -> str | None:
    """An animated WebP, which plays at the pace of the frames whatever is left out."""
    from PIL import Image, features

    if len(frames) < 2 or not features.check("webp"):
        return None
    for every, quality in TRIES:
        pictures = [Image.fromarray(frame) for frame in frames[::every]]
        image = io.BytesIO()
        pictures[0].save(
            image, "WEBP", save_all=True, append_images=pictures[1:], duration=MILLISECONDS * every, loop=0,
            quality=quality, method=3,
        )  # fmt: skip
        if len(image.getvalue()) <= largest:
            return _uri("webp", image.getvalue())
    return None


def _png(frame: Frame) -> bytes:
    from matplotlib.image import imsave

    image = io.BytesIO()
    imsave(image, frame, format="png")
    return image.getvalue()


def _uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
