"""A film in a page: it plays, it is bounded, and there are stills where it cannot be."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from musbo.reporting import film as films
from musbo.reporting.film import film, shrunk


def frames(n: int, noise: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = np.full((n, 480, 480, 3), 250, np.uint8)
    for i in range(n):
        found[i, 10 * i : 10 * i + 40, 100:140] = (200, 30, 30)
    return list(rng.integers(0, 255, found.shape, np.uint8)) if noise else list(found)


def opened(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def test_a_film_plays_every_frame():
    found = film(frames(20))
    assert found.moving is not None and found.moving.startswith("data:image/webp;base64,")
    picture = opened(found.moving)
    assert picture.n_frames == 20 and picture.size == (240, 240) and picture.info["loop"] == 0  # type: ignore
    picture.seek(19)
    seen = np.asarray(picture.convert("RGB")).astype(int)
    assert np.abs(seen - shrunk(frames(20)[19]).astype(int)).mean() < 6  # the last picture is the last frame
    assert found.steps == (0, 2, 5, 8, 10, 13, 16, 19) and len(found.stills) == 8
    assert np.array_equal(np.asarray(opened(found.stills[-1]).convert("RGB")), shrunk(frames(20)[19]))


def test_a_film_is_never_larger_than_it_may_be():
    small = film(frames(20, noise=True), largest=300_000)
    assert small.moving is not None and len(base64.b64decode(small.moving.partition(",")[2])) <= 300_000
    assert 1 < opened(small.moving).n_frames < 20  # type: ignore
    none = film(frames(20, noise=True), largest=1000)
    assert none.moving is None and len(none.stills) == 8


def test_one_picture_is_no_film(monkeypatch: pytest.MonkeyPatch):
    assert film(frames(1)).moving is None and len(film(frames(1)).stills) == 1


def test_without_webp_there_are_stills(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("PIL.features.check", lambda name: False)
    assert films.film(frames(3)).moving is None and films.film(frames(3)).steps == (0, 1, 2)
