"""A run while it runs: a live display on a terminal, plain lines elsewhere. Observers of news, nothing more."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from musbo.algorithms.method import DONE, Metrics
from musbo.campaign.events import Collected, Evaluated, Trained
from musbo.campaign.news import Began, Collecting, Completed, Left, News, Observer, Stopping, Training
from musbo.campaign.summary import Summary
from musbo.core.diagnostics import NOTHING, Quantiles
from musbo.reporting import words
from musbo.reporting.advice import advise
from musbo.reporting.progress import COLLECT, Seen, fold, seconds_left

REMINDER = 60.0
"""Seconds between two lines about the same stage, off a terminal."""


@contextmanager
def watch(console: Console) -> Iterator[Observer]:
    """Show a run on `console`, as it suits it."""
    lines = Lines(lambda text: console.print(text, highlight=False, soft_wrap=True, markup=False))
    if not console.is_terminal:
        yield lines
        return
    lines.every_stage = False
    with Live(console=console, refresh_per_second=8, transient=True, get_renderable=lambda: picture(lines)):
        yield lines


class Lines:
    """One line per stage and per deployment, and warnings where there are some."""

    def __init__(
        self,
        write: Callable[[str], None] = print,
        every_stage: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every_stage, self.clock = every_stage, clock
        self.seen = Seen(since=clock())
        self._write = write
        self._pending: Metrics | None = None  # the last report of the stage under way
        self._closing = NOTHING  # what the training said at its end
        self._began = self._reminded = clock()
        self._summary: Summary | None = None  # of the run so far
        self._said: set[str] = set()  # kinds of advice

    def __call__(self, news: News) -> None:
        now = self.clock()
        self.seen = fold(self.seen, news, now)
        match news:
            case Began():
                self._begin(news)
            case Completed(deployment, Collected() as batch):
                self._deployment(deployment)
                self._stage("collected", _collected(batch))
            case Training(_, metrics):
                self._training(metrics, now)
            case Completed(_, Trained() as training):
                self._settle()
                self._stage("trained", self._trained(training))
            case Completed(deployment, Evaluated() as evaluation):
                self._evaluated(deployment, evaluation)
            case Stopping():
                self._write("stopping at the next safe point; Ctrl-C once more stops at once")
            case Left():
                self._settle()
        if isinstance(news, Completed) and self._summary:
            self._summary = self._summary.after(news.deployment, news.what)
            self._advise(self._summary)
        if not isinstance(news, Collecting | Training | Stopping):
            self._began = self._reminded = now

    def _begin(self, news: Began) -> None:
        summary, settings = news.summary, news.summary.settings
        what = f"{settings.algo} ({settings.preset}) on {summary.task_name}, seed {settings.seed}"
        budget, brought = words.count(settings.budget, "deployment"), len(summary.brought)
        if brought < settings.budget:
            budget += f" of {settings.batch_size:,} transitions"
        if brought:
            budget += f", data for {brought}"
        resumed = f", resumed in deployment {news.deployment}" if news.resumed else ""
        self._write(f"{what}: {budget}" + (", finished already" if summary.finished else resumed))
        for caution in news.cautions:
            self._write(f"  warning    {caution.text}")
        self._summary, self._said = summary, {each.kind for each in advise(summary)}
        if news.resumed and self.seen.stage != COLLECT and not summary.finished:
            self._deployment(news.deployment)

    def _deployment(self, d: int) -> None:
        if self.every_stage:
            self._write(f"deployment {d} of {self.seen.budget}")

    def _stage(self, name: str, text: str) -> None:
        if self.every_stage:
            self._write(f"  {name:<10} {text}")

    def _advise(self, summary: Summary) -> None:
        """Say what is new: each kind once."""
        for each in advise(summary):
            if each.kind not in self._said:
                self._said.add(each.kind)
                self._write(f"  warning    {each.text}")

    def _training(self, metrics: Metrics, now: float) -> None:
        if metrics.stage == DONE:
            self._settle()
            self._closing = metrics.findings
        if self.seen.named(metrics.stage) is None:  # a report on the side, or the end
            return
        if self._pending and self._pending.stage != metrics.stage:
            self._settle()
        self._pending = metrics
        if metrics.over:
            self._settle()
        elif now - self._reminded >= REMINDER:
            left = seconds_left(self.seen, now)
            ahead = f", about {words.duration(left)} left" if left is not None else ""
            self._stage(metrics.stage, f"{metrics.index} of {metrics.of}{ahead}" if metrics.of else str(metrics.index))
            self._reminded = now

    def _settle(self) -> None:
        """Say how the stage under way ended."""
        if self._pending:
            now = self.clock()
            self._stage(self._pending.stage, f"{_ended(self._pending)}, {words.duration(now - self._began)}")
            self._began = self._reminded = now
        self._pending = None

    def _trained(self, training: Trained) -> str:
        parts, self._closing = [words.brief(self._closing)], NOTHING
        if training.forecast:
            parts.append(f"imagined reward per step {words.number(self.seen.imagined)}")
        return ", ".join(filter(None, parts)) or "policy of the last step"

    def _evaluated(self, d: int, evaluation: Evaluated) -> None:
        episodes = evaluation.episodes
        if episodes is None:
            text = f"not evaluated: {evaluation.skipped}"
        else:
            mean = words.with_deviation(episodes.mean_return, episodes.deviation)
            text = f"{mean} over {words.count(len(episodes.returns), 'episode')}"
            if self.seen.imagined is not None:
                text += f"; per step {words.number(self.seen.real)} real, {words.number(self.seen.imagined)} imagined"
        self._write(f"  return     {text}" if self.every_stage else f"deployment {d}: return {text}")


def _collected(batch: Collected) -> str:
    text = f"{batch.transitions:,} transitions in {words.count(batch.episodes, 'episode')}, "
    text += f"return {words.number(batch.mean_return)}"
    if shown := words.brief(batch.findings):
        text += f"; {shown}"
    if batch.extra_steps:
        text += f"; {batch.extra_steps:,} extra steps of the oracle"
    return text


def _ended(metrics: Metrics) -> str:
    done, shown = words.count(metrics.index, metrics.unit), words.brief(metrics.findings)
    return f"{done}; {shown}" if shown else done


# The display


def picture(lines: Lines) -> RenderableType:
    """What the terminal shows now."""
    seen, now = lines.seen, lines.clock()
    bars = Table.grid(padding=(0, 2))
    bars.add_row(
        Text(f"deployment {seen.deployment} of {seen.budget}", style="bold"),
        ProgressBar(total=seen.budget * len(seen.stages), completed=_overall(seen), width=30),
        f"{len(seen.returns)} done",
    )
    left = seconds_left(seen, now)
    bars.add_row(
        seen.stage.doing,
        ProgressBar(total=seen.total, completed=seen.done, width=30, pulse=seen.total is None),
        f"{seen.done} of {seen.total}" if seen.total else f"{words.duration(now - seen.since)}",
        f"{words.duration(left)} left" if left is not None else "",
    )
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(seen):
        facts.add_row(Text(name, style="dim"), value)
    return Group(bars, facts)


def _overall(seen: Seen) -> float:
    within = seen.done / seen.total if seen.total else 0.0
    return (seen.deployment - 1) * len(seen.stages) + seen.stages.index(seen.stage) + within


def _facts(seen: Seen) -> Iterator[tuple[str, str]]:
    if seen.returns:
        yield "return so far", "  ".join(words.number(value) for value in seen.returns)
    if seen.current and seen.current.batch.mean_return is not None:
        yield "return of the batch", words.number(seen.current.batch.mean_return)
    for shown in seen.diagnostics.values():
        if (text := words.diagnostic(shown)) != "-":
            yield shown.title + (" at 10/50/90 %" if isinstance(shown.value, Quantiles) else ""), text
    if seen.imagined is not None or seen.real is not None:
        yield "reward per step", f"{words.number(seen.imagined)} imagined, {words.number(seen.real)} real (last policy)"
