"""Labels: how a method treats the uncertainty of imagined steps.

A label of `ImaginedTRPO` is a function of imagined trajectories (`Rollout`) and the uncertainty model (`Labeler`): it
changes weights, rewards or terminations, and reports signals. `Label` is the protocol for one of your own, and
`disagreement` the quantity that most are based on. A row of a rollout may hold several trajectories: `clock` is the age
of the trajectory at every step. `Penalty` is the reward penalty of `MOPO`.
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
