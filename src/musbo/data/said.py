"""What a log itself says that its columns are, by name and unit, compared with what the task says.

A recording names its columns in its header; a mapping may say the unit of a column. Numbers in another order or another
unit than the policy expects train it on something else, and nothing else may show it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from musbo.data.finding import Finding
from musbo.tasks.task import Task

SHOWN = 5
"""Columns that a finding spells out."""


@dataclass(frozen=True)
class Said:
    """What a log says that one of its columns is; whatever is empty, nobody said."""

    name: str = ""
    unit: str = ""
    """Of the numbers as they are used: that of the log, unless they are converted."""
    column: str = ""
    """By which it is read."""


NOTHING = Said()


def strangers(block: str, said: Sequence[Said], task: Task) -> Iterator[Finding]:
    """Columns of a block that are not what the task has in their place."""
    names, units = (
        (task.act_names, task.act_units) if block in ("act", "commanded") else (task.obs_names, task.obs_units)
    )
    own = [(i, each.name, name) for i, (each, name) in enumerate(zip(said, names, strict=False)) if each.name]
    if other := [each for each in own if each[1] != each[2]]:
        order = sorted(name for _, name, _ in own) == sorted(wanted for _, _, wanted in own)
        listed = ", ".join(f"{block} {i} is {name!r} and not {wanted!r}" for i, name, wanted in other[:SHOWN])
        more = f", and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
        what = f"{'the columns are in another order' if order else 'these are other columns'} than task {task.name} has"
        do = "write them in the order of the bundle's manifest, under its names"
        yield Finding("other columns", "error", f"{what}: {listed}{more}", do, tuple(name for _, name, _ in other))
    for each, unit in zip(said, units, strict=False):
        if each.unit and unit and each.unit != unit:
            name = each.name or each.column
            what = f"{name} is in {each.unit}, and task {task.name} has {unit} there"
            do = f"give its scale and offset in a mapping, or log it in {unit}"
            yield Finding("other units", "error", what, do, (name,))
