"""HDF5: named arrays, such as the files of D4RL. Needs h5py, which `pip install 'musbo[hdf5]'` brings.

A dataset may be a link to another file, or be put together from other files; such ones are left alone. Filters other
than those of HDF5 itself would be loaded from shared libraries, and are refused.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from musbo.core.errors import UserError
from musbo.data.readers.table import EXPANSION, MODEST, MOST_COLUMNS, Stored, Table, of_arrays

DEEPEST = 4
"""Groups within groups."""
FILTERS = (1, 2, 3, 32000)
"""Deflate, shuffle, Fletcher's checksum, and LZF, which h5py brings."""
_BROKEN = (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, OverflowError, MemoryError)


def open_hdf5(path: Path, source: str) -> Table:
    """The datasets of a file; one in a group is called group/name."""
    h5py = _h5py()
    size = path.stat().st_size
    try:
        with h5py.File(path, "r") as file:
            arrays = _walk(h5py, file, path, "", size, source)
    except _BROKEN as error:
        raise _unreadable(source) from error
    return of_arrays(arrays, size, source)


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise UserError("HDF5 files need h5py: pip install 'musbo[hdf5]'.") from error
    return h5py


def _walk(h5py: Any, group: Any, path: Path, prefix: str, size: int, source: str) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for key in group:
        name = prefix + key
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            continue
        if len(found) >= MOST_COLUMNS:
            raise UserError(f"{source} has more than {MOST_COLUMNS:,} datasets; musbo reads files of at most so many.")
        item = group[key]
        if isinstance(item, h5py.Group) and name.count("/") < DEEPEST:
            found |= _walk(h5py, item, path, f"{name}/", size, source)
        elif isinstance(item, h5py.Dataset) and item.shape is not None and _is_own(item, size):
            found[name] = Stored(item.shape, np.dtype(item.dtype), partial(_load, path, name, source))
    return found


def _is_own(item: Any, size: int) -> bool:
    """Whether all of a dataset is in its file, and a block of it is no larger than what is taken from the file."""
    if item.is_virtual or item.external:
        return False
    plist = item.id.get_create_plist()
    if any(plist.get_filter(i)[0] not in FILTERS for i in range(plist.get_nfilters())):
        return False
    return item.chunks is None or int(np.prod(item.chunks, dtype=object)) <= max(MODEST, EXPANSION * size)


def _load(path: Path, name: str, source: str) -> np.ndarray:
    try:
        with _h5py().File(path, "r") as file:
            return np.asarray(file[name][()])
    except _BROKEN as error:
        raise _unreadable(source) from error


def _unreadable(source: str) -> UserError:
    return UserError(f"{source} is not a readable HDF5 file (foreign, cut short or damaged): write it again.")
