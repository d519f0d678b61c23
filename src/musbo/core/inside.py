"""What lies in a directory of ours is found here: nothing is followed out of it.

A run may come from somebody else, or lie where others can write. A link in it would lead our writes, and our removals,
to files that are not part of it.
"""

from pathlib import Path

from musbo.core.errors import UserError


def inside(folder: Path, *names: str) -> Path:
    """The path of something in `folder`; refused where it, or a directory on the way to it, is a link."""
    path = folder
    for name in names:
        path = path / name
        if path.is_symlink():
            raise UserError(
                f"{path} is a link, and musbo follows none out of {folder}: put what it leads to in its place, or "
                "remove it."
            )
    return path


def given(path: str | Path) -> Path:
    """A path as a user gave it; refused where no file can have such a name."""
    if "\0" in str(path):
        raise UserError(f"{str(path)!r} cannot be the name of a file: it has a NUL in it.")
    return Path(path)
