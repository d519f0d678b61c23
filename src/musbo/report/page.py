"""One self-contained page about a run or a study, with its figures and tables as files beside it."""

import re
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from musbo import __version__
from musbo.core.durable import write_whole
from musbo.core.errors import UserError
from musbo.report import figures
from musbo.report.figures import Figure
from musbo.report.gather import Material
from musbo.report.sections import sections, subtitle, title
from musbo.report.tabular import to_csv, to_latex


def write(material: Material, out: Path, film: bool = True) -> dict[str, Any]:
    """Everything into `out`; returns where it went."""
    template = _template()  # what is missing is said before anything is drawn
    parts = list(sections(material, film))
    try:
        for name in ("figures", "tables"):
            (out / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another --out.") from error
    written: dict[str, Any] = {"page": str(out / "index.html"), "figures": [], "tables": []}

    def put(kind: str, name: str, content: bytes) -> None:
        write_whole(out / kind / name, content)
        written[kind].append(str(out / kind / name))

    for section in parts:
        for figure in section.figures:
            put("figures", f"{figure.name}.svg", figure.svg)
            put("figures", f"{figure.name}.png", figure.png)
        for table in section.sheets:
            put("tables", f"{table.name}.csv", to_csv(table))
            if table.heads:
                put("tables", f"{table.name}.tex", to_latex(table))
    for kind in ("figures", "tables"):
        for old in (out / kind).iterdir():  # of an earlier report, when there was more or less to say
            if old.suffix in (".svg", ".png", ".csv", ".tex") and str(old) not in written[kind]:
                old.unlink()
    write_whole(
        out / "index.html",
        template.render(
            title=title(material), subtitle=subtitle(material), sections=parts, version=__version__
        ).encode(),
    )
    return written


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise UserError("a report needs matplotlib and jinja2: pip install 'musbo[report]'.") from error
    world = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    world.globals |= {"inline": inline}
    return world.from_string((resources.files("musbo.report") / "page.html").read_text())


def inline(figure: Figure) -> str:
    """The SVG as a part of the page: in its colours, as wide as there is room, with a name for screen readers."""
    text = figure.svg.decode()
    text = text[text.index("<svg") :]
    for colour, role in figures.ROLES.items():
        text = text.replace(colour, role)
    text = re.sub(r' id="[\w.]+_\d+"', "", text)  # figure_1 and the like: a page has each id once
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    head, _, rest = text.partition(">")
    head = re.sub(r' (width|height|version)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(figure.title, quote=True)}">{rest}'
