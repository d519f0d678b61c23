"""Labels: what a method makes of its models' doubt.

A label of `ImaginedTRPO` is a function of imagined trajectories (`Rollout`) and the labeler that judges them
(`Labeler`): it changes weights, rewards or ends, and reports signals. `Label` says what one of your own needs, and
`disagreement` is what most are made from. A row of a rollout may hold several trajectories: `clock` says how old each
is at every step. `Penalty` is the price on doubt of `MOPO`.
"""

from musbo.learning.imagine import Rollout, clock, trajectory_count
from musbo.learning.label import Continuation, Disagreement, Label, Penalty, Seen, Signals, Trust, disagreement
from musbo.models.labeler import Labeler

__all__ = [
    "Continuation",
    "Disagreement",
    "Label",
    "Labeler",
    "Penalty",
    "Rollout",
    "Seen",
    "Signals",
    "Trust",
    "clock",
    "disagreement",
    "trajectory_count",
]
