"""The headers of our file formats: what a file is, and which version of its format it has."""

from typing import Any

from musbo import __version__
from musbo.core.errors import UserError


def header(name: str, version: int) -> dict[str, Any]:
    """What a file says of itself."""
    return {"format": name, "version": version, "writer": f"musbo {__version__}"}


def require_known(found: Any, name: str, version: int, source: str) -> int:
    """The version in the header `found` of `source`; refused unless it is a `name` of at most `version`."""
    try:
        kind, own = str(found["format"]), int(found["version"])
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise UserError(f"{source} has a damaged format header: make or copy the file again.") from error
    if kind != name:
        raise UserError(f"{source} is a '{kind}' file, not a '{name}' one: check that it is the file you meant.")
    require_version(own, version, source, found.get("writer"))
    return own


def require_version(found: int, known: int, source: str, writer: Any = None) -> None:
    """Refuse a format that is newer than what this musbo knows."""
    if found > known:
        by = f" ({writer})" if isinstance(writer, str) else ""
        raise UserError(
            f"{source} was written by a newer musbo{by}: it has format {found}, and musbo {__version__} reads up to "
            f"{known}. Upgrade musbo to read it."
        )
