import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from musbo.campaign.events import Evaluated
from musbo.core.errors import UserError
from musbo.reporting import curve
from tests.reporting import sample


def texts(path) -> str:
    return " ".join("".join(node.itertext()) for node in ElementTree.parse(path).iter() if node.tag.endswith("text"))


def test_a_curve_is_written_as_svg_and_png(tmp_path):
    svg, png = curve.draw(sample.summary(), tmp_path)
    assert (svg, png) == (tmp_path / "curve.svg", tmp_path / "curve.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    words = texts(svg)
    for part in ("musbo on pointmass, quick, seed 0", "random actions", "deployment", "imagined", "return per episode"):
        assert part in words


def test_the_same_run_gives_the_same_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        curve.draw(sample.summary(), tmp_path / name)
    for name in ("curve.svg", "curve.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_one_deployment_without_a_simulator(tmp_path):
    one = replace(sample.deployment(1), evaluation=Evaluated(0.0, skipped="no simulator"))
    one = sample.with_batch(one, source="logs.parquet")
    svg, _ = curve.draw(sample.summary(1, deployments=(one,)), tmp_path)
    assert "random actions" not in texts(svg)  # nobody knows who made these data


def test_one_deployment_has_a_deviation(tmp_path):
    assert len(curve.draw(sample.summary(1), tmp_path)) == 2


def test_many_deployments(tmp_path):
    assert len(curve.draw(sample.summary(40), tmp_path)) == 2


def test_without_matplotlib_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"matplotlib is missing: pip install 'musbo\[report\]'"):
        curve.draw(sample.summary(), tmp_path)
    assert list(tmp_path.iterdir()) == []
