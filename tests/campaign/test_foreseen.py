"""Which forecast counts for a round, and what came true, by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from musbo.campaign import events
from musbo.campaign.events import Beside, Event, Judged
from musbo.campaign.foreseen import foreseen, past
from musbo.campaign.settings import shape_of
from musbo.campaign.status import status
from musbo.gate.evidence import Evidence
from musbo.gate.verdict import Gain, Rule, Ruling, forecast
from musbo.tasks import builtin
from tests.stories import tiny

GOLDEN = Path(__file__).parents[1] / "golden" / "judged-v1.json"
EVIDENCE = Evidence(
    ((2.0, 1.0), (4.0, 1.0)), ((3.0, 1.0),), 5.0, 1.25, 0.0, 50.0, (("x", 0.5),), (("force in x", 0.25),),
    (("force in x", 0.125), ("force in y", 0.5)),
)  # fmt: skip


def said(policy: str, gain: float, earned: float = -10.0, **more: Any) -> Judged:
    ruling = Ruling("NEED-DATA", Gain(gain, 2.0), 1.0, 0.25, 0.5, EVIDENCE, ("It is forecast to earn more.",))
    return Judged(policy, False, "why", ruling, Beside("p0", earned, -20.0), **more)


def collected(mean_return: float, *bundles: str, length: float = 50.0, ended: int = 0) -> events.Collected:
    return events.Collected("batch", 100, 2, mean_return, length, terminations=ended, bundles=bundles)


def told(*later: tuple[int, Any]) -> dict[int, tuple[float, float | None]]:
    """Forecast and truth by round."""
    every = ledger(*later)
    return {d: (each.scored.gain, each.truth) for d, each in foreseen(every, status(every)).items()}


def ledger(*later: tuple[int, Any]) -> list[Event]:
    """A campaign that begins with logs and trains the policy p1, and q1 beside it; then something of a deployment."""
    shape, brought = shape_of(builtin.pointmass), (events.Brought("logs", "a", 100),)
    first: list[tuple[int, Any]] = [
        (1, events.Created(replace(tiny.settings(), budget=9), shape, {}, brought, field=True)),
        (1, collected(-20.0)),
        (1, events.Trained("s1", "p1", 1.0)),
        (1, events.Evaluated(1.0)),
        (1, events.Candidate(events.Trained("t1", "q1", 1.0), tiny.method())),
    ]
    return [Event(i, float(i), d, what) for i, (d, what) in enumerate([*first, *later], 1)]


def sent(bundle: str, policy: str, after: int = 1) -> events.Exported:
    return events.Exported(bundle, "archive", after, "head", policy=policy)


def test_the_truth_is_what_was_earned_beyond_the_incumbent():
    begun = [(2, said("p1", 3.0)), (2, sent("b", "p1"))]
    assert told(*begun) == {2: (3.0, None)}
    assert told(*begun, (2, collected(-8.0, "b"))) == {2: (3.0, 2.0)}
    assert told(*begun, (2, collected(-8.0, "b", length=25.0))) == {2: (3.0, -6.0)}  # half an episode, twice
    assert told(*begun, (2, collected(-8.0, "b", length=25.0, ended=1))) == {2: (3.0, 2.0)}
    assert told(*begun, (2, replace(collected(0.0, "b"), mean_return=None))) == {2: (3.0, None)}


def test_the_last_word_of_the_gate_on_what_ran_counts():
    both = [(2, said("p1", 3.0)), (2, said("q1", 4.0)), (2, said("p1", 5.0)), (2, Judged("p1", True, "fine"))]
    assert told(*both) == {2: (4.0, None)}  # q1 would leave next
    assert told(*both, (2, sent("b", "p1"))) == {2: (5.0, None)}
    left = [*both, (2, sent("b", "p1")), (2, sent("c", "q1"))]
    assert told(*left, (2, collected(-8.0, "b"))) == {2: (5.0, 2.0)}
    assert told(*left, (2, collected(-8.0, "c"))) == {2: (4.0, 2.0)}
    assert told(*left, (2, collected(-8.0, "b", "c"))) == {}  # nobody knows what ran
    assert told((2, Judged("p1", True, "fine")), (2, sent("b", "p1")), (2, collected(-8.0, "b"))) == {}


def test_a_forecast_lasts_until_data_come():
    lost = [(2, said("p1", 3.0)), (2, sent("b", "p1")), (2, events.Abandoned(True, "fire"))]
    assert told(*lost, (3, sent("c", "p1")), (3, collected(-8.0, "c"))) == {3: (3.0, 2.0)}
    done = [(2, said("p1", 3.0)), (2, sent("b", "p1")), (2, collected(-8.0, "b"))]
    trained = [(2, events.Trained("s2", "p2", 1.0)), (2, events.Evaluated(1.0))]
    back = [*done, *trained, (3, said("p2", 1.0)), (3, replace(sent("c", "p1"), of="b")), (3, collected(-9.0, "c"))]
    assert told(*back) == {2: (3.0, 2.0)}  # p1 went back: it is its own incumbent


def test_another_reward_makes_forecasts_worthless():
    changed = events.Amended(task=shape_of(builtin.pointmass))
    assert told((2, said("p1", 3.0)), (2, sent("b", "p1")), (2, changed), (2, collected(-8.0, "b"))) == {}


def test_the_past_is_what_the_evidence_alone_said():
    rule, made = Rule(), ledger((2, said("p1", 3.0)), (2, sent("b", "p1")), (2, collected(-8.0, "b")))
    (found,) = past(foreseen(made, status(made)), rule)
    assert found.truth == 2.0 and found.gain == forecast(rule, EVIDENCE)  # not the 3.0 that was said with corrections
    assert past(foreseen(made[:-1], status(made[:-1])), rule) == ()


@pytest.mark.parametrize(
    ("judged", "text"),
    [
        (Judged("p", True, "calm"), "GO: calm"),
        (Judged("p", False, "bold"), "NO-GO: bold"),
        (said("p", 1.0), "NEED-DATA: why"),
        (replace(said("p", 1.0, override="an expert"), go=True), "NEED-DATA, overridden: an expert. The gate: why"),
    ],
)
def test_verdicts_in_words(judged: Judged, text: str):
    assert judged.text == text


def test_the_golden_verdict():
    kept = GOLDEN.read_text()
    found = events.from_text(kept, Judged)
    assert found == replace(said("policy", 3.0, override="an expert stands by"), go=True)
    assert json.loads(events.to_text(found)) == json.loads(kept)
