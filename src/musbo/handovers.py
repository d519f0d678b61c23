"""Handovers: which of the trained policies is the result of a deployment.

Every few updates the policy is rated in imagination (`Rating`), and a handover selects the result so far (`Choice`);
`Handover` is the protocol for one of your own.
"""

from musbo.learning.handover import BestImagined, Choice, Guarded, Handover, Last, Rating

__all__ = ["BestImagined", "Choice", "Guarded", "Handover", "Last", "Rating"]
