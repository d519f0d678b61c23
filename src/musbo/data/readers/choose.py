"""From what a user names to an opened table: the ending of a file says its format."""

import stat
from pathlib import Path

from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.data.readers.delimited import open_csv
from musbo.data.readers.hdf5 import open_hdf5
from musbo.data.readers.minari_sets import open_minari
from musbo.data.readers.npz import open_npz
from musbo.data.readers.parquet import open_parquet
from musbo.data.readers.recording import open_recording
from musbo.data.readers.table import Table

MINARI = "minari:"
PARQUET = b"PAR1"
_BY_ENDING = {
    ".csv": open_csv, ".tsv": open_csv, ".txt": open_csv, ".npz": open_npz, ".hdf5": open_hdf5, ".h5": open_hdf5,
    ".musbo": open_recording,
}  # fmt: skip


def open_table(place: str | Path) -> Table:
    """The table in a file, or in the dataset that `minari:NAME` names."""
    source = str(place)
    if source.startswith(MINARI):
        return open_minari(source.removeprefix(MINARI), source)
    path = given(place)
    try:
        require_file(path, source)
        if opener := _BY_ENDING.get(path.suffix.lower()):
            return opener(path, source)
        _require_parquet(path, source)
        return open_parquet(path, source)
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror}.") from error


def require_file(path: Path, source: str) -> None:
    """Refuse what is no file, before it is opened: a pipe may have no other end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise UserError(f"{source} is no file, but a directory or a device: give the file with the logs.")


def _require_parquet(path: Path, source: str) -> None:
    with path.open("rb") as file:
        if path.suffix.lower() not in ("", ".parquet", ".pq") and file.read(len(PARQUET)) != PARQUET:
            raise UserError(
                f"{source} is of no kind that musbo reads: export it as .csv, .parquet, .npz or .hdf5, or give "
                "minari:NAME."
            )
