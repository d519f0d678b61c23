"""What the campaign asks of a method: three questions, and what must be known before the first.

A method is a frozen dataclass of settings. Its state is any pytree with a `policy` (the deterministic policy that
would be handed over now) and a `stage`; `train` is a generator, and every state that it yields holds all that is needed
to go on.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

from musbo.data.dataset import Dataset
from musbo.tasks.task import Task

Metrics = dict[str, Any]


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

    def foresee(
        self,
        task: Task,
        state: Any,
        start: Float[Array, "b obs"],
        steps: int,
        actions: Float[Array, "b t act"] | None = None,
    ) -> tuple[Any, Any] | None:
        """Imagined from these states: where the policy, or a list of actions, leads, and for how long.

        None for a method without a model.
        """
        ...

    def doubt(self, state: Any, obs: Float[Array, "n obs"], act: Float[Array, "n act"]) -> Float[Array, " n"] | None:
        """How unsure the model is of each step, in units of the state; None without a model."""
        ...

    def train(self, task: Task, data: Dataset, state: Any, key: PRNGKeyArray) -> Iterator[tuple[Any, Metrics]]:
        """Learn from everything collected so far."""
        ...
