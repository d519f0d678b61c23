"""Artefacts: files that are named by the hash of their content, so a name is also a proof of what it holds.

An artefact is written whole before the ledger mentions it. A process killed in between leaves a file that nothing
refers to, which `sweep` removes; the reverse, a ledger row without its file, cannot happen.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

from musbo.campaign.events import Collected
from musbo.core.durable import is_temporary, put_through, sync_folder, write_whole
from musbo.core.errors import UserError
from musbo.core.inside import inside
from musbo.core.serial import sha256, sha256_of
from musbo.data.batch import Batch
from musbo.data.files import batch_from_bytes

_NAME = re.compile(r"[0-9a-f]{64}(\.[a-z0-9]+)*")


def is_artefact(name: str) -> bool:
    """Whether a file of this name is one of a store."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Store:
    """The artefacts in the folder `root`, which the first one creates."""

    root: Path

    def put_bytes(self, data: bytes, suffix: str) -> str:
        """Store `data` durably and return its name, `<sha256><suffix>`. Storing the same again changes nothing."""
        path = self.path(sha256(data) + suffix)
        self._make_root()
        write_whole(path, data)
        return path.name

    def put(self, write: Callable[[BufferedIOBase], object], suffix: str) -> str:
        """The same of what is too large to be held; `write` gets an open file."""
        self._make_root()
        root = inside(self.root.parent, self.root.name)
        return put_through(root, write, lambda file: self.path(sha256_of(file) + suffix).name).name

    def _make_root(self) -> None:
        if not self.root.is_dir():
            self.root.mkdir(parents=True, exist_ok=True)
            sync_folder(self.root.parent)

    def path(self, name: str) -> Path:
        """Where the artefact `name` lies, if it is there."""
        if not _NAME.fullmatch(name):
            raise UserError(f"'{name}' does not name an artefact of {self.root}: 64 hexadecimal digits and a suffix do")
        return inside(self.root.parent, self.root.name, name)

    def get(self, name: str) -> bytes:
        """The content of `name`, checked against its hash."""
        path = self.path(name)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read the artefact {path}: {error.strerror}; restore it from a copy") from error
        if sha256(data) != name.partition(".")[0]:
            raise UserError(f"the artefact {path} is damaged (it is not what its name says): restore it from a copy")
        return data

    def names(self) -> list[str]:
        """All artefacts, sorted."""
        return sorted(name for name in self._files() if _NAME.fullmatch(name))

    def sweep(self, keep: Collection[str]) -> list[str]:
        """Remove the artefacts not in `keep` and what killed writes left; return the names removed. Other files stay.

        Only for the process that holds the campaign's lock: it would take the unfinished files of another one too.
        """
        strays = {name for name in self._files() if is_temporary(name)}
        doomed = sorted(strays | (set(self.names()) - set(keep)))
        for name in doomed:
            (self.root / name).unlink(missing_ok=True)
        return doomed

    def _files(self) -> list[str]:
        root = inside(self.root.parent, self.root.name)
        return [path.name for path in root.iterdir() if path.is_file()] if root.is_dir() else []


def stored_batch(store: Store, item: Collected) -> Batch:
    """The batch of an event."""
    batch = batch_from_bytes(store.get(item.artefact), item.artefact)
    if len(batch) != item.transitions:
        raise UserError(
            f"{item.artefact} has {len(batch)} transitions, and the ledger says {item.transitions}: restore the store "
            "and the ledger from one copy."
        )
    return batch
