"""What comes home from the field: whether it belongs to the open round, what the doctor says, and the batch of it."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import TypeAlias

from musbo.campaign.events import Amended, Collected, Created, Exported
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import RECORDING
from musbo.campaign.runner import Runner
from musbo.campaign.settings import TaskShape
from musbo.campaign.store import Store
from musbo.core.diagnostics import Caution, Findings
from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.core.memory import give_back
from musbo.core.serial import sha256_of
from musbo.data.batch import Batch, concatenate
from musbo.data.doctor.examine import Expected, examine
from musbo.data.files import digest, read_logs, write_parquet
from musbo.data.finding import Finding, Refused, in_order
from musbo.data.logs import Logs, from_batch
from musbo.data.mapping import Mapping
from musbo.data.preview import Preview, previews_with
from musbo.data.readers.choose import MINARI, require_file
from musbo.data.readers.recording import is_recording, ledger_head
from musbo.data.rewards import rewarded
from musbo.data.said import strangers
from musbo.gate.real import tells
from musbo.tasks.task import Task

SHOWN = 5
SCHEMA = ("obs_names", "obs_units", "act_names", "act_units")

Home: TypeAlias = str | Path | Batch | Logs
"""What can come home: a file, `minari:NAME`, a batch, or what `musbo.data.from_dataframe` returns."""


@dataclass(frozen=True, eq=False)
class Arrival:
    """What came home as one piece."""

    name: str
    digest: str
    """Of the file; of what came without one, of its numbers."""
    logs: Logs
    recording: Path | None = None
    """Where it is, if it is one: it holds more than a batch does, and is kept."""
    head: str | None = None
    """The event that its bundle names, where it says one."""


@dataclass(frozen=True, eq=False)
class Checked:
    """What the doctor says about data before they are taken."""

    logs: tuple[Logs, ...]
    seen: tuple[Preview, ...]
    """Of each of the logs."""
    refused: tuple[Finding, ...]
    """Why others cannot be read."""


class Unaccepted(UserError):
    """Data with findings that a person has to look at first."""

    def __init__(self, text: str, findings: Sequence[Finding]) -> None:
        super().__init__(text)
        self.findings = tuple(findings)


def arrivals(files: Sequence[Home], mapping: Mapping | str | Path | None) -> tuple[list[Arrival], list[Finding]]:
    """What came home, read, and why other pieces of it cannot be."""
    if not files:
        raise UserError("nothing came home: name the recordings of the round.")
    found: list[Arrival] = []
    refused: list[Finding] = []
    for i, file in enumerate(files):
        try:
            found.append(_arrival(file, i, mapping))
        except Refused as error:
            refused.append(error.finding)
    if len({each.digest for each in found}) < len(found):
        raise UserError("the same recording is named twice: name each file once.")
    return found, refused


def _arrival(file: Home, i: int, mapping: Mapping | str | Path | None) -> Arrival:
    if isinstance(file, Batch | Logs):
        logs = from_batch(file, f"data[{i}]") if isinstance(file, Batch) else file
        return Arrival(logs.source, digest(logs.batch), logs)
    if str(file).startswith(MINARI):
        logs = read_logs(file, mapping)
        return Arrival(logs.source, digest(logs.batch), logs)
    try:
        require_file(path := given(file), str(file))
        ours = is_recording(path)
        head = ledger_head(path, str(file)) if ours else None
        with path.open("rb") as opened:
            name = sha256_of(opened)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}; check the path.") from error
    logs = read_logs(file, None if ours else mapping)
    return Arrival(str(file), name, logs, path if ours else None, head)


def known(ledger: Ledger, every: Sequence[Arrival]) -> int | None:
    """The round that all of these came home in already; None if some are new."""
    rounds = _rounds(ledger)
    return rounds[every[0].digest] if every and all(each.digest in rounds for each in every) else None


def _rounds(ledger: Ledger) -> dict[str, int]:
    """The round of everything that ever came home, by its digest."""
    return {name: d for d, item in ledger.status().collected.items() for name in item.files}


def require_open(ledger: Ledger, every: Sequence[Arrival]) -> None:
    """Refuse data while no round is open, and say why; a reason of their own comes first."""
    if reason := _closed(ledger):
        require_accepted([each for each in _belong(ledger, every, None) if each.level == "error"], accept=False)
        raise UserError(f"{reason}.")


def _closed(ledger: Ledger) -> str | None:
    now = ledger.status()
    folder = ledger.path.parent
    if now.finished:
        return f"the budget is spent, so no round is open: give it more with `musbo amend {folder} --budget N`"
    if now.phase != "collect":
        return f"round {now.deployment} has its data: `musbo train {folder}` comes first, then the next round"
    if not now.exports.get(now.deployment):
        return f"nothing has left for round {now.deployment} yet: `musbo export {folder}` comes first"
    return None


def expected_bundle(ledger: Ledger, said: str) -> str:
    """The bundle that left for the open round whose id begins so."""
    left = _expected(ledger)
    found = [bundle for bundle in left if said and bundle.startswith(said)]
    if len(found) != 1:
        some = ", ".join(bundle[:12] for bundle in left) or "none"
        number = ledger.status().deployment
        raise UserError(f"{len(found)} bundles that left for round {number} begin with {said!r}; these left: {some}.")
    return found[0]


def _expected(ledger: Ledger) -> dict[str, str]:
    """The bundles that left for the open round, each with the ledger head that it names."""
    now = ledger.status()
    left = () if now.deployment in now.collected else now.exports.get(now.deployment, ())
    return {export.bundle: export.head for export in left if not export.final}


def _belong(ledger: Ledger, every: Sequence[Arrival], said: str | None) -> list[Finding]:
    """Whether each is new, and made with a bundle that left for the open round."""
    rounds, left = _rounds(ledger), _expected(ledger)
    new = ", ".join(Path(each.name).name for each in every if each.digest not in rounds)
    found = []
    for each in every:
        if (d := rounds.get(each.digest)) is not None:
            what = f"it came home in round {d} already" + (f", and {new} did not" if new else "")
            mine = [Finding("came home already", "error", what, "name what is new alone")]
        else:
            mine = _belongs(ledger, left, each, said)
        found += [replace(finding, source=each.logs.source) for finding in mine]
    return found


def _belongs(ledger: Ledger, left: dict[str, str], each: Arrival, said: str | None) -> Iterator[Finding]:
    """Whether the bundle that made it is one of those that `left` for the open round."""
    own = each.logs.bundles
    if not own and said is None:
        what = "nothing says which bundle made these data"
        yield Finding("unknown bundle", "warning", what, "say --bundle ID if you know that it left for this round")
    elif not own:
        what = f"nothing in it says which bundle made these data: they are taken as those of {str(said)[:12]}"
        yield Finding("unknown bundle", "note", what, "nothing, if that is so")
    for bundle in own:
        if bundle not in left:
            what, do = _why(ledger, bundle, each.head)
            yield Finding("another bundle", "error", what, do)
        elif each.head is not None and each.head != left[bundle]:
            what = f"it names bundle {bundle[:12]}, but not the ledger head of that bundle, so its header was changed"
            yield Finding("another bundle", "error", what, "take the file from the machine again")
        elif said is not None and bundle != said:
            what = f"it says that bundle {bundle[:12]} made it, and not {said[:12]}"
            yield Finding("another bundle", "error", what, "leave --bundle out, or name the other one")


def _why(ledger: Ledger, bundle: str, head: str | None) -> tuple[str, str]:
    """Why data belong elsewhere, and what to do."""
    now, folder, made = ledger.status(), ledger.path.parent, f"it was made with bundle {bundle[:12]}"
    every = [(event.deployment, event.what) for event in ledger.events() if isinstance(event.what, Exported)]
    d, export = next(((d, each) for d, each in reversed(every) if each.bundle == bundle), (0, None))
    if export is not None:
        if export.final:
            return f"{made}, which left when the budget was spent", "nothing is awaited from it"
        if d in now.collected:
            what = f"it belongs to round {d}, which is closed"
            return what, f"{now.collected[d].source} came home, and all recordings come home at once"
        if d in now.lost:
            what = f"it belongs to round {d}, which was abandoned as spent ({now.lost[d].reason})"
            return what, "it is closed, so leave this out"
        what = f"{made}, which was called back from round {d}"
        return what, f"if it ran after all, `musbo export {folder} --bundle {bundle[:12]}` says so"
    verify = "`musbo verify` with both directories says where they part"
    if head is None:
        return f"{made}, which never left this campaign", "ingest it in the campaign that exported it"
    if ledger.has(head):
        return (
            f"{made}, which never left this campaign, though it knows the campaign up to event {head[:12]}",
            f"a copy that went on by itself exported it, so ingest it there; {verify}",
        )
    last = every[-1][1].head[:12] if every else "none"
    return (
        f"{made} of the ledger head {head[:12]}, and no event here has this hash: another campaign made it, or a copy "
        f"of this one that went on by itself (the head of what left last here is {last})",
        verify,
    )


def examined(runner: Runner, every: Sequence[Arrival], refused: Sequence[Finding], said: str | None) -> list[Finding]:
    """What the doctor says, the gravest first; `said` is the bundle that made what does not name its own."""
    logs = [each.logs for each in every]
    found = [*refused, *_belong(runner.ledger, every, said)]
    found += [replace(each, source=logs[0].source) for each in runner.noticed if logs]
    told = runner.status().creation.task
    logs = [_as_it_left(runner, each) for each in logs]
    found += examine(logs, _as_told(runner.task, told), runner.batches(), Expected(runner.settings.batch_size))
    for each in every:
        if len(each.logs) == 0:
            what = "no transition is in it"
            found.append(Finding("empty", "error", what, "leave it out", source=each.logs.source))
    if every and sum(map(len, logs)) < 2:
        found.append(Finding("too few", "error", "a batch needs two transitions", "collect more", source=every[0].name))
    return in_order(found)


def _as_told(task: Task, told: TaskShape) -> Task:
    """The task, under the names and units of a definition: those that its bundles have."""
    own = {name: getattr(told, name) or getattr(task, name) for name in SCHEMA}
    return replace(task, **own)


def _as_it_left(runner: Runner, logs: Logs) -> Logs:
    """A log whose columns are those of the bundle that made it: they need not have the names that the task has now."""
    left, blocks = _definitions(runner.ledger), logs.origin.said
    former = [left.get(bundle) for bundle in logs.bundles]
    known = [_as_told(runner.task, shape) for shape in former if shape is not None]
    agree = all(not list(strangers(block, said, task)) for task in known for block, said in blocks.items())
    if not known or len(known) < len(former) or not agree:
        return logs
    return replace(logs, origin=replace(logs.origin, said={}))


def _definitions(ledger: Ledger) -> dict[str, TaskShape]:
    """The task as it was told when each bundle left."""
    found: dict[str, TaskShape] = {}
    shape: TaskShape | None = None
    for event in ledger.events():
        match event.what:
            case Created(task=task):
                shape = task
            case Amended(task=TaskShape() as task):
                shape = task
            case Exported(bundle) if shape is not None:
                found[bundle] = shape
    return found


def checked(runner: Runner, every: Sequence[Arrival], refused: Sequence[Finding], said: str | None) -> Checked:
    """What would be said if these came home, without taking them."""
    logs = [each.logs for each in every]
    if (d := known(runner.ledger, every)) is not None:
        what = f"these data came home in round {d} already"
        found = [Finding("came home already", "note", what, "nothing; ingesting them again changes nothing")]
    else:
        found = examined(runner, every, refused, said)
        if reason := _closed(runner.ledger):
            what, _, do = reason.partition(": ")
            found.append(Finding("no open round", "error", what, do))
    first = logs[0].source if logs else ""
    found = [replace(each, source=each.source or first) for each in found if each not in refused]
    return Checked(tuple(logs), tuple(previews_with(logs, runner.task, in_order(found))), tuple(refused))


def require_accepted(found: Sequence[Finding], accept: bool) -> None:
    """Refuse errors, and warnings that nobody accepted."""
    for level, do in (("error", "nothing was changed"), ("warning", "look at them, then say --accept")):
        bad = [finding for finding in found if finding.level == level]
        if bad and not (level == "warning" and accept):
            said = "; ".join(f"{finding.source}: {finding.text}" for finding in bad[:SHOWN])
            more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
            raise Unaccepted(f"{len(bad)} {level}{'s' * (len(bad) > 1)}, so {do}: {said}{more}", found)


def take(runner: Runner, every: list[Arrival], found: Sequence[Finding], said: str | None) -> Collected:
    """Write the batch of the open round; from here on it is spent. `every` is emptied: what is read is large."""
    d = runner.status().deployment
    files = tuple(each.digest for each in every)
    names = ", ".join(Path(each.name).name for each in every)
    bundles = tuple(dict.fromkeys(bundle for each in every for bundle in each.logs.bundles or filter(None, [said])))
    kept = [(each.recording, each.digest) for each in every if each.recording is not None]
    for path, name in kept:  # no variable may hold an arrival longer than `every` does
        _keep(runner.store, path, name)
    batches = [rewarded(each.logs.batch, runner.task, each.name) for each in every]
    every.clear()
    give_back()
    batch = concatenate(batches)
    del batches
    give_back()
    odd = [finding for finding in found if finding.level == "warning"]
    cautions = tuple(Caution(finding.kind, f"{finding.source}: {finding.text}") for finding in odd)
    artefact = runner.store.put(partial(write_parquet, batch), ".parquet")
    event = replace(
        runner.described(batch, artefact, tells(runner.task, batch)),
        source=names,
        findings=Findings(cautions=cautions),
        files=files,
        bundles=bundles,
    )
    runner.ledger.append(event, d)
    return event


def _keep(store: Store, path: Path, expected: str) -> None:
    """A copy of a recording, which has to be what was read."""

    def copy(target: BufferedIOBase) -> None:
        with path.open("rb") as file:
            shutil.copyfileobj(file, target, 1 << 20)

    if store.put(copy, RECORDING) != f"{expected}{RECORDING}":
        raise UserError(f"{path} was changed while it was read: try again when nothing writes to it.")
