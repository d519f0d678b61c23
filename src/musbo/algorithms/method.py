"""What the campaign asks of a method: three questions, and what must be known before the first.

A method is a frozen dataclass of settings. Its state is any pytree with a `policy` (the deterministic policy that
would be handed over now) and a `stage`; `train` is a generator, and every state that it yields holds all that is needed
to go on.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.diagnostics import NOTHING, Diagnostic, Findings, Stage, finite
from musbo.core.registry import stored
from musbo.data.dataset import Dataset
from musbo.learning.fit import Epoch
from musbo.models.actor import Actor
from musbo.tasks.task import Task

DONE = "done"
"""The stage of the last metrics of a training."""


@stored("forecast")
@dataclass(frozen=True)
class Forecast:
    """What the models predict for a policy."""

    total: float | None
    """Mean imagined return of a trajectory."""
    steps: float | None
    """Mean imagined length of a trajectory."""
    horizon: int | None
    """How many steps of an episode from its beginning were imagined; None: they were not from beginnings."""


@dataclass(frozen=True)
class Metrics:
    """Progress and metrics of a training step."""

    stage: str
    """A name of the method's stages; `done` at the end; anything else is a report on the side, such as a check."""
    index: int = 0
    """How far the stage is, counted from 1: epochs, updates, gradient steps."""
    of: int | None = None
    """How far it goes."""
    unit: str = "step"
    """What is counted."""
    over: bool = False
    """Whether this is the last report of its stage."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """The row that is kept: numbers and lists of numbers, by names of the method's own."""
    findings: Findings = NOTHING
    """What is worth showing now; at the end, what is kept of the whole training."""
    forecast: Forecast | None = None
    """Where a policy was rated: the promise."""


def fit_metrics(stage: str, epoch: Epoch, column: str = "") -> Metrics:
    """An epoch of a fit as metrics."""
    error = Diagnostic(
        f"{stage}_error",
        finite(epoch.error),
        f"{stage} error",
        "Error on held-out data over all that the networks predict, the mean of the best of every member.",
        unit="squared, in units of the data",
        column=column,
    )
    over = epoch.active == 0 or epoch.number == epoch.of
    return Metrics(stage, epoch.number, epoch.of, "epoch", over, epoch.numbers(), Findings((error,)))


class Foresight(NamedTuple):
    """Predictions of a model, for diagnostics only."""

    courses: Callable[[Task, Float[Array, "b obs"], int, Float[Array, "b t act"] | None], tuple[Any, Any, Any]]
    """(task, start, steps, actions): where the policy, or the actions given, lead, for how long, and the reward."""
    doubt: Callable[[Float[Array, "n obs"], Float[Array, "n act"]], Float[Array, " n"]]
    """(obs, act): how unsure the model is of each step, in units of the state."""
    learns_reward: bool = False
    """Whether its rewards are those of the data, also where the task has a model reward."""


@runtime_checkable
class Method(Protocol):
    """How a policy is made from batches."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of one training, in order."""
        ...

    def require(self, task: Task) -> None:
        """Raise a UserError for a task that the method does not support, before anything is run."""
        ...

    def begin(self, task: Task, key: PRNGKeyArray) -> Any:
        """Before the first deployment."""
        ...

    def actor(self, task: Task, state: Any) -> Actor:
        """The actor that collects the next batch."""
        ...

    def foresight(self, state: Any) -> Foresight | None:
        """Predictions of its model after training; None without a model."""
        ...

    def train(self, task: Task, data: Dataset, state: Any, key: PRNGKeyArray) -> Iterator[tuple[Any, Metrics]]:
        """Learn from everything collected so far."""
        ...


LEARN = Stage("learn", "learning from the data")


ROUND = 1000  # gradient steps: a number that is not round would have its last chunk compiled anew


def gradient_steps(steps: int, per_transition: float, data: Dataset) -> int:
    """How many a deployment takes: `steps`, or more where D_all is large."""
    wanted = math.ceil(per_transition * int(data.live.sum()))
    return steps if wanted <= steps else -(-wanted // ROUND) * ROUND


def learn_metrics(step: int, of: int, critic_error: float, value: float, more: Findings = NOTHING) -> Metrics:
    """Some gradient steps of an actor-critic as metrics."""
    shown = (
        Diagnostic("Q", finite(value), "mean Q", "What the critics expect of the logged actions.", series=LEARN.name),
        Diagnostic("critic_error", finite(critic_error), "critic error", "Squared Bellman error of the critics."),
    )
    numbers = {"critic_error": critic_error, "Q": value}
    return Metrics(LEARN.name, step, of, "gradient step", step >= of, numbers, Findings(shown) + more)
