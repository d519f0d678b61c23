"""Logs that exist already: from a file, a frame or Minari to transitions that a run can begin with.

    import musbo

    logs = musbo.data.from_dataframe(frame, obs=["room", "walls"], act=["power"], episode="day", time="minute")
    result = musbo.run(task, data=[logs], budget=1)

What is importable from here is public. Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from musbo.data.doctor.examine import Expected as Expected
    from musbo.data.doctor.examine import examine as examine
    from musbo.data.files import read_logs as read_logs
    from musbo.data.finding import Finding as Finding
    from musbo.data.logs import Logs as Logs
    from musbo.data.logs import from_dataframe as from_dataframe
    from musbo.data.logs import from_minari as from_minari
    from musbo.data.mapping import Column as Column
    from musbo.data.mapping import Mapping as Mapping
    from musbo.data.mapping import read_mapping as read_mapping
    from musbo.data.minari_export import to_minari as to_minari

_PLACES = {
    "Column": "musbo.data.mapping",
    "Expected": "musbo.data.doctor.examine",
    "Finding": "musbo.data.finding",
    "Logs": "musbo.data.logs",
    "Mapping": "musbo.data.mapping",
    "examine": "musbo.data.doctor.examine",
    "from_dataframe": "musbo.data.logs",
    "from_minari": "musbo.data.logs",
    "read_logs": "musbo.data.files",
    "read_mapping": "musbo.data.mapping",
    "to_minari": "musbo.data.minari_export",
}
__all__ = list(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'musbo.data' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
