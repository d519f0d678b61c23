"""Starts: how the policy optimisation of a deployment is initialised.

`Clone` starts from behaviour cloning on the newest batch, `Continue` from the policy that collected it; `Start` is the
protocol for one of your own.
"""

from musbo.learning.start import Clone, Continue, Start

__all__ = ["Clone", "Continue", "Start"]
