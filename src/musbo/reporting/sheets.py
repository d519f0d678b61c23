"""Tables of a report: the numbers as CSV, and what a person reads as HTML and LaTeX."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

from musbo.core.diagnostics import Curve, Diagnostic, Quantiles

R = TypeVar("R")
Columns = Mapping[str, Callable[[R], str]]
"""The head of every column, and its text of a row. Rows are dataclasses."""


@dataclass(frozen=True)
class Sheet:
    """`rows` are what the file holds; `heads` and `cells` are what is shown of them."""

    name: str
    title: str
    note: str
    rows: Sequence[Any]
    """Dataclasses."""
    heads: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


def sheet(name: str, title: str, rows: Sequence[R], columns: Columns[R], note: str = "") -> Sheet:
    """Without the columns that are empty in every row."""
    shown = filled(rows, columns)
    heads = tuple(head.replace("\n", " ") for head in shown)
    return Sheet(name, title, note, rows, heads, tuple(zip(*shown.values(), strict=True)))


def filled(rows: Sequence[R], columns: Columns[R]) -> dict[str, list[str]]:
    """The texts of every column that has something in some row."""
    texts = {head: [text(row) for row in rows] for head, text in columns.items()}
    return {head: cells for head, cells in texts.items() if set(cells) - {"-"}}


# Files


def record(row: Any) -> dict[str, Any]:
    """A dataclass as the columns of a file.

    A dataclass in a field gives its own columns, a mapping one for every key, and a tuple of dataclasses numbered ones.
    A diagnostic is a column under its name, or three of them for quantiles (name_10, name_50, name_90); curves are left
    out. A diagnostic never takes the name of another column.
    """
    found: dict[str, Any] = {}
    diagnostics: list[Diagnostic] = []
    for field in fields(row):
        value = getattr(row, field.name)
        if isinstance(value, tuple) and all(isinstance(each, Diagnostic) for each in value):
            diagnostics += value
        else:
            found |= _columns(field.name, value)
    own = dict(pair for each in diagnostics for pair in numbers_of(each))
    return found | {f"diagnostic_{name}" if name in found else name: value for name, value in own.items()}


def _columns(name: str, value: Any) -> dict[str, Any]:
    if is_dataclass(value):
        return record(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple) and value and all(map(is_dataclass, value)):
        return {f"{column}_{i}": each for i, one in enumerate(value, 1) for column, each in record(one).items()}
    return {name: value}


def numbers_of(shown: Diagnostic) -> Iterator[tuple[str, float]]:
    """The names and numbers of a diagnostic."""
    match shown.value:
        case Quantiles() as value:
            yield from quantile_columns(shown.name, (value.low, value.median, value.high))
        case Curve() | None:
            pass
        case value:
            yield shown.name, value


def quantile_columns(name: str, values: Iterable[float]) -> Iterator[tuple[str, float]]:
    """The 10, 50 and 90 % quantiles as three columns."""
    return zip((f"{name}_10", f"{name}_50", f"{name}_90"), values, strict=True)


def to_csv(table: Sheet) -> bytes:
    rows = [record(row) for row in table.rows]
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
