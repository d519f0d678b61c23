"""Handovers: which policy of a deployment's updates is handed over.

Every few updates the policy is checked in imagination (`Rating`), and a handover says which one would be the result
now (`Choice`); `Handover` says what one of your own needs.
"""

from musbo.learning.handover import BestImagined, Choice, Guarded, Handover, Last, Rating

__all__ = ["BestImagined", "Choice", "Guarded", "Handover", "Last", "Rating"]
