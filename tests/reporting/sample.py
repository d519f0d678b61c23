"""A made-up run of a few deployments: its summary and its news, with numbers that are easy to recognise."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from musbo.algorithms.method import DONE, Forecast, Metrics
from musbo.campaign.events import Brought, Collected, Episodes, Evaluated, Stretch, Trained
from musbo.campaign.news import Began, Collecting, Completed, News, Training
from musbo.campaign.settings import Campaign, TaskShape
from musbo.campaign.summary import Deployment, Summary
from musbo.core.diagnostics import NOTHING, Curve, Diagnostic, Findings, Quantiles
from musbo.learning.explore import seeking_findings
from musbo.learning.label import coefficient_findings
from tests.stories import tiny

U = Quantiles(0.5, 0.7, 0.9)
INERT = Quantiles(0.99, 0.995, 0.999)
SHAPE = TaskShape(4, 2, (-1.0, -1.0), (1.0, 1.0), 50, "given", "never")
HANDED_OVER = Findings((Diagnostic("chosen", 4.0, "update of the policy", "Whose policy is handed over."),))
UNKNOWN = Findings(
    (
        Diagnostic("surprise", 0.375, "surprise of the critic", "How often it is wrong.", "bits", "surprise\n/ step"),
        Diagnostic("temper", Quantiles(1.25, 2.5, 5.0), "temper of the actor", "Made up.", column="temper",
                   series="improve"),
        Diagnostic("mood", Quantiles(3.0, 4.0, 7.0), "mood of the batch", "Made up as well."),
        Diagnostic("trust", Curve((1.0, 2.0), (3.0, 5.0), "how sure", "how right"), "trustworthiness", "A curve."),
    )
)  # fmt: skip
"""Diagnostics that nothing in musbo has heard of."""


def settings() -> Campaign:
    return tiny.settings()


def findings(U: Quantiles = U, alpha: float = 0.028) -> Findings:
    """What a training of MUSBO says."""
    return Findings((error("dynamics", 0.0125),)) + coefficient_findings(U, None, alpha) + HANDED_OVER


def error(stage: str, value: float) -> Diagnostic:
    column = "model\nerror" if stage == "dynamics" else ""
    return Diagnostic(f"{stage}_error", value, f"{stage} error", "On held-out data.", "squared", column)


def batch(d: int, **changes: Any) -> Collected:
    own = seeking_findings([0.1, 0.2, 0.3], 0.25, 0.0) if d > 1 else NOTHING
    found = Collected("a" * 64 + ".parquet", 1000, 20, -100.0 + d, 50.0, seconds=1.0, findings=own)
    return replace(found, **changes)


def trained(d: int, **changes: Any) -> Trained:
    found = Trained("0" * 64 + ".safetensors", "0" * 64 + ".safetensors", 10.0, Forecast(-20.0, 10.0, 10), findings())
    return replace(found, **changes)


def evaluated(d: int, **changes: Any) -> Evaluated:
    mean = -50.0 + 10 * d
    episodes = Episodes((mean - 10.0, mean + 10.0), mean, 14.1, mean, 50.0, None, 100)
    return replace(Evaluated(0.5, episodes=episodes, stretch=Stretch(mean, 50.0)), **changes)


def deployment(d: int) -> Deployment:
    return Deployment(d, batch(d), trained(d), evaluated(d))


def summary(deployed: int = 3, **changes: Any) -> Summary:
    own = replace(settings(), budget=max(deployed, 1))
    every = tuple(deployment(d) for d in range(1, deployed + 1))
    return replace(Summary(own, SHAPE, (), every, finished=True, versions={"musbo": "0"}), **changes)


def changed(summary: Summary, d: int, change: Callable[[Deployment], Deployment]) -> Summary:
    """With another deployment `d`."""
    every = tuple(change(item) if item.number == d else item for item in summary.deployments)
    return replace(summary, deployments=every)


def with_batch(item: Deployment, **changes: Any) -> Deployment:
    return replace(item, batch=replace(item.batch, **changes))


def with_training(item: Deployment, **changes: Any) -> Deployment:
    assert item.training is not None
    return replace(item, training=replace(item.training, **changes))


def with_evaluation(item: Deployment, **changes: Any) -> Deployment:
    assert item.evaluation is not None
    return replace(item, evaluation=replace(item.evaluation, **changes))


def with_episodes(item: Deployment, **changes: Any) -> Deployment:
    assert item.evaluation is not None and item.evaluation.episodes is not None
    return with_evaluation(item, episodes=replace(item.evaluation.episodes, **changes))


def brought(*sizes: int) -> tuple[Brought, ...]:
    return tuple(Brought(f"{i:08d}.parquet", f"log-{i}.parquet", size) for i, size in enumerate(sizes))


# News


def fit(stage: str, epoch: int, of: int, active: int = 2) -> Metrics:
    over = epoch == of or active == 0
    return Metrics(stage, epoch, of, "epoch", over, findings=Findings((error(stage, 0.5 / epoch),)))


def improve(update: int, of: int, more: Findings = NOTHING) -> Metrics:
    own = coefficient_findings(U, None, 0.028) + more
    return Metrics("improve", update, of, "update", update == of, findings=own)


def check(update: int) -> Metrics:
    return Metrics("check", update, 4, "update", forecast=Forecast(-30.0, 10.0, 10))


def done() -> Metrics:
    return Metrics(DONE, findings=HANDED_OVER, forecast=Forecast(-20.0, 10.0, 10))


def training() -> Sequence[Metrics]:
    return [
        fit("dynamics", 1, 2), fit("dynamics", 2, 2), fit("labeler", 1, 9), fit("labeler", 2, 9, active=0),
        fit("start", 1, 2), fit("start", 2, 2), check(0), improve(1, 4), improve(2, 4), check(2), improve(3, 4),
        improve(4, 4), check(4), done(),
    ]  # fmt: skip


def news(d: int) -> list[News]:
    """One deployment."""
    return [
        Collecting(d, 0, 1000),
        Collecting(d, 1000, 1000),
        Completed(d, batch(d)),
        *[Training(d, metrics) for metrics in training()],
        Completed(d, trained(d)),
        Completed(d, evaluated(d)),
    ]


def beginning(deployment: int = 1, resumed: bool = False, finished: bool = False, data: int = 0) -> Began:
    found = summary(deployment - 1, settings=settings(), finished=finished, brought=brought(*[100] * data))
    return Began(deployment, found, resumed)
