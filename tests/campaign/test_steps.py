"""The status is what the events say, and events come in the orders of a campaign only."""

import pytest
from hypothesis import given

from musbo.campaign.steps import (
    KINDS,
    Collect,
    Done,
    Evaluate,
    Event,
    Finish,
    Status,
    Train,
    next_step,
    require_allowed,
    status,
)
from musbo.core.errors import UserError
from tests.campaign.orders import Machine, attempts


def made(*names: str) -> list[Event]:
    """Events named like "batch 1", without a ledger."""
    parts = [name.partition(" ") for name in names]
    return [Event(i, float(i), kind, int(d or 0), {"id": i}) for i, (kind, _, d) in enumerate(parts)]


def test_the_status_is_what_the_events_say() -> None:
    events = made("created", "shard 1", "shard 1")
    assert status([]) == Status()
    assert status(events) == Status(settings={"id": 0}, shards=({"id": 1}, {"id": 2}))
    events = made("created", "shard 1", "batch 1", "checkpoint 1", "checkpoint 1", "stopped 1")
    assert status(events) == Status({"id": 0}, {1: {"id": 2}}, checkpoint={"id": 4}, stopped=True)
    events = made("created", "batch 1", "checkpoint 1", "trained 1", "stopped", "resumed", "evaluated 1", "shard 2")
    assert status(events) == Status({"id": 0}, {1: {"id": 1}}, ({"id": 7},), None, {1: {"id": 3}}, {1: {"id": 6}})
    events = made("created", "batch 1", "trained 1", "evaluated 1", "finished")
    assert status(events).finished


def test_the_steps_of_two_deployments_come_in_order() -> None:
    names = ["created", "batch 1", "trained 1", "evaluated 1", "batch 2", "trained 2", "evaluated 2", "finished"]
    steps = [Collect(1), Train(1), Evaluate(1), Collect(2), Train(2), Evaluate(2), Finish(), Done()]
    for size, step in enumerate(steps, start=1):
        assert next_step(status(made(*names[:size])), 2) == step
    assert next_step(status(made(*names[:2], "checkpoint 1", "stopped 1")), 2) == Train(1)
    assert next_step(status(made(*names[:1], "shard 1", "stopped 1")), 2) == Collect(1)
    with pytest.raises(UserError, match="not created yet"):
        next_step(Status(), 2)


def accepted(events: list[Event], kind: str, deployment: int) -> bool:
    try:
        require_allowed(status(events), kind, deployment)
    except UserError:
        return False
    return True


def test_every_short_order_is_judged_as_by_the_machine() -> None:
    """All accepted orders of up to 7 events (stops apart), each with every event that might come next."""
    orders: list[list[Event]] = [[]]
    for _ in range(8):
        longer = []
        for events in orders:
            for kind in KINDS:
                for deployment in range(4):
                    machine = Machine()
                    assert all(machine.accept(event.kind, event.deployment) for event in events)
                    expected = machine.accept(kind, deployment)
                    assert accepted(events, kind, deployment) == expected
                    if expected and kind not in ("stopped", "resumed"):
                        longer.append([*events, Event(len(events), 0.0, kind, deployment, {})])
        # Deployments of events that have none make no difference to what follows.
        orders = [
            order for order in longer if order[-1].kind not in ("created", "finished") or not order[-1].deployment
        ]
    assert {order[-1].kind for order in orders} >= {"shard", "batch", "trained", "evaluated", "finished"}


@given(attempts(60))
def test_long_orders_are_judged_as_by_the_machine(tries: list[tuple[str, int]]) -> None:
    machine, events = Machine(), []
    for kind, deployment in tries:
        expected = machine.accept(kind, deployment)
        assert accepted(events, kind, deployment) == expected
        if expected:
            events.append(Event(len(events), 0.0, kind, deployment, {}))
