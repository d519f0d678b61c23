"""Values as plain JSON, for people and scripts: this is the way out, and nothing is read back from it."""

import dataclasses
import math
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Dataclasses as objects of their fields, arrays and tuples as lists, and null where a number is not finite."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "__array__"):  # of NumPy or JAX
        value = np.asarray(value).tolist()
    if isinstance(value, dict):
        return {str(key): plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
