"""The sections about how the runs were made: every setting, the versions, and the words to do it again."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from musbo.algorithms import recipes
from musbo.campaign import flags
from musbo.campaign.settings import task_like
from musbo.cluster.study import to_toml
from musbo.core.errors import UserError
from musbo.reporting.gather import Material, Run
from musbo.reporting.section import Section
from musbo.reporting.sheets import Sheet, sheet
from musbo.reporting.words import count
from musbo.tasks.find import TASKS


def settings(material: Material) -> Section:
    """Every setting of every method, those that differ between methods first; then what is another one elsewhere."""
    section = Section("Settings")
    first: dict[str, Run] = {}
    for run in material.runs:
        first.setdefault(run.method, run)
    values = {method: _own(run) for method, run in first.items()}
    names = list(dict.fromkeys(name for each in values.values() for name in each))
    names.sort(key=lambda name: len({str(each.get(name)) for each in values.values()}) == 1)
    section.sheets = [_sheet("settings", "Settings", names, values)]
    for group in material.groups[1:]:
        here = {method: _own(material.of(group, method)[0]) for method in material.methods(group)}
        differ = [name for name in names if any(each.get(name) != values[m].get(name) for m, each in here.items())]
        if differ:
            section.sheets.append(_sheet(f"settings-{group.slug}", f"On {group.title}", differ, here))
    if len(material.groups) > 1:
        others = "what differs on the others stands below" if len(section.sheets) > 1 else "the same on the others"
        section.words = f"As on {material.groups[0].title}; {others}."
    elsewhere = {method: run.group.title for method, run in first.items() if run.group != material.groups[0]}
    if elsewhere:
        section.words += " " + "; ".join(f"{method} as on {title}" for method, title in elsewhere.items()) + "."
    return section


def _own(run: Run) -> dict[str, Any]:
    own = run.settings
    return {"preset": own.preset, "episodes": own.episodes, **dict(flags.flat(own.method))}


@dataclass(frozen=True)
class SettingRow:
    """One setting, by method."""

    setting: str
    values: dict[str, Any]


def _sheet(name: str, title: str, names: Sequence[str], values: dict[str, dict[str, Any]]) -> Sheet:
    rows = [SettingRow(each, {method: own.get(each, "-") for method, own in values.items()}) for each in names]
    columns: dict[str, Callable[[SettingRow], str]] = {"setting": lambda row: row.setting}
    for method in values:
        columns[method] = lambda row, method=method: _text(row.values[method])
    return sheet(name, title, rows, columns)


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


# Again


def again(material: Material) -> Section:
    """What the runs were made with, and the words that make them again."""
    section = Section("Environment, and how to do it again")
    seen: dict[str, int] = {}
    for run in material.runs:
        text = ", ".join(f"{name} {value}" for name, value in run.summary.versions.items())
        seen[text] = seen.get(text, 0) + 1
    section.code = [(f"made with ({count(n, 'run')})", text) for text, n in seen.items()]
    for i, (path, study) in enumerate(material.studies):
        name = path.resolve().name
        name += f"-{i + 1}" if name in [other.resolve().name for other, _ in material.studies[:i]] else ""
        section.code.append((f"{name}.toml", to_toml(study)))
        section.code.append(("the study", shlex.join(["musbo", "study", f"{name}.toml", "--out", f"studies/{name}"])))
    inside = [path for path, _ in material.studies]
    alone = [run for run in material.runs if run.folder.parent not in inside]
    if alone:
        section.code.append(("the runs" if len(alone) > 1 else "the run", "\n".join(map(command, alone))))
    return section


def command(run: Run) -> str:
    """The words that would begin this run again, or a sentence where no words can."""
    own = run.settings
    data = [item.source for item in run.summary.brought]
    preset: Any = own.preset
    task = own.task if own.task in TASKS else task_like(own.task, run.summary.task)
    try:
        base = recipes.recipe(own.algo, preset, task)
    except UserError:
        base = None
    if base is None or own.task.startswith("<") or type(base) is not type(own.method) or any(map(_from_python, data)):
        return (
            f"# {run.folder.name}: made from Python, with objects that have no name on a command line; see its settings"
        )
    words = [
        "musbo", "run", run.task_place, "--algo", own.algo, "--preset", own.preset, "--seed", own.seed,
        "--budget", own.budget, "--batch-size", own.batch_size, "--episodes", own.episodes,
        *(["--data", *data] if data else []), *flags.difference(own.method, base),
    ]  # fmt: skip
    return shlex.join(map(str, words))


def _from_python(source: str) -> bool:
    """Batches that a Python program gave are called data[0] and so on."""
    return re.fullmatch(r"data\[\d+\]", source) is not None
