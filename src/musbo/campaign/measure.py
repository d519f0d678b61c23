"""What a policy is measured by: whole episodes in the simulator, and how far imagination agrees with what is real."""

import jax.numpy as jnp
import numpy as np

from musbo.algorithms.method import Forecast, Foresight
from musbo.campaign.events import Agreement, Episodes, Rewards, Stretch
from musbo.campaign.settings import Campaign, Purpose
from musbo.core.diagnostics import finite
from musbo.data.batch import Batch
from musbo.data.scaling import observed
from musbo.field import simulate
from musbo.learning.foresight import trajectories_apart
from musbo.models.frame import AnyPolicy
from musbo.tasks.task import Task

FORESIGHT_STARTS, FORESIGHT_STEPS = 20, 250  # of the imagined and real courses that are compared


def evaluation_seed(settings: Campaign) -> int:
    """The same episodes after every deployment, so that their policies are compared on equal terms."""
    return seed_of(settings, Purpose.EVALUATE)


def seed_of(settings: Campaign, purpose: Purpose, *path: int) -> int:
    return int(np.random.SeedSequence([settings.seed, purpose, *path]).generate_state(1)[0])


def stretch(measured: simulate.Evaluation, forecast: Forecast | None, model: Foresight | None) -> Stretch | None:
    """What was imagined of the policy is compared with the same stretch of the real: what was imagined in training or,
    where a method rates no policy there, the courses from the starts of these episodes."""
    if forecast is not None and forecast.horizon is not None:
        total, steps = measured.early(forecast.horizon)
    elif model is not None:
        total, steps = measured.early(FORESIGHT_STEPS, own=model.learns_reward)
    else:
        return None
    return Stretch(finite(total), steps)


def _courses(column: np.ndarray, starts: np.ndarray, lengths: np.ndarray, steps: int) -> np.ndarray:
    """Rows [n, ...] as episodes [b, steps, ...], zero behind the end of each."""
    found = np.zeros((len(starts), steps, *column.shape[1:]), column.dtype)
    for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        found[i, :length] = column[start : start + length]
    return found


def measure(task: Task, policy: AnyPolicy, episodes: int, seed: int) -> Episodes:
    """The deterministic policy over whole episodes in the simulator."""
    return describe(simulate.evaluate(task, policy, episodes, seed))


def describe(measured: simulate.Evaluation) -> Episodes:
    returns = measured.returns
    return Episodes(
        returns=tuple(finite(float(r)) for r in returns),
        mean_return=finite(float(returns.mean())),
        deviation=finite(float(returns.std(ddof=1))) if len(returns) > 1 else None,
        model_return=finite(float(measured.model_returns.mean())),
        mean_length=float(measured.lengths.mean()),
        speed=finite(float(measured.speeds.mean())),
        steps=measured.steps,
    )


def rewards(task: Task, batch: Batch) -> Rewards | None:
    """The reward formula beside the rewards on record; None where there is no formula, or no finite number."""
    if not callable(task.reward):
        return None
    formula, recorded = simulate.model_rewards(task, batch), batch.reward.astype(np.float64)
    # Rewards that never change have no spread: then a hundredth of their size stands for it.
    unit = max(float(recorded.std()), 0.01 * abs(float(recorded.mean())), 1e-9)
    apart = float(np.sqrt(np.mean((formula - recorded) ** 2))) / unit
    numbers = (float(recorded.mean()), float(formula.mean()), apart)
    return Rewards(*numbers) if np.isfinite(numbers).all() else None


def agreement(task: Task, model: Foresight | None, real: Batch, first: Batch, replay: bool) -> Agreement | None:
    """How far the imagined course of the policy is from its real one, from the same start states.

    Where there is no simulator to see the policy in, the models replay logged actions that they were not fitted on.
    Distances are in units of the `first` batch, which a method has no part in: in units of all its data, the method
    that collects more widely would have the smaller ones. `task` and `real` are as the method sees them; what is
    compared is the newest observation alone.
    """
    if model is None:
        return None
    steps = min(FORESIGHT_STEPS, task.episode_steps)
    starts = real.starts()[:FORESIGHT_STARTS]
    lengths = np.minimum(real.lengths()[:FORESIGHT_STARTS], steps)
    actions = jnp.asarray(_courses(real.act, starts, lengths, steps)) if replay else None
    found = model.courses(task, jnp.asarray(real.obs[starts]), steps, actions)
    imagined, imagined_lengths, rewards = (np.asarray(part) for part in found)
    if replay:  # nobody knows what was done after the end of a log
        imagined_lengths = np.minimum(imagined_lengths, lengths)
    units, new = observed(first.obs), task.predicted
    apart = trajectories_apart(
        real.obs[starts, :new],
        imagined[:, :, :new],
        _courses(real.next_obs[:, :new], starts, lengths, steps),
        imagined_lengths,
        lengths,
        np.asarray(units.mean),
        np.asarray(units.std),
    )
    return Agreement(
        finite(apart.energy_distance),
        finite(apart.trajectory_error),
        apart.imagined_steps,
        apart.real_steps,
        None if replay else finite(float(rewards.mean())),
    )
