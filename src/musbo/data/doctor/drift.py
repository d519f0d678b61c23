"""Drift: observations that are elsewhere than in earlier batches, or on one machine than on the others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Float64

from musbo.data.doctor.earlier import Earlier
from musbo.data.finding import Finding
from musbo.data.logs import Logs

MOVED = 1.0
"""Earlier deviations by which the mean has to move to be noted. A new policy does go elsewhere."""
SAMPLE = 100_000
FEWEST = 50
"""Rows that are compared at least."""


def drift(logs: Logs, earlier: Earlier) -> Iterator[Finding]:
    """Each machine of a log against all earlier batches."""
    before = [obs for obs in earlier.obs if obs.shape[1] == logs.batch.obs.shape[1]]
    if before:
        old = np.concatenate(before)
        for machine, rows in logs.by_machine():
            yield from _compared(logs, old, rows, machine, "than in the earlier batches")


def machines(every: Sequence[Logs]) -> Iterator[Finding]:
    """Each machine against the others, whether they are in one log or in several."""
    parts = [(logs, name, rows) for logs in every for name, rows in logs.by_machine() if name]
    if len({name for _, name, _ in parts}) < 2 or len({logs.batch.obs.shape[1] for logs in every}) > 1:
        return
    samples = [logs.batch.obs[_sample(rows, SAMPLE)] for logs, _, rows in parts]
    for logs, machine, rows in parts:
        others = [obs for (_, name, _), obs in zip(parts, samples, strict=True) if name != machine]
        found = _compared(logs, np.concatenate(others), rows, machine, "than on the other machines")
        yield from (replace(finding, source=logs.source) for finding in found)


def _compared(
    logs: Logs, old: Float32[np.ndarray, "m obs"], rows: np.ndarray, machine: str, than: str
) -> Iterator[Finding]:
    new = logs.batch.obs[_sample(rows, SAMPLE)]
    if min(len(old), len(new)) < FEWEST:
        return
    on = f" on machine {machine}" if machine else ""
    kind = "drift" if "earlier" in than else "machine differs"
    for i in range(new.shape[1]):
        was, now = old[:, i].astype(np.float64), new[:, i].astype(np.float64)
        deviation = float(np.std(was))
        moved = (float(np.mean(now)) - float(np.mean(was))) / deviation if deviation else np.inf
        if abs(moved) < MOVED or np.mean(now) == np.mean(was):
            continue
        low, high = _range(was)
        new_low, new_high = _range(now)
        apart = new_low > high or new_high < low
        if kind != "drift" and not apart:
            continue
        name = logs.origin.name("obs", i)
        yield Finding(
            kind,
            "warning" if apart and kind == "drift" else "note",
            f"{name} is elsewhere{on} {than}: its mean is {np.mean(now):.4g} and was {np.mean(was):.4g}"
            + (
                f" (90 % of it lie in {new_low:.4g} to {new_high:.4g}, before in {low:.4g} to {high:.4g})"
                if apart
                else ""
            ),
            "see whether the sensor or its unit changed" if apart else "nothing, if the policy goes there",
            (name,),
            int(logs.origin.rows(rows[:1])[0]),
            len(rows),
            machines=(machine,) if machine else (),
        )


def _range(values: Float64[np.ndarray, " n"]) -> tuple[float, float]:
    low, high = np.quantile(values, (0.05, 0.95))
    return float(low), float(high)


def _sample(values: np.ndarray, most: int) -> np.ndarray:
    return values[:: max(1, len(values) // max(1, most))]
