"""What comes home from the field: whether it belongs to the open round, what the doctor says, and the batch of it."""

from collections.abc import Sequence
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
    if old and len(old) < len(every):
        raise UserError(
            f"{old[0].name} came home in round {rounds[old[0].digest]} already, and others did not: name the new ones "
            "alone."
        )
    return rounds[old[0].digest] if old else None


def require_ours(ledger: Ledger, every: Sequence[Arrival]) -> None:
    """Refuse a recording of a bundle that did not leave here for the open round, and say why."""
    now = ledger.status()
    if now.finished:
        raise UserError("the budget is spent, so no round is open: give it more with `musbo amend --budget`.")
    if now.phase != "collect":
        raise UserError(f"round {now.deployment} has its data, and waits for `musbo train`: then the next round opens.")
    expected = {export.bundle for export in now.exports.get(now.deployment, ())}
    if not expected:
        raise UserError(f"nothing has left for round {now.deployment} yet: `musbo export` comes first.")
    for each in every:
        if each.bundle is not None and each.bundle not in expected:
            raise UserError(f"{each.name} {_why(ledger, each, now.deployment)}")


def _why(ledger: Ledger, each: Arrival, number: int) -> str:
    """The sentence for a recording that belongs elsewhere."""
    bundle, head = str(each.bundle), str(each.head)
    for event in reversed(ledger.events()):
        if isinstance(event.what, Exported) and event.what.bundle == bundle:
            if event.what.final:
                return "was made with a bundle that left when the budget was spent: nothing is awaited from it."
            if event.deployment == number:
                return (
                    f"was made with bundle {bundle[:12]}, which was called back from round {number}: export it again."
                )
            return f"belongs to round {event.deployment}, which is closed; round {number} is open now."
    last = [export.what.head for export in ledger.events() if isinstance(export.what, Exported)]
    if ledger.has(head):
        return (
            f"was made with bundle {bundle[:12]}, which never left this campaign, though its policy was trained here "
            f"(event {head[:12]}): it was exported by a copy; ingest it there, or export this policy here first."
        )
    return (
        f"was made with bundle {bundle[:12]} of the ledger head {head[:12]}, and no event here has this hash: another "
        f"campaign made it, or a copy of this one that went on by itself (the head of what left last here is "
        f"{last[-1][:12] if last else 'none'}). `musbo verify` with both directories says where they part."
    )


def examined(runner: Runner, every: Sequence[Arrival]) -> list[Finding]:
    """What the doctor says."""
    logs = [each.logs for each in every]
    found = examine(logs, runner.task, list(runner.batches()), Expected(runner.settings.batch_size))
    for each in every:
        if each.bundle is None:
            what = "nothing says which bundle made these data"
            do = "make sure that it is the one that left for this round"
            found.append(Finding("unknown bundle", "warning", what, do, source=each.logs.source))
        if len(each.logs) == 0:
            found.append(Finding("empty", "error", "no transition is in it", "leave it out", source=each.logs.source))
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
