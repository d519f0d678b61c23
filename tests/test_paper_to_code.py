"""docs/paper-to-code.md and docs/decisions name nothing that does not exist, and leave out nothing."""

import ast
import re
from pathlib import Path

import pytest

from musbo.campaign.command import flag_names
from musbo.cli import parser_of, verbs

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper-to-code.md").read_text()
PLACE = re.compile(r"`([\w/-]+\.py):([\w.]+)`")


def rows() -> list[list[str]]:
    """Cells of every row of every table, without the heads."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "paper" and set(row[0]) != {"-"}]


def names(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What a module or a class defines: functions, classes, fields and assignments."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = node
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
            case ast.Assign(targets=targets):
                found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


def exists(path: str, name: str) -> bool:
    file = ROOT / path if path.startswith("tests/") else ROOT / "src" / "musbo" / path
    if not file.is_file():
        return False
    body = ast.parse(file.read_text()).body
    for part in name.split("."):
        here = names(body)
        if part not in here:
            return False
        node = here[part]
        body = node.body if isinstance(node, ast.ClassDef) else []
    return True


@pytest.mark.parametrize(("path", "name"), sorted(set(PLACE.findall(PAGE))))
def test_the_place_exists(path: str, name: str):
    assert exists(path, name), f"docs/paper-to-code.md names {path}:{name}, which is not there any more"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("learning/trpo.py", "no_such_step"),
        ("learning/no_such_file.py", "trpo_step"),
        ("learning/trpo.py", "TRPO.no_such_field"),
        ("learning/trpo.py", "trpo_step.delta"),
    ],
)
def test_a_name_that_is_gone_is_found(path: str, name: str):
    assert not exists(path, name)


def test_every_row_leads_somewhere():
    assert [row[0] for row in rows() if not PLACE.search(row[2])] == []
    # Nothing looks like a place without being read as one.
    assert PAGE.count(".py:") == len(PLACE.findall(PAGE))


def covered() -> set[str]:
    """First cells, with "eq. 7 to eq. 10" written out."""
    found = set()
    for cell, *_ in rows():
        span = re.fullmatch(r"(eq\. |A)(\d+) to \1(\d+)", cell)
        found |= {f"{span[1]}{i}" for i in range(int(span[2]), int(span[3]) + 1)} if span else {cell}
    return found


def test_every_equation_and_line_is_there():
    """Equations 14 and 15 do not exist: the last two were numbered by hand."""
    equations = {f"eq. {i}" for i in (*range(1, 14), 16, 17)} | {f"A{i}" for i in range(1, 5)}
    lines = {f"line {i}" for i in range(1, 11)} | {"given", "for i = 1 ... I", "return"}
    assert equations | lines | {"remark 1", "table 1", "table 2"} <= covered()


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def test_decisions_name_flags_that_exist():
    flags = {flag for name, verb in verbs().items() for flag in flag_names(parser_of(name, verb))}
    named = {flag for page in DECISIONS for flag in re.findall(r"`(--[\w.-]+)`", page.read_text())}
    assert len(named) > 10
    assert named <= flags, sorted(named - flags)


def test_decisions_are_all_in_the_index():
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {page.name for page in DECISIONS} - {"README.md"}
