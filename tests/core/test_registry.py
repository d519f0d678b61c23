"""Names outlive classes, modules and fields."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from musbo.core import registry, serial
from musbo.core.errors import UserError
from musbo.core.former_names import FORMER_NAMES
from musbo.core.registry import stored


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    registry.load()
    monkeypatch.setattr(registry, "_by_name", dict(registry._by_name))
    monkeypatch.setattr(registry, "_by_class", dict(registry._by_class))


def define(place: Path, name: str, text: str) -> Any:
    """A module of this text."""
    head = "from dataclasses import dataclass\nfrom musbo.core.registry import stored\n"
    (place / f"{name}.py").write_text(head + text)
    spec = importlib.util.spec_from_file_location(name, place / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def forget(module: Any) -> None:
    """As if the module had never been: what moved away is not there any more."""
    for cls, entry in list(registry._by_class.items()):
        if cls.__module__ == module.__name__:
            del registry._by_class[cls], registry._by_name[entry.name]
    del sys.modules[module.__name__]


def test_every_former_name_leads_to_a_class_of_today():
    for old, new in FORMER_NAMES.items():
        entry = registry.find(old)
        assert entry is not None and entry.name == new


def test_a_class_that_moves_and_gains_a_field_still_opens_old_files(tmp_path: Path):
    """Bit for bit the same values, from the bytes that the class wrote at its old place."""
    old = define(
        tmp_path, "before_the_move",
        "@stored('zoo/levels')\n@dataclass(frozen=True)\nclass Levels:\n    p90: object\n    rate: float = 0.1\n",
    )  # fmt: skip
    weights = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    data, settings = serial.encode(old.Levels(weights, 1 / 3)), json.dumps(serial.to_json(old.Levels(None, 1 / 3)))
    forget(old)
    with pytest.raises(UserError, match="there is no 'zoo/levels' in musbo"):
        serial.decode(data)

    new = define(
        tmp_path, "after_the_move",
        "@stored('zoo/levels')\n@dataclass(frozen=True)\nclass Yardsticks:\n"
        "    p90: object\n    rate: float = 0.1\n    p99: float = 7.0\n",
    )  # fmt: skip
    found = serial.decode(data)
    assert type(found) is new.Yardsticks
    assert np.asarray(found.p90).tobytes() == weights.tobytes() and found.rate == 1 / 3 and found.p99 == 7.0
    assert serial.from_json(json.loads(settings)) == new.Yardsticks(None, 1 / 3)
    forget(new)


def test_a_new_version_reads_the_fields_of_the_old_ones():
    def renamed(fields: dict[str, Any]) -> dict[str, Any]:
        return {"width": fields["size"]}

    def doubled(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "height": 2 * fields["width"]}

    @stored("zoo/box", version=3, upgrades={1: renamed, 2: doubled})
    @dataclasses.dataclass(frozen=True)
    class Box:
        width: int
        height: int

    one = {"type": "zoo/box", "version": 1, "fields": {"size": 4}}
    two = {"type": "zoo/box", "version": 2, "fields": {"width": 5}}
    assert serial.from_json(one) == Box(4, 8)
    assert serial.from_json({"type": "zoo/box", "fields": {"size": 4}}) == Box(4, 8)  # before there were versions
    assert serial.from_json(two) == Box(5, 10)
    assert serial.to_json(Box(1, 1)) == {"type": "zoo/box", "version": 3, "fields": {"width": 1, "height": 1}}
    with pytest.raises(UserError, match="zoo/box version 1 is damaged"):
        serial.from_json({"type": "zoo/box", "version": 1, "fields": {}})


def test_a_version_without_its_upgrades_is_refused():
    with pytest.raises(UserError, match="zoo/gap version 3 needs an upgrade from version 2"):
        stored("zoo/gap", version=3, upgrades={1: dict})(type("Gap", (), {}))


def test_a_name_belongs_to_one_class():
    class Other:
        pass

    with pytest.raises(UserError, match="'label/trust' of .*Other is taken by musbo.learning.label.Trust"):
        stored("label/trust")(Other)


@pytest.mark.parametrize("name", ["", "Label/Trust", "label/", "label trust", "a/b/c", "../x"])
def test_names_are_short_and_plain(name: str):
    with pytest.raises(UserError, match="cannot be the name"):
        stored(name)(type("Any", (), {}))


def test_kinds_are_found_by_the_first_part_of_the_name():
    assert {"trust", "disagreement"} <= set(registry.kinds("label"))
    assert {"continue", "clone"} <= set(registry.kinds("start"))
    assert {"last", "best_imagined", "guarded"} <= set(registry.kinds("handover"))
    assert {"plain", "seeking"} <= set(registry.kinds("explore"))
    assert registry.word(registry.kinds("handover")["best_imagined"]()) == "best_imagined"


def test_what_an_installed_package_announces_is_found(tmp_path: Path):
    """By an entry point, in a process of its own."""
    (tmp_path / "their_label.py").write_text(
        "from dataclasses import dataclass\nimport musbo\n"
        "@musbo.stored('label/theirs')\n@dataclass(frozen=True)\nclass Theirs:\n    strength: float = 2.0\n"
    )
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[musbo]\ntheirs = their_label\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from musbo.core import registry, serial\n"
        "print(serial.from_json({'type': 'label/theirs', 'version': 1, 'fields': {'strength': 3.0}}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "Theirs(strength=3.0)\n", found.stderr
    (tmp_path / "their_label.py").write_text("raise RuntimeError('broken')")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "the package their-package announces 'their_label' to musbo" in found.stderr
