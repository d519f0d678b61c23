"""What the page says: its sections, from the runs."""

import base64
import io
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from musbo.algorithms import recipes
from musbo.campaign import api, flags
from musbo.campaign.folders import LEDGER, STORE, read_status
from musbo.campaign.ledger import Ledger
from musbo.cluster.study import to_toml
from musbo.core.errors import UserError
from musbo.report import compare, figures, tables
from musbo.report.figures import Figure
from musbo.report.gather import Group, Material, Run
from musbo.report.insight import Doubts, doubts
from musbo.report.tabular import Columns, Sheet, sheet
from musbo.report.words import INERT, count, decimals, duration, number, spans, with_spread

MODEL_RETURN = "'Model return' is that of the same episodes under the reward that imagination uses."
FRAMES, FILM_STEPS, FRAME_SIDE = 8, 200, 240


@dataclass
class Section:
    """A part of the page."""

    title: str
    words: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    """A sentence, and what it is about."""
    figures: list[Figure] = field(default_factory=list)
    sheets: list[Sheet] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    """Pictures as data URIs."""
    code: list[tuple[str, str]] = field(default_factory=list)
    """What it is, and the text."""

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def title(material: Material) -> str:
    if material.alone:
        run = material.runs[0]
        return f"{run.method} on {run.task}"
    names = list(dict.fromkeys(path.resolve().name for path, _ in material.studies))
    return " and ".join(names) if names else "A comparison"


def subtitle(material: Material) -> str:
    if material.alone:
        run = material.runs[0]
        brought = f", data for {len(run.brought)} brought" if run.brought else ""
        return (
            f"{count(run.settings.deployments, 'deployment')} of {run.batch:,} transitions{brought}, "
            f"preset {run.settings.preset}, seed {run.seed}"
        )
    done = sum(run.finished for run in material.runs)
    methods = {run.method for run in material.runs} | {cell.method.name for cell, _ in material.missing}
    groups = "; ".join(group.title for group in material.groups)
    text = f"{count(len(methods), 'method')} on {groups}: {count(done, 'finished run')}"
    return text + (f", {len(material.missing)} missing" if material.missing else "")


def sections(material: Material, film: bool) -> Iterator[Section]:
    if material.alone:
        yield _result(material.runs[0])
    else:
        together = compare.overall(material)
        if together:
            yield _together(together, material)
        for group in material.groups:
            yield _comparison(material, group)
    yield from warnings(material)
    for group in material.groups:
        section = Section(f"Diagnostics: {group.title}" if len(material.groups) > 1 else "Diagnostics")
        section.figures = figures.diagnostics(material, group)
        if material.alone:
            section.figures += _inner_figures(material.runs[0])
        else:
            section.figures += [figure] if (figure := figures.reliabilities(material, group)) else []
            section.sheets = diagnostic_sheets(material, group)
            section.words = _inside(_in_order(material, group)[0])
        if section.figures:
            yield section
    for group in material.groups:
        yield from _uncertainty(_in_order(material, group))
    if film:
        for group in material.groups:
            yield from map(_film, _in_order(material, group)[:1])
    if not material.alone:
        yield _every_run(material)
    yield settings(material)
    yield _redo(material)


def _inside(run: Run) -> str:
    place = "/".join(run.folder.resolve().parts[-2:])
    return (
        "U over all updates, zeta of each batch and the reliability of each run are on pages of their own, "
        f"for example: {shlex.join(['musbo', 'report', place])}"
    )


def _in_order(material: Material, group: Group) -> list[Run]:
    """Method by method, seed by seed: what is shown of one run is chosen by this order, and not by its result."""
    return [run for method in material.methods(group) for run in material.comparable(group, method)]


def _result(run: Run) -> Section:
    summary = run.summary
    scored = [item["evaluated"] for item in summary["per_deployment"] if item["evaluated"].get("return") is not None]
    section = Section("Result")
    if not run.finished:
        section.words = f"This run is not finished: {summary['deployments']} of {run.settings.deployments} batches."
    final = with_spread(scored[-1]["return"], scored[-1]["spread"]) if scored else "-"
    section.facts = [
        (f"return of the last policy, mean ± deviation over {count(run.settings.episodes, 'episode')}", final),
        ("transitions", f"{summary['transitions']:,}"),
        ("deployments", f"{summary['deployments']} of {run.settings.deployments}"),
        ("time", duration(summary["seconds"])),
    ]  # fmt: skip
    section.figures = [figure for figure in (figures.one_curve(run), figures.promised(run)) if figure]
    data = tables.rows(summary)
    every = [sheet(title.replace(" ", "-"), title.capitalize(), data, of) for title, of in tables.TABLES.items()]
    every = [replace(table, note=MODEL_RETURN if "model return" in table.heads else "") for table in every]
    section.sheets = [table for table in every if len(table.heads) > 1]
    return section


def interval_text(row: dict[str, Any], name: str, text: Callable[[float], str] = number) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "-" if low is None else f"{text(low)} to {text(high)}"


def share(value: float) -> str:
    return f"{value:.0%}"


def signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


COMPARISON: Columns = {
    "method": lambda row: row["method"],
    "runs": lambda row: f"{row['runs']} of {row['asked']}" if row["asked"] > row["runs"] else str(row["runs"]),
    "final return": lambda row: with_spread(row["mean"], row["deviation"]),
    "model return": lambda row: tables.model_return(row["mean"], row["model_return"]),
    "IQM": lambda row: number(row["iqm"]),
    "95 % interval": lambda row: interval_text(row, "iqm"),
    "mean over deployments": lambda row: number(row["area"]),
    "deployments to there": lambda row: _needed(row),
    "minus first": lambda row: "-" if row["difference"] is None else signed(row["difference"]),
    "its interval": lambda row: interval_text(row, "difference"),
    "better than first": lambda row: "-" if row["better"] is None else share(row["better"]),
    "oracle steps": tables.oracle_steps,
    "time": lambda row: duration(row["hours"] * 3600),
}
TOGETHER: Columns = {
    "method": lambda row: row["method"],
    "tasks and budgets": lambda row: str(row["tasks"]),
    "runs": lambda row: str(row["runs"]),
    "IQM": lambda row: decimals(row["iqm"]),
    "95 % interval": lambda row: interval_text(row, "iqm", decimals),
    "mean": lambda row: decimals(row["mean"]),
    "better than first": lambda row: "-" if row["better"] is None else share(row["better"]),
    "its interval": lambda row: interval_text(row, "better", share),
}


def _needed(row: dict[str, Any]) -> str:
    if row["reached"] is None:
        return "-"
    needed = "∞" if np.isinf(row["needed"]) else f"{row['needed']:g}"
    return f"{needed} ({row['reached']} of {row['runs']})"


def _comparison(material: Material, group: Group) -> Section:
    section = Section(f"Return: {group.title}", _terms(material, group))
    lost = compare.unscored(material, group)
    if lost:
        section.words += f" Without a final return, and not in what follows: {', '.join(map(_named, lost))}"
        section.words += " (no simulator to evaluate in, or a return that was no number)."
    drawn = (figures.curves(material, group), figures.final_returns(material, group))
    section.figures = [figure for figure in drawn if figure]
    rows = compare.method_rows(material, group)
    if not rows:
        section.words += "" if lost else " No run has finished yet."
        return section
    goal = rows[0]["goal"]
    note = f"The final return is the mean ± deviation over seeds. Differences are to {rows[0]['method']}, seed by seed"
    note += ", with bootstrap intervals; 'better' is the chance that a run beats one of the first method."
    if min(row["runs"] for row in rows) < 5:
        note += " With fewer than five seeds an interval is little more than their range, and with one there is none."
    if goal is not None:
        half_way = ", half-way between random actions and the best mean" if group.task not in material.scores else ""
        note += (
            f" 'There' is a return of {number(goal)}{half_way}: the median of the deployments to there, and the runs "
        )
        note += "that got there."
    if any(COMPARISON["model return"](row) != "-" for row in rows):
        note += f" {MODEL_RETURN}"
    if any(row["extra_steps"] for row in rows):
        note += " 'Oracle steps' were tried in the simulator beside the transitions of a run, the mean over runs."
    section.sheets = [sheet(f"methods-{group.slug}", "Methods", rows, COMPARISON, note)]
    section.sheets.append(_per_deployment(material, group))
    return section


def _terms(material: Material, group: Group) -> str:
    """What a return here is the return of. Methods that came from several places may differ."""
    own = [run.settings for run in material.runs if run.group == group]
    presets, episodes = ({getattr(each, name): None for each in own} for name in ("preset", "episodes"))
    return (
        f"{count(group.deployments, 'deployment')} of {group.batch:,} transitions, preset {' and '.join(presets)}. "
        f"A return is the mean over {' and '.join(map(str, episodes))} episodes."
    )


def _per_deployment(material: Material, group: Group) -> Sheet:
    """Mean ± deviation over seeds of the return after every deployment."""
    rows = []
    for method, runs in compare.finals(material, group).items():
        values = compare.returns(runs)
        row: dict[str, Any] = {"method": method, "runs": len(runs)}
        for d in range(values.shape[1]):
            row[f"mean_{d + 1}"] = float(values[:, d].mean())
            row[f"deviation_{d + 1}"] = float(values[:, d].std(ddof=1)) if len(runs) > 1 else None
        rows.append(row)

    columns: Columns = {"method": lambda row: row["method"]}
    columns |= _by_deployment(group)
    return sheet(f"returns-{group.slug}", "Return after each deployment", rows, columns)


def _by_deployment(group: Group) -> Columns:
    def column(d: int) -> Callable[[dict[str, Any]], str]:
        return lambda row: with_spread(row.get(f"mean_{d}"), row.get(f"deviation_{d}"), _digits(row))

    return {str(d): column(d) for d in range(1, group.deployments + 1)}


def _digits(row: dict[str, Any]) -> Callable[[float | None], str]:
    return decimals if row.get("diagnostic") == "novelty" else number


def diagnostic_sheets(material: Material, group: Group) -> list[Sheet]:
    """What the figures show, as numbers: mean ± deviation over seeds after each deployment."""
    rows = []
    for name, (_, label, _) in compare.DIAGNOSTICS.items():
        for method in material.methods(group):
            runs = material.comparable(group, method)
            values = compare.diagnostic(runs, name)
            if not np.isfinite(values).any():
                continue
            row: dict[str, Any] = {"diagnostic": label, "method": method, "runs": len(runs)}
            for d, column in enumerate(values.T, start=1):
                known = column[np.isfinite(column)]
                row[f"mean_{d}"] = float(known.mean()) if len(known) else None
                row[f"deviation_{d}"] = float(known.std(ddof=1)) if len(known) > 1 else None
            rows.append(row)
    columns: Columns = {"diagnostic": lambda row: row["diagnostic"], "method": lambda row: row["method"]}
    columns |= _by_deployment(group)
    note = "Mean ± deviation over the seeds that have the number; what it is, and its unit, stand below the figures."
    return [sheet(f"diagnostics-{group.slug}", "Diagnostics of each deployment", rows, columns, note)] if rows else []


def _together(found: compare.Overall, material: Material) -> Section:
    several = len({group.task for group in material.groups}) < len(material.groups)
    section = Section("All tasks and budgets together" if several else "All tasks together")
    words = []
    if found.rows:
        words.append(
            "Scores are normalised: random actions are 0, the best method's mean final return is 1 on each. "
            "The scale is relative to the methods on this page."
        )
        order = material.order
        section.figures = [figures.aggregate(found, order), figures.profiles(found, order)]
        section.sheets = [sheet("all-tasks", "All tasks", found.rows, TOGETHER)]
    else:
        words.append("Nothing to put together yet: it takes two methods with finished runs on the same two, at least.")
    titles = {name: "; ".join(group.title for group in getattr(found, name)) for name in ("unfinished", "no_line")}
    if found.unfinished:
        words.append(f"Left out, because no run is finished with a return: {titles['unfinished']}.")
    if found.no_line:
        words.append(
            f"Left out, because no method is above random actions or these are not known: {titles['no_line']}."
        )
    if found.partly:
        words.append(f"Left out, because they have no finished run on some of these: {', '.join(found.partly)}.")
    section.words = " ".join(words)
    return section


def warnings(material: Material) -> Iterator[Section]:
    """Each kind once: the sentence, and where it applies."""
    rows = compare.warning_rows(material)
    if not rows:
        return
    section = Section("Warnings")
    for kind in dict.fromkeys(row["kind"] for row in rows):
        same = [row for row in rows if row["kind"] == kind]
        section.notes.append((same[0]["warning"], _places(material, same)))
    if len(rows) > len(section.notes):
        section.words = "The numbers are those of the first deployment that is named; the table has all of them."
    section.sheets = [sheet("warnings", "Every warning", rows, {})]
    yield section


def _places(material: Material, rows: list[dict[str, Any]]) -> str:
    """Method by method; seeds with the same deployments share a phrase."""
    found = []
    for group in material.groups:
        for method in material.methods(group):
            runs, shared = material.of(group, method), dict[tuple[int, ...], list[int]]()
            for run in runs:
                own = compare.place(run)
                days = tuple(row["deployment"] for row in rows if own.items() <= row.items())
                shared.setdefault(days, []).append(run.seed)
            for days, seeds in shared.items():
                if days:
                    where = [f"{method} on {group.title}" if len(material.groups) > 1 else method]
                    where += [f"{_plural('seed', seeds)} {spans(seeds)}"] if len(runs) > 1 else []
                    where += [f"{_plural('deployment', days)} {spans(days)}"]
                    found.append(", ".join(where[material.alone :]))  # which method, the title says
    return "; ".join(found)


def _plural(noun: str, things: Sequence[Any]) -> str:
    return noun if len(things) == 1 else f"{noun}s"


def _inner_figures(run: Run) -> list[Figure]:
    with Ledger(run.folder / LEDGER) as ledger:
        metrics = ledger.metrics()
    drawn = (figures.quantiles_over_training(metrics), figures.exploration(run), figures.reliability(run))
    return [figure for figure in drawn if figure]


def _uncertainty(runs: list[Run]) -> Iterator[Section]:
    """Of the first run whose method has a model."""
    for run in runs:
        section = Section(f"Where the policy is uncertain: {run.group.title}")
        try:
            _require_kept(run)
            found = doubts(run.folder)
        except UserError as error:
            section.words = f"Not shown: {error}"
            yield section
            return
        if found is not None:
            section.words = (
                f"The states that {_named(run)}, met in deployment {found.deployment}, and how unsure the model is of "
                "what follows each. That batch was collected before the last training, and is part of its data."
            ) + flat_doubt(found)
            section.figures = [
                figures.uncertain_places(found, run.group.slug), figures.uncertain_times(found, run.group.slug)
            ]  # fmt: skip
            section.sheets = [_typical(found, run.group.slug)]
            yield section
            return


def flat_doubt(found: Doubts) -> str:
    """A sentence where colours and curves show differences that are none."""
    low, high = np.quantile(found.doubt, [0.1, 0.9])
    if high - low >= INERT * high:
        return ""
    return f" The doubt is nearly the same everywhere: 80 % of it lies between {low:.4g} and {high:.4g}."


def _typical(found: Doubts, slug: str) -> Sheet:
    order = np.argsort(-np.abs(found.typical))[:8]
    rows = [{"observation": int(i), "deviations": float(found.typical[i])} for i in order]
    columns: Columns = {
        "observation": lambda row: str(row["observation"]),
        "deviations from the mean": lambda row: f"{row['deviations']:+.2f}",
    }
    note = "The mean over the most doubtful tenth of the steps, in deviations of the whole batch; the largest eight."
    return sheet(f"uncertain-{slug}", "What is special about the doubtful states", rows, columns, note)


def _require_kept(run: Run) -> None:
    """Records of a run may be its ledger alone."""
    if not (run.folder / STORE).is_dir():
        raise UserError(f"the networks and data of {_named(run)}, were not kept here.")


def _named(run: Run) -> str:
    return f"{run.method}, seed {run.seed}"


def _film(run: Run) -> Section:
    section = Section(f"The last policy at work: {run.group.title}")
    try:
        _require_kept(run)
        frames = list(api.film(run.folder, steps=FILM_STEPS))
    except UserError as error:
        section.words = f"No pictures: {error}"
        return section
    chosen = np.unique(np.linspace(0, len(frames) - 1, FRAMES).astype(int))
    section.words = f"{_named(run)}: steps {', '.join(map(str, chosen))} of the first episode of its evaluation."
    section.pictures = [_png(frames[i]) for i in chosen]
    return section


def _png(frame: np.ndarray) -> str:
    from matplotlib.image import imsave

    step = max(1, min(frame.shape[:2]) // FRAME_SIDE)
    image = io.BytesIO()
    imsave(image, np.ascontiguousarray(frame[::step, ::step]), format="png")
    return "data:image/png;base64," + base64.b64encode(image.getvalue()).decode()


def _every_run(material: Material) -> Section:
    section = Section("Every run")
    rows = [
        compare.place(run)
        | {"last_return": run.summary["final_return"], "finished": run.finished, "seconds": run.summary["seconds"]}
        | {"policy_sha256": run.summary["policy_sha256"], "extra_steps": compare.extra_steps(run)}
        for run in material.runs
    ]
    columns: Columns = {name: lambda row, name=name: str(row[name]) for name in ("task", "budget", "method", "seed")}
    columns |= {
        "last return": lambda row: number(row["last_return"]),
        "oracle steps": tables.oracle_steps,
        "finished": lambda row: "yes" if row["finished"] else "no",
        "time": lambda row: duration(row["seconds"]),
        "policy": lambda row: (row["policy_sha256"] or "-")[:12],
    }
    section.sheets = [sheet("runs", "Runs", rows, columns)]
    every = compare.run_rows(material)
    whole = sheet("deployments", "Every deployment of every run", every, {})
    section.sheets.append(whole)
    if material.missing:
        missing = [{"run": cell.folder, "state": state} for cell, state in material.missing]
        shown: Columns = {"run": lambda row: row["run"], "state": lambda row: row["state"]}
        section.sheets.append(sheet("missing", "Missing", missing, shown))
    return section


def settings(material: Material) -> Section:
    """Every setting of every method, those that differ between methods first; then what is another one elsewhere."""
    section = Section("Settings")
    first: dict[str, Run] = {}
    for run in material.runs:
        first.setdefault(run.method, run)
    values = {method: _own(run) for method, run in first.items()}
    names = list(dict.fromkeys(name for each in values.values() for name in each))
    names.sort(key=lambda name: len({str(each.get(name)) for each in values.values()}) == 1)
    section.sheets = [_setting_sheet("settings", "Settings", names, values)]
    for group in material.groups[1:]:
        here = {method: _own(material.of(group, method)[0]) for method in material.methods(group)}
        differ = [name for name in names if any(each.get(name) != values[m].get(name) for m, each in here.items())]
        if differ:
            section.sheets.append(_setting_sheet(f"settings-{group.slug}", f"On {group.title}", differ, here))
    if len(material.groups) > 1:
        others = "what differs on the others stands below" if len(section.sheets) > 1 else "the same on the others"
        section.words = f"As on {material.groups[0].title}; {others}."
    elsewhere = {method: run.group.title for method, run in first.items() if run.group != material.groups[0]}
    if elsewhere:
        section.words += " " + "; ".join(f"{method} as on {title}" for method, title in elsewhere.items()) + "."
    return section


def _own(run: Run) -> dict[str, Any]:
    settings = run.settings
    return {"preset": settings.preset, "episodes": settings.episodes, **dict(flags.flat(settings.method))}


def _setting_sheet(name: str, title: str, names: list[str], values: dict[str, dict[str, Any]]) -> Sheet:
    rows = [{"setting": each} | {method: own.get(each, "-") for method, own in values.items()} for each in names]
    columns: Columns = {"setting": lambda row: row["setting"]}
    columns |= {method: lambda row, method=method: _value(row[method]) for method in values}
    return sheet(name, title, rows, columns)


def _value(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _redo(material: Material) -> Section:
    section = Section("Environment, and how to do it again")
    seen: dict[str, int] = {}
    for run in material.runs:
        text = ", ".join(f"{name} {value}" for name, value in run.summary["versions"].items())
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
    created = read_status(run.folder).settings
    assert created is not None
    data = [item["source"] for item in created["data"]]
    preset: Any = own.preset
    try:
        base = recipes.settings(own.algo, preset, own.task)
    except UserError:
        base = None
    if own.task.startswith("<") or type(base) is not type(own.method) or not all(map(_is_a_file, data)):
        return (
            f"# {run.folder.name}: made from Python, with objects that have no name on a command line; see its settings"
        )
    assert base is not None
    words = [
        "musbo", "run", own.task, "--algo", own.algo, "--preset", own.preset, "--seed", own.seed,
        "--deployments", own.deployments, "--batch", own.batch, "--episodes", own.episodes,
        *(["--data", *data] if data else []), *flags.difference(own.method, base),
    ]  # fmt: skip
    return shlex.join(map(str, words))


def _is_a_file(source: str) -> bool:
    """Batches that a Python program gave are called data[0] and so on."""
    return not re.fullmatch(r"data\[\d+\]", source)
