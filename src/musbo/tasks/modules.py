"""Python of one's own by its name: `package.module`, or a file `path/to/file.py`."""

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from musbo.core.errors import UserError
from musbo.core.inside import given


def is_file(place: str) -> bool:
    """Whether `place` names a file and not a module."""
    return place.endswith(".py")


def load(place: str, named: str) -> ModuleType:
    """The module that `place` names, loaded once; `named` says, in an error, how such a place is named."""
    return _load_file(given(place), named) if is_file(place) else _load_module(place, named)


def _load_module(place: str, named: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(error.name + ".")):
            text = f"The module {place!r} cannot be imported; install it or set PYTHONPATH: {named}."
            raise UserError(text) from error
        raise UserError(f"Importing {place!r} failed: {error}; install what it needs.") from error
    except (Exception, SystemExit) as error:
        raise UserError(f"Importing {place!r} failed: {_why(error)}; correct it and try again.") from error


def _load_file(path: Path, named: str) -> ModuleType:
    if not path.is_file():
        raise UserError(f"There is no file {path}; {named}.")
    # One module per file, so that what is found twice is the same value and compiled functions are reused. The name is
    # the same in every process.
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    known = f"_musbo_{path.stem}_{digest[:12]}"
    if known in sys.modules:
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, path.resolve())
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be loaded as a Python file; {named}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[known] = module  # before execution: dataclasses in the file look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[known]
        raise UserError(f"Loading {path} failed: {_why(error)}; correct it and try again.") from error
    return module


def _why(error: BaseException) -> str:
    text = str(error).rstrip(".")
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
