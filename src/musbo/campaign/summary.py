"""What came out of a campaign, in one value: what the tables, the page and `--json` are made from."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from musbo.campaign.events import Brought, Collected, Evaluated, Trained
from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.campaign.settings import Campaign, TaskShape, shown_name
from musbo.campaign.status import Collect, Done, Evaluate, Finish, Status, Step, Train, next_step
from musbo.core.diagnostics import NOTHING, Caution, Diagnostic, Findings
from musbo.core.errors import UserError
from musbo.core.plain import plain


@dataclass(frozen=True)
class Deployment:
    """One deployment: its batch and, as far as it got, the training and the evaluation that followed."""

    number: int
    batch: Collected
    training: Trained | None = None
    evaluation: Evaluated | None = None
    earlier: tuple[Caution, ...] = ()
    """Of the dry run: what was known before the first batch."""

    @property
    def mean_return(self) -> float | None:
        """Of the policy trained after it; None before it is measured, and where nobody can."""
        episodes = self.evaluation.episodes if self.evaluation else None
        return episodes.mean_return if episodes else None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Of the batch and of the training."""
        return self.batch.findings.diagnostics + (self.training.findings.diagnostics if self.training else ())

    @property
    def cautions(self) -> tuple[Caution, ...]:
        return self.earlier + self.batch.findings.cautions + (self.training.findings.cautions if self.training else ())

    @property
    def imagined_per_step(self) -> float | None:
        """What imagination promised of the policy.

        Without a horizon, training rated it from the midst of episodes or not at all: what was foreseen from the starts
        of the real episodes is what compares with them.
        """
        forecast = self.training.forecast if self.training else None
        agreement = self.evaluation.agreement if self.evaluation else None
        if (forecast is None or forecast.horizon is None) and agreement and agreement.imagined_return is not None:
            return per_step(agreement.imagined_return, agreement.imagined_steps)
        return per_step(forecast.total, forecast.steps) if forecast else None

    @property
    def real_per_step(self) -> float | None:
        """What came true, over the same steps and under the same reward."""
        stretch = self.evaluation.stretch if self.evaluation else None
        return per_step(stretch.total, stretch.steps) if stretch else None

    @property
    def seconds(self) -> float:
        parts = (self.batch, self.training, self.evaluation)
        return sum((part.seconds for part in parts if part is not None), 0.0)


def per_step(total: float | None, steps: float | None) -> float | None:
    """Episodes differ in length, and imagined ones from real ones: only reward per step compares."""
    return None if total is None or not steps else total / steps


@dataclass(frozen=True)
class Summary:
    """Settings and results of a run, finished or not."""

    settings: Campaign
    task: TaskShape
    brought: tuple[Brought, ...]
    deployments: tuple[Deployment, ...]
    finished: bool
    versions: dict[str, str]
    """What it was made with."""
    trial_steps: int = 0
    """Steps in the simulator before the first batch, to try the task."""
    trial: Findings = NOTHING
    """What they showed."""
    lost: int = 0
    """Deployments that are spent and brought no data."""

    @property
    def task_name(self) -> str:
        """What the task is called on a page."""
        return shown_name(self.settings.task, self.task.name)

    @property
    def deployed(self) -> int:
        """Number of deployments used so far."""
        return len(self.deployments) + self.lost

    @property
    def transitions(self) -> int:
        return sum(deployment.batch.transitions for deployment in self.deployments)

    @property
    def returns(self) -> tuple[float | None, ...]:
        """Mean return after every deployment that was evaluated; None where it could not be measured."""
        return tuple(item.mean_return for item in self.deployments if item.evaluation is not None)

    @property
    def final_return(self) -> float | None:
        return self.returns[-1] if self.returns else None

    @property
    def policy_sha256(self) -> str | None:
        """SHA-256 of the newest policy."""
        trained = [item.training for item in self.deployments if item.training is not None]
        return trained[-1].policy_sha256 if trained else None

    @property
    def seconds(self) -> float:
        return sum((deployment.seconds for deployment in self.deployments), 0.0)

    @property
    def evaluation_steps(self) -> int:
        """Simulator steps that were used for evaluation only."""
        measured = [item.evaluation.episodes for item in self.deployments if item.evaluation]
        return sum(episodes.steps for episodes in measured if episodes is not None)

    def after(self, number: int, what: Collected | Trained | Evaluated) -> "Summary":
        """With one more step of deployment `number` complete."""
        known = {item.number: item for item in self.deployments}
        match what:
            case Collected():
                known[number] = Deployment(number, what)
            case Trained():
                known[number] = replace(known[number], training=what)
            case Evaluated():
                known[number] = replace(known[number], evaluation=what)
        return replace(self, deployments=tuple(known[d] for d in sorted(known)))

    def plain(self) -> dict[str, Any]:
        """As JSON: what `summary.json` holds, and `--json` prints with the advice."""
        own = self.settings
        return plain(
            {
                "task": own.task,
                "algorithm": own.algo,
                "preset": own.preset,
                "seed": own.seed,
                "budget": own.budget,
                "batch_size": own.batch_size,
                "deployed": self.deployed,
                "transitions": self.transitions,
                "returns": self.returns,
                "final_return": self.final_return,
                "policy_sha256": self.policy_sha256,
                "seconds": self.seconds,
                "finished": self.finished,
                "evaluation_steps": self.evaluation_steps,
                "trial_steps": self.trial_steps,
                "deployments": self.deployments,
                "versions": self.versions,
            }
        )


def summarise(now: Status) -> Summary:
    """The summary of a status."""
    created = now.creation
    first = min(now.collected, default=None)
    deployments = tuple(
        Deployment(
            d, now.collected[d], now.trained.get(d), now.evaluated.get(d), created.trial.cautions if d == first else ()
        )
        for d in sorted(now.collected)
    )
    return Summary(
        created.settings, created.task, created.brought, deployments, now.finished, created.versions,
        created.trial_steps, created.trial, len(now.lost),
    )  # fmt: skip


def read_status(folder: Path) -> Status:
    """The status of the run in `folder`."""
    with _ledger(folder) as ledger:
        return ledger.status()


def _ledger(folder: Path) -> Ledger:
    if not (folder / LEDGER).is_file():
        raise UserError(f"{folder} holds no run: give the directory that `musbo run` wrote (its --out).")
    return Ledger(folder / LEDGER)


def summary(folder: Path) -> Summary:
    """The summary of the run in `folder`."""
    return summarise(read_status(folder))


@dataclass(frozen=True)
class Whereabouts:
    """What a run waits for or is doing, and how far its training is written down."""

    now: str
    """In words."""
    next_step: str
    """collect, train, evaluate, finish or done."""
    stopped: bool


def whereabouts(folder: Path) -> Whereabouts:
    with _ledger(folder) as ledger:
        now, metrics = ledger.status(), ledger.metrics()
    budget = now.creation.settings.budget
    words = {"collect": "collecting", "train": "training", "evaluate": "evaluating", "finished": "finished"}
    text = words.get(now.phase, now.phase)
    if not now.finished:
        text += f" deployment {min(now.deployment, budget)} of {budget}"
    if now.phase == "train" and metrics and metrics[-1].deployment == now.deployment:
        last = metrics[-1]
        text += f", {last.stage} {last.index}" + (f" of {last.of}" if last.of else "")
    return Whereabouts(text + (", stopped" if now.stopped else ""), _word(next_step(now, budget)), now.stopped)


def _word(step: Step) -> str:
    return {Collect: "collect", Train: "train", Evaluate: "evaluate", Finish: "finish", Done: "done"}[type(step)]
