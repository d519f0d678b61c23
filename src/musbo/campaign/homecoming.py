"""What comes home from the field: whether it belongs to the open round, what the doctor says, and the batch of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from musbo.campaign.events import Collected, Exported
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import RECORDING
from musbo.campaign.runner import Runner
from musbo.core.diagnostics import Caution, Findings
from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.core.serial import sha256
from musbo.data.batch import concatenate
from musbo.data.doctor.examine import Expected, examine
from musbo.data.files import batch_bytes, read_logs
from musbo.data.finding import Finding, in_order
from musbo.data.logs import Logs
from musbo.data.mapping import Mapping
from musbo.data.preview import Preview, previews
from musbo.data.readers.recording import MAGIC, recording_header
from musbo.data.rewards import rewarded

SHOWN = 5


@dataclass(frozen=True, eq=False)
class Arrival:
    """One file."""

    name: str
    data: bytes
    logs: Logs
    bundle: str | None = None
    """That made it; None: it does not say."""
    head: str | None = None
    """The event that trained the bundle's policy."""

    @property
    def digest(self) -> str:
        return sha256(self.data)


class Unaccepted(UserError):
    """Data with findings that a person has to look at first."""

    def __init__(self, text: str, findings: Sequence[Finding]) -> None:
        super().__init__(text)
        self.findings = tuple(findings)


def arrivals(files: Sequence[str | Path], mapping: Mapping | str | Path | None) -> list[Arrival]:
    """The files, read."""
    if not files:
        raise UserError("nothing came home: name the recordings of the round.")
    found = []
    for file in files:
        try:
            data = given(file).read_bytes()
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}; check the path.") from error
        is_ours = data[: len(MAGIC)] == MAGIC
        said = recording_header(data, str(file)) if is_ours else {}
        logs = read_logs(file, None if is_ours else mapping)
        bundle, head = (said.get(key) if isinstance(said.get(key), str) else None for key in ("bundle", "ledger"))
        found.append(Arrival(str(file), data, logs, bundle, head))
    if len({each.digest for each in found}) < len(found):
        raise UserError("the same recording is named twice: name each file once.")
    return found


def known(ledger: Ledger, every: Sequence[Arrival]) -> int | None:
    """The round that these recordings came home in already; None if they are new."""
    rounds = {name: d for d, item in ledger.status().collected.items() for name in item.files}
    old = [each for each in every if each.digest in rounds]
    new = [each for each in every if each.digest not in rounds]
    if old and new:
        require_ours(ledger, new)  # a reason of their own comes first
        raise UserError(
            f"{_names(old)} came home in round {rounds[old[0].digest]} already, and {_names(new)} did not: name what "
            "is new alone. Nothing was changed."
        )
    return rounds[old[0].digest] if old else None


def require_ours(ledger: Ledger, every: Sequence[Arrival]) -> None:
    """Refuse a recording of a bundle that did not leave here for the open round, and say why."""
    now = ledger.status()
    standing = () if now.finished or now.phase != "collect" else now.exports.get(now.deployment, ())
    expected = {export.bundle: export for export in standing}
    for each in every:
        if each.bundle is None:
            continue
        if each.bundle not in expected:
            raise UserError(f"{each.name} {_why(ledger, each)}")
        if each.head is not None and each.head != expected[each.bundle].head:
            raise UserError(
                f"{each.name} names bundle {each.bundle[:12]}, but not the ledger head of that bundle: its header was "
                "changed. Take the file from the machine again."
            )
    folder = ledger.path.parent
    if now.finished:
        raise UserError(
            f"the budget is spent, so no round is open: give it more with `musbo amend {folder} --budget N`."
        )
    if now.phase != "collect":
        raise UserError(
            f"round {now.deployment} has its data: `musbo train {folder}` comes first, then the next round."
        )
    if not expected:
        raise UserError(f"nothing has left for round {now.deployment} yet: `musbo export {folder}` comes first.")


def _names(every: Sequence[Arrival]) -> str:
    return ", ".join(Path(each.name).name for each in every)


def _why(ledger: Ledger, each: Arrival) -> str:
    """The sentence for a recording that belongs elsewhere."""
    bundle, head, now = str(each.bundle), str(each.head), ledger.status()
    every = [event for event in ledger.events() if isinstance(event.what, Exported)]
    for event in reversed(every):
        d = event.deployment
        if not isinstance(event.what, Exported) or event.what.bundle != bundle:
            continue
        if event.what.final:
            return "was made with a bundle that left when the budget was spent: nothing is awaited from it."
        if d in now.collected:
            came = now.collected[d].source
            return f"belongs to round {d}, which is closed: {came} came home, and all recordings come home at once."
        if d in now.lost:
            return f"belongs to round {d}, which was abandoned as spent ({now.lost[d].reason}), so it is closed."
        return (
            f"was made with bundle {bundle[:12]}, which was called back from round {d}: if it ran after all, `musbo "
            f"export {ledger.path.parent} --bundle {bundle[:12]}` says so."
        )
    if ledger.has(head):
        return (
            f"was made with bundle {bundle[:12]}, which never left this campaign, though it knows the campaign up to "
            f"event {head[:12]}: a copy that went on by itself exported it, so ingest it there. `musbo verify` with "
            "both directories says where they part."
        )
    last = [event.what.head for event in every if isinstance(event.what, Exported)]
    return (
        f"was made with bundle {bundle[:12]} of the ledger head {head[:12]}, and no event here has this hash: another "
        f"campaign made it, or a copy of this one that went on by itself (the head of what left last here is "
        f"{last[-1][:12] if last else 'none'}). `musbo verify` with both directories says where they part."
    )


def previewed(runner: Runner, every: Sequence[Arrival]) -> list[Preview]:
    """What would be read, and all that would be said of it."""
    logs = [each.logs for each in every]
    expected = Expected(runner.settings.batch_size)
    seen = previews(logs, runner.task, list(runner.batches()), expected)
    return [
        replace(preview, findings=tuple(in_order([*preview.findings, *_place(runner.ledger, each)])))
        for preview, each in zip(seen, every, strict=True)
    ]


def _place(ledger: Ledger, each: Arrival) -> Iterator[Finding]:
    """What there is to say of one file beside what is in it."""
    try:
        if (d := known(ledger, [each])) is not None:
            yield Finding("came home", "note", f"it came home in round {d} already", "nothing", source=each.logs.source)
            return
        require_ours(ledger, [each])
    except UserError as error:
        yield Finding("another round", "error", str(error).rstrip("."), "see above", source=each.logs.source)
    yield from _alone(each)


def _alone(each: Arrival) -> Iterator[Finding]:
    if each.bundle is None:
        what = "nothing says which bundle made these data"
        do = "make sure that it is the one that left for this round"
        yield Finding("unknown bundle", "warning", what, do, source=each.logs.source)
    if len(each.logs) == 0:
        yield Finding("empty", "error", "no transition is in it", "leave it out", source=each.logs.source)


def examined(runner: Runner, every: Sequence[Arrival]) -> list[Finding]:
    """What the doctor says."""
    logs = [each.logs for each in every]
    found = examine(logs, runner.task, list(runner.batches()), Expected(runner.settings.batch_size))
    found += [finding for each in every for finding in _alone(each)]
    if sum(map(len, logs)) < 2:
        found.append(Finding("too few", "error", "a batch needs two transitions", "collect more", source=every[0].name))
    return in_order(found)


def require_accepted(found: Sequence[Finding], accept: bool) -> None:
    """Refuse errors, and warnings that nobody accepted."""
    for level, do in (("error", "nothing was changed"), ("warning", "look at them, then say --accept")):
        bad = [finding for finding in found if finding.level == level]
        if bad and not (level == "warning" and accept):
            said = "; ".join(f"{finding.source}: {finding.text}" for finding in bad[:SHOWN])
            more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
            raise Unaccepted(f"{len(bad)} {level}{'s' * (len(bad) > 1)}, so {do}: {said}{more}", found)


def take(runner: Runner, every: Sequence[Arrival], found: Sequence[Finding]) -> Collected:
    """Write the batch of the open round; from here on it is spent."""
    d = runner.status().deployment
    batch = concatenate([rewarded(each.logs.batch, runner.task, each.name) for each in every])
    for each in every:
        if each.bundle is not None:  # it holds more than a batch does
            runner.store.put_bytes(each.data, RECORDING)
    odd = [finding for finding in found if finding.level == "warning"]
    cautions = tuple(Caution(finding.kind, f"{finding.source}: {finding.text}") for finding in odd)
    event = replace(
        runner.described(
            batch, runner.store.put_bytes(batch_bytes(batch), ".parquet"), np.ones(len(batch.lengths()), bool)
        ),
        source=", ".join(Path(each.name).name for each in every),
        findings=Findings(cautions=cautions),
        files=tuple(each.digest for each in every),
        bundles=tuple(dict.fromkeys(each.bundle for each in every if each.bundle)),
    )
    runner.ledger.append(event, d)
    return event
