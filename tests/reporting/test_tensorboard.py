"""The logs read back record by record, without the library that wrote them."""

import struct
from importlib import import_module
from pathlib import Path

import pytest

from musbo.campaign import api
from musbo.campaign.summary import summary
from musbo.core.errors import UserError
from musbo.reporting import tensorboard
from musbo.reporting.gather import gather
from tests.stories import tiny


def records(path: Path) -> dict[tuple[str, int], float]:
    Event = import_module("tensorboardX.proto.event_pb2").Event  # made at run time, so types are not known
    content, place, found = path.read_bytes(), 0, {}
    while place < len(content):
        (size,) = struct.unpack("<Q", content[place : place + 8])
        event = Event.FromString(content[place + 12 : place + 12 + size])
        place += 12 + size + 4
        for value in event.summary.value:
            assert (value.tag, event.step) not in found
            found[value.tag, event.step] = value.simple_value
    return found


def test_what_training_said_is_in_the_log(tmp_path: Path):
    folder = api.start(tiny.settings(), (), tmp_path / "run")
    api.resume(folder)
    tensorboard.write(gather([folder]).runs, tmp_path / "log")
    again = tensorboard.write(gather([folder]).runs, tmp_path / "log")  # a second time replaces the first
    (log,) = Path(again).glob("*/events.out.tfevents.*")
    found = records(log)
    for d, value in enumerate(summary(folder).returns, 1):
        assert found["deployment/mean_return", d] == pytest.approx(value)
    # Four updates in each of two deployments follow each other.
    assert [step for tag, step in sorted(found) if tag == "improve/kl"] == list(range(1, 9))
    assert [step for tag, step in sorted(found) if tag == "check/imagined_cut"] == [0, 2, 4, 5, 7, 9]
    assert [step for tag, step in sorted(found) if tag == "dynamics/error"] == list(range(1, 7))
    for part in ("improve/U_50", "improve/disagreement_90"):
        assert [step for tag, step in sorted(found) if tag == part] == list(range(1, 9))
    for step in range(1, 7):
        members = [found[f"dynamics/error_per_member_{i}", step] for i in range(2)]
        assert found["dynamics/error", step] == pytest.approx(sum(members) / 2)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'musbo\[tensorboard\]'"):
        tensorboard.require()
