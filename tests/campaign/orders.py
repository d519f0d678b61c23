"""The orders in which events may come, written as a state machine: what the code is tested against."""

from hypothesis import strategies as st

from musbo.campaign.steps import KINDS

# State and event -> state. "rest" lies between two deployments.
MACHINE = {
    ("new", "created"): "open",
    ("open", "shard"): "part",
    ("open", "batch"): "full",
    ("part", "shard"): "part",
    ("part", "batch"): "full",
    ("full", "checkpoint"): "full",
    ("full", "trained"): "able",
    ("able", "evaluated"): "rest",
    ("rest", "shard"): "part",
    ("rest", "batch"): "full",
    ("rest", "finished"): "over",
}


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
