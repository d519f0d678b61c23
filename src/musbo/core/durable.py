"""Files that are whole or absent: a new file appears under its name only once all of its bytes are on the disk.

The bytes go to a temporary name in the same folder, are synced, and the file is renamed, which POSIX makes atomic; then
the folder is synced, so that the name survives a power cut too. A process killed on the way leaves a temporary file.
"""

import os
import re
import secrets
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path

from musbo.core.errors import UserError

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path`, replacing what was there, so that no reader ever sees a part of it."""

    def write(file: BufferedIOBase) -> None:
        file.write(data)

    write_through(path, write)


def write_through(path: Path, write: Callable[[BufferedIOBase], object]) -> None:
    """The same for what is too large to be held: `write` gets the open file, which can be read again too."""
    put_through(path.parent, write, lambda _: path.name, path)


def put_through(
    folder: Path,
    write: Callable[[BufferedIOBase], object],
    name: Callable[[BufferedIOBase], str],
    shown: Path | None = None,
) -> Path:
    """The same for a file in `folder` whose `name` depends on what was written; until then an error names `shown`."""
    temporary = folder / f".{secrets.token_hex(8)}.tmp"
    path = shown or folder
    try:
        # Not tempfile.mkstemp: its files are private to one user, and campaigns are shared between people.
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(handle, "w+b") as file:
                write(file)
                file.flush()
                path = folder / name(file)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(folder)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; nothing was changed there, so fix this and run the command again"
        ) from error
    return path


def sync_folder(folder: Path) -> None:
    """Make renames and removals in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_temporary(name: str) -> bool:
    """Whether a file of this name is one that `write_whole` had not finished."""
    return _TEMPORARY.fullmatch(name) is not None
