"""Files that are whole or absent: a new file appears under its name only once all of its bytes are on the disk.

The bytes go to a temporary name in the same folder, are synced, and the file is renamed, which POSIX makes atomic; then
the folder is synced, so that the name survives a power cut too. A process killed on the way leaves a temporary file.
"""

import os
import re
import secrets
from pathlib import Path

from musbo.core.errors import UserError

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path`, replacing what was there, so that no reader ever sees a part of it."""
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        # Not tempfile.mkstemp: its files are private to one user, and campaigns are shared between people.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; nothing was changed there, so fix this and run the command again"
        ) from error


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
