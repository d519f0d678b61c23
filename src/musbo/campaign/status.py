"""Where a campaign stands and what it may do next: pure functions of its events.

The status is a fold over the events, so there is no second record of it that could disagree. `ALLOWED` is the table of
what may follow.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from musbo.algorithms.method import Method
from musbo.campaign.events import (
    Abandoned,
    Amended,
    Candidate,
    Checkpoint,
    Collected,
    Created,
    Evaluated,
    Event,
    Exported,
    Failed,
    Finished,
    Judged,
    Probed,
    Resumed,
    Shard,
    Stopped,
    Trained,
    What,
    Withdrawn,
    kind_of,
)
from musbo.core.errors import UserError

Phase: TypeAlias = Literal["new", "collect", "train", "evaluate", "finished"]

_ANY_TIME = (Stopped, Resumed, Amended)
_BETWEEN = (Candidate, Judged, Exported, Withdrawn, Abandoned)
"""What may come while a real field has the word."""
ALLOWED: dict[Phase, tuple[type, ...]] = {
    "new": (Created,),
    "collect": (Shard, Failed, Collected, Finished, *_BETWEEN, *_ANY_TIME),
    "train": (Checkpoint, Trained, *_ANY_TIME),
    "evaluate": (Evaluated, *_ANY_TIME),
    "finished": (Candidate, Judged, Exported, Withdrawn, *_ANY_TIME),
}
"""What may come next in each phase. `Finished` also needs a complete deployment and no open one, and
`campaign.rounds` has the rest of what a field may do."""

_OF_ONE_DEPLOYMENT = (Shard, Failed, Collected, Checkpoint, Trained, Evaluated, Judged, Exported, Withdrawn, Abandoned)
_IN_A_FIELD = (Candidate, Judged, Exported, Withdrawn, Abandoned, Amended)
_NOT_IN_A_FIELD = (Shard, Failed, Finished)


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
    exports: dict[int, tuple[Exported, ...]] = field(default_factory=dict)
    """The bundles in the field by the deployment that they collect for; without those that were called back."""
    lost: dict[int, Abandoned] = field(default_factory=dict)
    """Deployments that are spent and brought no data."""
    candidates: dict[int, tuple[Trained, ...]] = field(default_factory=dict)
    """Every policy trained after a deployment. `trained` has the one that counts: the last one that was trained, or
    that left since."""
    methods: dict[int, tuple[Method, ...]] = field(default_factory=dict)
    """The method, with its settings, of each of them."""
    verdicts: dict[str, Judged] = field(default_factory=dict)
    """The last one on each policy, by its name in the store."""
    reward_changed: bool = False
    """Whether the reward function is another one than at the beginning."""
    outdated: bool = False
    """Whether it has changed since the last training."""
    probed: dict[int, Probed] = field(default_factory=dict)
    """What the task's functions give for transitions of each batch, also of those that were brought."""
    called_back: bool = False
    """Whether what left for the open round was called back, and nothing has followed."""

    @property
    def batches(self) -> dict[int, str]:
        """The names of all batches in the store, also of those that were brought and not yet taken."""
        brought = {d: item.artefact for d, item in enumerate(self.creation.brought, 1)}
        return dict(sorted((brought | {d: item.artefact for d, item in self.collected.items()}).items()))

    @property
    def deployment(self) -> int:
        """The deployment being collected, trained or evaluated."""
        return len(self.evaluated) + len(self.lost) + 1

    @property
    def deployed(self) -> int:
        """Deployments that are spent: those that have their batch, or brought none."""
        return len(self.collected) + len(self.lost)

    @property
    def field(self) -> bool:
        """Whether batches come home from a real field."""
        return self.created is not None and self.created.field

    @property
    def begins(self) -> bool:
        """Whether there is nothing to learn from yet, so that the controller of the site has to act."""
        return self.field and not self.collected and not self.creation.brought and not self.finished

    @property
    def may_leave(self) -> bool:
        """Whether a bundle may leave now: its policy is trained, or it has none and begins."""
        return self.finished and bool(self.trained) or self.phase == "collect" and (bool(self.trained) or self.begins)

    @property
    def verdict(self) -> Judged | None:
        """What was said of the policy that may leave now."""
        return self.verdicts.get(self.trained[max(self.trained)].policy) if self.trained else None

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
    created, stopped, finished, reward_changed, outdated, called_back = None, False, False, False, False, False
    shards: list[Shard] = []
    failures: list[int] = []
    collected: dict[int, Collected] = {}
    trained: dict[int, Trained] = {}
    evaluated: dict[int, Evaluated] = {}
    candidates: dict[int, tuple[Trained, ...]] = {}
    methods: dict[int, tuple[Method, ...]] = {}
    verdicts: dict[str, Judged] = {}
    exports: dict[int, tuple[Exported, ...]] = {}
    probed: dict[int, Probed] = {}
    lost: dict[int, Abandoned] = {}

    def now(under_way: Checkpoint | None = None) -> Status:
        over = finished
        if created is not None and created.field:  # it may be given a larger budget, so no event says that it is over
            over = len(evaluated) + len(lost) >= created.settings.budget
        return Status(
            created, collected, tuple(shards), tuple(failures), under_way, trained, evaluated, stopped, over, exports,
            lost, candidates, methods, verdicts, reward_changed, outdated, probed, called_back,
        )  # fmt: skip

    for event in events:
        try:
            require_allowed(now(), event.what, event.deployment)
        except UserError as error:  # nobody wrote this here: a ledger takes nothing that may not come next
            raise UserError(f"event {event.id} cannot stand there ({error}): restore the ledger from a copy") from error
        stopped, d = False, event.deployment
        called_back &= not isinstance(event.what, Candidate | Judged | Exported)
        match event.what:
            case Created() as created:
                probed = {i: item.probed for i, item in enumerate(created.brought, 1) if item.probed}
            case Shard() as shard:
                shards.append(shard)
            case Failed():
                failures.append(len(shards))
            case Collected() as batch:
                collected[d] = batch
                probed |= {d: batch.probed} if batch.probed else {}
                shards.clear()
                failures.clear()
            case Trained() as training:
                trained[d], outdated = training, False
                candidates[d] = (training,)
                methods[d] = (created.settings.method,) if created else ()
            case Candidate(training, method):
                trained[d], outdated = training, False
                candidates[d] = (*candidates.get(d, ()), training)
                methods[d] = (*methods.get(d, ()), method)
                created = created and replace(created, settings=replace(created.settings, method=method))
            case Evaluated() as evaluation:
                evaluated[d] = evaluation
            case Judged(policy) as verdict:
                verdicts[policy] = verdict
            case Exported() as export:
                exports[d] = (*exports.get(d, ()), export)
                if trained and export.trained == (last := max(trained)):  # a choice among its candidates
                    for training, method in zip(candidates[last], methods[last], strict=True):
                        if training.policy == export.policy:
                            trained[last] = training
                            created = created and replace(created, settings=replace(created.settings, method=method))
            case Withdrawn() | Abandoned(spent=False):
                called_back = not any(export.final for export in exports.pop(d, ()))
            case Abandoned() as loss:
                exports.pop(d, None)
                lost[d] = loss
            case Amended() as change:
                created = created and amended(created, change)
                reward_changed |= change.task is not None and change.reward
                outdated |= change.task is not None and change.reward and bool(trained)
                if change.task is not None:
                    known = sorted({*collected, *range(1, len(created.brought) + 1 if created else 1)})
                    probed = dict(zip(known, change.probed, strict=False))
                if change.budget is not None:  # what left as final now waits for nothing
                    exports = {i: own for i, each in exports.items() if (own := tuple(e for e in each if not e.final))}
            case Stopped():
                stopped = True
            case Finished():
                finished = True
    return now(checkpoint[1] if checkpoint and checkpoint[0] not in trained else None)


def amended(created: Created, change: Amended) -> Created:
    """What the campaign is told after a change."""
    if change.budget is not None:
        created = replace(created, settings=replace(created.settings, budget=change.budget))
    if change.limits is not None:
        created = replace(created, limits=change.limits)
    if change.task is not None:
        values = {"task_digest": change.task_digest, "task_values": change.task_values}
        created = replace(created, task=change.task, **values)
    return created


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
    allowed = allowed and not isinstance(what, _NOT_IN_A_FIELD if now.field else _IN_A_FIELD)
    if isinstance(what, Candidate):
        allowed = allowed and bool(now.trained) and deployment == max(now.trained)
    if isinstance(what, Judged):
        last = now.candidates.get(max(now.trained, default=0), ())
        allowed = allowed and what.policy in {training.policy for training in last}
    if isinstance(what, Exported):
        allowed = allowed and now.may_leave
    if isinstance(what, Withdrawn | Abandoned):
        allowed = allowed and deployment in now.exports
    if isinstance(what, Collected) and now.field:
        brought = now.created is not None and deployment <= len(now.created.brought)
        allowed = allowed and (brought or deployment in now.exports)
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
