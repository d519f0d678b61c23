"""Events, summaries and news are typed: nobody reads them by agreed keys, and no display knows a method's inside."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "musbo"
EDGE = {
    "cli/train.py": "reads a word as TOML",
    "campaign/upgrade.py": "reads the payloads of older formats",
    "campaign/gating.py": "reads a limit of the site",
    "campaign/settings.py": "reads the fields of an older version",
    "algorithms/value_gradients.py": "reads the fields of an older version",
    "algorithms/former_metrics.py": "reads the metrics of older formats",
    "cluster/study.py": "reads TOML",
    "field/runtime.py": "reads manifests and limits, without musbo",
    "field/readme.py": "prints a manifest",
    "field/reissue.py": "reads the manifest of a bundle",
}
"""The files where JSON and TOML become values."""


TRAVELLED = ("algorithms", "field", "campaign", "cluster", "reporting", "cli")
"""The folders that events, summaries, metrics and news travel through."""


def files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def keyed_reads(tree: ast.AST) -> Iterator[int]:
    """Lines that read `x["name"]`, `x.get("name")` or `x.pop("name")`; not what writes."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Subscript(value=ast.Attribute(attr="environ"))
                | ast.Call(func=ast.Attribute(value=ast.Attribute(attr="environ")))
            ):
                continue  # the environment of the process has names by nature
            case ast.Subscript(slice=ast.Constant(value=str()), ctx=ast.Load()) if not is_annotation(node):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[ast.Constant(value=str()), *_]):
                yield node.lineno


def is_annotation(node: ast.Subscript) -> bool:
    """Float[Array, "n obs"] has a tuple; Literal["a"] and Float["n"] are annotations by their names."""
    return isinstance(node.value, ast.Name) and node.value.id[:1].isupper()


def test_what_counts_as_a_read():
    text = """
summary["returns"]; event.payload["batch"]; row.get("U"); fields.pop("size")
os.environ["HOME"]; os.environ.get("HOME"); Literal["a"]; row["x"] = 1; {"a": 1}; rows[name]; rows[0]
"""
    assert list(keyed_reads(ast.parse(text))) == [2, 2, 2, 2]


@pytest.mark.parametrize("path", [p for p in files() if name_of(p).split("/")[0] in TRAVELLED], ids=name_of)
def test_nothing_is_read_by_agreed_keys(path: Path):
    if name_of(path) not in EDGE:
        assert list(keyed_reads(ast.parse(path.read_text()))) == []


def test_the_edge_is_where_it_is_said_to_be():
    """A file that needs no exception has none."""
    for name in EDGE:
        assert list(keyed_reads(ast.parse((SOURCE / name).read_text()))), name


INSIDE = {"U", "zeta", "alpha", "penalty", "rank_correlation", "reliability", "dynamics_error", "labeler_error", "Q"}
"""Names of methods' numbers and symbols."""
KNOWING = ("algorithms", "learning")


def words(tree: ast.AST) -> Iterator[str]:
    """The names and the strings of a file that are one word, docstrings apart."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.keyword(arg=str(word)):
                yield word
            case ast.Constant(value=str(word)):
                yield word


def test_what_counts_as_knowing():
    assert INSIDE & set(words(ast.parse('seen.U; row["zeta"]; f(alpha=1)'))) == {"U", "zeta", "alpha"}
    assert not INSIDE & set(words(ast.parse('"""U and zeta."""; x = 1')))


@pytest.mark.parametrize("path", [path for path in files() if name_of(path).split("/")[0] not in KNOWING], ids=name_of)
def test_no_display_and_no_campaign_knows_a_methods_inside(path: Path):
    found = INSIDE & set(words(ast.parse(path.read_text())))
    if name_of(path).startswith("reporting/"):
        found.discard("alpha")  # the opacity of colours in figures
    assert not found
