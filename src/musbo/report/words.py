"""Numbers as people read them, and the warnings that a run may deserve."""

import math
from collections.abc import Callable, Sequence
from typing import Any

RAN_AWAY = 0.5
"""More than this share of imagined trajectories that were cut: the models are asked about what they do not know."""
INERT = 0.05
"""A 10-90 % range of U below this, or of a penalty or doubt below this share of it: it is nearly constant."""


def number(value: float | None) -> str:
    """Four digits; a dash where there is no number."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def decimals(value: float | None) -> str:
    """Three of them: novelty differs in the second and third, on either side of 1."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.3f}"


def with_spread(mean: float | None, spread: float | None, text: Callable[[float | None], str] = number) -> str:
    """Mean ± deviation; the mean alone where there is nothing to deviate from."""
    return text(mean) if spread is None or math.isnan(spread) else f"{text(mean)} ± {text(spread)}"


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def quantiles(values: Sequence[float] | None) -> str:
    """Three digits after the point, so that columns of them line up."""
    if not values or any(value is None for value in values):
        return "-"
    return " ".join(f"{value:.3f}" if abs(value) < 10 else f"{value:.3g}" for value in values)


def duration(seconds: float | None) -> str:
    """12 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def per_step(total: float | None, steps: float | None) -> float | None:
    """Episodes differ in length, and imagined ones from real ones: only reward per step compares."""
    if total is None or not steps or not math.isfinite(total):
        return None
    return total / steps


def imagined_per_step(trained: dict[str, Any], evaluated: dict[str, Any]) -> float | None:
    """What imagination promised of the policy that was handed over.

    Without a horizon, training rated it from the midst of episodes or not at all: what was foreseen from the starts of
    the real episodes is what compares with them.
    """
    if trained.get("imagined_horizon") is None and evaluated.get("foreseen_return") is not None:
        return per_step(evaluated["foreseen_return"], evaluated.get("imagined_steps"))
    return per_step(trained.get("imagined_return"), trained.get("imagined_length"))


def real_per_step(evaluated: dict[str, Any]) -> float | None:
    """What came true, over the same steps and under the same reward."""
    return per_step(evaluated.get("early_return"), evaluated.get("early_length"))


def spans(numbers: Sequence[int]) -> str:
    """1 to 3, 5: of numbers in order."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def trained_warnings(trained: dict[str, Any]) -> dict[str, str]:
    """Sentences by their kind: those of one kind differ in numbers alone.

    `alpha` is None for a method that has no coefficient: then nothing is wrong with U = 1.
    """
    found = {}
    share = trained.get("imagined_cut") or 0.0
    if share > RAN_AWAY:
        found["cut"] = (
            f"{share:.0%} of the imagined trajectories of this policy ran far beyond the data and were cut; "
            "fit longer (--dynamics.max-steps), or imagine less far (--imagine.horizon)"
        )
    low_high = trained.get("U")
    if trained.get("alpha") is not None and low_high and low_high[-1] - low_high[0] < INERT:
        low, high = low_high[0], low_high[-1]
        found["inert"] = (
            f"the coefficient is inert (range {high - low:.2g}: U from {low:.3f} to {high:.3f}), "
            "so this is nearly U = 1; raise --label.alpha, or set it to auto"
        )
    paid = trained.get("penalty")
    if paid and None not in paid and paid[-1] > 0 and paid[-1] - paid[0] < INERT * paid[-1]:
        found["flat penalty"] = (
            f"the penalty is nearly the same everywhere (from {number(paid[0])} to {number(paid[-1])}), so it charges "
            "for every step and not for doubt; fit longer (--dynamics.max-steps)"
        )
    return found


def batch_warnings(batch: dict[str, Any]) -> dict[str, str]:
    """What is odd about a batch that was brought (each a kind of its own), and about how one was collected."""
    odd = [f"{batch['source']}: {text}" for text in batch.get("warnings", ())]
    found = dict(zip(odd, odd, strict=True))
    share = batch.get("zeta_at_cap", 0.0)
    if share > 0.5:
        found["at cap"] = (
            f"zeta is at its cap in {share:.0%} of the steps, so the noise hardly depends on the state "
            "(with --explore.zeta-scale raw: raise --explore.zeta-max, or go back to relative)"
        )
    share = batch.get("zeta_alone", 0.0)
    if share > 0.1:
        found["no control"] = (
            f"zeta is pooled over a single lane in {share:.0%} of the steps, so there the noise seeks after all and "
            "this is no control; raise --batch until it holds four full episodes"
        )
    return found
