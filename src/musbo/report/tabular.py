"""Tables of a report: the numbers as CSV, and what a person reads as HTML and LaTeX."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from musbo.report.tables import flat

Columns = dict[str, Callable[[dict[str, Any]], str]]


@dataclass(frozen=True)
class Sheet:
    """`rows` are raw numbers by name; `heads` and `cells` are what is shown of them."""

    name: str
    title: str
    note: str
    rows: Sequence[dict[str, Any]]
    heads: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


def sheet(name: str, title: str, rows: Sequence[dict[str, Any]], columns: Columns, note: str = "") -> Sheet:
    """Only the columns that have something to say in some row."""
    shown = {head: texts for head, text in columns.items() if set(texts := [text(row) for row in rows]) - {"-"}}
    heads = tuple(head.replace("\n", " ") for head in shown)
    return Sheet(name, title, note, rows, heads, tuple(zip(*shown.values(), strict=True)))


def to_csv(table: Sheet) -> bytes:
    rows = [flat(row) for row in table.rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)  # None is an empty field, and a number has all its digits
    return text.getvalue().encode()


LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "∞": r"$\infty$", "<": r"$<$", ">": r"$>$",
    "×": r"$\times$", "−": r"$-$", "·": r"$\cdot$",
}  # fmt: skip


def latex_text(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def to_latex(table: Sheet) -> bytes:
    """A tabular for \\input, with the rules of booktabs."""
    lines = [f"% {table.title}", r"\begin{tabular}{l" + "r" * (len(table.heads) - 1) + "}", r"\toprule"]
    lines.append(" & ".join(map(latex_text, table.heads)) + r" \\")
    lines.append(r"\midrule")
    lines += [" & ".join(map(latex_text, cells)) + r" \\" for cells in table.cells]
    lines += [r"\bottomrule", r"\end{tabular}"]
    return ("\n".join(lines) + "\n").encode()
