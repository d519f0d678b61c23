"""How far a task's formulas agree with what was observed: rewards and ends of a simulator or of logs.

Imagination pays the formula; what is reported is what was observed. A formula that is ten times too small, or that ends
episodes which go on, is said here, with numbers, before anything is learned from it.
"""

from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Float64

from musbo.core.diagnostics import Caution, Diagnostic, Findings, finite
from musbo.data.batch import Batch
from musbo.field.simulate import model_rewards
from musbo.tasks.task import Task

FAR = 0.5
"""A difference above this share of the observed rewards (root mean squares) is worth a warning. Formulas that read the
speed at the end of a step where the simulator has its mean are at 0.1 to 0.4 on the Mujoco bodies."""
LINE = 0.98
"""Above this squared correlation a formula is a straight line of the observed reward: a factor or a shift is wrong."""
SLIGHT = 0.05
"""A straight line may differ by this share: rounding, and terms that hardly matter."""


def agreement(task: Task, batch: Batch, whose: str) -> Findings:
    """What the task's formulas say of real transitions; `whose` rewards and ends those are: "the simulator's"."""
    found = Findings()
    if callable(task.reward):
        found += compare_rewards(task, model_rewards(task, batch), batch.reward.astype(np.float64), whose)
    if task.terminated != "learned":
        never = np.zeros(len(batch), bool)
        over = np.asarray(_terminated(task, batch.next_obs)) if callable(task.terminated) else never
        found += compare_ends(task, over, batch.terminated, whose)
    return found


def compare_rewards(
    task: Task, formula: Float64[np.ndarray, " n"], observed: Float64[np.ndarray, " n"], whose: str
) -> Findings:
    """The formula's rewards beside those that were observed on the same transitions."""
    size, gap = np.sqrt(np.mean(observed**2)), np.sqrt(np.mean((formula - observed) ** 2))
    share = float(gap / size) if size > 0 else 0.0 if gap == 0 else np.inf
    varies = min(formula.std(), observed.std()) > 1e-9 * max(1.0, float(size))
    correlation = float(np.corrcoef(formula, observed)[0, 1]) if varies else None
    diagnostics = (
        Diagnostic(
            "reward_gap",
            finite(share),
            "reward formula against observed",
            f"Size of their difference as a share of {whose} reward, root mean squares over the same steps.",
            percent=True,
        ),
        Diagnostic(
            "reward_correlation", finite(correlation), "correlation of the reward formula", f"With {whose} reward."
        ),
    )
    line = correlation is not None and correlation**2 > LINE
    constant = max(formula.std(), observed.std()) <= 1e-9 * max(1.0, float(size))
    if share <= (SLIGHT if line or constant else FAR):
        return Findings(diagnostics)
    if line:
        slope, shift = np.polyfit(observed, formula, 1)
        plus = "" if abs(shift) < SLIGHT * formula.std() else f" {'plus' if shift > 0 else 'minus'} {abs(shift):.3g}"
        what = f"is {slope:.3g} times {whose} reward{plus}"
    elif share > 10:
        what = f"has little to do with {whose} reward"
    else:
        what = f"differs from {whose} reward by {share:.0%} of its size"
    related = "" if correlation is None else f", correlation {correlation:.2f}"
    text = (
        f"the reward formula of task {task.name} {what} (mean {formula.mean():.3g} and {observed.mean():.3g} over "
        f"{len(observed):,} steps{related}): training follows the formula, so correct it unless this is meant"
    )
    return Findings(diagnostics, (Caution("reward formula", text),))


def compare_ends(task: Task, formula: Bool[np.ndarray, " n"], observed: Bool[np.ndarray, " n"], whose: str) -> Findings:
    """Where the formula says that an episode is over, and where it was."""
    early, late = int(np.sum(formula & ~observed)), int(np.sum(observed & ~formula))
    if not early and not late:
        return Findings()
    said = [f"in {early:,} it says over where {whose} episode went on"] if early else []
    said += [f"in {late:,} {whose} episode ended and it says nothing"] if late else []
    if task.terminated is None:
        text = (
            f"task {task.name} says that no episode ends before its time limit (terminated=None), but {late:,} of "
            f"{len(observed):,} steps ended {whose} episode: give a formula, or terminated='learned'"
        )
    else:
        text = (
            f"the termination formula of task {task.name} is wrong in {early + late:,} of {len(observed):,} steps: "
            f"{' and '.join(said)}; correct it unless this is meant"
        )
    return Findings(cautions=(Caution("termination formula", text),))


@partial(jax.jit, static_argnames="task")
def _terminated(task: Task, next_obs: Float[Array, "n obs"]) -> Bool[Array, " n"]:
    assert callable(task.terminated)
    return jax.vmap(task.terminated)(next_obs)
