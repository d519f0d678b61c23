"""Behaviour is on the value: nobody outside their file asks of which kind a part of a method is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from musbo.core.registry import kinds
from musbo.learning.explore import PlainActor, SeekingActor
from musbo.models.actor import SampleActor, UniformActor

SOURCE = Path(__file__).parents[1] / "src" / "musbo"
PARTS = ("explore", "start", "handover", "label", "regulariser", "baseline")
ACTORS = (UniformActor, SampleActor, PlainActor, SeekingActor)


def homes() -> dict[str, Path]:
    """The file that defines each kind, by the name of its class; of musbo alone, not of tests and examples."""
    classes = [cls for part in PARTS for cls in kinds(part).values() if cls.__module__.startswith("musbo.")]
    return {cls.__name__: SOURCE.parent / (cls.__module__.replace(".", "/") + ".py") for cls in (*classes, *ACTORS)}


def asked(tree: ast.AST, names: set[str]) -> Iterator[tuple[int, str]]:
    """Lines that ask whether something is one of these classes: isinstance, issubclass, type(x) is, or a case."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, wanted]):
                found = named(wanted)
            case ast.MatchClass(cls=wanted):
                found = named(wanted)
            case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=wanted):
                found = [name for one in wanted for name in named(one)]
            case _:
                continue
        yield from ((node.lineno, name) for name in found if name in names)


def named(node: ast.AST) -> list[str]:
    """Every name in an expression: `Plain`, `explore.Plain`, `Plain | Seeking`, `(Plain, Seeking)`."""
    inside = list(ast.walk(node))
    plain = [one.id for one in inside if isinstance(one, ast.Name)]
    return plain + [one.attr for one in inside if isinstance(one, ast.Attribute)]


def test_every_part_comes_in_kinds():
    """So the test below looks for something."""
    assert all(kinds(part) for part in PARTS)
    assert {"Plain", "Clone", "Guarded", "Disagreement", "Support", "Ridge", "SeekingActor"} <= set(homes())
    assert all(home.is_file() for home in homes().values())


def test_nobody_asks_of_which_kind_a_part_is():
    known = homes()
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        others = {name for name, home in known.items() if home != path}
        lines = asked(ast.parse(path.read_text()), others)
        found += [f"{path.relative_to(SOURCE)}:{line} asks for {name}" for line, name in lines]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(x, Plain)",
        "isinstance(x, explore.Plain)",
        "isinstance(x, Last | Plain)",
        "isinstance(x, (int, Plain))",
        "issubclass(type(x), Plain)",
        "type(x) is Plain",
        "type(x) in (Last, Plain)",
        "match x:\n        case Plain(sigma=s): pass",
        "match x:\n        case explore.Plain(): pass",
    ],
)
def test_the_question_is_found(line: str):
    assert [name for _, name in asked(ast.parse(f"if True:\n    {line}"), {"Plain"})] == ["Plain"]


@pytest.mark.parametrize(
    "line", ["isinstance(x, Explore)", "Plain(0.1)", "x == Plain()", "isinstance(Plain, type)", "f(isinstance, Plain)"]
)
def test_nothing_else_is_found(line: str):
    assert list(asked(ast.parse(line), {"Plain"})) == []
