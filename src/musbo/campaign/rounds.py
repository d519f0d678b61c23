"""Rounds: where each deployment of a campaign in the field stands, and which verb comes next.

    candidate -> exported -> returned        data came home: the deployment is spent
                          -> abandoned       spent without data
                          -> candidate       withdrawn, or it never ran: nothing is spent

A candidate is a trained policy that has not left yet; there may be several, and the newest is exported. The state of
a round is a fold over the events, as the status is. `NEXT` is the table of verbs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from musbo.campaign.events import Abandoned, Collected, Event, Exported, Withdrawn
from musbo.campaign.status import Status

State: TypeAlias = Literal["waiting", "candidate", "exported", "returned", "abandoned"]
Verb: TypeAlias = Literal["train", "export", "ingest", "done"]

NEXT: dict[State, tuple[Verb, str]] = {
    "waiting": ("train", "train its policy: `musbo train {folder}`"),
    "candidate": ("export", "send it to the field: `musbo export {folder}`"),
    "exported": (
        "ingest",
        "let the bundle run, then bring its recordings home: `musbo ingest {folder} FILES`. If it will not run: `musbo "
        "withdraw {folder} {number}`; if no data will come: `musbo abandon {folder} {number}`",
    ),
    "returned": ("train", "train on the new data: `musbo train {folder}`"),
}
"""What comes next, by the state of the open round."""


@dataclass(frozen=True)
class Round:
    """One deployment."""

    number: int
    state: State
    candidates: int = 0
    """Policies that were trained for it."""
    bundles: tuple[str, ...] = ()
    """Every bundle that left for it."""
    called_back: int = 0
    """How often it was withdrawn, or never ran."""
    transitions: int = 0
    source: str | None = None
    """Where its data came from, if no bundle collected them."""
    reason: str = ""
    """Why it brought no data."""
    promised: float | None = None
    """Reward per step that was imagined of its policy."""
    real: float | None = None
    """Mean reward per step of its data."""


def rounds(events: Iterable[Event], now: Status) -> list[Round]:
    """Every round so far, and the open one if the budget is not spent."""
    left: dict[int, list[str]] = {}
    back: dict[int, int] = {}
    for event in events:
        d = event.deployment
        match event.what:
            case Exported(bundle=bundle):
                left.setdefault(d, []).append(bundle)
            case Withdrawn() | Abandoned(spent=False):
                back[d] = back.get(d, 0) + 1
    numbers = sorted({*now.collected, *now.lost, *(() if now.finished else (now.deployment,))})
    return [_round(d, now, tuple(dict.fromkeys(left.get(d, ()))), back.get(d, 0)) for d in numbers]


def _round(d: int, now: Status, bundles: tuple[str, ...], back: int) -> Round:
    trained = max((i for i in now.trained if i < d), default=None)
    made = now.candidates.get(trained, ()) if trained is not None else ()
    batch = now.collected.get(d)
    own = None if batch is not None and batch.source and not bundles else made[-1] if made else None
    promise = own.forecast if own else None
    return Round(
        d,
        state_of(d, now),
        len(made) if own else 0,
        bundles,
        back,
        batch.transitions if batch else 0,
        batch.source if batch and not bundles else None,
        now.lost[d].reason if d in now.lost else "",
        promise.total / promise.steps if promise and promise.total is not None and promise.steps else None,
        _per_step(batch) if batch else None,
    )


def _per_step(batch: Collected) -> float | None:
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
    return "candidate" if now.phase == "collect" and now.trained else "waiting"


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
    verb, text = NEXT[state_of(d, now)]
    return Next(verb, f"round {d} of {budget}: {text.format(folder=folder, number=d)}")
