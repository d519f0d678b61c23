"""What happens in a campaign: one frozen dataclass for each kind of event, written and read here alone.

A campaign goes round one circle per deployment, numbered from 1:

    created, then for d = 1, 2, ...: shard* collected(d), trained(d), evaluated(d); at last finished

A simulator may fail between shards (`failed`). `stopped` and `resumed` may come at any time. An event is stored as the
registry stores any class, with a name and a version, so that a field can be added later.
"""

import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from musbo.algorithms.method import Forecast
from musbo.campaign.settings import Campaign, TaskShape
from musbo.core import serial
from musbo.core.diagnostics import NOTHING, Findings
from musbo.core.errors import UserError
from musbo.core.fields import misfit
from musbo.core.registry import stored


@stored("campaign/brought")
@dataclass(frozen=True)
class Brought:
    """A batch that the user had already."""

    artefact: str
    """Its name in the store."""
    source: str
    """Where it came from, as the user gave it."""
    transitions: int
    cautions: tuple[str, ...] = ()
    """What is odd about it."""


@stored("event/created")
@dataclass(frozen=True)
class Created:
    """The campaign exists; nothing is done yet."""

    settings: Campaign
    task: TaskShape
    versions: dict[str, str]
    """What it was made with."""
    brought: tuple[Brought, ...] = ()
    """Batches that are its first deployments."""
    task_digest: str | None = None
    """SHA-256 of the task's source file; None for a task of ours or an object of a Python program."""
    task_values: tuple[float, ...] = ()
    """What its reward and termination give for made-up transitions: whether they are the same later."""
    trial_steps: int = 0
    """Steps that the simulator took in the dry run; they are no part of the budget."""
    trial: Findings = NOTHING
    """How far the task's formulas agree with the simulator."""


@stored("event/shard")
@dataclass(frozen=True)
class Shard:
    """A part of a batch is collected."""

    artefact: str
    signal: tuple[float, ...] = ()
    """A sample of the actor's signal."""
    extra_steps: int = 0
    """Steps that an oracle took in a copy of the simulator."""
    alone: int = 0
    """Transitions whose lane was the only one in step."""


@stored("event/failed")
@dataclass(frozen=True)
class Failed:
    """The simulator failed while a batch was collected. What was finished is a shard; the rest is begun anew."""

    text: str


@stored("campaign/rewards")
@dataclass(frozen=True)
class Rewards:
    """The task's reward formula beside the rewards that a batch has on record."""

    recorded: float
    """Mean per step of what the simulator or the log says."""
    formula: float
    """Mean per step of what the formula gives for the same transitions."""
    apart: float
    """Root mean square of the difference, in standard deviations of what is on record."""


@stored("event/collected")
@dataclass(frozen=True)
class Collected:
    """A deployment's batch is complete: from here on the deployment is spent."""

    artefact: str
    transitions: int
    episodes: int
    mean_return: float | None
    """Of the episodes that tell what an episode brings: the quota cuts some of the others."""
    mean_length: float | None
    source: str | None = None
    """Where it came from, if it was brought."""
    novelty: float | None = None
    """Mean cosine distance from everything before it."""
    extra_steps: int = 0
    seconds: float = 0.0
    findings: Findings = NOTHING
    """What the collecting actor has to say."""
    terminations: int | None = None
    """Episodes that ended by themselves; None in runs from before this was counted."""
    rewards: Rewards | None = None
    """None where the reward is learned, and in runs from before this was measured."""


@stored("event/trained")
@dataclass(frozen=True)
class Trained:
    """A policy was trained on everything so far."""

    state: str
    """The method's state in the store: what the next training goes on from."""
    policy: str
    """The policy in the store."""
    seconds: float
    forecast: Forecast | None = None
    """What imagination promises of the policy."""
    findings: Findings = NOTHING
    """The last word of every stage."""

    @property
    def policy_sha256(self) -> str:
        return self.policy.partition(".")[0]


@stored("campaign/episodes")
@dataclass(frozen=True)
class Episodes:
    """Whole episodes of a policy in the simulator."""

    returns: tuple[float | None, ...]
    mean_return: float | None
    deviation: float | None
    """Standard deviation of the returns; None with one episode."""
    model_return: float | None
    """Mean return of the same episodes under the reward that imagination uses; None where that is learned."""
    mean_length: float
    speed: float | None
    """Mean forward speed; None where the task has none."""
    steps: int


@stored("campaign/agreement")
@dataclass(frozen=True)
class Agreement:
    """How far imagined courses are from real ones, from the same start states."""

    energy_distance: float | None
    trajectory_error: float | None
    """Mean squared error, in units of the first batch."""
    imagined_steps: float
    real_steps: float
    imagined_return: float | None = None
    """Mean imagined return of the courses; None where logged actions were replayed."""


@stored("campaign/stretch")
@dataclass(frozen=True)
class Stretch:
    """The real beginning of episodes, as long as what was imagined of them."""

    total: float | None
    """Mean return, under the reward that imagination has."""
    steps: float


@stored("event/evaluated")
@dataclass(frozen=True)
class Evaluated:
    """The policy was measured, or could not be."""

    seconds: float
    skipped: str | None = None
    """Why there is no measurement."""
    episodes: Episodes | None = None
    agreement: Agreement | None = None
    """Models that replay logged actions have one without a simulator too."""
    stretch: Stretch | None = None


@stored("event/stopped")
@dataclass(frozen=True)
class Stopped:
    """A person stopped the campaign."""


@stored("event/resumed")
@dataclass(frozen=True)
class Resumed:
    """The campaign goes on, possibly with other versions."""

    versions: dict[str, str] = field(default_factory=dict)


@stored("event/finished")
@dataclass(frozen=True)
class Finished:
    """The budget is spent, and the last policy is exported."""


@stored("campaign/checkpoint")
@dataclass(frozen=True)
class Checkpoint:
    """A training under way. It is replaced by the next one, so it is no event."""

    state: str
    seconds: float
    findings: tuple[tuple[str, Findings], ...] = ()
    """The stages so far, in order, and the last word of each."""


What: TypeAlias = Created | Shard | Failed | Collected | Trained | Evaluated | Stopped | Resumed | Finished
KINDS: dict[str, type] = {
    cls.__name__.lower(): cls
    for cls in (Created, Shard, Failed, Collected, Trained, Evaluated, Stopped, Resumed, Finished)
}


@dataclass(frozen=True)
class Event:
    """One row of the ledger; `time` is in seconds since 1970 (UTC)."""

    id: int
    time: float
    deployment: int
    what: What


def kind_of(what: What) -> str:
    return type(what).__name__.lower()


def to_text(value: What | Checkpoint) -> str:
    """An event or a checkpoint as it stands in the ledger."""
    return json.dumps(serial.to_json(value), allow_nan=False)


def from_text(text: str, cls: type) -> Any:
    """What `to_text` wrote."""
    try:
        found = serial.from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"an event cannot be read ({error}): restore the ledger from a copy") from error
    if not isinstance(found, cls):
        raise UserError(f"an event of kind {cls.__name__.lower()} holds something else: restore the ledger from a copy")
    if (name := misfit(found)) is not None:
        kind = cls.__name__.lower()
        raise UserError(f"{name} of an event of kind {kind} is no such thing: restore the ledger from a copy")
    return found
