"""The status is what the events say, and events come in the orders of a campaign only."""

import pytest
from hypothesis import given

from musbo.campaign.events import Checkpoint, Event, kind_of
from musbo.campaign.status import (
    Collect,
    Done,
    Evaluate,
    Finish,
    Status,
    Train,
    next_step,
    require_allowed,
    status,
)
from musbo.core.errors import UserError
from tests.campaign.orders import KINDS, Machine, attempts, example


def made(*names: str) -> list[Event]:
    """Events named like "collected 1", without a ledger; each is marked by its place."""
    parts = [name.partition(" ") for name in names]
    return [Event(i, float(i), int(d or 0), example(kind, i)) for i, (kind, _, d) in enumerate(parts)]


def test_the_status_is_what_the_events_say() -> None:
    created = example("created", 0)
    assert status([]) == Status()
    assert status(made("created", "shard 1", "shard 1")) == Status(
        created, shards=(example("shard", 1), example("shard", 2))
    )
    checkpoint = Checkpoint("state", 1.0)
    events = made("created", "shard 1", "collected 1", "stopped 1")
    wanted = Status(created, {1: example("collected", 2)}, checkpoint=checkpoint, stopped=True)
    assert status(events, (1, checkpoint)) == wanted
    events = made("created", "collected 1", "trained 1", "stopped", "resumed", "evaluated 1", "shard 2")
    assert status(events, (1, checkpoint)) == Status(  # a checkpoint of what is trained counts no more
        created,
        {1: example("collected", 1)},
        (example("shard", 6),),
        (),
        None,
        {1: example("trained", 2)},
        {1: example("evaluated", 5)},
        candidates={1: (example("trained", 2),)},
        methods={1: (created.settings.method,)},
    )
    events = made("created", "collected 1", "trained 1", "evaluated 1", "finished")
    assert status(events).finished and status(events).deployed == 1


def test_the_steps_of_two_deployments_come_in_order() -> None:
    names = ["created", "collected 1", "trained 1", "evaluated 1"]
    names += ["collected 2", "trained 2", "evaluated 2", "finished"]
    steps = [Collect(1), Train(1), Evaluate(1), Collect(2), Train(2), Evaluate(2), Finish(), Done()]
    for size, step in enumerate(steps, start=1):
        assert next_step(status(made(*names[:size])), 2) == step
    assert next_step(status(made(*names[:2], "stopped 1"), (1, Checkpoint("state", 1.0))), 2) == Train(1)
    assert next_step(status(made(*names[:1], "shard 1", "stopped 1")), 2) == Collect(1)
    with pytest.raises(UserError, match="not created yet"):
        next_step(Status(), 2)
    with pytest.raises(UserError, match="never created completely"):
        Status().creation  # noqa: B018


def accepted(events: list[Event], kind: str, deployment: int) -> bool:
    try:
        require_allowed(status(events), example(kind), deployment)
    except UserError:
        return False
    return True


@pytest.mark.parametrize("length", [6, pytest.param(8, marks=pytest.mark.long)])
def test_every_short_order_is_judged_as_by_the_machine(length: int) -> None:
    """All accepted orders of fewer than `length` events (stops apart), each with every event that might come next."""
    orders: list[list[Event]] = [[]]
    for _ in range(length):
        longer = []
        for events in orders:
            for kind in KINDS:
                for deployment in range(4):
                    machine = Machine()
                    assert all(machine.accept(kind_of(event.what), event.deployment) for event in events)
                    expected = machine.accept(kind, deployment)
                    assert accepted(events, kind, deployment) == expected
                    if expected and kind not in ("stopped", "resumed", "checkpoint"):
                        longer.append([*events, Event(len(events), 0.0, deployment, example(kind))])
        # Deployments of events that have none make no difference to what follows.
        orders = [
            order
            for order in longer
            if kind_of(order[-1].what) not in ("created", "finished") or not order[-1].deployment
        ]
    assert {kind_of(order[-1].what) for order in orders} >= {"shard", "collected", "trained", "evaluated", "finished"}


@given(attempts(60))
def test_long_orders_are_judged_as_by_the_machine(tries: list[tuple[str, int]]) -> None:
    machine, events = Machine(), []
    for kind, deployment in tries:
        expected = machine.accept(kind, deployment)
        assert accepted(events, kind, deployment) == expected
        if expected and kind != "checkpoint":
            events.append(Event(len(events), 0.0, deployment, example(kind)))
