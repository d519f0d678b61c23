"""What the campaign asks of a method: three questions, and what must be known before the first.

A method is a frozen dataclass of settings. Its state is any pytree with a `policy` (the deterministic policy that
would be handed over now) and a `stage`; `train` is a generator, and every state that it yields holds all that is needed
to go on.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

from musbo.data.dataset import Dataset
from musbo.tasks.task import Task

Metrics = dict[str, Any]


class Foresight(NamedTuple):
    """What a model says of the future: for diagnostics alone, nothing is trained on it."""

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
    def stages(self) -> tuple[str, ...]:
        """The stages of one training, in order: the names that its metrics carry."""
        ...

    def require(self, task: Task) -> None:
        """Refuse, in one sentence, a task that the method cannot serve: now, and not after hours of work."""
        ...

    def begin(self, task: Task, key: PRNGKeyArray) -> Any:
        """Before the first deployment."""
        ...

    def actor(self, task: Task, state: Any) -> Any:
        """Who collects the next batch."""
        ...

    def foresight(self, state: Any) -> Foresight | None:
        """What its model can be asked after training; None without a model."""
        ...

    def train(self, task: Task, data: Dataset, state: Any, key: PRNGKeyArray) -> Iterator[tuple[Any, Metrics]]:
        """Learn from everything collected so far."""
        ...
