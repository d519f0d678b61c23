"""Where a deployment's policy optimisation starts (line 5 of the paper's training function).

`Clone` fits the policy to the newest batch by behaviour cloning, beginning from the policy that collected it (steps
that the fallback controller or a person steered are left out: they are not the policy's);
`Continue` takes that policy as it is. The reference policy enters only through this start and the trust region.
A new start is a frozen dataclass with the three methods of `Start`, stored as `start/...`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from musbo.core.diagnostics import Stage
from musbo.core.registry import stored
from musbo.data.batch import FALLBACK, HUMAN
from musbo.data.dataset import Dataset, rows
from musbo.learning import fit
from musbo.learning.fit import Epoch, FitSettings, FitState, Rows
from musbo.models.mlp import MLP, member
from musbo.models.policy import Policy

STAGE = "start"


@runtime_checkable
class Start(Protocol):
    """How the first policy of an optimisation is made from the newest batch and the policy that collected it."""

    def stages(self) -> tuple[Stage, ...]:
        """What it does that takes time; nothing where there is nothing to fit."""
        ...

    def begin(
        self, data: Dataset, policy: Policy, work: FitState | None, key: PRNGKeyArray
    ) -> Iterator[tuple[FitState, Epoch]]:
        """Do it, going on from `work` where there is some; yields after every epoch."""
        ...

    def policy(self, policy: Policy, work: FitState | None) -> Policy:
        """The policy that optimisation starts from, after the last `work`."""
        ...


@stored("start/continue")
@dataclass(frozen=True)
class Continue:
    """Start from the policy that collected the newest batch (the pseudo-code's wording; ME-TRPO)."""

    def stages(self) -> tuple[Stage, ...]:
        return ()

    def begin(
        self, data: Dataset, policy: Policy, work: FitState | None, key: PRNGKeyArray
    ) -> Iterator[tuple[FitState, Epoch]]:
        return iter(())

    def policy(self, policy: Policy, work: FitState | None) -> Policy:
        return policy


@stored("start/clone")
@dataclass(frozen=True)
class Clone:
    """Start from behaviour cloning of the newest batch (appendix F; BREMEN)."""

    learning_rate: float = 5e-4
    """Adam's step size (paper: 5e-4)."""
    batch: int = 256
    """Minibatch size (BREMEN: 256)."""
    epochs: int = 100
    """At most this many passes over the newest batch."""
    patience: int = 3
    """Stop after this many validation checks without a new best (paper: 3)."""

    def __post_init__(self) -> None:
        self.as_fit()  # which refuses impossible numbers

    def as_fit(self) -> FitSettings:
        return FitSettings(
            members=1,
            learning_rate=self.learning_rate,
            batch=self.batch,
            epochs=self.epochs,
            patience=self.patience,
            l2=0.0,
        )

    def stages(self) -> tuple[Stage, ...]:
        return (Stage(STAGE, "cloning the collector"),)

    def begin(
        self, data: Dataset, policy: Policy, work: FitState | None, key: PRNGKeyArray
    ) -> Iterator[tuple[FitState, Epoch]]:
        work = work or fit.begin(jax.tree.map(lambda leaf: leaf[None], policy.mlp))
        chosen = clone_rows(data, policy)
        if not len(chosen.train) or not len(chosen.heldout):  # others steered: the policy stays as it is
            return iter(())
        return fit.epochs(self.as_fit(), ActionError(), chosen, work, key)

    def policy(self, policy: Policy, work: FitState | None) -> Policy:
        return policy if work is None else replace(policy, mlp=member(work.best, 0))


@dataclass(frozen=True)
class ActionError:
    """Squared error of the squashed mean, in units of the action half-range."""

    def errors(self, network: MLP, x: Float[Array, "n obs"], y: Float[Array, "n act"]) -> Float[Array, " n"]:
        return jnp.sum((jnp.tanh(jax.vmap(network)(x)) - y) ** 2, axis=1)

    def loss(self, network: MLP, x: Float[Array, "n obs"], y: Float[Array, "n act"]) -> Float[Array, ""]:
        return jnp.mean(self.errors(network, x, y))

    def kernels(self, network: MLP) -> tuple[Float[Array, "_ _"], ...]:
        return ()


def clone_rows(data: Dataset, policy: Policy) -> Rows:
    x = (data.obs - policy.normaliser.mean[None]) / policy.normaliser.std[None]
    y = (data.act - policy.centre[None]) / policy.half_range[None]
    deployment, heldout = np.asarray(data.deployment), np.asarray(data.heldout)
    newest = np.asarray(data.live) & (deployment == deployment.max()) & ~np.isin(np.asarray(data.by), (FALLBACK, HUMAN))
    return Rows(x, y, rows(newest & ~heldout), rows(newest & heldout))
