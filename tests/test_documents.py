"""What is written, held against the code: commands and names exist, no method is left out."""

import itertools
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import musbo
from musbo.algorithms.recipes import ALGORITHMS
from musbo.campaign import runner as runner  # registers what is stored, which `as_before` would forget if it came later
from musbo.cli import Verb, parser_of, verbs
from musbo.core import registry
from musbo.tasks import modules

ROOT = Path(__file__).parents[1]
HELP = ("--help", "--help-all")
# Not deeper than a folder per claim: benchmarks may hold environments of their own.
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "benchmarks").glob("*/*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_are_understood(document):
    """Every line of a shell block that calls musbo, without running it."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("musbo ")]
    for _, name, *words in commands:
        understand(name, words)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a document imports is gone after its test."""
    known: list[dict[Any, Any]] = [registry._by_name, registry._by_class, ALGORITHMS, sys.modules]
    before = [dict(each) for each in known]
    yield
    for each, old in zip(known, before, strict=True):
        for key in [key for key in each if key not in old and (each is not sys.modules or "_musbo_" in str(key))]:
            del each[key]


def understand(name: str, words: list[str]) -> None:
    """As `musbo` reads them, without what follows `|` or `>`, and without showing help."""
    ours = [word for word in itertools.takewhile(lambda word: word not in ("|", ">"), words) if word not in HELP]
    for flag, place in itertools.pairwise(ours):  # what it registers may be a word of the command
        if flag == "--import" and (ROOT / place).exists():
            modules.load(str(ROOT / place), "a document names files")
    assert parser_of(name, verbs()[name]).parse_known_args(ours)[1] == []


@pytest.mark.parametrize(("name", "verb"), verbs().items(), ids=list(verbs()))
def test_examples_in_the_help_are_understood(name: str, verb: Verb):
    """Each line is a command, and after two spaces what it is about."""
    lines = [line.strip().partition("  ")[0] for line in verb.EXAMPLES.partition("\n\n")[0].strip().splitlines()]
    commands = [shlex.split(line) for line in lines]
    assert commands and name in {command[1] for command in commands}
    for program, other, *words in commands:
        assert program == "musbo"
        understand(other, words)


@pytest.mark.parametrize("name", verbs())
def test_every_verb_is_written_about(name: str):
    assert any(f"musbo {name}" in document.read_text() for document in DOCUMENTS)


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


@pytest.mark.parametrize("page", sorted((ROOT / "benchmarks").glob("*/README.md")), ids=lambda path: path.parent.name)
def test_a_benchmark_fits_on_a_page(page: Path):
    """One figure at most, one table at most, 300 words beside it, and a command. Notes go to docs/log."""
    text = page.read_text()
    assert "```sh\n" in text
    prose = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    lines = prose.splitlines()
    assert sum(line.startswith("![") for line in lines) <= 1
    assert sum(line.startswith("|---") for line in lines) <= 1
    words = re.sub(r"\]\([^)]*\)", "]", "\n".join(line for line in lines if not line.startswith("|"))).split()
    assert len(words) <= 300, len(words)
