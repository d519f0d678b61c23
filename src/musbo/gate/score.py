"""How well a forecast came true."""

from dataclasses import dataclass

from musbo.gate.verdict import Gain


@dataclass(frozen=True)
class Scored:
    """A forecast of how much more than the incumbent a policy earns per episode, and what came true."""

    gain: float
    low: float
    """It lies between these with a chance of 90 %."""
    high: float
    truth: float | None = None
    covered: bool | None = None
    """Whether the truth lies between them."""
    crps: float | None = None
    """Continuous ranked probability score, in units of the return: small where the truth was likely."""


def scored(gain: Gain, truth: float | None = None) -> Scored:
    """The truth is None until it is known."""
    low, high = gain.interval()
    if truth is None:
        return Scored(gain.mean, low, high)
    return Scored(gain.mean, low, high, truth, low <= truth <= high, gain.crps(truth))
