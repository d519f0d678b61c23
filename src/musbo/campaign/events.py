"""What happens in a campaign: one frozen dataclass for each kind of event, written and read here alone.

A campaign goes round one circle per deployment, numbered from 1:

    created, then for d = 1, 2, ...: shard* collected(d), trained(d), evaluated(d); at last finished

A simulator may fail between shards (`failed`). `stopped` and `resumed` may come at any time. An event is stored as the
registry stores any class, with a name and a version, so that a field can be added later.

A campaign whose field is no simulator writes down what leaves and comes home, too: `candidate(d)` is a further training
on the same data, `judged(d)` a verdict on a policy that may leave, `exported(d)` is a bundle that may collect the batch
of deployment d, `withdrawn(d)` and `abandoned(d)` close it without data, and `amended` changes what the campaign was
told at its beginning.
"""

import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from musbo.algorithms.method import Forecast, Method
from musbo.campaign.settings import Campaign, TaskShape
from musbo.core import serial
from musbo.core.diagnostics import NOTHING, Findings
from musbo.core.errors import UserError
from musbo.core.fields import misfit
from musbo.core.registry import stored
from musbo.gate.verdict import Ruling, Word


@stored("campaign/probed")
@dataclass(frozen=True)
class Probed:
    """What the task's functions give for some transitions of a batch: whether they are the same later."""

    rows: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]
    """Of each function: the reward and the termination, as far as they are given."""


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
    probed: Probed | None = None


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
    field: bool = False
    """Whether batches come home from a real field, and none is collected here."""
    limits: str = ""
    """Limits of the site for every bundle, as JSON; empty: the usual ones."""


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
    files: tuple[str, ...] = ()
    """SHA-256 of the files that came home."""
    bundles: tuple[str, ...] = ()
    """The bundles that made them, where they say so."""
    probed: Probed | None = None
    """None where no function of the task is the user's, and in campaigns from before it was kept."""


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


@stored("event/candidate")
@dataclass(frozen=True)
class Candidate:
    """Another policy was trained on the same data. It takes the place of the one before, which stays in the store."""

    training: Trained
    method: Method
    """With its settings, which later trainings keep."""


@stored("campaign/beside")
@dataclass(frozen=True)
class Beside:
    """What the gate compared a policy with. Returns are real ones, of an episode on average."""

    policy: str
    """The incumbent, in the store; empty: the behaviour in the newest batch."""
    earned: float
    """What it earned in the newest batch."""
    behaviour: float
    """What the behaviour in the first batch earned."""


@stored("event/judged")
@dataclass(frozen=True)
class Judged:
    """Somebody, or the gate, has looked at a policy before it leaves. The last verdict on a policy counts."""

    policy: str
    """In the store."""
    go: bool
    """Whether it may leave."""
    reason: str
    ruling: Ruling | None = None
    """That of the gate; None: a person's verdict."""
    beside: Beside | None = None
    """Of the gate."""
    override: str = ""
    """Why it may leave in spite of the gate's verdict."""

    @property
    def word(self) -> Word:
        """The verdict, whether it was overridden or not."""
        return self.ruling.word if self.ruling else "GO" if self.go else "NO-GO"

    @property
    def text(self) -> str:
        overridden = f", overridden: {self.override}. The gate" if self.override else ""
        return f"{self.word}{overridden}: {self.reason}"


@stored("event/exported")
@dataclass(frozen=True)
class Exported:
    """A bundle left for the field: what it records may come home as the batch of this deployment."""

    bundle: str
    """Its id, which recordings name."""
    archive: str
    """The .zip in the store."""
    trained: int
    """The policy was trained after this deployment; 0: no policy, the baseline controller explores."""
    head: str
    """The digest of the last event before it left, which the bundle and its recordings name."""
    final: bool = False
    """Whether the budget is spent, so that nothing is awaited."""
    verdict: str | None = None
    """What was said of the policy; None: nobody was asked."""
    policy: str = ""
    """In the store; empty where there is none, and in campaigns from before it was kept."""
    of: str | None = None
    """The bundle that left before, if this one goes back to it: with the same policy, for another round."""


@stored("event/withdrawn")
@dataclass(frozen=True)
class Withdrawn:
    """The exported bundles of this deployment will not be used: nothing is spent."""

    reason: str = ""


@stored("event/abandoned")
@dataclass(frozen=True)
class Abandoned:
    """No data will come home."""

    spent: bool
    """Whether the bundle ran, so that the deployment is spent."""
    reason: str = ""


@stored("event/amended")
@dataclass(frozen=True)
class Amended:
    """What the campaign was told at its beginning is told anew."""

    budget: int | None = None
    limits: str | None = None
    """All that count from now on, as JSON."""
    task: TaskShape | None = None
    """The task as it is now."""
    reward: bool = True
    """Whether its functions are others, and not its names, units, ranges or interval alone."""
    task_digest: str | None = None
    task_values: tuple[float, ...] = ()
    probed: tuple[Probed, ...] = ()
    """Of every batch so far."""
    reason: str = ""


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


What: TypeAlias = (
    Created | Shard | Failed | Collected | Trained | Evaluated | Candidate | Judged | Exported | Withdrawn | Abandoned
    | Amended | Stopped | Resumed | Finished
)  # fmt: skip
KINDS: dict[str, type] = {
    cls.__name__.lower(): cls
    for cls in (
        Created, Shard, Failed, Collected, Trained, Evaluated, Candidate, Judged, Exported, Withdrawn, Abandoned,
        Amended, Stopped, Resumed, Finished,
    )
}  # fmt: skip


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
