"""A verdict of the gate as one self-contained page, for the person who decides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from musbo import __version__
from musbo.campaign.gating import Gated, Held
from musbo.core.durable import write_whole
from musbo.core.errors import UserError
from musbo.core.inside import inside
from musbo.gate.score import Scored
from musbo.reporting import glossary
from musbo.reporting.gate_figure import forecast_figure
from musbo.reporting.page import template
from musbo.reporting.rounds import within
from musbo.reporting.section import Section
from musbo.reporting.sheets import Columns, sheet
from musbo.reporting.words import count, number, percent, signed

FOLDER = "gate"
"""In the folder of a campaign."""
WORDS = {
    "GO": "GO: what is known speaks for letting it leave.",
    "NO-GO": "NO-GO: it is likely to be bad, and should not leave.",
    "NEED-DATA": "NEED-DATA: nobody knows whether it is good or bad, and it should not leave on that.",
}


@dataclass(frozen=True)
class Outside:
    """An observation that a policy takes where hardly any data are."""

    observation: str
    share: float


@dataclass(frozen=True)
class Earlier:
    """A forecast of an earlier round."""

    round: int
    scored: Scored


def write_page(campaign: Path, found: Gated, out: Path | None = None) -> Path:
    """The page into the file `out`, by default into the folder `gate` of the campaign; returns where it is."""
    page = template()  # what is missing is said before anything is drawn
    round = "final" if found.round is None else f"round-{found.round}"
    place = out or inside(campaign, FOLDER, f"{round}-{found.judged.policy[:8]}.html")
    parts = list(sections(found))
    parts.append(Section("Glossary", terms=glossary.used([text for part in parts for text in part.texts])))
    whose = "the final policy" if found.round is None else f"round {found.round}"
    text = page.render(
        title=f"Gate: {whose}, candidate {found.candidate}", subtitle=f"{campaign.resolve().name}, policy "
        f"{found.judged.policy[:12]}, against {_incumbent(found)}", sections=parts, version=__version__, files=False,
    )  # fmt: skip
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {place}: {error.strerror}; choose another --page.") from error
    return place


def sections(found: Gated) -> Iterator[Section]:
    """What the page says, the verdict first."""
    yield _verdict(found)
    yield _forecast(found)
    yield _where(found)
    yield _limits(found.held)
    yield _settles(found)
    yield _record(found)


def _incumbent(found: Gated) -> str:
    policy = found.beside.policy
    return f"the policy {policy[:12]}, which collected the newest batch" if policy else "what acted in the newest batch"


def _verdict(found: Gated) -> Section:
    words, ruling = WORDS[found.word], found.ruling
    if found.judged.override:
        words += f" That was overridden: {found.judged.override}."
    return Section(
        "Verdict",
        words,
        facts=[
            ("forecast gain per episode", signed(ruling.gain.mean)),
            ("chance that it is bad", percent(ruling.bad)),
            ("chance that it is better", percent(ruling.better)),
        ],
        notes=[(each, "") for each in ruling.reasons],
    )


def _forecast(found: Gated) -> Section:
    low, high = found.ruling.gain.interval()
    return Section(
        "Forecast",
        "Only the difference to the incumbent is forecast. What the incumbent and the first batch earned was measured.",
        facts=[
            ("the incumbent earned per episode", number(found.beside.earned)),
            ("the first batch earned per episode", number(found.beside.behaviour)),
            ("forecast, with a chance of 90 %", f"{signed(low)} to {signed(high)}"),
            ("bad is a gain below", signed(-found.ruling.margin)),
        ],
        figures=[forecast_figure(found.ruling, found.beside)],
    )


def _where(found: Gated) -> Section:
    evidence = found.ruling.evidence
    every = [Outside(*each) for each in evidence.outside]
    columns: Columns[Outside] = {
        "observation": lambda row: row.observation,
        "share of its steps": lambda row: percent(row.share),
    }
    words = (
        "Steps in which an observation lies beyond 99 % of the data, in episodes that the models imagine."
        if every
        else "In the episodes that the models imagine it keeps to where the data are."
    )
    facts = [
        ("episodes that leave all that is known", percent(evidence.lost)),
        ("disagreement along its path; 1 is ordinary", number(evidence.path)),
        ("steps of an episode", number(evidence.steps)),
    ]
    tables = [sheet("outside", "Beyond nearly all data", every, columns)] if every else []
    return Section("Where it would go", words, facts=facts, sheets=tables)


def _limits(held: Sequence[Held]) -> Section:
    over = [each.action for each in held if each.over]
    bound = [each.action for each in held if each.at_bound is not None]
    limited = any(each.allowed is not None for each in held)
    words = "It keeps to the limits on changes." if limited else "No action has a limit on its changes."
    words = f"The runtime would hold back: {', '.join(over)}." if over else words
    words += f" It is often at a bound with {', '.join(bound)}." if bound else ""
    columns: Columns[Held] = {
        "action": lambda row: row.action,
        "share of its steps at a bound": lambda row: "under 10%" if row.at_bound is None else percent(row.at_bound),
        "largest change in a step, of the range": lambda row: _share(row.change, "-"),
        "allowed": lambda row: _share(row.allowed, "any"),
    }
    note = "The largest change is that of 99 % of its steps."
    return Section("Limits", words, sheets=[sheet("limits", "Every action", held, columns, note)])


def _share(part: float | None, nothing: str) -> str:
    """In per cent, of which small ones differ."""
    return nothing if part is None else f"{100 * part:.3g}%"


def _settles(found: Gated) -> Section:
    ruling = found.ruling
    if found.settles is not None:
        words = (
            f"About {count(found.settles, 'more transition')} of the incumbent, or of another policy that is safe, "
            "would make a verdict, if uncertainty shrinks with the root of the data."
        )
    elif ruling.word == "NEED-DATA":
        words = "Even four times the data would not make a verdict: another candidate is the better way."
    else:
        words = "The verdict is made: more data are not needed for it."
    return Section("What would settle it", words)


def _record(found: Gated) -> Section:
    every = [Earlier(*each) for each in found.earlier]
    columns: Columns[Earlier] = {
        "round": lambda row: str(row.round),
        "gain, forecast": lambda row: signed(row.scored.gain),
        "90 % range": lambda row: within(row.scored),
        "gain, came true": lambda row: signed(row.scored.truth),
        "CRPS": lambda row: number(row.scored.crps),
    }
    if not every:
        return Section("Earlier forecasts", "No forecast of this campaign has come true or failed yet.")
    inside = sum(bool(each.scored.covered) for each in every)
    words = (
        f"Of {count(len(every), 'forecast')}, {inside} came true within the range. So few cannot show whether nine "
        "of ten do: that was measured on simulated campaigns."
    )
    return Section("Earlier forecasts", words, sheets=[sheet("earlier", "Every forecast", every, columns)])
