"""Rules on the verdicts of many campaigns: which is chosen, how often it passes a bad policy or stops a good one."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from musbo.gate.evidence import Evidence
from musbo.gate.verdict import Rule, rule_on

Row: TypeAlias = dict[str, Any]
"""A verdict as the ledger has it."""
Passes: TypeAlias = Callable[[Row], bool]

MARGIN = 0.1
"""Bad, and clearly better: a difference of this share of the distance between random and incumbent."""
ALLOWED = 0.04
"""Of the bad ones as many may pass in the calibration; the aim for the report is 5 %."""


def margin(row: Row) -> float:
    return MARGIN * abs(row["incumbent"] - row["random"])


def bad(row: Row) -> bool:
    return row["candidate"] - row["incumbent"] <= -margin(row)


def better(row: Row) -> bool:
    return row["candidate"] - row["incumbent"] >= margin(row)


def evidence(row: Row) -> Evidence:
    said: dict[str, Any] = row["evidence"]
    found: dict[str, Any] = {name: tuple(map(tuple, x)) if isinstance(x, list) else x for name, x in said.items()}
    return Evidence(**found)


@dataclass(frozen=True)
class Rates:
    """Of one rule."""

    bad: int
    passed: int
    better: int
    stopped: int

    def row(self, name: str) -> str:
        return f"| {name} | {_share(self.passed, self.bad)} | {_share(self.stopped, self.better)} |"

    @property
    def bad_passed(self) -> float:
        return self.passed / max(self.bad, 1)

    @property
    def good_stopped(self) -> float:
        return self.stopped / max(self.better, 1)


def rates(rows: Iterable[Row], passes: Passes) -> Rates:
    found = [(bad(row), better(row), passes(row)) for row in rows]
    return Rates(
        sum(b for b, _, _ in found),
        sum(b and p for b, _, p in found),
        sum(g for _, g, _ in found),
        sum(g and not p for _, g, p in found),
    )


def wilson(count: int, of: int) -> tuple[float, float]:
    """A 95 % interval for a share."""
    if not of:
        return 0.0, 1.0
    z, p = 1.96, count / of
    middle, half = p + z**2 / (2 * of), z * math.sqrt(p * (1 - p) / of + z**2 / (4 * of**2))
    return (middle - half) / (1 + z**2 / of), (middle + half) / (1 + z**2 / of)


def _share(count: int, of: int) -> str:
    low, high = wilson(count, of)
    return f"{count} of {of}: {count / max(of, 1):.0%} [{low:.0%}, {high:.0%}]"


# The rules


def by_gate(rule: Rule) -> Passes:
    return lambda row: rule_on(rule, evidence(row), margin(row)).word == "GO"


def by_imagination(row: Row) -> bool:
    """Deploy what the models of the campaign rate best."""
    return row["imagined"][0] > row["imagined"][1]


def by_means(models: float, fitted: float) -> Passes:
    """Deploy what has the larger mean, by refits or by fitted Q."""

    def passes(row: Row) -> bool:
        by_models, by_q = (np.asarray(row["evidence"][name], float) for name in ("models", "fitted"))
        gains = [float((pairs[:, 0] - pairs[:, 1]).mean()) for pairs in (by_models, by_q)]
        return models * gains[0] + fitted * gains[1] > 0

    return passes


def calibrated(rows: Sequence[Row], weights: Sequence[float] = (1.0, 0.85, 0.7, 0.5)) -> Rule:
    """The rule that stops the fewest clear improvements, of those that let few bad policies pass."""
    best, least = Rule(), (math.inf, math.inf)
    rows = [row for row in rows if bad(row) or better(row)]
    for a, c, d, t in product(weights, (0.5, 1.0, 1.5, 2.0), (0.0, 0.05, 0.1, 0.2, 0.3), (0.02, 0.05, 0.1, 0.2, 0.3)):
        rule = replace(best, models=a, fitted=1 - a, spread=c, floor=d, pass_below=t)
        found = rates(rows, by_gate(rule))
        cost = max(found.bad_passed - ALLOWED, 0.0), found.good_stopped
        if cost < least:
            best, least = rule, cost
    return best
