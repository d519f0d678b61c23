"""What of a task's definition is other than when its campaign began, in words."""

from dataclasses import fields
from typing import Any

from musbo.campaign.settings import TaskShape

WHOLE = {
    "name": "its name",
    "obs_size": "the number of observations",
    "act_size": "the number of actions",
    "episode_steps": "the length of an episode",
    "history": "the history",
    "interval": "the interval",
    "reward": "the reward",
    "terminated": "the termination",
}
EACH = {
    "names": "the name",
    "units": "the unit",
    "low": "the lower end of the range",
    "high": "the upper end of the range",
    "change": "the largest change in a step",
}
"""Of every observation and action."""
SHOWN = 5


def differences(before: TaskShape, now: TaskShape) -> str:
    """All that differs, as a part of a sentence; empty where nothing does."""
    found: list[str] = []
    for field in fields(TaskShape):
        old, new = getattr(before, field.name), getattr(now, field.name)
        if field.name in WHOLE:
            found += [_is_and_was(WHOLE[field.name], old, new)] if old != new else []
            continue
        block, _, what = field.name.partition("_")
        size = getattr(before, f"{block}_size")
        if size != getattr(now, f"{block}_size"):
            continue  # which is said, and nothing else can be compared
        word = "observation" if block == "obs" else "action"
        names = () if what == "names" else getattr(before, f"{block}_names")
        for name, a, b in zip(names or range(size), old or (None,) * size, new or (None,) * size, strict=True):
            if a != b and {a, b} != {None, ""}:
                found.append(_is_and_was(f"{EACH[what]} of {word} {name}", a, b))
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


def _is_and_was(what: str, before: Any, now: Any) -> str:
    return f"{what} is {_said(now)} and was {_said(before)}"


def _said(value: Any) -> str:
    if value is None or value == "":
        return "not given"
    return f"{value:g}" if isinstance(value, float) else str(value)
