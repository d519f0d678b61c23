"""How far a learned reward and a learned termination agree with real data that no model was fitted on.

Imagination pays the reward of one member after the other, so each held-out step is asked of one of them, in turn.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from musbo.core.diagnostics import Caution, Diagnostic, Findings, finite
from musbo.data.dataset import Dataset, rows
from musbo.models import dynamics, stochastic
from musbo.models.dynamics import Dynamics
from musbo.models.mlp import count
from musbo.models.stochastic import Stochastic
from musbo.tasks.task import Task

STAGE = "learned"
ROWS, BLOCK = 20_000, 1000
"""Held-out rows, at most, and how many of them at once: one shape, so that nothing is compiled again."""
FAR = 0.5
"""A learned reward that is wrong by more than this share of the spread of what was recorded is worth a warning."""
MISSED = 0.5
"""So is a termination of which more than this share is missed."""

Says = Callable[[Float[Array, "n obs"], Float[Array, "n act"]], tuple[Float[Array, " n"], Bool[Array, " n"]]]
"""Reward and end of imagined steps."""


@partial(jax.jit, static_argnames="task")
def by_dynamics(
    task: Task, model: Dynamics, obs: Float[Array, "n obs"], act: Float[Array, "n act"]
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """What M says, its members in turn."""
    each = jax.vmap(lambda network, s, a: dynamics.step(task, network, model.scaling, s, a)[1:], (None, 0, 0))
    said = jax.lax.map(lambda network: each(network, obs, act), model.members)
    return _in_turn(count(model.members), *said)


@partial(jax.jit, static_argnames="task")
def by_stochastic(
    task: Task, model: Stochastic, obs: Float[Array, "n obs"], act: Float[Array, "n act"]
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """What the means of the elites say, in turn."""
    elites = jax.tree.map(lambda leaf: leaf[model.elites], model.members)
    each = jax.vmap(lambda network, s, a: stochastic.predict(network, model.scaling, s, a)[0], (None, 0, 0))
    said = jax.lax.map(lambda network: each(network, obs, act), elites)
    over = said[:, :, -1] > 0.5 if task.terminated == "learned" else jnp.zeros(said.shape[:2], bool)
    return _in_turn(model.elites.shape[0], said[:, :, task.predicted], over)


def _in_turn(
    k: int, reward: Float[Array, "k n"], over: Bool[Array, "k n"]
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    row = jnp.arange(reward.shape[1])
    return reward[row % k, row], over[row % k, row]


def agreement(task: Task, data: Dataset, says: Says, reward: bool) -> Findings:
    """What is learned beside what was recorded, on held-out steps; `reward`: whether the reward is learned."""
    chosen = rows(np.asarray(data.heldout))
    chosen = chosen[:: -(-len(chosen) // ROWS)]
    obs, act = np.asarray(data.obs), np.asarray(data.act)
    found = []
    for first in range(0, len(chosen), BLOCK):
        some = chosen[first : first + BLOCK]
        padded = np.resize(some, BLOCK)
        found.append(
            [np.asarray(part)[: len(some)] for part in says(jnp.asarray(obs[padded]), jnp.asarray(act[padded]))]
        )
    paid, over = (np.concatenate(parts) for parts in zip(*found, strict=True))
    findings = Findings()
    if reward:
        findings += _rewards(paid.astype(np.float64), np.asarray(data.reward)[chosen].astype(np.float64))
    if task.terminated == "learned":
        findings += _ends(over, np.asarray(data.terminated)[chosen])
    return findings


def _rewards(paid: Float[np.ndarray, " n"], recorded: Float[np.ndarray, " n"]) -> Findings:
    # Rewards that never change have no spread: then a hundredth of their size stands for it.
    unit = max(float(recorded.std()), 0.01 * abs(float(recorded.mean())), 1e-9)
    apart = finite(float(np.sqrt(np.mean((paid - recorded) ** 2))) / unit)
    varies = min(paid.std(), recorded.std()) > 1e-9 * max(1.0, abs(float(recorded.mean())))
    related = finite(float(np.corrcoef(paid, recorded)[0, 1])) if varies else None
    shown = (
        Diagnostic(
            "learned_reward_apart",
            apart,
            "learned reward against recorded",
            "Size of their difference on held-out steps, as a share of the spread of the recorded rewards.",
            percent=True,
        ),
        Diagnostic(
            "learned_reward_correlation",
            related,
            "correlation of the learned reward",
            "With the recorded reward, on held-out steps.",
        ),
    )
    if apart is None or apart <= FAR:
        return Findings(shown)
    text = (
        f"the learned reward is wrong by {apart:.0%} of the spread of the recorded one on held-out steps: what is "
        "imagined is paid by it, so give the task a reward function, observe what the reward depends on, or collect "
        "more data"
    )
    return Findings(shown, (Caution("learned reward", text),))


def _ends(said: Bool[np.ndarray, " n"], recorded: Bool[np.ndarray, " n"]) -> Findings:
    ended = int(recorded.sum())
    seen = float(said[recorded].mean()) if ended else None
    early = float(said[~recorded].mean()) if ended < len(recorded) else None
    shown = (
        Diagnostic(
            "learned_ends_seen",
            seen,
            "learned terminations that are seen",
            "Share of the terminations in held-out steps that the models foresee.",
            percent=True,
        ),
        Diagnostic(
            "learned_ends_early",
            early,
            "learned terminations that are none",
            "Share of the other held-out steps in which the models end the episode.",
            percent=True,
        ),
    )
    if seen is None or seen >= 1 - MISSED:
        return Findings(shown)
    text = (
        f"of {ended:,} held-out terminations the models foresee {seen:.0%}, so imagined episodes go on where real ones "
        "end: give the task a termination function, or collect more episodes that end"
    )
    return Findings(shown, (Caution("learned termination", text),))
