from pathlib import Path

import numpy as np
import pytest

from musbo.core.errors import UserError
from musbo.reporting import video

FRAMES = [np.full((32, 32, 3), shade, np.uint8) for shade in (0, 120, 240)]


def test_a_gif_shows_every_frame_and_loops(tmp_path):
    assert video.write(tmp_path / "new" / "film.gif", FRAMES) == 3
    image = pytest.importorskip("PIL.Image")
    with image.open(tmp_path / "new" / "film.gif") as film:
        assert (film.n_frames, film.size, film.info["loop"]) == (3, (32, 32), 0)
        for number, frame in enumerate(FRAMES):
            film.seek(number)
            assert np.abs(np.asarray(film.convert("RGB")).astype(int) - frame).max() < 8
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["film.gif"]


def test_a_video(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    video.write(tmp_path / "film.mp4", FRAMES)
    assert b"ftyp" in (tmp_path / "film.mp4").read_bytes()[:16]


def test_other_names_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"end its name in \.gif or \.mp4"):
        video.write(tmp_path / "film.avi", FRAMES)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(video, "find_spec", lambda name: None if name == "imageio_ffmpeg" else object())
    with pytest.raises(UserError, match=r"imageio_ffmpeg: pip install 'musbo\[sim\]'"):
        video.write(tmp_path / "film.mp4", FRAMES)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        video.write(Path(tmp_path / "file" / "film.gif"), FRAMES)
