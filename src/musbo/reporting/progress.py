"""Where a run is, as a fold over its news: what the live display shows and the plain lines say."""

from dataclasses import dataclass, field, replace

from musbo.algorithms.method import DONE, Metrics
from musbo.campaign.events import Collected, Evaluated, Trained
from musbo.campaign.news import Began, Collecting, Completed, News, Training
from musbo.campaign.summary import Deployment, Summary, per_step
from musbo.core.diagnostics import Diagnostic, Findings, Stage

COLLECT, EVALUATE = Stage("collect", "collecting"), Stage("evaluate", "evaluating")
"""Every deployment begins and ends with these; the stages between them are the method's."""


@dataclass(frozen=True)
class Seen:
    """All that the news so far say."""

    budget: int = 1
    stages: tuple[Stage, ...] = (COLLECT, EVALUATE)
    deployment: int = 1
    stage: Stage = COLLECT
    done: int = 0
    total: int | None = None
    """None: not known yet, usually because something is being compiled."""
    since: float = 0.0
    """When the stage began."""
    first: tuple[float, int] | None = None
    """Time and `done` of the stage's first report: compilation is before it."""
    returns: tuple[float | None, ...] = ()
    current: Deployment | None = None
    """The deployment whose batch is the newest."""
    diagnostics: dict[str, Diagnostic] = field(default_factory=dict)
    """The newest of this deployment, by name."""
    imagined: float | None = None
    """Reward per step that imagination promises of the newest policy that was rated."""
    real: float | None = None
    """Reward per step of the newest policy that was evaluated."""

    def named(self, stage: str) -> Stage | None:
        """The stage of this name; None for a report on the side."""
        return next((each for each in self.stages if each.name == stage), None)


def fold(seen: Seen, news: News, now: float) -> Seen:
    """What is known after one more piece of news, at time `now`."""
    match news:
        case Began(deployment, summary):
            return _began(seen, deployment, summary, now)
        case Collecting(deployment, done, of):
            return _report(replace(seen, deployment=deployment), COLLECT, done, of, now)
        case Training(deployment, metrics):
            return _training(replace(seen, deployment=deployment), metrics, now)
        case Completed(deployment, Collected() as batch):
            seen = replace(seen, deployment=deployment, current=Deployment(deployment, batch), diagnostics={})
            return _next(replace(_with(seen, batch.findings), stage=COLLECT), now)
        case Completed(_, Trained() as training):
            current = replace(seen.current, training=training) if seen.current else None
            imagined = current.imagined_per_step if current else None
            return replace(_with(seen, training.findings), stage=EVALUATE, current=current, imagined=imagined)
        case Completed(_, Evaluated() as evaluation):
            return _evaluated(seen, evaluation, now)
    return seen


def _began(seen: Seen, deployment: int, summary: Summary, now: float) -> Seen:
    settings = summary.settings
    stages = (COLLECT, *settings.method.stages, EVALUATE)
    d = min(deployment, settings.budget)
    known = {item.number: item for item in summary.deployments}
    this, last = known.get(d), known.get(d - 1)
    stage = COLLECT if this is None else stages[1]
    if summary.finished or (this and this.training):
        stage = EVALUATE
    seen = replace(
        seen,
        budget=settings.budget,
        stages=stages,
        deployment=d,
        returns=summary.returns,
        current=this,
        imagined=last.imagined_per_step if last else None,
        real=last.real_per_step if last else None,
    )
    return _enter(seen, stage, now)


def _with(seen: Seen, findings: Findings) -> Seen:
    return replace(seen, diagnostics={**seen.diagnostics, **{each.name: each for each in findings.diagnostics}})


def _enter(seen: Seen, stage: Stage, now: float) -> Seen:
    return replace(seen, stage=stage, done=0, total=None, since=now, first=None)


def _report(seen: Seen, stage: Stage, done: int, total: int | None, now: float) -> Seen:
    seen = seen if seen.stage == stage else _enter(seen, stage, now)
    return replace(seen, done=done, total=total, first=seen.first or (now, done))


def _next(seen: Seen, now: float) -> Seen:
    return _enter(seen, seen.stages[seen.stages.index(seen.stage) + 1], now)


def _training(seen: Seen, metrics: Metrics, now: float) -> Seen:
    if metrics.forecast:
        seen = replace(seen, imagined=per_step(metrics.forecast.total, metrics.forecast.steps))
    if metrics.stage == DONE:
        return _enter(_with(seen, metrics.findings), EVALUATE, now)
    stage = seen.named(metrics.stage)
    if stage is None:
        return seen
    seen = _with(_report(seen, stage, metrics.index, metrics.of, now), metrics.findings)
    return _next(seen, now) if metrics.over else seen


def _evaluated(seen: Seen, evaluation: Evaluated, now: float) -> Seen:
    current = replace(seen.current, evaluation=evaluation) if seen.current else None
    seen = replace(
        seen,
        returns=(*seen.returns, evaluation.episodes.mean_return if evaluation.episodes else None),
        current=current,
        imagined=current.imagined_per_step if current else None,
        real=current.real_per_step if current else None,
    )
    more = len(seen.returns) < seen.budget
    return _enter(replace(seen, deployment=seen.deployment + more), COLLECT if more else EVALUATE, now)


def seconds_left(seen: Seen, now: float) -> float | None:
    """Of the stage, from the pace since its first report; None while there is none to go by."""
    if seen.first is None or seen.total is None or seen.done <= seen.first[1]:
        return None
    pace = (now - seen.first[0]) / (seen.done - seen.first[1])
    return pace * (seen.total - seen.done)
