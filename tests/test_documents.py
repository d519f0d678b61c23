"""What is written, held against the code: commands and names exist, no method is left out."""

import re
import shlex
from pathlib import Path

import pytest

import musbo
from musbo.algorithms.recipes import ALGORITHMS
from musbo.cli import _parser, _run_parser, _study_parser

ROOT = Path(__file__).parents[1]
# Not deeper than a folder per claim: benchmarks may hold environments of their own.
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "benchmarks").glob("*/*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_are_understood(document):
    """Every line of a shell block that calls musbo, without running it."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("musbo ")]
    for _, *words in commands:
        if words[0] in ("run", "study"):
            parser = _run_parser() if words[0] == "run" else _study_parser()
            assert parser.parse_known_args(words[1:])[1] == []
        else:
            _parser().parse_args(words)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_the_package_exist(document):
    names = set(re.findall(r"\bmusbo\.([A-Za-z_]\w*)\(", document.read_text()))
    assert names <= set(dir(musbo))


def test_every_method_has_a_page():
    index = (ROOT / "docs" / "methods" / "README.md").read_text()
    pages = dict(re.findall(r"\[`([\w-]+)`\]\(([\w-]+\.md)", index))
    assert set(pages) == set(ALGORITHMS)
    for name, page in pages.items():
        assert f"`{name}`" in (ROOT / "docs" / "methods" / page).read_text() or page == f"{name}.md"
