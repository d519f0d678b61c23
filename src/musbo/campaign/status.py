"""Where a campaign stands and what it may do next: pure functions of its events.

The status is a fold over the events, so there is no second record of it that could disagree. `ALLOWED` is the table of
what may follow.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from musbo.campaign.events import (
    Checkpoint,
    Collected,
    Created,
    Evaluated,
    Event,
    Failed,
    Finished,
    Resumed,
    Shard,
    Stopped,
    Trained,
    What,
    kind_of,
)
from musbo.core.errors import UserError

Phase: TypeAlias = Literal["new", "collect", "train", "evaluate", "finished"]

_ANY_TIME = (Stopped, Resumed)
ALLOWED: dict[Phase, tuple[type, ...]] = {
    "new": (Created,),
    "collect": (Shard, Failed, Collected, Finished, *_ANY_TIME),
    "train": (Checkpoint, Trained, *_ANY_TIME),
    "evaluate": (Evaluated, *_ANY_TIME),
    "finished": _ANY_TIME,
}
"""What may come next in each phase. `Finished` also needs a complete deployment and no open one."""

_OF_ONE_DEPLOYMENT = (Shard, Failed, Collected, Checkpoint, Trained, Evaluated)


@dataclass(frozen=True)
class Status:
    """All that the events say, by deployment."""

    created: Created | None = None
    collected: dict[int, Collected] = field(default_factory=dict)
    shards: tuple[Shard, ...] = ()
    """Of the deployment being collected, in order."""
    failures: tuple[int, ...] = ()
    """How many of these shards there were each time that the simulator failed."""
    checkpoint: Checkpoint | None = None
    """Of the training under way."""
    trained: dict[int, Trained] = field(default_factory=dict)
    evaluated: dict[int, Evaluated] = field(default_factory=dict)
    stopped: bool = False
    """Whether the last event is a stop, so that nothing was done since."""
    finished: bool = False

    @property
    def deployment(self) -> int:
        """The deployment being collected, trained or evaluated."""
        return len(self.evaluated) + 1

    @property
    def deployed(self) -> int:
        """Deployments that are spent: those that have their batch."""
        return len(self.collected)

    @property
    def phase(self) -> Phase:
        if self.finished:
            return "finished"
        if self.created is None:
            return "new"
        if self.deployment not in self.collected:
            return "collect"
        return "evaluate" if self.deployment in self.trained else "train"

    @property
    def creation(self) -> Created:
        """The first event, which every campaign that can be opened has."""
        if self.created is None:
            raise UserError("this run was never created completely: remove its directory and start again.")
        return self.created


def status(events: Iterable[Event], checkpoint: tuple[int, Checkpoint] | None = None) -> Status:
    """Fold `events`, oldest first, into the status. `checkpoint` is that of a deployment's training."""
    created, stopped, finished = None, False, False
    shards: list[Shard] = []
    failures: list[int] = []
    collected: dict[int, Collected] = {}
    trained: dict[int, Trained] = {}
    evaluated: dict[int, Evaluated] = {}
    for event in events:
        stopped = False
        match event.what:
            case Created() as created:
                pass
            case Shard() as shard:
                shards.append(shard)
            case Failed():
                failures.append(len(shards))
            case Collected() as batch:
                collected[event.deployment] = batch
                shards.clear()
                failures.clear()
            case Trained() as training:
                trained[event.deployment] = training
            case Evaluated() as evaluation:
                evaluated[event.deployment] = evaluation
            case Stopped():
                stopped = True
            case Finished():
                finished = True
    under_way = checkpoint[1] if checkpoint and checkpoint[0] not in trained else None
    return Status(created, collected, tuple(shards), tuple(failures), under_way, trained, evaluated, stopped, finished)


# What comes next


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


def next_step(now: Status, budget: int) -> Step:
    """What a campaign of `budget` deployments does next."""
    match now.phase:
        case "new":
            raise UserError("this campaign was not created yet: start one with `musbo run`")
        case "finished":
            return Done()
        case "collect":
            return Collect(now.deployment) if now.deployment <= budget else Finish()
        case "train":
            return Train(now.deployment)
        case "evaluate":
            return Evaluate(now.deployment)


def require_allowed(now: Status, what: What | Checkpoint, deployment: int) -> None:
    """Refuse what cannot come next, and say what can."""
    if reason := _already(now, what, deployment):
        raise UserError(f"{reason}: it happens once, and `musbo status` shows what comes next")
    here = deployment == now.deployment or not isinstance(what, _OF_ONE_DEPLOYMENT)
    allowed = isinstance(what, ALLOWED[now.phase]) and here
    if isinstance(what, Finished):
        allowed = allowed and bool(now.evaluated) and not now.shards
    if not allowed:
        kind = "checkpoint" if isinstance(what, Checkpoint) else kind_of(what)
        raise UserError(f"'{kind}' of deployment {deployment} cannot come now: {_where(now)}")


def _already(now: Status, what: What | Checkpoint, deployment: int) -> str | None:
    """The sentence for an event that happens once and has happened."""
    match what:
        case Created() if now.created is not None:
            return "this campaign is already created"
        case Finished() if now.finished:
            return "this campaign is already finished"
        case Collected() if deployment in now.collected:
            return f"deployment {deployment} already has its batch"
        case Trained() if deployment in now.trained:
            return f"deployment {deployment} is already trained"
        case Evaluated() if deployment in now.evaluated:
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
