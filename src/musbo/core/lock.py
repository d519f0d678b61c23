"""One process at a time in a directory."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from musbo.core.errors import UserError
from musbo.core.inside import inside


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


_held: set[Path] = set()
"""The locks of this process: the kernel's own lock only keeps other processes out."""


@contextmanager
def lock(folder: Path, what: str = "campaign") -> Iterator[None]:
    """Hold what is in `folder` for this process alone. The kernel lets go when the process dies, however it dies.

    A POSIX record lock, not `flock`: a forked worker does not inherit it, so no orphan keeps a dead campaign locked.
    """
    path = inside(folder.resolve(), "lock")
    if path in _held:
        raise UserError(f"this process (pid {os.getpid()}) is running the {what} {folder} already")
    with ExitStack() as stack:
        try:
            # Not "w": if we are refused it must keep the holder's name. No buffer: what is not written stays unwritten.
            file = stack.enter_context(open(path, "a+b", buffering=0, opener=_no_link))
        except OSError as error:
            raise UserError(f"cannot lock the {what} {folder}: {error.strerror}; check the path") from error
        if os.fstat(file.fileno()).st_nlink > 1:
            raise UserError(f"{path} is also a file elsewhere, which would be written to: remove it and try again")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # POSIX allows either
            file.seek(0)
            pid, _, host = file.read(1000).decode(errors="replace").strip().partition(" ")
            raise UserError(
                f"another process (pid {pid or 'unknown'}) is running this {what} ({folder}, on host "
                f"{host or 'unknown'}): let it end or stop it first"
            ) from error
        _held.add(path)
        try:
            try:
                file.truncate(0)
                file.write(f"{os.getpid()} {socket.gethostname()}\n".encode())
            except OSError as error:  # the disk is full
                raise UserError(f"cannot write {path}: {error.strerror}; fix this and try again") from error
            yield
        finally:
            _held.discard(path)  # closing the file lets go of the lock
