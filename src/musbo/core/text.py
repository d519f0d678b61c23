"""JSON and TOML from files that anybody may have written: bounded in size and depth, and an error is a sentence."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from musbo.core.errors import UserError

LONGEST = 10_000_000
"""Characters: our own files are a thousand times shorter."""
LONGEST_TOML = 500_000
"""People write these; of a key of many parts, and of many such keys, a parser makes gigabytes of tables."""
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:\s*+\.\s*+{_PART}){{20}}")
"""Every part is read once and never given back, so that a long text takes no longer than its length."""


def read_text(path: Path) -> str:
    """The text of a file."""
    try:
        if path.stat().st_size > LONGEST:
            raise UserError(f"{path} is larger than {LONGEST:,} bytes: it is no file of musbo.")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}): save it as that.") from error


def parse_json(text: str | bytes, source: str) -> Any:
    """What `text` says; `source` names it in errors."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{source} cannot be read ({_short(error)}): restore it from a copy.") from error


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of `text`; `source` names it in errors."""
    if len(text) > LONGEST_TOML or _DEEP_KEY.search(text):
        raise UserError(f"{source} is too long, or has a key of more than 20 parts: it is no file of musbo.")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError, and so are numbers without end
        raise UserError(f"{source} is not TOML: {_short(error)}.") from error


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}" if isinstance(error, RecursionError) else str(error)[:200]
