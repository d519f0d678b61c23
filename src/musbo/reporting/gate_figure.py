"""The forecast of the gate, beside what the incumbent and the first batch really earned."""

import numpy as np

from musbo.campaign.events import Beside
from musbo.gate.verdict import Ruling
from musbo.reporting.canvas import COLOURS, GREY, INK, Figure, canvas, keep

BLUE, RED = COLOURS[0], COLOURS[6]


def forecast_figure(ruling: Ruling, beside: Beside) -> Figure:
    """Returns per episode: the forecast and the estimates that it comes from, and the real ones."""
    models, fitted = (np.asarray(each, float) for each in (ruling.evidence.models, ruling.evidence.fitted))
    real = "incumbent, real" if beside.policy else "newest batch, real"
    rows: tuple[str, ...] = ("candidate, forecast", "refitted models", "fitted Q", real, "first batch, real")
    at = {row: float(len(rows) - i) for i, row in enumerate(rows)}
    with canvas((7.2, 3.4)) as (drawing, axes):
        for estimates, row in ((models, rows[1]), (fitted, rows[2])):
            places = beside.earned + estimates[:, 0] - estimates[:, 1]
            axes.plot(places, np.full(len(places), at[row]), "o", color=GREY, markersize=5, alpha=0.7)
        low, high = (beside.earned + end for end in ruling.gain.interval())
        axes.plot([low, high], [at[rows[0]]] * 2, color=BLUE, linewidth=5, alpha=0.35, solid_capstyle="butt")
        axes.plot(beside.earned + ruling.gain.mean, at[rows[0]], "o", color=BLUE, markersize=9)
        axes.plot(beside.earned, at[real], "D", color=INK, markersize=8)
        axes.plot(beside.behaviour, at[rows[4]], "D", color=INK, markersize=8)
        axes.axvline(beside.earned, color=INK, linewidth=0.8)
        axes.axvline(beside.earned - ruling.margin, color=RED, linewidth=1.2, linestyle="--")
        left = axes.get_xlim()[0]
        axes.axvspan(left, beside.earned - ruling.margin, color=RED, alpha=0.07, linewidth=0)
        axes.set_xlim(left=left)
        axes.set_yticks(list(at.values()), list(at))
        axes.set_ylim(0.4, len(rows) + 0.6)
        axes.grid(visible=False)
        axes.set_xlabel("return per episode")
        what = (
            "Return per episode: the forecast with its range of 90 %, the estimates that it comes from, and what was "
            "really earned. Left of the dashed line the candidate is bad."
        )
        return keep(drawing, "forecast", what)
