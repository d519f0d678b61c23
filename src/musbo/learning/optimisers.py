"""Names for the states of optax's optimisers, which are stored as parts of a method's state."""

import optax

from musbo.core.registry import register

for _state, _name in (
    (optax.EmptyState, "optimiser/empty"),
    (optax.ScaleByAdamState, "optimiser/adam"),
    (optax.ScaleByRmsState, "optimiser/rms"),
    (optax.ScaleByScheduleState, "optimiser/schedule"),
    (optax.TraceState, "optimiser/momentum"),
):
    register(_state, _name)
