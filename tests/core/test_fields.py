"""Types of fields by hand: what fits a hint and what does not."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import pytest

from musbo.algorithms.method import Method
from musbo.algorithms.recipes import ALGORITHMS, Preset, recipe
from musbo.campaign.settings import campaign
from musbo.core.fields import fits, misfit


@dataclass(frozen=True)
class Foreign:
    size: int


@dataclass(frozen=True)
class Inner:
    size: int


@dataclass(frozen=True)
class Outer:
    name: str
    parts: tuple[Inner, ...] = ()


# As if they were ours; the types of those that are cannot be wrong in a test.
Inner.__module__ = Outer.__module__ = "musbo.made_up"


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, int, True),
        (1.0, int, False),
        (True, int, False),
        (1, float, True),
        (1.5, float, True),
        (False, float, False),
        ("1", float, False),
        (True, bool, True),
        (1, bool, False),
        ("a", str, True),
        (b"a", str, False),
        (None, float | None, True),
        ("a", float | None, False),
        ((1.0, 2), tuple[float, ...], True),
        ((), tuple[float, ...], True),
        ([1.0], tuple[float, ...], False),
        ((1.0, "a"), tuple[float, ...], False),
        ((("a", 1),), tuple[tuple[str, int], ...], True),
        ((("a",),), tuple[tuple[str, int], ...], False),
        ({"a": 1}, dict[str, int], True),
        ({"a": "b"}, dict[str, int], False),
        ([("a", 1)], dict[str, int], False),
        ("b", Literal["a", "b"], True),
        (["b"], Literal["a", "b"], False),
        (Inner(1), Inner | None, True),
        (Outer("a"), Inner | None, False),
        (recipe("musbo", "quick", "pointmass"), Method, True),
        ("musbo", Method, False),
        ("anything", Any, True),
    ],
)
def test_by_hand(value: Any, hint: Any, expected: bool):
    assert fits(value, hint) == expected


def test_what_is_deep_inside_is_asked_too():
    assert misfit(Outer("a", (Inner(1), Inner(2)))) is None
    assert misfit(Outer("a", (Inner(1), Inner("large")))) == "parts"  # type: ignore
    assert misfit(Outer(3, ("q",))) == "name"  # type: ignore


def test_classes_of_others_are_their_own_affair():
    assert misfit(Inner("large")) == "size"  # type: ignore
    assert misfit(Foreign("large")) is None  # type: ignore


@pytest.mark.parametrize("preset", get_args(Preset))
def test_the_settings_of_every_method_fit(preset: Preset):
    for name in ALGORITHMS:
        assert misfit(campaign("pointmass", name, preset, 0, 1, 100, 1)) is None
