"""Actors: what goes into the field. An actor maps observations to executed actions, one row per lane.

Beside an action it gives a number, its signal: how far it explores there, say. What that number is, the actor's
findings tell. Actors that explore around a policy are made by `learning/explore.py`.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray

from musbo.core.diagnostics import NOTHING, Diagnostic, Findings
from musbo.models.gaussian import GaussianPolicy, head
from musbo.models.mlp import named_arrays
from musbo.models.support import SupportPolicy
from musbo.tasks.task import Task

Act: TypeAlias = Float[Array, "b act"]
Obs: TypeAlias = Float[Array, "b obs"]
Signal: TypeAlias = Float[Array, " b"]


@runtime_checkable
class Actor(Protocol):
    """What collects data: a pytree with pure methods that are batched over lanes.

    With `needs_oracle` it also has tentative(obs, key) -> act and act_oracle(obs, tentative, next_obs, key) ->
    (act, signal).
    """

    @property
    def needs_oracle(self) -> bool: ...

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        """The executed action, inside the bounds, and the actor's signal."""
        ...

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        """What the signals of a batch show; `alone` is the share of its steps whose lane was the only one in step."""
        ...


@dataclass(frozen=True, eq=False)
class Shipped:
    """How an actor explores in the field, for the runtime there."""

    kind: str
    """One that the runtime knows; `none` where it cannot explore there."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """Settings of that kind."""
    arrays: dict[str, Array] = field(default_factory=dict)
    """Its networks."""
    golden: dict[str, Array] = field(default_factory=dict)
    """What it computes for some observations and actions, for the runtime to compare with."""
    why: str = ""
    """Why it cannot explore in the field."""


@runtime_checkable
class Shippable(Protocol):
    """An actor that the runtime in the field can stand in for."""

    def ship(self, obs: Obs, act: Act) -> Shipped:
        """What goes into a bundle; the golden values are those of `obs` and the policy's own actions there."""
        ...


@runtime_checkable
class Sharing(Protocol):
    """An actor of several policies that share the lanes."""

    def by(self, lanes: Int[np.ndarray, " n"]) -> Int8[np.ndarray, " n"]:
        """The number of the policy that has each lane; 0 is the leader."""
        ...


def chosen_by(actor: Actor, lanes: Int[np.ndarray, " n"]) -> Int8[np.ndarray, " n"]:
    """The number of the policy that has each lane; most actors have one."""
    return actor.by(lanes) if isinstance(actor, Sharing) else np.zeros(len(lanes), np.int8)


class UniformActor(eqx.Module):
    """Uniformly random actions inside the bounds: the first deployment."""

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    needs_oracle: bool = eqx.field(static=True, default=False)

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        b = obs.shape[0]
        share = jax.random.uniform(key, (b, self.low.shape[0]))
        return self.low[None] + share * (self.high - self.low)[None], jnp.zeros(b)

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        return NOTHING


def uniform(task: Task) -> UniformActor:
    """Uniformly random actions of a task."""
    return UniformActor(jnp.asarray(task.low), jnp.asarray(task.high))


HELD = (1, 4, 16)
"""For how many steps on average the lanes of `HeldActor` keep an action, in turn."""


class HeldActor(eqx.Module):
    """Uniformly random actions that most lanes hold for some steps.

    Where control is fast, actions that change at every step cancel each other out and the state hardly moves; which
    times matter is not known before the first batch, so the lanes differ.
    """

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    lanes: Int[Array, " b"] | None = None
    """The lane of every row; without it rows are lanes."""
    needs_oracle: bool = eqx.field(static=True, default=False)

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        k_keep, k_draw = jax.random.split(key)
        b = obs.shape[0]
        lanes = jnp.arange(b) if self.lanes is None else self.lanes
        times = jnp.asarray(HELD, jnp.float32)[lanes % len(HELD)]
        keeps = has_previous & (jax.random.uniform(k_keep, (b,)) < 1 - 1 / times)
        share = jax.random.uniform(k_draw, (b, self.low.shape[0]))
        drawn = self.low[None] + share * (self.high - self.low)[None]
        return jnp.where(keeps[:, None], previous_act, drawn), jnp.zeros(b)

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        return NOTHING


def held(task: Task) -> HeldActor:
    """Random actions of a task that are held."""
    return HeldActor(jnp.asarray(task.low), jnp.asarray(task.high))


class SampleActor(eqx.Module):
    """Samples of a stochastic policy."""

    policy: GaussianPolicy | SupportPolicy
    needs_oracle: bool = eqx.field(static=True, default=False)

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        return self.policy.draw(obs, key), jnp.zeros(obs.shape[0])

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        return NOTHING

    def ship(self, obs: Obs, act: Act) -> Shipped:
        return Shipped("sample", golden=_spread(self.policy, obs))


SHARES = ((0, 1, 0, 0), (0, 1, 2, 2))
"""Which of two policies, or of three, have the lanes 0 to 3, and so on: one lane of four is the challenger's."""


class SharedActor(eqx.Module):
    """Samples of policies that share the lanes: of the leader, a challenger and perhaps a candidate to lead."""

    leader: GaussianPolicy
    challenger: GaussianPolicy
    candidate: GaussianPolicy | None = None
    lanes: Int[Array, " b"] | None = None
    """The lane of every row; without it rows are lanes."""
    needs_oracle: bool = eqx.field(static=True, default=False)

    @property
    def shares(self) -> tuple[int, ...]:
        return SHARES[self.candidate is not None]

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        lanes = jnp.arange(obs.shape[0]) if self.lanes is None else self.lanes
        whose = jnp.asarray(self.shares)[lanes % len(self.shares)]
        act = self.leader.draw(obs, key)
        for number, policy in enumerate((self.challenger, self.candidate), start=1):
            if policy is not None:
                act = jnp.where((whose == number)[:, None], policy.draw(obs, key), act)
        return act, (whose > 0).astype(jnp.float32)

    def by(self, lanes: Int[np.ndarray, " n"]) -> Int8[np.ndarray, " n"]:
        return np.asarray(self.shares, np.int8)[lanes % len(self.shares)]

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        about = "Share of the batch that policies collected which do not lead."
        return Findings((Diagnostic("challenged", float(np.mean(signal)), "challengers' share", about, percent=True),))

    def ship(self, obs: Obs, act: Act) -> Shipped:
        """In the field episodes take the place of lanes."""
        others = [policy.network for policy in (self.challenger, self.candidate) if policy is not None]
        numbers = {"activation": others[0].activation, "shares": list(self.shares)}
        arrays = {}
        for number, network in enumerate(others, start=1):
            arrays |= named_arrays(network, f"shared_{number}")
        return Shipped("shared", numbers, arrays, _spread(self.leader, obs))


class PairActor(eqx.Module):
    """Two actors that share the lanes: the even ones are the leader's, the odd ones the other's."""

    leader: Actor
    other: Actor
    lanes: Int[Array, " b"] | None = None
    """The lane of every row; without it rows are lanes."""
    needs_oracle: bool = eqx.field(static=True, default=False)

    def act(
        self, obs: Obs, key: PRNGKeyArray, previous_obs: Obs, previous_act: Act, has_previous: Bool[Array, " b"]
    ) -> tuple[Act, Signal]:
        k_leader, k_other = jax.random.split(key)
        lanes = jnp.arange(obs.shape[0]) if self.lanes is None else self.lanes
        odd = lanes % 2 == 1
        before = previous_obs, previous_act, has_previous
        mine = for_lanes(self.leader, lanes // 2).act(obs, k_leader, *before)[0]
        theirs = for_lanes(self.other, lanes // 2).act(obs, k_other, *before)[0]
        return jnp.where(odd[:, None], theirs, mine), odd.astype(jnp.float32)

    def by(self, lanes: Int[np.ndarray, " n"]) -> Int8[np.ndarray, " n"]:
        """The leader's policies come first."""
        mine, theirs = chosen_by(self.leader, lanes // 2), chosen_by(self.other, lanes // 2)
        return np.where(lanes % 2 == 1, theirs + np.int8(policies_of(self.leader)), mine).astype(np.int8)

    def findings(self, signal: Float[np.ndarray, " n"], alone: float) -> Findings:
        about = "Share of the batch that the method collected which does not lead."
        return Findings((Diagnostic("others", float(np.mean(signal)), "the other's share", about, percent=True),))

    def ship(self, obs: Obs, act: Act) -> Shipped:
        """In the field the leader explores alone."""
        if not isinstance(self.leader, Shippable):
            return Shipped("none", why="the leader explores in a way that the runtime does not know")
        return self.leader.ship(obs, act)


def policies_of(actor: Actor) -> int:
    """How many policies share the lanes of an actor."""
    return 1 + int(chosen_by(actor, np.arange(2 * len(SHARES[0]))).max())


def _spread(policy: GaussianPolicy | SupportPolicy, obs: Obs) -> dict[str, Array]:
    if not isinstance(policy, GaussianPolicy):
        return {}
    return {"log_spread": head(policy.network, policy.frame.see(obs))[1]}


def for_lanes(actor: Actor, lanes: Int[np.ndarray, " b"] | Int[Array, " b"]) -> Actor:
    """The actor of rows that are these lanes; most actors treat all lanes alike."""
    if not isinstance(actor, SharedActor | HeldActor | PairActor):
        return actor
    return replace(actor, lanes=jnp.asarray(lanes, jnp.int32))
