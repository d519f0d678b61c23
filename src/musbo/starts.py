"""Starts: where the policy optimisation of a deployment begins.

`Clone` begins with behaviour cloning of the newest batch, `Continue` with the policy that collected it; `Start` says
what one of your own needs.
"""

from musbo.learning.start import Clone, Continue, Start

__all__ = ["Clone", "Continue", "Start"]
