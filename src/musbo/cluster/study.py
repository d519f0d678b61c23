"""A study: methods x tasks x budgets x seeds, each cell a campaign in a directory of its own.

A study is described by a TOML file,

    tasks = ["halfcheetah", "hopper"]
    algos = ["musbo", "bremen"]
    seeds = [0, 1, 2]
    preset = "fast"
    settings = ["--episodes", "10"]       # words that every run gets

    [budgets]                             # deployments and batch size per task; several pairs are several budgets
    halfcheetah = [[5, 50_000]]

    [variants.musbo-hot]                  # a method of one's own: a known one with other settings
    algo = "musbo"
    settings = ["--label.alpha", "0.1"]

or by the same words on the command line. What was asked for is written down in the study's directory; a later call with
more seeds, tasks or methods adds to it, and what has been run is not run again.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from musbo.algorithms.recipes import PRESETS, default_preset, scale
from musbo.campaign.settings import short_name, task_for, task_in, task_name
from musbo.core import formats, serial
from musbo.core.durable import is_temporary, write_whole
from musbo.core.errors import UserError
from musbo.core.inside import given, inside
from musbo.core.lock import lock
from musbo.core.registry import stored
from musbo.core.text import parse_json, parse_toml, read_text

RECORD = "study.json"
FORMAT, VERSION = "musbo-study", 2


@stored("study/variant")
@dataclass(frozen=True)
class Variant:
    """A method of a study: an algorithm and the settings that it is given."""

    name: str
    algo: str
    settings: tuple[str, ...] = ()


@stored("study")
@dataclass(frozen=True)
class Study:
    """What is compared, and on what."""

    tasks: tuple[str, ...]
    methods: tuple[Variant, ...]
    seeds: tuple[int, ...]
    preset: str | None = None
    """None: each task's default."""
    budgets: tuple[tuple[str, int, int], ...] = ()
    """(task, budget, batch size); a task without one has its preset's."""
    settings: tuple[str, ...] = ()
    """Words that every run gets."""

    def __post_init__(self) -> None:
        for name in ("tasks", "methods", "seeds"):
            if not getattr(self, name):
                raise UserError(f"a study needs at least one of its {name}.")
        if min(self.seeds) < 0:
            raise UserError(f"a seed must be at least 0, not {min(self.seeds)}.")
        if len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"a study has every seed once, not {', '.join(map(str, self.seeds))}.")
        if self.preset is not None and self.preset not in PRESETS:
            raise UserError(f"there is no preset {self.preset!r}: choose one of {', '.join(PRESETS)}.")
        names = [method.name for method in self.methods]
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
                raise UserError(f"a method cannot be called {name!r}: its runs have directories of that name.")
        if len(set(names)) < len(names):
            raise UserError(f"two methods of a study have the same name among {', '.join(names)}.")
        strangers = {task for task, _, _ in self.budgets} - set(self.tasks)
        if strangers:
            raise UserError(f"the study has a budget for {', '.join(sorted(strangers))}, which is not among its tasks.")
        words = [*self.tasks, *self.settings, *(w for m in self.methods for w in (m.algo, *m.settings))]
        if any(word.partition("=")[0] == "--import" for word in words):  # a file never chooses what is imported
            raise UserError("a study cannot have --import among its words: give it to `musbo study` on each call.")
        short = [short_name(task) for task in self.tasks]
        if len(set(short)) < len(short):
            raise UserError("two tasks of a study have the same name, so their runs would share a directory.")


@dataclass(frozen=True)
class Cell:
    """One campaign of a study."""

    task: str
    method: Variant
    budget: int
    batch_size: int
    seed: int
    preset: str

    @property
    def row(self) -> tuple[str, str, str]:
        """Task, budget, method: what seeds are repeats of."""
        return self.task, f"{self.budget} x {self.batch_size:,}", self.method.name

    @property
    def folder(self) -> str:
        return f"{short_name(self.task)}-{self.method.name}-{self.budget}x{self.batch_size}-s{self.seed}"

    def words(self, out: Path, settings: tuple[str, ...]) -> list[str]:
        """The command that begins it."""
        return [
            "run", self.task, "--algo", self.method.algo, "--preset", self.preset, "--seed", str(self.seed),
            "--budget", str(self.budget), "--batch-size", str(self.batch_size), "--out", str(out / self.folder),
            *settings, *self.method.settings,
        ]  # fmt: skip


def cells(study: Study) -> list[Cell]:
    """All of them, one seed of everything before the second."""
    every = []
    for seed in study.seeds:
        for task in study.tasks:
            preset: Any = study.preset or default_preset(task_name(task))
            usual = scale(preset, task_name(task))
            given = [(i, b) for name, i, b in study.budgets if name == task]
            for budget, size in given or [(usual.budget, usual.batch_size)]:
                every += [Cell(task, method, budget, size, seed, preset) for method in study.methods]
    return every


# Files


def ready() -> dict[str, str]:
    """The studies that come with musbo, and what each is for: the first line of its file, a comment."""
    folder = resources.files("musbo") / "studies"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {name.removesuffix(".toml"): (folder / name).read_text().partition("\n")[0].lstrip("# ") for name in files}


def load(name: str) -> Study:
    """A study from a file, or a ready one by its name."""
    path = given(name)
    if path.suffix != ".toml":
        if name not in ready():
            raise UserError(f"there is no study {name!r}: give a .toml file, or one of {', '.join(ready())}.")
        text = (resources.files("musbo") / "studies" / f"{name}.toml").read_text()
    else:
        try:
            text = read_text(path)
        except OSError as error:
            raise UserError(f"cannot read the study {path}: {error.strerror}.") from error
    return parse(parse_toml(text, f"the study {name}"))


def parse(found: dict[str, Any]) -> Study:
    """A study from the tables of its file."""
    known = {"tasks", "algos", "seeds", "preset", "settings", "budgets", "variants"}
    if strangers := set(found) - known:
        raise UserError(f"a study has no {', '.join(sorted(strangers))}: it has {', '.join(sorted(known))}.")
    for name in ("tasks", "algos", "seeds", "settings"):
        if not isinstance(found.get(name, []), list):
            raise UserError(f"{name} of a study is a list: write {name} = [...], also for a single one.")
    if strangers := [seed for seed in found.get("seeds", ()) if type(seed) is not int]:
        raise UserError(f"a seed is a whole number, not {strangers[0]!r}.")
    try:
        methods = [Variant(name, name) for name in found.get("algos", ())]
        methods += [_variant(name, part) for name, part in found.get("variants", {}).items()]
        budgets = [one for name, pairs in found.get("budgets", {}).items() for one in _budgets(name, pairs)]
        return Study(
            tasks=tuple(task_name(str(task)) for task in found.get("tasks", ())),
            methods=tuple(methods),
            seeds=tuple(found.get("seeds", (0,))),
            preset=found.get("preset"),
            budgets=tuple(budgets),
            settings=tuple(map(str, found.get("settings", ()))),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        text = f"the study cannot be read ({type(error).__name__}: {error}); `musbo study --help` shows how it looks."
        raise UserError(text) from error


def _variant(name: str, part: Any) -> Variant:
    if not isinstance(part, dict) or not {"algo"} <= set(part) <= {"algo", "settings"}:
        has = ", ".join(part) if isinstance(part, dict) else repr(part)
        raise UserError(f"[variants.{name}] has {has or 'nothing'}: it needs algo, may have settings, and no more.")
    if not isinstance(part.get("settings", []), list):
        raise UserError(f"settings of [variants.{name}] is a list of words: write settings = [...].")
    return Variant(name, str(part["algo"]), tuple(map(str, part.get("settings", ()))))


def _budgets(task: str, pairs: Any) -> Iterator[tuple[str, int, int]]:
    """One pair, or a list of them."""
    for pair in pairs if isinstance(pairs, list) and pairs and isinstance(pairs[0], list) else [pairs]:
        if not isinstance(pair, list) or [type(number) for number in pair] != [int, int]:
            raise UserError(f"the budget of {task} is [deployments, batch size], two whole numbers, not {pair!r}.")
        yield task_name(task), pair[0], pair[1]


def to_toml(study: Study) -> str:
    """The file that describes it: `parse` reads it back."""
    # `parse` puts variants behind: what follows one has to be written as one, or the order would change.
    plain = [method == Variant(method.name, method.name) for method in study.methods]
    algos = [method.name for i, method in enumerate(study.methods) if all(plain[: i + 1])]
    lines = [f"tasks = {json.dumps(study.tasks)}", f"algos = {json.dumps(algos)}", f"seeds = {list(study.seeds)}"]
    lines += [f"preset = {json.dumps(study.preset)}"] if study.preset else []
    lines += [f"settings = {json.dumps(study.settings)}"] if study.settings else []
    if study.budgets:
        lines += ["", "[budgets]"]
        for task in dict.fromkeys(task for task, _, _ in study.budgets):
            lines.append(f"{json.dumps(task)} = {[[i, b] for name, i, b in study.budgets if name == task]}")
    for method in study.methods:
        if method.name not in algos:
            lines += ["", f"[variants.{json.dumps(method.name)}]", f"algo = {json.dumps(method.algo)}"]
            lines += [f"settings = {json.dumps(method.settings)}"] if method.settings else []
    return "\n".join(lines) + "\n"


def recorded(out: Path) -> Study | None:
    """What the study in `out` has been so far."""
    path = inside(out, RECORD)
    try:
        found = serial.from_json(_undamaged(parse_json(read_text(path), str(path)), str(path)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; fix this, or choose another directory.") from error
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it from a copy.") from error
    if not isinstance(found, Study):
        raise UserError(f"{path} describes no study: restore it from a copy.")
    return _with_tasks(found, lambda task: task_in(out, task))


def together(out: Path, asked: Study | None) -> Study:
    """What the study in `out` was, and what is asked for on top of it."""
    before = recorded(out)
    if before and asked:
        return merge(before, asked)
    if only := before or asked:
        return only
    raise UserError(f"{out} holds no study: give a file, or --tasks, --algos and --seeds.")


def record(out: Path, asked: Study | None) -> Study:
    """What the study in `out` is from now on."""
    before, whole = recorded(out), together(out, asked)
    if whole != before:
        if before is None and out.is_dir() and any(not is_temporary(path.name) for path in out.iterdir()):
            raise UserError(f"{out} is not empty and holds no study: choose another --out. Nothing was written.")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {out}: {error.strerror}; choose another --out.") from error
        kept = _with_tasks(whole, lambda task: task_for(out, task))
        tree = serial.to_json(kept)
        described = {**formats.header(FORMAT, VERSION), "study": tree, "sha256": _digest(tree)}
        write_whole(out / RECORD, json.dumps(described, indent=1).encode())
    return whole


def _digest(tree: Any) -> str:
    return serial.sha256(json.dumps(tree, sort_keys=True).encode())


def _undamaged(found: Any, source: str) -> Any:
    """The study in a record; refused where its digest is another. Records of format 1 have none."""
    if isinstance(found, dict) and "type" in found:
        return found
    formats.require_known(found, FORMAT, VERSION, source)
    match found:
        case {"study": tree, "sha256": said} if said == _digest(tree):
            return tree
    raise UserError(f"{source} is damaged (it is not what its digest says): restore it from a copy.")


def _with_tasks(study: Study, named: Callable[[str], str]) -> Study:
    """The study with its tasks named otherwise: files by their paths from its directory, so that both can move."""
    budgets = tuple((named(task), budget, size) for task, budget, size in study.budgets)
    return replace(study, tasks=tuple(map(named, study.tasks)), budgets=budgets)


@contextmanager
def held(out: Path, asked: Study | None) -> Iterator[Study]:
    """The study in `out` and what is asked for on top, for this process alone: a second would run the same cells."""
    if recorded(out) is None:
        record(out, asked)  # makes the directory, which is locked
    with lock(out, "study"):
        yield record(out, asked)


def merge(before: Study, asked: Study) -> Study:
    """More of the same; anything else is another study."""
    for name in ("preset", "settings"):
        if getattr(before, name) != getattr(asked, name):
            raise UserError(f"this study has another {name}: {getattr(before, name)!r}. Choose another --out.")
    old = {method.name: method for method in before.methods}
    for method in asked.methods:
        if old.get(method.name, method) != method:
            raise UserError(f"this study has another method {method.name!r}. Choose another name or another --out.")

    def sizes(study: Study, task: str) -> set[tuple[int, int]]:
        return {(cell.budget, cell.batch_size) for cell in cells(study) if cell.task == task}

    for task in set(before.tasks) & set(asked.tasks):
        if sizes(before, task) != sizes(asked, task):  # as they are run: the preset's may be written out in one of them
            raise UserError(f"this study has another budget for {task}. Choose another --out.")

    def union(name: str) -> tuple:
        return tuple(dict.fromkeys((*getattr(before, name), *getattr(asked, name))))

    return replace(before, **{f.name: union(f.name) for f in fields(Study) if f.name not in ("preset", "settings")})
