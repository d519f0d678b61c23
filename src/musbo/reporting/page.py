"""One self-contained page about a run or a study, with its figures and tables as files beside it."""

import json
import re
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from musbo import __version__
from musbo.core.durable import is_temporary, write_whole
from musbo.core.errors import UserError
from musbo.core.inside import inside
from musbo.core.text import parse_json, read_text
from musbo.reporting.canvas import ROLES, Figure
from musbo.reporting.gather import Material
from musbo.reporting.glossary import pieces
from musbo.reporting.page_sections import sections, subtitle, title
from musbo.reporting.sheets import to_csv, to_latex

RECORD = "report.json"
"""What a report has written beside its page."""
_NAME = re.compile(r"(figures|tables)/[^/]+\.(svg|png|csv|tex)")


@dataclass(frozen=True)
class Written:
    """Where a report went."""

    page: str
    figures: list[str]
    tables: list[str]
    tensorboard: str | None = None


def write(material: Material, out: Path, film: bool = True, trust_task: bool = False) -> Written:
    """Everything into `out`."""
    page = template()  # what is missing is said before anything is drawn
    before = _written_before(out)
    parts = list(sections(material, film, trust_task))
    files: dict[str, bytes] = {}
    for section in parts:
        for figure in section.figures:
            files |= {f"figures/{figure.name}.svg": figure.svg, f"figures/{figure.name}.png": figure.png}
        for table in section.sheets:
            files[f"tables/{table.name}.csv"] = to_csv(table)
            if table.heads:
                files[f"tables/{table.name}.tex"] = to_latex(table)
    try:
        out.mkdir(parents=True, exist_ok=True)
        _record(out, before | set(files))  # first, so that after a kill it is known what belongs to a report
        for name in ("figures", "tables"):
            inside(out, name).mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another --out.") from error
    for name, content in files.items():
        write_whole(out / name, content)
    write_whole(
        out / "index.html",
        page.render(
            title=title(material), subtitle=subtitle(material), sections=parts, version=__version__, files=True
        ).encode(),
    )
    for old in before - set(files):  # there was more or less to say; no page refers to them any more
        inside(out, *old.split("/")).unlink(missing_ok=True)
    _record(out, set(files))
    drawn, listed = ([str(out / name) for name in files if name.startswith(kind)] for kind in ("figures/", "tables/"))
    return Written(str(out / "index.html"), drawn, listed)


def _record(out: Path, names: set[str]) -> None:
    write_whole(out / RECORD, json.dumps(sorted(names), indent=1).encode())


def _written_before(out: Path) -> set[str]:
    """The figures and tables of an earlier report in `out`: they may go, and nothing else may."""
    record = out / RECORD
    if record.exists():
        try:
            found = set(parse_json(read_text(record), str(record)))
        except (UserError, TypeError, OSError) as error:
            raise UserError(f"{record} cannot be read: remove {out}, or choose another --out.") from error
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in found):
            raise UserError(f"{record} is not that of a report: choose another --out.")
        return found
    if out.exists() and (not out.is_dir() or any(not is_temporary(path.name) for path in out.iterdir())):
        raise UserError(f"{out} is there and holds no report: choose another --out. Nothing was written.")
    return set()


def template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise UserError("a report needs matplotlib and jinja2: pip install 'musbo[report]'.") from error
    world = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    world.globals |= {"inline": inline, "explain": explain, "fresh": set}
    return world.from_string((resources.files("musbo.reporting") / "page.html").read_text())


def explain(text: str, seen: set[str]) -> Any:
    """`text` with an explanation at every term that is not among those `seen`, and flags that no line end cuts."""
    from markupsafe import Markup, escape

    term = Markup('<span class="term" tabindex="0" data-about="{}">{}</span>')
    found = [term.format(about, part) if about else escape(part) for part, about in pieces(text, seen)]
    return Markup(_FLAG.sub(r"<code>\g<0></code>", "".join(found)))


_FLAG = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w(?![^<]*>)")


def inline(figure: Figure) -> str:
    """The SVG as a part of the page: in its colours, as wide as there is room, with a name for screen readers."""
    text = figure.svg.decode()
    text = text[text.index("<svg") :]
    for colour, role in ROLES.items():
        text = text.replace(colour, role)
    text = re.sub(r' id="[\w.]+_\d+"', "", text)  # figure_1 and the like: a page has each id once
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    head, _, rest = text.partition(">")
    head = re.sub(r' (width|height|version)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(figure.title, quote=True)}">{rest}'
