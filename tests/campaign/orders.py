"""The orders in which events may come, written as a state machine: what the code is tested against."""

from typing import Any

from hypothesis import strategies as st

from musbo.campaign import events
from musbo.campaign.events import Checkpoint
from musbo.campaign.settings import shape_of
from musbo.tasks import builtin
from tests.stories import tiny

KINDS = (*events.KINDS, "checkpoint")

# State and event -> state. "rest" lies between two deployments.
MACHINE = {
    ("new", "created"): "open",
    ("open", "shard"): "part",
    ("open", "collected"): "full",
    ("part", "shard"): "part",
    ("part", "collected"): "full",
    ("open", "failed"): "open",
    ("part", "failed"): "part",
    ("rest", "failed"): "rest",
    ("full", "checkpoint"): "full",
    ("full", "trained"): "able",
    ("able", "evaluated"): "rest",
    ("rest", "shard"): "part",
    ("rest", "collected"): "full",
    ("rest", "finished"): "over",
}


def example(kind: str, mark: int = 0) -> Any:
    """An event or a checkpoint of this kind; `mark` tells it from others."""
    match kind:
        case "created":
            return events.Created(tiny.settings(seed=mark), shape_of(builtin.pointmass), {"musbo": "0"})
        case "shard":
            return events.Shard(f"shard {mark}")
        case "failed":
            return events.Failed(f"fault {mark}")
        case "collected":
            return events.Collected(f"batch {mark}", 100, 2, -1.5, 50.0)
        case "trained":
            return events.Trained(f"state {mark}", f"policy {mark}", 1.5)
        case "evaluated":
            return events.Evaluated(float(mark))
        case "candidate":
            return events.Candidate(events.Trained(f"state {mark}", f"policy {mark}", 1.5), tiny.method())
        case "judged":
            return events.Judged(f"policy {mark}", True, "looked at")
        case "exported":
            return events.Exported(f"bundle {mark}", "archive", 1, "head")
        case "withdrawn":
            return events.Withdrawn()
        case "abandoned":
            return events.Abandoned(True, f"reason {mark}")
        case "amended":
            return events.Amended(budget=mark + 1)
        case "stopped":
            return events.Stopped()
        case "resumed":
            return events.Resumed({"mark": str(mark)})
        case "finished":
            return events.Finished()
        case "checkpoint":
            return Checkpoint(f"state {mark}", 0.5)
    raise ValueError(kind)


class Machine:
    def __init__(self) -> None:
        self.state, self.deployment = "new", 1

    def accept(self, kind: str, deployment: int) -> bool:
        if kind in ("stopped", "resumed"):
            return self.state != "new"
        if (self.state, kind) not in MACHINE:
            return False
        if kind not in ("created", "finished") and deployment != self.deployment:
            return False
        self.state = MACHINE[self.state, kind]
        self.deployment += kind == "evaluated"
        return True

    def usual(self) -> list[str]:
        return [kind for state, kind in MACHINE if state == self.state] or ["stopped"]


@st.composite
def attempts(draw: st.DrawFn, size: int) -> list[tuple[str, int]]:
    """Events, most of which can come next."""
    machine, found = Machine(), []
    for _ in range(size):
        kind = draw(st.sampled_from(machine.usual() * 9 + list(KINDS)))
        deployment = draw(st.sampled_from([machine.deployment] * 12 + [1, 2, 3, machine.deployment + 1]))
        found.append((kind, deployment))
        machine.accept(kind, deployment)
    return found
