"""Where a campaign stands and what it may do next: pure functions of its events.

A campaign goes round one circle per deployment, numbered from 1:

    created, then for d = 1, 2, ...: shard* batch(d), checkpoint* trained(d), evaluated(d); at last finished

The status is a fold over the events, so there is no second record of it that could disagree. `ALLOWED` is the table of
what may follow.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from musbo.core.errors import UserError

Kind: TypeAlias = Literal[
    "created", "shard", "batch", "checkpoint", "trained", "evaluated", "stopped", "resumed", "finished"
]
KINDS: tuple[str, ...] = get_args(Kind)
Phase: TypeAlias = Literal["new", "collect", "train", "evaluate", "finished"]

_ANY_TIME = frozenset({"stopped", "resumed"})
ALLOWED: dict[Phase, frozenset[str]] = {
    "new": frozenset({"created"}),
    "collect": frozenset({"shard", "batch", "finished"}) | _ANY_TIME,
    "train": frozenset({"checkpoint", "trained"}) | _ANY_TIME,
    "evaluate": frozenset({"evaluated"}) | _ANY_TIME,
    "finished": _ANY_TIME,
}
"""The events that may come next in each phase. `finished` also needs a complete deployment and no open one."""

_OF_ONE_DEPLOYMENT = frozenset({"shard", "batch", "checkpoint", "trained", "evaluated"})


@dataclass(frozen=True)
class Event:
    """One row of the ledger; `time` is in seconds since 1970 (UTC)."""

    id: int
    time: float
    kind: str
    deployment: int
    payload: dict[str, Any]


@dataclass(frozen=True)
class Status:
    """All that the events say, by deployment."""

    settings: dict[str, Any] | None = None
    """The payload of `created`; None before it."""
    batches: dict[int, dict[str, Any]] = field(default_factory=dict)
    shards: tuple[dict[str, Any], ...] = ()
    """Of the deployment being collected, in order."""
    checkpoint: dict[str, Any] | None = None
    """The newest of the training under way."""
    trained: dict[int, dict[str, Any]] = field(default_factory=dict)
    evaluated: dict[int, dict[str, Any]] = field(default_factory=dict)
    stopped: bool = False
    """Whether the last event is a stop, so that nothing was done since."""
    finished: bool = False

    @property
    def deployment(self) -> int:
        """The deployment being collected, trained or evaluated."""
        return len(self.evaluated) + 1

    @property
    def phase(self) -> Phase:
        if self.finished:
            return "finished"
        if self.settings is None:
            return "new"
        if self.deployment not in self.batches:
            return "collect"
        return "evaluate" if self.deployment in self.trained else "train"


def status(events: Iterable[Event]) -> Status:
    """Fold `events`, oldest first, into the status."""
    settings, checkpoint, stopped, finished = None, None, False, False
    shards: list[dict[str, Any]] = []
    batches: dict[int, dict[str, Any]] = {}
    trained: dict[int, dict[str, Any]] = {}
    evaluated: dict[int, dict[str, Any]] = {}
    for event in events:
        stopped = event.kind == "stopped"
        match event.kind:
            case "created":
                settings = event.payload
            case "shard":
                shards.append(event.payload)
            case "batch":
                batches[event.deployment] = event.payload
                shards.clear()
            case "checkpoint":
                checkpoint = event.payload
            case "trained":
                trained[event.deployment] = event.payload
                checkpoint = None
            case "evaluated":
                evaluated[event.deployment] = event.payload
            case "finished":
                finished = True
    return Status(settings, batches, tuple(shards), checkpoint, trained, evaluated, stopped, finished)


@dataclass(frozen=True)
class Collect:
    deployment: int


@dataclass(frozen=True)
class Train:
    deployment: int


@dataclass(frozen=True)
class Evaluate:
    deployment: int


@dataclass(frozen=True)
class Finish:
    pass


@dataclass(frozen=True)
class Done:
    pass


Step: TypeAlias = Collect | Train | Evaluate | Finish | Done


def next_step(now: Status, deployments: int) -> Step:
    """What a campaign of `deployments` deployments does next."""
    match now.phase:
        case "new":
            raise UserError("this campaign was not created yet: start one with `musbo run`")
        case "finished":
            return Done()
        case "collect":
            return Collect(now.deployment) if now.deployment <= deployments else Finish()
        case "train":
            return Train(now.deployment)
        case "evaluate":
            return Evaluate(now.deployment)


def require_allowed(now: Status, kind: str, deployment: int) -> None:
    """Refuse an event that cannot come next, and say what can."""
    if kind not in KINDS:
        raise ValueError(f"'{kind}' is no kind of event: the kinds are {', '.join(KINDS)}")
    if reason := _already(now, kind, deployment):
        raise UserError(f"{reason}: it happens once, and `musbo status` shows what comes next")
    allowed = kind in ALLOWED[now.phase] and (kind not in _OF_ONE_DEPLOYMENT or deployment == now.deployment)
    if kind == "finished":
        allowed = allowed and bool(now.evaluated) and not now.shards
    if not allowed:
        raise UserError(f"'{kind}' of deployment {deployment} cannot come now: {_where(now)}")


def _already(now: Status, kind: str, deployment: int) -> str | None:
    """The sentence for an event that happens once and has happened."""
    if kind == "created" and now.settings is not None:
        return "this campaign is already created"
    if kind == "finished" and now.finished:
        return "this campaign is already finished"
    if kind == "batch" and deployment in now.batches:
        return f"deployment {deployment} already has its batch"
    if kind == "trained" and deployment in now.trained:
        return f"deployment {deployment} is already trained"
    if kind == "evaluated" and deployment in now.evaluated:
        return f"deployment {deployment} is already evaluated"
    return None


def _where(now: Status) -> str:
    match now.phase:
        case "new":
            return "the campaign was not created yet"
        case "finished":
            return "the campaign is finished"
        case "collect":
            return f"deployment {now.deployment} waits for its batch"
        case "train":
            return f"deployment {now.deployment} waits to be trained"
        case "evaluate":
            return f"deployment {now.deployment} waits to be evaluated"
