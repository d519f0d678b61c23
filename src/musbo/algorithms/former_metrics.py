"""What ledgers of format 1 say about the inside of methods, as findings. Nothing is ever added here."""

from typing import Any

from musbo.algorithms.imagined_findings import calibration, handed_over
from musbo.core.diagnostics import NOTHING, Diagnostic, Findings, curve, quantiles
from musbo.learning.explore import seeking_findings
from musbo.learning.label import coefficient_findings, disagreement_shown, penalty_findings
from musbo.learning.objectives import Calibration

_ERROR = "Error on held-out data over all that the networks predict, the mean of the best of every member."


def signal(old: dict[str, Any]) -> tuple[float, ...]:
    """Of the payload of a shard."""
    return tuple(old["zeta"])


def of_batch(old: dict[str, Any]) -> Findings:
    """Of the payload of a batch."""
    if "zeta" not in old:
        return NOTHING
    return seeking_findings(old["zeta"], old.get("zeta_at_cap"), old.get("zeta_alone", 0.0))


def of_training(old: dict[str, Any]) -> Findings:
    """Of the payload of a training."""
    found = NOTHING
    for stage, column in (("dynamics", "model\nerror"), ("labeler", "")):
        if old.get(f"{stage}_error") is not None:
            found += Findings((_error(stage, old[f"{stage}_error"], column),))
    found += _signals(old.get("U"), old.get("disagreement"), old.get("alpha"))
    if old.get("penalty"):
        found += penalty_findings(quantiles(old["penalty"]))
    if old.get("chosen") is not None:
        found += handed_over(old["chosen"], old.get("imagined_cut"), old.get("path_disagreement"))
    if old.get("reliability_doubt"):
        titles = ("disagreement of the labeler", "error of its members' mean")
        shown = None
        if None not in (*old["reliability_doubt"], *old["reliability_error"]):
            shown = curve(old["reliability_doubt"], old["reliability_error"], *titles)
        found += calibration(Calibration(old.get("rank_correlation"), shown))
    return found


def of_stage(stage: str, row: dict[str, Any]) -> Findings:
    """Of the last row of metrics of a stage, in a training that was under way."""
    if row.get("error") is not None:
        return Findings((_error(stage, row["error"], "model\nerror" if stage == "dynamics" else ""),))
    return NOTHING


def _error(stage: str, value: float, column: str) -> Diagnostic:
    return Diagnostic(f"{stage}_error", value, f"{stage} error", _ERROR, "squared, in units of the data", column)


def _signals(U: Any, apart: Any, alpha: float | None) -> Findings:
    if alpha is not None:
        return coefficient_findings(quantiles(U), quantiles(apart), alpha)
    return Findings((disagreement_shown(quantiles(apart)),)) if apart else NOTHING
