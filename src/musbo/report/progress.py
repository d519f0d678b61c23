"""Where a run is, as a fold over its news: what the live display shows and the plain lines say."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from musbo.campaign.loop import News
from musbo.report.words import imagined_per_step, per_step, real_per_step

STAGES = {
    "collect": "collecting",
    "dynamics": "fitting the dynamics M",
    "labeler": "fitting the labeler P",
    "start": "cloning the collector",
    "behaviour": "cloning the behaviour",
    "learn": "learning from the data",
    "improve": "improving in imagination",
    "evaluate": "evaluating",
}
"""What is going on in each stage of a deployment; which stages there are, and their order, is the method's."""


@dataclass(frozen=True)
class Seen:
    """All that the news so far say."""

    deployments: int = 1
    stages: tuple[str, ...] = ("collect", "evaluate")
    deployment: int = 1
    stage: str = "collect"
    done: int = 0
    total: int | None = None  # None: not known yet, usually because something is being compiled
    since: float = 0.0  # when the stage began
    first: tuple[float, int] | None = None  # time and `done` of the stage's first report: compilation is before it
    returns: tuple[float | None, ...] = ()
    batch_return: float | None = None
    zeta: list[float] | None = None
    U: list[float] | None = None
    errors: dict[str, float] = field(default_factory=dict)
    trained: dict[str, Any] = field(default_factory=dict)  # what training said of the policy that is evaluated
    imagined: float | None = None  # per step
    real: float | None = None  # per step


def fold(seen: Seen, news: News, now: float) -> Seen:
    """What is known after one more piece of news, at time `now`."""
    numbers = news.numbers
    return FOLDS[news.kind](replace(seen, deployment=news.deployment or seen.deployment), numbers, now)


def _begin(seen: Seen, numbers: dict[str, Any], now: float) -> Seen:
    settings = numbers["settings"]
    stages = ("collect", *settings.method.stages, "evaluate")
    deployment = min(seen.deployment, settings.deployments)
    seen = replace(seen, deployments=settings.deployments, stages=stages, deployment=deployment)
    done = {row["deployment"]: row for row in numbers["per_deployment"]}
    this = done.get(seen.deployment, {"batch": {}, "trained": {}})
    stage = "evaluate" if this["trained"] or numbers["finished"] else seen.stages[1] if this["batch"] else "collect"
    last = done.get(seen.deployment - 1, {"trained": {}, "evaluated": {}})
    return replace(
        _enter(seen, stage, now),
        returns=tuple(numbers["returns"]),
        trained=this["trained"],
        imagined=imagined_per_step(last["trained"], last["evaluated"]),
        real=real_per_step(last["evaluated"]),
    )


def _enter(seen: Seen, stage: str, now: float) -> Seen:
    return replace(seen, stage=stage, done=0, total=None, since=now, first=None)


def _report(seen: Seen, stage: str, done: int, total: int, now: float) -> Seen:
    seen = seen if seen.stage == stage else _enter(seen, stage, now)
    return replace(seen, done=done, total=total, first=seen.first or (now, done))


def _next(seen: Seen, now: float) -> Seen:
    return _enter(seen, seen.stages[seen.stages.index(seen.stage) + 1], now)


def _collecting(seen: Seen, numbers: dict[str, Any], now: float) -> Seen:
    return _report(seen, "collect", numbers["done"], numbers["size"], now)


def _collected(seen: Seen, numbers: dict[str, Any], now: float) -> Seen:
    seen = replace(seen, batch_return=numbers.get("batch_return"), zeta=numbers.get("zeta"))
    return _next(replace(seen, stage="collect"), now)


def _training(seen: Seen, numbers: dict[str, Any], now: float) -> Seen:
    stage = numbers["stage"]
    if stage == "check":
        imagined = per_step(numbers["imagined_return"], numbers["imagined_length"])
        seen = seen if seen.stage == "improve" else _enter(seen, "improve", now)
        return replace(seen, imagined=imagined)
    if stage in ("improve", "learn"):
        return replace(_report(seen, stage, numbers["index"], numbers["updates"], now), U=numbers.get("U"))
    if stage == "done":
        return _enter(seen, "evaluate", now)
    seen = _report(seen, stage, numbers["epoch"], numbers["epochs"], now)
    seen = replace(seen, errors={**seen.errors, stage: numbers["error"]})
    return _next(seen, now) if numbers["active"] == 0 or seen.done == seen.total else seen


def _trained(seen: Seen, numbers: dict[str, Any], now: float) -> Seen:
    imagined, U = imagined_per_step(numbers, {}), numbers.get("U") or seen.U
    return replace(seen, stage="evaluate", trained=numbers, imagined=imagined, U=U)


def _evaluated(seen: Seen, numbers: dict[str, Any], now: float) -> Seen:
    imagined = imagined_per_step(seen.trained, numbers)
    seen = replace(seen, returns=(*seen.returns, numbers.get("return")), imagined=imagined, real=real_per_step(numbers))
    more = len(seen.returns) < seen.deployments
    return _enter(replace(seen, deployment=seen.deployment + more), "collect" if more else "evaluate", now)


def _same(seen: Seen, numbers: dict[str, Any], now: float) -> Seen:
    return seen


FOLDS: dict[str, Callable[[Seen, dict[str, Any], float], Seen]] = {
    "begin": _begin,
    "collecting": _collecting,
    "collected": _collected,
    "training": _training,
    "trained": _trained,
    "evaluated": _evaluated,
    "finished": _same,
    "stopping": _same,
    "stopped": _same,
}


def seconds_left(seen: Seen, now: float) -> float | None:
    """Of the stage, from the pace since its first report; None while there is none to go by."""
    if seen.first is None or seen.total is None or seen.done <= seen.first[1]:
        return None
    pace = (now - seen.first[0]) / (seen.done - seen.first[1])
    return pace * (seen.total - seen.done)
