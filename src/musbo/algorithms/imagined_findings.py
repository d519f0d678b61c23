"""What TRPO in imagination has to say: the promise of a policy, and diagnostics of what is handed over."""

from typing import Any

import numpy as np

from musbo.algorithms.method import Forecast
from musbo.core.diagnostics import Caution, Diagnostic, Findings, finite
from musbo.learning.handover import Choice, Rating
from musbo.learning.objectives import Calibration


def promise(rating: Rating, horizon: int | None) -> Forecast:
    """`horizon` steps of an episode from its beginning are what was imagined; None where it was something else."""
    total, steps = float(np.asarray(rating.returns).mean()), float(rating.length)
    return Forecast(finite(total), finite(steps), horizon)  # nothing is known where all runs away at once


def rating_numbers(rating: Rating) -> dict[str, Any]:
    returns = np.asarray(rating.returns)
    return {
        "imagined_return": finite(float(returns.mean())),
        "imagined_per_member": [finite(float(value)) for value in returns],
        "imagined_length": finite(float(rating.length)),
        "imagined_cut": float(rating.cut),
        "path_disagreement": float(rating.path),
    }


RAN_AWAY = 0.5
"""More than this share of imagined trajectories that were cut: the models are asked about what they do not know."""


MANY = 20
"""So many updates in a row that are rejected: chance alone does not do that."""


def rejections(count: int, explained: float) -> Findings:
    """What is said of `count` updates in a row that the line search rejected."""
    if count < MANY:
        return Findings()
    text = (
        f"the last {count} updates were rejected, so nothing was learned in them (the baseline explains "
        f"{explained:.2f} of the returns); imagine more (--imagine.rollouts), or try --baseline ensemble"
    )
    return Findings(cautions=(Caution("updates rejected", text),))


def chosen(choice: Choice) -> Findings:
    """What is shown of the policy that is handed over."""
    return handed_over(int(choice.update), finite(float(choice.rating.cut)), finite(float(choice.rating.path)))


def handed_over(update: int, cut: float | None, path: float | None) -> Findings:
    shown = (
        Diagnostic("chosen", float(update), "update of the policy", "The update whose policy is handed over."),
        Diagnostic(
            "imagined_cut",
            cut,
            "imagined trajectories cut",
            "Share of the policy's imagined trajectories that ran far beyond the data and were cut.",
            percent=True,
        ),
        Diagnostic(
            "path_disagreement",
            path,
            "disagreement along the path",
            "Mean disagreement of the labeler along the policy's imagined path.",
            unit="multiples of its mean on held-out data",
        ),
    )
    if cut is None or cut <= RAN_AWAY:
        return Findings(shown)
    text = (
        f"{cut:.0%} of the imagined trajectories of this policy ran far beyond the data and were cut; "
        "fit longer (--dynamics.max-steps), or imagine less far (--imagine.horizon)"
    )
    return Findings(shown, (Caution("cut", text),))


def calibration(found: Calibration) -> Findings:
    """Whether doubt goes with error."""
    return Findings(
        (
            Diagnostic(
                "rank_correlation",
                found.rank_correlation,
                "disagreement with error",
                "Rank correlation of the labeler's disagreement and its error on held-out steps.",
                column="disagreement\nwith error",
            ),
            Diagnostic(
                "reliability",
                found.reliability,
                "reliability",
                "Disagreement against error on held-out steps, in ten groups of equal size.",
                unit="units of the state",
            ),
        )
    )
