"""The README and the tutorial, held against the code: links lead somewhere, commands and names exist."""

import re
import shlex
from pathlib import Path

import pytest

import musbo
from musbo.cli import _parser, _run_parser

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "tutorial.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    targets = re.findall(r"\]\(([^)#]+)\)", document.read_text())
    assert targets
    for target in targets:
        assert target.startswith("https://") or (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_are_understood(document):
    """Every line of a shell block that calls musbo, without running it."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("musbo ")]
    for _, *words in commands:
        if words[0] == "run":
            assert _run_parser().parse_known_args(words[1:])[1] == []
        else:
            _parser().parse_args(words)
    assert commands or document.name == "README.md"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_names_of_the_package_exist(document):
    names = set(re.findall(r"\bmusbo\.([A-Za-z_]\w*)\(", document.read_text()))
    assert len(names) >= 3
    assert names <= set(dir(musbo))
