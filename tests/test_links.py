"""Every relative link in a document leads to a file that is there, and every anchor to a heading of it."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "benchmarks", "examples")
# A benchmark may hold an environment of its own, in a folder whose name begins with a dot.
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)  # https:, mailto:
ATTRIBUTE = re.compile(r"""\b(href|src|id|name)\s*=\s*["']([^"']*)["']""")


def tokens(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def inside(text: str) -> Iterator[Token]:
    """The tokens that carry text, links and HTML. What is in code is none of them."""
    for token in tokens(text):
        yield from token.children or [token]


def links(text: str) -> Iterator[str]:
    for token in inside(text):
        target = token.attrs.get("href", token.attrs.get("src"))
        if target is not None:
            yield str(target)
        if token.type in ("html_block", "html_inline"):
            yield from (value for name, value in ATTRIBUTE.findall(token.content) if name in ("href", "src"))


def anchors(text: str) -> set[str]:
    """GitHub's: lower case, blanks as hyphens, no other punctuation, and a number where a heading comes again."""
    found: set[str] = set()
    parsed = tokens(text)
    for before, token in zip(parsed, parsed[1:], strict=False):
        if before.type == "heading_open":
            words = "".join(child.content for child in token.children or [] if child.type in ("text", "code_inline"))
            name = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            again = (name if n == 0 else f"{name}-{n}" for n in range(len(parsed)))
            found.add(next(anchor for anchor in again if anchor not in found))
    for token in inside(text):
        if token.type in ("html_block", "html_inline"):
            found.update(value for name, value in ATTRIBUTE.findall(token.content) if name in ("id", "name"))
    return found


def leads_somewhere(document: Path, target: str, root: Path) -> bool:
    path, _, anchor = unquote(target).partition("#")
    start = root / path[1:] if path.startswith("/") else document.parent / path
    there = (start if path else document).resolve()
    if not there.is_relative_to(root.resolve()) or not there.exists():
        return False
    if not anchor:
        return True
    if there.is_dir():  # GitHub shows its README below the list of files
        there /= "README.md"
    if there.suffix != ".md":
        lines = re.fullmatch(r"L(\d+)(?:-L(\d+))?", anchor)
        return bool(lines) and int(lines[2] or lines[1]) <= len(there.read_text().splitlines())
    return there.exists() and anchor in anchors(there.read_text())


def dead(document: Path, root: Path = ROOT) -> list[str]:
    """The links of a document that lead nowhere. Those to other machines are not followed."""
    targets = [target for target in links(document.read_text()) if not ELSEWHERE.match(target)]
    return [target for target in targets if not leads_somewhere(document, target, root)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path):
    assert dead(document) == []


def test_the_documents_are_found():
    names = {str(path.relative_to(ROOT)) for path in DOCUMENTS}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/index.md", "benchmarks/speed/README.md"} <= names


OTHER = """# Other
## `musbo run`: what's *new*, [here](https://example.org)?
## Twice
## Twice
Über uns
--------
```
## In a block
```
<a id="by-hand"></a>
"""

GOOD = [
    "other.md", "sub", "sub/", "/sub/other.md", "sub/with%20blank.txt", "#made-up", "other.md#other",
    "other.md#musbo-run-whats-new-here", "other.md#twice", "other.md#twice-1", "other.md#%C3%BCber-uns",
    "other.md#by-hand", "sub#other", "sub/code.py#L2", "sub/code.py#L1-L2", "https://example.org/no#where",
    "mailto:a@example.org",
]  # fmt: skip
BAD = [
    "missing.md", "sub/missing.md", "missing/", "/missing.md", "../outside.md", "#missing", "other.md#missing",
    "other.md#Twice", "other.md#twice-2", "other.md#in-a-block", "missing.md#other", "sub/code.py#L3",
    "sub/code.py#name",
]  # fmt: skip
FORMS = [
    "[a]({})",
    "![a]({})",
    "[`a`]({} 'title')",
    "[a][b]\n\n[b]: {}",
    "| x |\n|---|\n| [a]({}) |",
    '<a href="{}">a</a>',
]


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "outside.md").touch()
    for name in ("other.md", "sub/other.md", "sub/README.md"):
        (root / name).write_text(OTHER)
    (root / "sub" / "with blank.txt").touch()
    (root / "sub" / "code.py").write_text("one = 1\ntwo = 2\n")
    return root / "made-up.md"


@pytest.mark.parametrize("target", GOOD)
def test_a_good_link_is_let_through(made_up: Path, target: str):
    made_up.write_text(f"# Made up\nSee [this]({target}).\n")
    assert dead(made_up, made_up.parent) == []


@pytest.mark.parametrize("target", BAD)
@pytest.mark.parametrize("form", FORMS)
def test_a_dead_link_is_found(made_up: Path, target: str, form: str):
    made_up.write_text(f"# Made up\n\n[good](other.md)\n\n{form.format(target)}\n")
    assert dead(made_up, made_up.parent) == [target]


def test_what_is_in_code_is_no_link(made_up: Path):
    made_up.write_text("`[a](missing.md)`\n\n```\n[b](missing.md)\n```\n")
    assert dead(made_up, made_up.parent) == []
