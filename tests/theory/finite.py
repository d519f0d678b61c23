"""Worlds small enough to be solved exactly: finitely many states that are points in space, and deterministic models.

Two models of one world share its points, policy, reward and discount, and differ in ``next_state`` alone.
"""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from jaxtyping import Float, Int


@dataclass(frozen=True, eq=False)
class World:
    """S states, A actions; the reward is given for every s', and is constant over s' where it looks at (s, a) alone."""

    points: Float[np.ndarray, "S obs"]
    policy: Float[np.ndarray, "S A"]
    reward: Float[np.ndarray, "S A S"]
    gamma: float
    start: Float[np.ndarray, " S"]
    next_state: Int[np.ndarray, "S A"]

    def under(self, next_state: Int[np.ndarray, "S A"]) -> "World":
        return replace(self, next_state=next_state)

    def predictions(self) -> Float[np.ndarray, "SA obs"]:
        """M(s, a) for every pair, as points."""
        return self.points[self.next_state.ravel()]

    def received(self) -> Float[np.ndarray, "S A"]:
        """r(s, a, M(s, a))."""
        return np.take_along_axis(self.reward, self.next_state[..., None], axis=2)[..., 0]

    def transition(self) -> Float[np.ndarray, "S S"]:
        """The Markov chain of the states under the policy."""
        states, actions = self.policy.shape
        chain = np.zeros((states, states))
        for s in range(states):
            for a in range(actions):
                chain[s, self.next_state[s, a]] += self.policy[s, a]
        return chain

    def values(self) -> Float[np.ndarray, " S"]:
        """V of every state: V = r_π + γ P V."""
        gained = (self.policy * self.received()).sum(axis=1)
        return np.linalg.solve(np.eye(len(gained)) - self.gamma * self.transition(), gained)

    def value(self) -> float:
        """V from the start distribution."""
        return float(self.start @ self.values())

    def visits(self) -> Float[np.ndarray, " SA"]:
        """ρ(s, a): the discounted state-action distribution from the start, which sums to one."""
        chain = np.eye(len(self.start)) - self.gamma * self.transition()
        states = (1 - self.gamma) * np.linalg.solve(chain.T, self.start)
        return (states[:, None] * self.policy).ravel()

    def scale(self) -> float:
        """The largest value that there could be, to measure rounding errors by."""
        return 1 + float(np.abs(self.reward).max()) / (1 - self.gamma)


def _grid(draw: st.DrawFn, shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
    size = int(np.prod(shape))
    return np.array(draw(st.lists(st.integers(low, high), min_size=size, max_size=size))).reshape(shape)


def _shares(draw: st.DrawFn, rows: int, columns: int) -> np.ndarray:
    """Rows that sum to one. Zeros are common, so that deterministic policies and single start states come up."""
    weights = _grid(draw, (rows, columns), 0, 3).astype(float)
    weights[np.arange(rows), _grid(draw, (rows,), 0, columns - 1)] += 1
    return weights / weights.sum(axis=1, keepdims=True)


@st.composite
def pairs_of_models(draw: st.DrawFn, reward_of_next_state: bool = False) -> tuple[World, World]:
    """One world under two models that have nothing to do with each other."""
    states, actions, size = draw(st.integers(2, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    place = st.tuples(*[st.integers(-8, 8)] * size)
    points = draw(st.lists(place, min_size=states, max_size=states, unique=True))
    looks = states if reward_of_next_state else 1
    reward = _grid(draw, (states, actions, looks), -20, 20) / 4
    world = World(
        points=np.array(points, dtype=float) / 4,
        policy=_shares(draw, states, actions),
        reward=np.broadcast_to(reward, (states, actions, states)).copy(),
        gamma=draw(st.sampled_from([0.1, 0.5, 0.9, 0.97])),
        start=_shares(draw, 1, states)[0],
        next_state=_grid(draw, (states, actions), 0, states - 1),
    )
    return world, world.under(_grid(draw, (states, actions), 0, states - 1))
