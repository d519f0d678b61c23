"""The gate of a campaign in the field: a verdict on a candidate, from what is known before it leaves.

It is compared with the incumbent: the policy whose bundle collected the newest batch, or, where no policy of the
campaign did, the behaviour in that batch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from musbo.campaign import bundles
from musbo.campaign.events import Beside, Judged
from musbo.campaign.foreseen import foreseen, past
from musbo.campaign.ran import newest_collector, trained_as
from musbo.campaign.runner import Runner
from musbo.campaign.settings import Purpose, shape_of
from musbo.core.errors import UserError
from musbo.core.plain import plain
from musbo.data.dataset import Dataset
from musbo.gate.evidence import FITTED, Evidence, gather, spread_of_returns
from musbo.gate.real import newest_batch, real_return
from musbo.gate.refit import REFIT
from musbo.gate.score import Scored, scored
from musbo.gate.verdict import Rule, Ruling, Word, batch_that_settles, rule_on
from musbo.tasks.task import Task

SHARE = 0.1
"""A bad candidate loses so much of what the incumbent gained over the first batch, where nobody says what is bad."""


@dataclass(frozen=True)
class Held:
    """What a policy would do with an action, beside its limits; as shares."""

    action: str
    at_bound: float | None
    """Of its steps: how often it is held at a bound of the task; None: hardly ever."""
    change: float | None
    """Of the range: the largest change from step to step, in 99 % of them."""
    allowed: float | None
    """Of the range: the largest change that the limits of the campaign allow; None: any."""

    @property
    def over(self) -> bool:
        """Whether the runtime would hold it back."""
        return self.allowed is not None and self.change is not None and self.change > self.allowed + 1e-6


@dataclass(frozen=True)
class Gated:
    """A verdict of the gate, with what a person needs to decide."""

    round: int | None
    """That the policy would leave for; None: the budget is spent."""
    candidate: int
    """Its number among the candidates, from 1."""
    judged: Judged
    """As the ledger has it."""
    settles: int | None
    """About so many more transitions would make a verdict; None: there is one, or no batch of a likely size would."""
    held: tuple[Held, ...]
    earlier: tuple[tuple[int, Scored], ...]
    """The forecasts of earlier rounds, and what came true."""

    @property
    def word(self) -> Word:
        """GO, NO-GO or NEED-DATA."""
        return self.judged.word

    @property
    def go(self) -> bool:
        """Whether it may leave: after a GO, or where the verdict was overridden."""
        return self.judged.go

    @property
    def ruling(self) -> Ruling:
        assert self.judged.ruling is not None
        return self.judged.ruling

    @property
    def beside(self) -> Beside:
        assert self.judged.beside is not None
        return self.judged.beside

    @property
    def forecast(self) -> Scored:
        """How much more than the incumbent it is expected to earn per episode."""
        return scored(self.ruling.gain)

    def plain(self) -> dict[str, Any]:
        """As JSON: what `musbo gate --json` prints."""
        own = {"verdict": self.word, "go": self.go, "forecast": self.forecast, "incumbent": self.beside}
        some = plain(own | {"round": self.round, "candidate": self.candidate, "policy": self.judged.policy})
        ruling = plain(self.ruling)
        del ruling["word"], ruling["gain"]
        rest = {"override": self.judged.override, "settles": self.settles, "held": self.held}
        earlier = [{"round": number, **plain(score)} for number, score in self.earlier]
        return {**some, **ruling, **plain(rest), "earlier": earlier}


def gate(runner: Runner, number: int, margin: float | None, override: str) -> Gated:
    """The verdict on a candidate by its number from 1; it is written nowhere yet.

    Randomness follows from the seed and the newest batch, so that the same data give the same verdict.
    """
    now, data = runner.status(), runner.data()
    chosen = now.candidates[max(now.trained)][number - 1]
    ran = newest_collector(now)
    incumbent = trained_as(ran, now) if ran else None
    beside = Beside(
        incumbent.policy if incumbent else "",
        real_return(runner.task, data, newest_batch(data)),
        real_return(runner.task, data, 1),
    )
    bad, why = _margin(margin, beside, spread_of_returns(data))
    key = runner.key(Purpose.GATE, max(now.collected))
    policies = runner.load(chosen.policy), runner.load(incumbent.policy) if incumbent else None
    evidence = gather(runner.seen, data, *policies, key, REFIT, FITTED)
    said, rule = foreseen(runner.ledger.events(), now), Rule()
    ruling = rule_on(rule, evidence, bad, past(said, rule))
    held = _held(runner.task, bundles.parse_limits(now.creation.limits, runner.folder), evidence)
    ruling = replace(ruling, reasons=(*ruling.reasons, *_kept_back(held), why))
    good = ruling.word == "GO"
    why_not = "" if good else override  # there is nothing to override in a GO
    judged = Judged(chosen.policy, good or bool(override), ruling.reasons[0], ruling, beside, why_not)
    return Gated(
        None if now.finished else now.deployment,
        number,
        judged,
        batch_that_settles(rule, ruling, _live(data)),
        held,
        tuple((d, each.scored) for d, each in said.items() if each.truth is not None),
    )


def _live(data: Dataset) -> int:
    return int(np.asarray(data.live).sum())


def _margin(asked: float | None, beside: Beside, scale: float) -> tuple[float, str]:
    """What counts as bad, in return per episode, and why."""
    if asked is not None:
        if not (math.isfinite(asked) and asked >= 0):
            raise UserError(f"the margin is a loss of return per episode, of at least 0, not {asked}.")
        return asked, f"Bad is a loss of more than {asked:.4g} per episode, as --margin says."
    gained = abs(beside.earned - beside.behaviour)
    how = "of the distance between what the incumbent and what the first batch earned"
    if math.isclose(beside.earned, beside.behaviour, rel_tol=1e-6, abs_tol=1e-12):
        gained, how = scale, "of the standard deviation of the logged returns"
    if not gained > 0:
        raise UserError(
            "nothing says what a bad policy would be: all logged episodes have the same return. Say which loss of "
            "return per episode is bad, with --margin X."
        )
    return SHARE * gained, f"Bad is a loss of more than {SHARE * gained:.4g} per episode, {SHARE:.0%} {how}."


def _held(task: Task, limits: Mapping[str, Any], evidence: Evidence) -> tuple[Held, ...]:
    """Every action in its order, beside the limits of the campaign."""
    most = bundles.limits_of(shape_of(task), limits)["change"] or [math.inf] * task.act_size
    names = task.act_names or tuple(f"action {i}" for i in range(task.act_size))
    bounds, moved = dict(evidence.at_bounds), dict(evidence.changes)
    allowed = np.asarray(most, float) / (2 * task.half_range)
    each = zip(names, allowed.tolist(), strict=True)
    return tuple(Held(name, bounds.get(name), moved.get(name), most if most < 1 else None) for name, most in each)


def _kept_back(held: tuple[Held, ...]) -> list[str]:
    """Sentences about limits that it would touch."""
    return [
        f"It would move {each.action} by {100 * each.change:.3g}% of its range in a step, of which the limits allow "
        f"{100 * each.allowed:.3g}%: the runtime holds it back, and the forecast does not know of that."
        for each in held
        if each.over and each.change is not None and each.allowed is not None
    ]
