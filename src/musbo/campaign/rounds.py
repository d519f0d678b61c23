"""Rounds: where each deployment of a campaign in the field stands, and which verb comes next.

    candidate -> (gated) -> exported -> returned        data came home: the deployment is spent
                                     -> abandoned       spent without data
                                     -> withdrawn       called back, or it never ran: nothing is spent

A candidate is a trained policy that has not left yet; there may be several. It is gated once somebody, or the gate, has
judged it: without a verdict it may leave, after a NO-GO or a NEED-DATA it may not. The first round of a campaign that
begins without data has no policy: the controller of the site acts. A round that was withdrawn is still open: it is
exported again, as it is or with another candidate. The state of a round is a fold over the events, as the status is.
`NEXT` is the table of verbs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from musbo.campaign.events import Abandoned, Collected, Event, Exported, Trained, Withdrawn
from musbo.campaign.foreseen import Foreseen, foreseen
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.campaign.ran import newest_collector, that_ran, trained_as
from musbo.campaign.status import Status
from musbo.campaign.summary import per_step
from musbo.core.inside import inside
from musbo.gate.score import Scored

State: TypeAlias = Literal["waiting", "candidate", "gated", "exported", "returned", "abandoned", "withdrawn"]
Verb: TypeAlias = Literal["train", "export", "ingest", "done"]

NEXT: dict[State, tuple[Verb, str]] = {
    "waiting": ("train", "train its policy: `musbo train {folder}`"),
    "candidate": (
        "export",
        "let the gate look at it with `musbo gate {folder}`, then send it to the field: `musbo export {folder}`",
    ),
    "gated": ("export", "its policy was judged a GO; send it to the field: `musbo export {folder}`"),
    "exported": (
        "ingest",
        "let the bundle run, then bring its recordings home: `musbo ingest {folder} FILES`. If it will not run: `musbo "
        "withdraw {folder} {number}`; if no data will come: `musbo abandon {folder} {number}`",
    ),
    "returned": ("train", "train on the new data: `musbo train {folder}`"),
    "withdrawn": (
        "export",
        "what left for it was called back, and nothing is spent: send it out again with `musbo export {folder}`, or "
        "train another policy first with `musbo train {folder} --again`",
    ),
}
"""What comes next, by the state of the open round."""
BEGIN = (
    "export",
    "there is no policy yet, so your own controller runs first, with a little noise around it: `musbo export {folder}`",
)
"""Of the first round without data."""
NO_GO = (
    "train",
    "its policy was judged a NO-GO ({reason}): train another one with `musbo train {folder} --again --set NAME=VALUE`, "
    "go back with `musbo export {folder} --bundle ID`, or judge it anew with `musbo judge {folder} --go REASON`",
)
OVERRIDDEN = (
    "export",
    "its verdict, {verdict}, was overridden; send it to the field: `musbo export {folder}`",
)
NEED_DATA = (
    "train",
    "nobody knows yet whether its policy is good enough ({reason}): train another one with `musbo train {folder} "
    "--again --set NAME=VALUE`, {collect}or let it leave all the same with `musbo gate {folder} --override REASON`",
)
COLLECT = "collect more with what ran last, or go back, with `musbo export {folder} --bundle {bundle}`, "
NEVER_RAN = "it never ran"
OUTDATED = (
    "train",
    "the reward has changed since its policy was trained: train another one with `musbo train {folder} --again`",
)


@dataclass(frozen=True)
class Withdrawal:
    """What left for a round was called back before it ran, or never ran: nothing was spent."""

    time: float
    """Seconds since 1970 (UTC)."""
    reason: str


@dataclass(frozen=True)
class Round:
    """One deployment."""

    number: int
    state: State
    candidates: int = 0
    """Policies that were trained for it."""
    verdict: str | None = None
    """What was said of the one that counts, before it left."""
    bundles: tuple[str, ...] = ()
    """Every bundle that left for it."""
    withdrawals: tuple[Withdrawal, ...] = ()
    """Every time that they were called back."""
    transitions: int = 0
    source: str | None = None
    """Where its data came from, if no bundle collected them."""
    reason: str = ""
    """Why it brought no data."""
    promised: float | None = None
    """Reward per step that was imagined of its policy."""
    real: float | None = None
    """Mean reward per step of its data."""
    forecast: Scored | None = None
    """What the gate said of its policy, and what came true."""

    @property
    def called_back(self) -> int:
        """How often it was withdrawn, or never ran."""
        return len(self.withdrawals)


def read_rounds(folder: Path) -> list[Round]:
    """The rounds of the campaign in `folder`; none where the field is a simulator."""
    with Ledger(inside(folder, LEDGER)) as ledger:
        now = ledger.status()
        return rounds(ledger.events(), now) if now.field else []


def rounds(events: Iterable[Event], now: Status) -> list[Round]:
    """Every round so far, and the open one if the budget is not spent."""
    events = list(events)
    left: dict[int, list[Exported]] = {}
    back: dict[int, tuple[Withdrawal, ...]] = {}
    for event in events:
        d = event.deployment
        match event.what:
            case Exported() as export:
                left.setdefault(d, []).append(export)
            case Withdrawn(reason):
                back[d] = (*back.get(d, ()), Withdrawal(event.time, reason))
            case Abandoned(spent=False):
                back[d] = (*back.get(d, ()), Withdrawal(event.time, NEVER_RAN))
    numbers = sorted({*now.collected, *now.lost, *(() if now.finished else (now.deployment,))})
    said = foreseen(events, now)
    return [_round(d, now, left.get(d, []), back.get(d, ()), said.get(d)) for d in numbers]


def _round(d: int, now: Status, left: list[Exported], back: tuple[Withdrawal, ...], said: Foreseen | None) -> Round:
    batch = now.collected.get(d)
    brought = batch is not None and not left
    made = () if brought else now.candidates.get(max((i for i in now.trained if i < d), default=0), ())
    out = list(now.exports.get(d, left if d in now.lost else ()))
    ran = that_ran(batch, out) if batch else out[-1] if out else None
    own = trained_as(ran, now) if ran else now.trained[max(now.trained)] if made and not batch else None
    verdict = ran.verdict if ran else now.verdict.text if own and now.verdict else None
    return Round(
        d,
        state_of(d, now),
        len(made),
        verdict,
        tuple(dict.fromkeys(export.bundle for export in left)),
        back,
        batch.transitions if batch else 0,
        batch.source if batch and brought else None,
        now.lost[d].reason if d in now.lost else "",
        promised(own),
        real(batch) if batch else None,
        said.scored if said else None,
    )


def promised(training: Trained | None) -> float | None:
    """Reward per step that was imagined of a policy."""
    forecast = training.forecast if training else None
    return per_step(forecast.total, forecast.steps) if forecast else None


def real(batch: Collected) -> float | None:
    """Mean reward per step of a batch."""
    if batch.rewards is not None:
        return batch.rewards.recorded
    return batch.mean_return / batch.mean_length if batch.mean_return is not None and batch.mean_length else None


def state_of(d: int, now: Status) -> State:
    """The state of round `d`."""
    if d in now.lost:
        return "abandoned"
    if d in now.collected:
        return "returned"
    if d in now.exports:
        return "exported"
    if not now.may_leave:
        return "waiting"
    if now.called_back and d == now.deployment:
        return "withdrawn"
    return "gated" if now.verdict else "candidate"


@dataclass(frozen=True)
class Next:
    """What comes next."""

    verb: Verb
    text: str
    """As a sentence, with the command."""

    def plain(self) -> dict[str, Any]:
        return {"next_step": self.verb, "next": self.text}


def what_next(now: Status, folder: object) -> Next:
    """The verb that the campaign waits for."""
    d, budget = now.deployment, now.creation.settings.budget
    if now.finished:
        export = f"`musbo export {folder}` writes the final policy, which spends nothing"
        return Next(
            "done", f"the budget of {budget} is spent: {export}; `musbo amend {folder} --budget N` gives it more"
        )
    state = state_of(d, now)
    verb, text = NEXT[state]
    if state in ("candidate", "withdrawn") and now.begins:
        verb, text = BEGIN
    if state in ("candidate", "gated", "withdrawn") and now.outdated:
        verb, text = OUTDATED
    said = {"folder": folder, "number": d}
    if state == "gated" and now.verdict and now.verdict.override and not now.outdated:
        verb, text = OVERRIDDEN
        said["verdict"] = now.verdict.word
    if state in ("gated", "withdrawn") and now.verdict and not now.verdict.go:
        verb, text = NEED_DATA if now.verdict.word == "NEED-DATA" else NO_GO
        last = newest_collector(now)
        ruling = now.verdict.ruling
        said["reason"] = f"the chance that it is bad is {ruling.bad:.0%}" if ruling else now.verdict.reason
        said["collect"] = COLLECT.format(folder=folder, bundle=last.bundle[:12]) if last else ""
    return Next(verb, f"round {d} of {budget}: {text.format(**said)}")
