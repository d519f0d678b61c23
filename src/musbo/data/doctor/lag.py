"""The lag between an action and its effect.

The change of the state in a step is explained, linearly, by the state and by the actions of this row and of the rows
before it. What an action of a certain lag adds is the part of the variance that is lost without it. Random and noisy
actions are told apart from one row to the next; where a policy repeats itself nothing is added and nothing is said.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from musbo.data.finding import Finding
from musbo.data.logs import Logs

LONGEST = 8
"""Rows back, beyond those of the policy's history."""
LEAST = 0.05
"""Part of the variance that the lagged action has to explain."""
AHEAD = 3.0
"""How many times as much it explains as the action of the expected row."""
FEWEST, SAMPLE = 200, 50_000
"""Transitions that are needed, and that are used."""


def lag(logs: Logs, expected: int, history: int = 0) -> Iterator[Finding]:
    """A lag of more than the `expected` rows. A policy that sees a `history` of as many rows can handle it."""
    parts = explained(logs, max(expected, history))
    if parts is None:
        return
    best = int(np.argmax(parts))
    # A regular gait repeats itself, and the last lag stands for all that are longer.
    if (
        best <= expected
        or best == len(parts) - 1
        or parts[best] < LEAST
        or parts[best] < AHEAD * parts[: expected + 1].max()
    ):
        return
    covered = best <= history
    wrong = "if it is written late, shift the action in the log"
    sees = f"{history} past action{'s' * (history > 1)}" if history else "no past actions"
    yield Finding(
        "lag",
        "note" if covered else "warning",
        f"the state answers to the action of {best} row{'s' * (best > 1)} before (which explains {parts[best]:.0%} of "
        f"the variance of a change, that of the same row {parts[0]:.0%}); the policy sees {sees}, "
        f"{'which covers it' if covered else 'which is too few'}",
        f"nothing, if the plant is slow; {wrong}"
        if covered
        else f"{wrong}; if the plant is slow, the task needs history = {best} or more (a campaign that has begun keeps "
        "its history: begin another one with its data)",
        tuple(logs.origin.name("act", i) for i in range(logs.batch.act.shape[1])),
    )


def explained(logs: Logs, known: int = 0) -> Float64[np.ndarray, " lags"] | None:
    """What the action of every lag explains, of the observation for which that is most; None for too few rows."""
    batch = logs.batch
    longest = min(LONGEST + known, int(batch.lengths().max()) - 1)
    rows = np.flatnonzero(batch.step >= longest)
    obs, act = batch.obs.shape[1], batch.act.shape[1]
    if longest < 1 or len(rows) < max(FEWEST, 10 * (obs + act * (longest + 1))):
        return None
    rows = rows[:: max(1, len(rows) // SAMPLE)]
    inputs = [batch.obs[rows], *(batch.act[rows - k] for k in range(longest + 1))]
    X, alive = _standard(np.concatenate(inputs, axis=1).astype(np.float64))
    Y, moving = _standard((batch.next_obs[rows] - batch.obs[rows]).astype(np.float64))
    Y = Y[:, moving]
    if not Y.shape[1]:
        return None
    n = len(rows)
    inverse = np.linalg.inv(X.T @ X / n + np.diag(np.where(alive, 1e-6, 1.0)))
    weights = inverse @ (X.T @ Y / n)
    parts = np.zeros(longest + 1)
    for k in range(longest + 1):
        block = slice(obs + k * act, obs + (k + 1) * act)
        # The loss of fit when a block of inputs is left out of a regression.
        lost = np.einsum("io,ij,jo->o", weights[block], np.linalg.inv(inverse[block, block]), weights[block])
        parts[k] = float(lost.max())
    return parts


def _standard(values: Float64[np.ndarray, "n k"]) -> tuple[Float64[np.ndarray, "n k"], np.ndarray]:
    """With mean 0 and deviation 1, and which columns vary."""
    deviation = values.std(axis=0)
    alive = deviation > 1e-9 * (1 + np.abs(values).max(axis=0))
    return (values - values.mean(axis=0)) / np.where(alive, deviation, np.inf), alive
