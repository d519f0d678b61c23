"""The limits of a bundle as `limits.toml`, with a comment on each: the site may change them."""

from collections.abc import Mapping
from typing import Any

from musbo.field.runtime import OFF, OPTIONAL_LIMITS

MEANING = {
    "low": "smallest action; inside the bounds of training",
    "high": "largest action; inside the bounds of training",
    "change": "largest change of an action from one step to the next",
    "join": "the same, while control passes between the policy and the fallback",
    "noise": "largest exploration noise, in units of the action",
    "obs_low": "below this the fallback steers",
    "obs_high": "above this the fallback steers",
    "stale": "seconds: an older observation is not used",
    "late": "seconds: a longer pause between two calls is a fault",
    "fallbacks": "after so many steps of the fallback it stays in control until a person resets it",
    "cost": "the same, when the sum of the reported costs exceeds this",
    "fallback": "a constant action, used where no function is given",
}
"""Every limit in words."""


def limits_text(limits: Mapping[str, Any]) -> str:
    """The file, in the order of the actions and observations of the README."""
    lines = [
        "# Limits of the runtime, yours to change; README.md says more. One number stands for all actions or",
        f'# observations, and "{OFF}" switches a limit off: {", ".join(OPTIONAL_LIMITS)}.',
        "",
    ]
    for key, value in limits.items():
        lines += [f"# {MEANING[key]}", f"{key} = {_text(value)}"]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if value is None:
        return f'"{OFF}"'
    return f"[{', '.join(map(repr, value))}]" if isinstance(value, list) else repr(value)
