"""What the site has beyond the pages in `docs`, as a hook of MkDocs.

- The pages of `benchmarks`, the programs in `examples`, the change log and the contributor's guide become pages.
- Links between files of the repository become links between pages; a link to a file that is not on the site loses
  its link and keeps its text. So every page reads well both here and in a file browser.
- Formulas become MathML, which browsers draw by themselves.
- `folder/*` in the navigation stands for all other pages of the folder, `*` for what is left after that.
"""

import ast
import os
import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
COPIED = {".svg", ".png", ".ipynb"}
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:)([^)\s#]*)(#[^)\s]*)?\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def borrowed() -> dict[str, str]:
    """Files of the repository outside `docs`, and their places on the site."""
    found = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
    for path in sorted((ROOT / "examples").glob("*.*")):
        if path.suffix in (".py", ".ipynb"):
            found[f"examples/{path.name}"] = f"examples/{path.stem}{'.md' if path.suffix == '.py' else '.ipynb'}"
    for readme in sorted((ROOT / "benchmarks").glob("*/README.md")):
        name = readme.parent.name
        found[f"benchmarks/{name}/README.md"] = f"results/{name}.md"
        for image in sorted(readme.parent.rglob("*.svg")) + sorted(readme.parent.rglob("*.png")):
            inside = image.relative_to(readme.parent)
            if not any(part.startswith(".") for part in inside.parts):
                found[f"benchmarks/{name}/{inside}"] = f"results/{name}/{inside}"
    return found


def program(path: Path) -> str:
    """A page that shows a program: the first line of its docstring is the title."""
    source = path.read_text()
    title, _, _ = (ast.get_docstring(ast.parse(source)) or path.stem).partition("\n")
    return f"# {path.name}\n\n{title}\n\n```python\n{source}```\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, place in borrowed().items():
        path = ROOT / source
        if path.suffix == ".py":
            files.append(File.generated(config, place, content=program(path)))
        elif path.suffix in COPIED:
            files.append(File.generated(config, place, abs_src_path=str(path)))
        else:
            files.append(File.generated(config, place, content=path.read_text()))
    config.nav = expanded(config.nav, [file.src_uri for file in files.documentation_pages()])
    return files


def expanded(nav: Any, pages: list[str]) -> Any:
    """The navigation with every `folder/*`, and `*`, replaced by the pages that are not named anywhere."""
    named = set(re.findall(r"[\w./-]+\.md", repr(nav)))
    folders = tuple(re.findall(r"'([\w.-]+/)\*'", repr(nav)))

    def expand(item: Any) -> list[Any]:
        if isinstance(item, dict):
            return [{title: fill(entry)} for title, entry in item.items()]
        if item == "*":
            return sorted(page for page in pages if not page.startswith(folders) and page not in named)
        if isinstance(item, str) and item.endswith("/*"):
            folder = item.removesuffix("*")
            return sorted(page for page in pages if page.startswith(folder) and page not in named)
        return [item]

    def fill(entry: Any) -> Any:
        if isinstance(entry, list):
            return [page for item in entry for page in expand(item)]
        return expand(entry) if entry.endswith("/*") else entry

    return fill(nav)


def place(path: str) -> str | None:
    """Where a file or folder of the repository is on the site."""
    found = borrowed()
    if path in ("examples", "README.md", "benchmarks"):
        return {"examples": "tutorials/README.md", "README.md": "index.md", "benchmarks": "results/README.md"}[path]
    for candidate in (path, f"{path}/README.md"):
        if candidate in found:
            return found[candidate]
        if candidate.startswith("docs/") and (ROOT / candidate).is_file():
            return candidate.removeprefix("docs/")
    return None


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    source = next((path for path, place in borrowed().items() if place == here), f"docs/{here}")

    def relink(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        if not target:
            return match[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        there = place(path)
        if there is not None:
            return f"{image}[{text}]({os.path.relpath(there, os.path.dirname(here) or '.')}{anchor or ''})"
        return text if (ROOT / path).exists() else match[0]  # what does not exist is reported by MkDocs

    parts = FENCE.split(markdown)
    return "".join(part if i % 2 else LINK.sub(relink, part) for i, part in enumerate(parts))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def drawn(match: re.Match[str]) -> str:
        return convert(unescape(match[2]), display="block" if match[1] == "div" else "inline")

    return FORMULA.sub(drawn, html)
