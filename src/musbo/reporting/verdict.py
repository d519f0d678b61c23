"""What came of a run or a comparison, in words."""

from collections.abc import Sequence

from musbo.campaign.events import Episodes
from musbo.campaign.summary import Summary
from musbo.reporting.advice import Advice, advise, behaviour, difference, evaluations
from musbo.reporting.words import count, number, sentence, with_deviation

BARS = "▁▂▃▄▅▆▇█"
SAME = 0.02
"""Differences below this share of the gain are not worth a word."""


def sparkline(values: Sequence[float | None]) -> str:
    """A bar for every value, from the smallest to the largest; a dot where there is none."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join("·" if value is None else BARS[round((value - low) * scale)] for value in values)


def first_behaviour(summary: Summary) -> str:
    """What collected the first batch."""
    return "the behaviour in the data" if summary.deployments[0].batch.source else "random actions"


def verdict(summary: Summary, advice: Sequence[Advice] | None = None) -> str:
    """A few sentences about a run."""
    if not summary.deployments:
        return "Nothing was collected yet."
    found = advise(summary) if advice is None else advice
    parts = (
        [] if summary.finished else [f"{summary.deployed} of {count(summary.settings.budget, 'deployment')} so far."]
    )
    return " ".join([*parts, learned(summary), _judged(found)])


def _judged(advice: Sequence[Advice]) -> str:
    if not advice:
        return "Nothing looks wrong."
    return (
        "One thing to look at." if len(advice) == 1 else f"{len(advice)} things to look at, the most important first."
    )


def learned(summary: Summary) -> str:
    """What the policy is worth, beside the behaviour it began with and the policy before it."""
    measured, start = evaluations(summary), behaviour(summary)
    spent = f"After {count(summary.deployed, 'deployment')} ({count(summary.transitions, 'transition')})"
    if not measured:
        return _unmeasured(summary, spent)
    d, episodes, mean = measured[-1]
    text = f"{spent} the policy earns {with_deviation(mean, episodes.deviation)} per episode"
    text += f"; {first_behaviour(summary)} earned {number(start)}." if start is not None else "."
    if len(measured) > 1:
        gain = 0.0 if start is None else abs(mean - start)
        text += f" {_since(episodes, measured[-2][1], measured[-2][0], gain)}"
    return text


def _since(now: Episodes, before: Episodes, d: int, gain: float) -> str:
    """Beside the policy before; a few per cent of what was gained in all are no news."""
    apart = difference(now, before)
    if apart is None:
        return ""
    if not apart.clear or abs(apart.mean) < SAME * gain:
        return f"It does not differ clearly from the one after deployment {d}."
    word = "better" if apart.mean > 0 else "worse"
    return f"It is {word} than the one after deployment {d}, by {number(abs(apart.mean))} ± {number(apart.error)}."


def _unmeasured(summary: Summary, spent: str) -> str:
    last = summary.deployments[-1]
    if last.evaluation is None or last.evaluation.skipped is None:
        return f"{spent} no policy was measured yet."
    text = sentence(f"{spent} the policy was not measured: {last.evaluation.skipped}")
    if last.imagined_per_step is not None and last.batch.mean_return is not None and last.batch.mean_length:
        promised, logged = last.imagined_per_step, last.batch.mean_return / last.batch.mean_length
        text += f" Imagination promises {number(promised)} per step; the newest batch has {number(logged)}."
    return text


def picture(summary: Summary) -> str:
    """The course of the returns in one line; empty where none is known."""
    measured = [item.mean_return for item in summary.deployments if item.evaluation is not None]
    if all(value is None for value in measured):
        return ""
    values = [behaviour(summary), *measured]
    known = [value for value in values if value is not None]
    what = f"{first_behaviour(summary)}, then the policy after each deployment"
    return f"{number(known[0])} {sparkline(values)} {number(known[-1])}   {what}"
