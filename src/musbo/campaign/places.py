"""What stands where in the directory of a campaign, and beside it while it is made."""

import re
import secrets
from pathlib import Path

LEDGER = "ledger.sqlite"
STORE = "store"
SETTINGS = "settings.json"
TASK = "task"
"""A task that is a TOML file, as the campaign keeps it."""
LOCK = "lock"
RECORDING = ".musbo"
"""How the name of a recording in the store ends."""


def new_place(folder: Path) -> Path:
    """A directory in which the campaign `folder` can be made before it is moved to its place; no other has its name."""
    return folder.parent / f".{folder.name}.{secrets.token_hex(8)}.new"


def new_places(folder: Path) -> list[Path]:
    """The directories in which `folder` is being made, or was when its process was killed."""
    ours = re.compile(re.escape(f".{folder.name}.") + r"[0-9a-f]{16}\.new")
    if not folder.parent.is_dir():
        return []
    found = [path for path in folder.parent.iterdir() if ours.fullmatch(path.name)]
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())
