"""The site: it builds without a warning, its links lead somewhere, and it asks no other host for anything."""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

import musbo

pytest.importorskip("mkdocs", reason="the site is built with musbo[docs]")

ROOT = Path(__file__).parents[1]
SHELVES = ("methods", "labels", "explorers", "starts", "handovers")


def load(name: str) -> ModuleType:
    """A file of docs/_site as a module."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "docs" / "_site" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Seen(HTMLParser):
    """What a page refers to: links, what it loads by itself, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        # rel=canonical and the like are not fetched
        fetched = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}.get(tag)
        if fetched and given.get(fetched) and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(str(given[fetched]))
        self.anchors.update(str(given[name]) for name in ("id", "name") if given.get(name))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.returncode == 0 and "WARNING" not in result.stderr, result.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Seen]:
    return {path: Seen(path.read_text()) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_document_is_a_page(site: Path, pages: dict[Path, Seen]):
    borrowed = load("pages").borrowed()
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    sources += [Path(place) for place in borrowed.values() if place.endswith(".md")]
    wanted = {str(path.with_suffix(".html")).replace("README.html", "index.html") for path in sources}
    assert {str(path.relative_to(site)) for path in pages} == wanted
    assert {"results/comparison.html", "examples/own_task.html", "changelog.html"} <= wanted


def test_links_lead_somewhere(site: Path, pages: dict[Path, Seen]):
    """Of links inside the site and what pages load, independently of what MkDocs checks."""
    dead = []
    for path, seen in pages.items():
        for target in seen.links + seen.loads:
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = unquote(target.partition("?")[0]).partition("#")
            there = (path.parent / file).resolve() if file else path
            there = there / "index.html" if there.is_dir() else there
            inside = there in pages and anchor and anchor not in pages[there].anchors
            if not there.is_file() or inside:
                dead.append((str(path.relative_to(site)), target))
    assert dead == []


def test_nothing_is_loaded_from_other_hosts(site: Path, pages: dict[Path, Seen]):
    elsewhere = [load for seen in pages.values() for load in seen.loads if re.match(r"(https?:)?//", load)]
    assert elsewhere == []
    assert not [sheet for sheet in site.rglob("*.css") if re.search(r"url\(['\"]?(https?:)?//", sheet.read_text())]


def test_every_public_name_is_in_the_reference(pages: dict[Path, Seen]):
    """If not: add `::: musbo.NAME` to a page of docs/api."""
    names = {f"musbo.{name}" for name in dir(musbo) if name != "__version__"}
    for shelf in SHELVES:
        names |= {f"musbo.{shelf}.{name}" for name in importlib.import_module(f"musbo.{shelf}").__all__}
    names.discard("musbo.methods.recipe")  # the same as musbo.recipe
    anchors = set().union(*(seen.anchors for path, seen in pages.items() if path.parent.name == "api"))
    assert sorted(names - anchors) == []


def test_the_reference_shows_fields(site: Path):
    page = re.sub(r"<[^>]+>", "", (site / "api" / "tasks.html").read_text())
    assert "obs_size: int" in page and "act_low: tuple[float, ...]" in page


def test_formulas_are_drawn(site: Path):
    page = (site / "methods" / "musbo.html").read_text()
    assert page.count("<math") > 10 and "arithmatex" not in page


def test_the_navigation_takes_what_is_there():
    nav = ["index.md", {"How-to": ["how-to/README.md", "how-to/*"]}, {"All": "log/*"}, {"More": ["*"]}]
    pages = ["index.md", "how-to/README.md", "how-to/b.md", "how-to/a.md", "log/one.md", "new/page.md", "other.md"]
    wanted = ["index.md", {"How-to": ["how-to/README.md", "how-to/a.md", "how-to/b.md"]}, {"All": ["log/one.md"]}]
    wanted += [{"More": ["new/page.md", "other.md"]}]
    assert load("pages").expanded(nav, pages) == wanted


@pytest.mark.parametrize(
    ("here", "text", "wanted"),
    [
        ("methods/musbo.md", "[a](../../benchmarks/speed)", "[a](../results/speed.md)"),
        ("methods/musbo.md", "[a](../decisions)", "[a](../decisions/README.md)"),
        ("methods/musbo.md", "[a](bremen.md#x)", "[a](bremen.md#x)"),
        ("methods/musbo.md", "[a](../../pyproject.toml)", "a"),
        ("methods/musbo.md", "[a](missing.md)", "[a](missing.md)"),
        ("methods/musbo.md", "[a](https://example.org)", "[a](https://example.org)"),
        ("results/speed.md", "[a](../../docs/choose.md)", "[a](../choose.md)"),
        ("results/speed.md", "[`a`](../fast-preset)", "[`a`](fast-preset.md)"),
        ("changelog.md", "[a](docs/formats.md)", "[a](formats.md)"),
        ("changelog.md", "```\n[a](docs/formats.md)\n```", "```\n[a](docs/formats.md)\n```"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(here: str, text: str, wanted: str):
    class File:
        src_uri = here

    class Page:
        file = File()

    assert load("pages").on_page_markdown(text, Page(), None, None) == wanted
