"""npz: named arrays of numpy in a zip, such as a D4RL dictionary. Nothing in it is unpickled, or unpacked on trust."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from musbo.core.errors import UserError
from musbo.data.readers.table import MOST_COLUMNS, Stored, Table, of_arrays

_BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, EOFError, OSError, ValueError,
    SyntaxError, TypeError, KeyError, NotImplementedError, RuntimeError, OverflowError, MemoryError,
)  # fmt: skip
"""What zipfile and numpy raise for files that are none."""


def open_npz(path: Path, source: str) -> Table:
    """The arrays of a file that `numpy.savez` or `savez_compressed` wrote."""
    try:
        with zipfile.ZipFile(path) as file:
            members = [one for one in file.infolist() if one.filename.endswith(".npy")]
            if len(members) > MOST_COLUMNS:
                raise UserError(f"{source} has {len(members):,} arrays; musbo reads files of at most {MOST_COLUMNS:,}.")
            arrays = {one.filename.removesuffix(".npy"): _stored(path, file, one, source) for one in members}
    except _BROKEN as error:
        raise _unreadable(source) from error
    return of_arrays(arrays, path.stat().st_size, source)


def _stored(path: Path, file: zipfile.ZipFile, member: zipfile.ZipInfo, source: str) -> Stored:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("numpy writes none of this kind")
    with file.open(member) as stream:
        shape, _, dtype = _header(stream)
    return Stored(shape, dtype, partial(_load, path, member.filename, source))


def _header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether in Fortran's order, and type."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError("arrays of numbers have no such header")


def _load(path: Path, name: str, source: str) -> np.ndarray:
    """The array, of which no more is unpacked than its header says: `of_arrays` has bounded that."""
    try:
        with zipfile.ZipFile(path) as file, file.open(name) as stream:
            shape, fortran, dtype = _header(stream)
            size = int(np.prod(shape, dtype=object)) * dtype.itemsize
            data = stream.read(size)
            # The checksum of a member is compared at its end.
            if len(data) != size or stream.read(1):
                raise ValueError("an array of another size than its header says")
            array = np.frombuffer(data, dtype)
    except _BROKEN as error:
        raise _unreadable(source) from error
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def _unreadable(source: str) -> UserError:
    return UserError(f"{source} is not a readable npz file (foreign, cut short or damaged): write it again.")
