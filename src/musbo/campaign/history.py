"""The events of a campaign as lines for a person, and where two copies of one campaign part."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musbo.campaign.events import (
    Abandoned,
    Amended,
    Candidate,
    Collected,
    Created,
    Event,
    Exported,
    Failed,
    Judged,
    Trained,
    What,
    Withdrawn,
    kind_of,
)
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.campaign.rounds import NEVER_RAN, Round, promised, real, rounds
from musbo.core.inside import inside
from musbo.core.plain import plain
from musbo.gate.score import Scored, scored


@dataclass(frozen=True)
class Line:
    """One event."""

    number: int
    time: float
    """Seconds since 1970 (UTC)."""
    deployment: int
    kind: str
    text: str
    digest: str
    """The hash of the event, which stands for all before it too."""
    imagined: float | None = None
    """Reward per step: of a policy what was foreseen, of a batch what was foreseen of the policy that collected it."""
    real: float | None = None
    """Of a batch, what came true."""
    forecast: Scored | None = None
    """Of a verdict of the gate what it forecast; of a batch what was forecast of its policy, and what came true."""

    def plain(self) -> dict[str, Any]:
        return plain(self)


def history(folder: Path) -> list[Line]:
    """Every event, oldest first."""
    with Ledger(inside(folder, LEDGER)) as ledger:
        events, digests, now = ledger.events(), ledger.digests(), ledger.status()
    every = {each.number: each for each in rounds(events, now)} if now.field else {}
    return [_line(event, digest, every.get(event.deployment)) for event, digest in zip(events, digests, strict=True)]


def _line(event: Event, digest: str, of: Round | None) -> Line:
    what, imagined, came, said = event.what, None, None, None
    match what:
        case Trained() as training:
            imagined = promised(training)
        case Candidate(training):
            imagined = promised(training)
        case Collected():
            imagined, came, said = of.promised if of else None, real(what), of.forecast if of else None
        case Judged(ruling=ruling) if ruling is not None:
            said = scored(ruling.gain)
    parts = [_text(what)]
    parts += [] if imagined is None else [f"imagined reward {imagined:.4g} per step"]
    parts += [] if came is None else [f"real reward {came:.4g} per step"]
    parts += [] if said is None or said.truth is None else [compared(said)]
    text = ", ".join(filter(None, parts))
    return Line(event.id, event.time, event.deployment, kind_of(what), text, digest, imagined, came, said)


def compared(said: Scored) -> str:
    """A forecast of the gate, beside what came true."""
    text = f"gain over the incumbent forecast {said.gain:+.4g} per episode (90 %: {said.low:+.4g} to {said.high:+.4g})"
    if said.truth is None:
        return text
    where = "inside" if said.covered else "outside"
    return f"{text}, came true {said.truth:+.4g}, {where}, CRPS {said.crps:.4g}"


def _text(what: What) -> str:
    match what:
        case Created(settings, field=field):
            return f"{settings.algo} on {settings.task}, budget {settings.budget}" + ", in the field" * field
        case Collected(transitions=n, source=source):
            return f"{n:,} transitions" + (f" from {source}" if source else "")
        case Trained() as training:
            return f"policy {training.policy_sha256[:12]}"
        case Candidate(training):
            return f"another policy {training.policy_sha256[:12]}"
        case Judged(policy):
            return f"policy {policy[:12]}: {what.text}"
        case Exported(bundle, trained=trained, of=of):
            whose = f"trained after deployment {trained}" if trained else "the site's own controller"
            return f"bundle {bundle[:12]}, {whose}" + (f", going back to {of[:12]}" if of else "")
        case Abandoned(spent, reason):
            return f"spent: {reason}" if spent else f"{NEVER_RAN}: nothing is spent"
        case Withdrawn(reason):
            return "its bundles were called back, and nothing is spent" + (f": {reason}" if reason else "")
        case Amended(budget, limits, task, reason=reason):
            told = {f"budget {budget}": budget, "limits": limits, "reward" if what.reward else "definition": task}
            return ", ".join(name for name, value in told.items() if value is not None) + f" {reason}".rstrip()
        case Failed(text):
            return text
    return ""


def parting(one: Path, other: Path) -> str | None:
    """Where two copies of a campaign part, as a sentence; None where they are two campaigns."""
    mine, theirs = history(one), history(other)
    same = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a.digest != b.digest), None)
    if same == 0 or not mine or not theirs:
        return None
    if same is None:
        if len(mine) == len(theirs):
            return f"{one} and {other} are the same up to their last event, {mine[-1].digest[:12]}"
        longer, rest = (one, mine) if len(mine) > len(theirs) else (other, theirs)
        more = len(rest) - min(len(mine), len(theirs))
        return f"{longer} went on by {more} events where the other stopped: go on with it alone"
    a, b, last = mine[same], theirs[same], mine[same - 1]
    return (
        f"{one} and {other} part after event {last.number} ({last.kind} of deployment {last.deployment}, "
        f"{last.digest[:12]}): one goes on with {a.kind} of deployment {a.deployment} ({a.digest[:12]}), the other "
        f"with {b.kind} of deployment {b.deployment} ({b.digest[:12]}). Go on with one of them alone"
    )
