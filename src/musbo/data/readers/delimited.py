"""CSV: a line of names, then one line per step, separated by commas, semicolons or tabs."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from musbo.core.errors import UserError
from musbo.data.readers.table import Table, require_few

LONGEST_HEADER = 1_000_000
"""Bytes."""
SEPARATORS = ",;\t"
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")


def open_csv(path: Path, source: str) -> Table:
    """The table in a file of text. Its separator is the one that its first line has most of."""
    line = _first_line(path, source)
    separator = max(SEPARATORS, key=line.count)
    try:
        header = next(csv.reader([line], delimiter=separator), [])
    except csv.Error as error:
        raise UserError(f"{source}: its first line cannot be read as names of columns ({error}).") from error
    require_few(len(header), source)
    written = {name.strip(): name for name in header}  # people write "time, speed"
    names = tuple(name.strip() for name in header)

    def read(chosen: Sequence[str]) -> pa.Table:
        table = _read(path, [written[name] for name in chosen], separator, ".", source)
        if separator != "," and any(map(_has_decimal_comma, table.columns)):
            table = _read(path, [written[name] for name in chosen], separator, ",", source)
        return table.rename_columns(list(chosen))

    return Table(source, names, read)


def _first_line(path: Path, source: str) -> str:
    with path.open("rb") as file:
        start = file.read(LONGEST_HEADER).removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    line = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    if len(line) == len(start) == LONGEST_HEADER:
        raise UserError(f"{source} has a first line of more than {LONGEST_HEADER:,} bytes: it is no table.")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: its first line is not UTF-8 ({error}): save it as that.") from error
    if "\0" in text:
        raise UserError(f"{source} has a NUL in its first line: it is no text, or not UTF-8; save it as that.")
    return text


def _read(path: Path, columns: list[str], separator: str, decimal: str, source: str) -> pa.Table:
    parse = arrow_csv.ParseOptions(delimiter=separator)
    convert = arrow_csv.ConvertOptions(include_columns=columns, decimal_point=decimal, strings_can_be_null=True)
    try:
        with pa.OSFile(str(path), "rb") as file:
            try:
                with arrow_csv.open_csv(file, parse_options=parse, convert_options=convert) as parts:
                    return parts.read_all()
            except pa.ArrowException:
                # A type that the first part does not show. Only a reader of the whole finds it, which holds the text of
                # it all beside the numbers.
                file.seek(0)
                return arrow_csv.read_csv(file, parse_options=parse, convert_options=convert)
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError, KeyError) as error:
        said = " ".join(str(error)[:200].split())
        raise UserError(f"{source} is not a readable CSV file ({said}): correct or export it again.") from error


def _has_decimal_comma(column: pa.ChunkedArray) -> bool:
    if not pa.types.is_string(column.type):
        return False
    first = pc.first(column).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    return first is not None and _DECIMAL_COMMA.fullmatch(first) is not None
