"""A run while it runs: a live display on a terminal, plain lines elsewhere. Observers of news, nothing more."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from musbo.campaign.loop import News, Observer
from musbo.campaign.settings import Campaign
from musbo.report import words
from musbo.report.progress import STAGES, Seen, fold, seconds_left

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
    """One line per stage and per deployment, and warnings where they are due."""

    def __init__(
        self,
        write: Callable[[str], None] = print,
        every_stage: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every_stage, self.clock = every_stage, clock
        self.seen = Seen(since=clock())
        self._write = write
        self._pending: dict[str, Any] = {}  # the last report of the stage under way
        self._began = self._reminded = clock()

    def __call__(self, news: News) -> None:
        now = self.clock()
        self.seen = fold(self.seen, news, now)
        match news.kind:
            case "begin":
                self._begin(news)
            case "collected":
                self._deployment(news.deployment)
                self._stage("collected", _collected(news.numbers))
                self._warn(words.batch_warnings(news.numbers).values())
            case "training":
                self._training(news.numbers, now)
            case "trained":
                self._settle()
                self._stage("trained", _trained(news.numbers))
                self._warn(words.trained_warnings(news.numbers).values())
            case "evaluated":
                self._evaluated(news.deployment, news.numbers)
            case "stopping":
                self._write("stopping at the next safe point; Ctrl-C once more stops at once")
            case "stopped":
                self._settle()
        if news.kind not in ("collecting", "training", "stopping"):
            self._began = self._reminded = now

    def _begin(self, news: News) -> None:
        numbers = news.numbers
        settings: Campaign = numbers["settings"]
        what = f"{settings.algo} ({settings.preset}) on {settings.task}, seed {settings.seed}"
        budget = words.count(settings.deployments, "deployment")
        if numbers["brought"] < settings.deployments:
            budget += f" of {settings.batch:,} transitions"
        if numbers["brought"]:
            budget += f", data for {numbers['brought']}"
        resumed = f", resumed in deployment {news.deployment}" if numbers["resumed"] else ""
        self._write(f"{what}: {budget}" + (", finished already" if numbers["finished"] else resumed))
        if numbers["resumed"] and self.seen.stage != "collect" and not numbers["finished"]:
            self._deployment(news.deployment)

    def _deployment(self, d: int) -> None:
        if self.every_stage:
            self._write(f"deployment {d} of {self.seen.deployments}")

    def _stage(self, name: str, text: str) -> None:
        if self.every_stage:
            self._write(f"  {name:<10} {text}")

    def _warn(self, warnings: Iterable[str]) -> None:
        for text in warnings:
            self._write(f"  warning    {text}")

    def _training(self, numbers: dict[str, Any], now: float) -> None:
        stage = numbers["stage"]
        if stage == "done":
            self._settle()
        if stage in ("check", "done"):
            return
        self._pending = numbers
        if self.seen.stage != stage:  # that was its last report
            self._settle()
        elif now - self._reminded >= REMINDER:
            left = seconds_left(self.seen, now)
            ahead = f", about {words.duration(left)} left" if left is not None else ""
            self._stage(stage, f"{numbers['index']} of {numbers.get('epochs') or numbers['updates']}{ahead}")
            self._reminded = now

    def _settle(self) -> None:
        """Say how the stage under way ended."""
        if self._pending:
            now = self.clock()
            self._stage(self._pending["stage"], f"{_ended(self._pending)}, {words.duration(now - self._began)}")
            self._began = self._reminded = now
        self._pending = {}

    def _evaluated(self, d: int, numbers: dict[str, Any]) -> None:
        if "skipped" in numbers:
            text = f"not evaluated: {numbers['skipped']}"
        else:
            text = (
                f"{words.with_spread(numbers['return'], numbers['spread'])} "
                f"over {words.count(len(numbers['returns']), 'episode')}"
            )
            if self.seen.imagined is not None:
                text += f"; per step {words.number(self.seen.real)} real, {words.number(self.seen.imagined)} imagined"
        self._write(f"  return     {text}" if self.every_stage else f"deployment {d}: return {text}")


def _collected(numbers: dict[str, Any]) -> str:
    text = f"{numbers['size']:,} transitions in {words.count(numbers['n_episodes'], 'episode')}, "
    text += f"return {words.number(numbers['batch_return'])}"
    if "zeta" in numbers:
        text += f"; zeta {words.quantiles(numbers['zeta'])}, {numbers['zeta_at_cap']:.0%} at its cap"
    if numbers.get("extra_steps"):
        text += f"; {numbers['extra_steps']:,} extra steps of the oracle"
    return text


def _ended(numbers: dict[str, Any]) -> str:
    if numbers["stage"] == "improve":
        return f"{words.count(numbers['index'], 'update')}; U {words.quantiles(numbers['U'])}"
    if numbers["stage"] == "learn":
        return f"{words.count(numbers['index'], 'gradient step')}; Q {words.number(numbers['Q'])}"
    return f"validation error {words.number(numbers['error'])} after {words.count(numbers['epoch'], 'epoch')}"


def _trained(numbers: dict[str, Any]) -> str:
    if numbers["chosen"] is None:
        return "policy of the last step"
    imagined = words.number(words.imagined_per_step(numbers, {}))
    return f"policy of update {numbers['chosen']}, imagined reward per step {imagined}"


# The display


def picture(lines: Lines) -> RenderableType:
    """What the terminal shows now."""
    seen, now = lines.seen, lines.clock()
    deployment = min(seen.deployment, seen.deployments)
    bars = Table.grid(padding=(0, 2))
    done = len(seen.returns)
    bars.add_row(
        Text(f"deployment {deployment} of {seen.deployments}", style="bold"),
        ProgressBar(total=seen.deployments * len(seen.stages), completed=_overall(seen), width=30),
        f"{done} done",
    )
    left = seconds_left(seen, now)
    bars.add_row(
        STAGES[seen.stage],
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
    return (min(seen.deployment, seen.deployments) - 1) * len(seen.stages) + seen.stages.index(seen.stage) + within


def _facts(seen: Seen) -> Iterator[tuple[str, str]]:
    if seen.returns:
        yield "return so far", "  ".join(words.number(value) for value in seen.returns)
    if seen.batch_return is not None:
        yield "return of the batch", words.number(seen.batch_return)
    if seen.errors:
        yield "model error", "  ".join(f"{stage} {words.number(error)}" for stage, error in seen.errors.items())
    if seen.U:
        yield "U at 10/50/90 %", words.quantiles(seen.U)
    if seen.zeta:
        yield "zeta at 10/50/90 %", words.quantiles(seen.zeta)
    if seen.imagined is not None or seen.real is not None:
        yield "reward per step", f"{words.number(seen.imagined)} imagined, {words.number(seen.real)} real (last policy)"
