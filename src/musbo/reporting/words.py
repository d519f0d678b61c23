"""Numbers and diagnostics as people read them."""

import math
from collections.abc import Callable, Iterable, Sequence

from musbo.core.diagnostics import Curve, Diagnostic, Findings, Quantiles


def number(value: float | None) -> str:
    """Four digits; a dash where there is no number."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def signed(value: float | None) -> str:
    """With a plus where it is more than nothing."""
    return ("+" if value is not None and value > 0 else "") + number(value)


def decimals(value: float | None) -> str:
    """Three of them: novelty differs in the second and third, on either side of 1."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.3f}"


def percent(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.0%}"


def with_deviation(mean: float | None, deviation: float | None, text: Callable[[float | None], str] = number) -> str:
    """Mean ± deviation; the mean alone where there is no deviation."""
    return text(mean) if deviation is None or math.isnan(deviation) else f"{text(mean)} ± {text(deviation)}"


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def quantiles(value: Quantiles | None) -> str:
    """Three digits after the point, so that columns of them line up."""
    if value is None:
        return "-"
    return " ".join(
        f"{each:.3f}" if abs(each) < 10 else f"{each:.3g}" for each in (value.low, value.median, value.high)
    )


def diagnostic(shown: Diagnostic) -> str:
    """The value of a diagnostic; a dash for a curve, which is for figures."""
    match shown.value:
        case Quantiles() as value:
            return quantiles(value)
        case Curve() | None:
            return "-"
        case value:
            whole = not shown.unit and float(value).is_integer() and abs(value) >= 100
            return percent(value) if shown.percent else f"{value:.0f}" if whole else number(value)


def brief(found: Findings) -> str:
    """The first diagnostic and those that have a column in tables, in one line; empty where there is none."""
    every = [each for i, each in enumerate(found.diagnostics) if i == 0 or each.column]
    return ", ".join(f"{each.title} {text}" for each in every if (text := diagnostic(each)) != "-")


def sentence(text: str) -> str:
    """With a capital letter at its beginning, unless a file's name is there, and a full stop at its end."""
    text = text.strip()
    first = text.partition(" ")[0]
    begun = text if "." in first or "/" in first else text[:1].upper() + text[1:]
    return begun + ("" if not text or text.endswith((".", "!", "?")) else ".")


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


def spans(numbers: Iterable[int]) -> str:
    """1 to 3, 5: of numbers in order."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def plural(noun: str, things: Sequence[object]) -> str:
    return noun if len(things) == 1 else f"{noun}s"
