"""A campaign in the field, from Python. Its verbs are those of the command line, and each says what comes next.

campaign = musbo.Campaign.new("my_task.py:TASK", data=["logs.parquet"], budget=5)
campaign.train()
bundle = campaign.export()                 # to the site, which sends a recording back
campaign.ingest(["monday.musbo"])
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from musbo.algorithms.method import Method
from musbo.algorithms.recipes import Preset
from musbo.campaign import bundles, homecoming, settings
from musbo.campaign.api import start
from musbo.campaign.bundles import Bundle
from musbo.campaign.changes import changed
from musbo.campaign.events import Abandoned, Amended, Event, Exported, Withdrawn
from musbo.campaign.homecoming import Checked, Home
from musbo.campaign.ledger import Ledger
from musbo.campaign.news import Observer, unobserved
from musbo.campaign.places import LEDGER
from musbo.campaign.rounds import Next, Round, rounds, what_next
from musbo.campaign.runner import CHECKPOINT_SECONDS, Runner, advance, looked_at, opened
from musbo.campaign.settings import shape_of
from musbo.campaign.status import Status
from musbo.campaign.summary import Summary, read_status, summary
from musbo.campaign.verify import Verified, verify
from musbo.core.compilation import keep_compiled
from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.core.plain import plain
from musbo.data.batch import Batch
from musbo.data.finding import Finding
from musbo.data.logs import Logs
from musbo.data.mapping import Mapping as ColumnMapping
from musbo.field.dry_run import values_of
from musbo.field.find import find_task
from musbo.tasks.find import digest
from musbo.tasks.task import Task


@dataclass(frozen=True)
class Ingested:
    """What came home."""

    round: int
    transitions: int
    again: bool
    """Whether it had come home before, so that nothing was changed."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class FieldStatus:
    """Where a campaign stands."""

    summary: Summary
    rounds: tuple[Round, ...]
    next: Next

    def plain(self) -> dict[str, Any]:
        """As JSON: what `musbo status --json` prints."""
        return {**self.summary.plain(), "rounds": plain(list(self.rounds)), **self.next.plain()}


class Campaign:
    """The campaign in `folder`, whose batches come home from a real field.

    A task of your own is not imported by itself: pass it as `task`, or set `trust_task=True`. Every verb that changes
    something holds a lock; a second process is told who has it.
    """

    def __init__(self, folder: str | Path, *, task: str | Task | None = None, trust_task: bool = False) -> None:
        self.folder = given(folder)
        self._task, self._trust = find_task(task) if isinstance(task, str) else task, trust_task
        if not read_status(self.folder).field:
            raise UserError(
                f"{folder} is a run whose field is a simulator: go on with `musbo resume {folder}`, or begin a "
                "campaign in the field with `musbo new`."
            )

    @classmethod
    def new(
        cls,
        task: str | Task,
        *,
        data: Sequence[str | Path | Batch | Logs],
        mapping: ColumnMapping | str | Path | None = None,
        algo: str = "musbo",
        preset: Preset | None = None,
        seed: int = 0,
        budget: int | None = None,
        batch_size: int | None = None,
        method: Method | None = None,
        settings: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
    ) -> "Campaign":
        """A new campaign that begins with logs; they count as its first deployments. `musbo.run` says the rest."""
        from musbo.campaign.settings import campaign

        asked = campaign(task, algo, preset, seed, budget, batch_size, None, method)
        asked = replace(asked, method=changed(asked.method, settings or {}))
        own = task if isinstance(task, Task) else None
        folder = start(asked, data, out, own, mapping, field=True)
        return cls(folder, task=own, trust_task=True)

    # What it says

    def status(self) -> FieldStatus:
        """Where the campaign stands, and what comes next."""
        with Ledger(self.folder / LEDGER) as ledger:
            now, events = ledger.status(), ledger.events()
        return FieldStatus(summary(self.folder), tuple(rounds(events, now)), what_next(now, self.folder))

    @property
    def next(self) -> Next:
        """What comes next."""
        return what_next(read_status(self.folder), self.folder)

    def history(self) -> list[Event]:
        """Every event, oldest first."""
        with Ledger(self.folder / LEDGER) as ledger:
            return ledger.events()

    def verify(self) -> Verified:
        """Read everything, and change nothing."""
        return verify(self.folder)

    # What it does

    def train(
        self,
        *,
        again: bool = False,
        settings: Mapping[str, Any] | None = None,
        observe: Observer = unobserved,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> Summary:
        """Train on everything that came home; where that is done already, nothing happens.

        With `again`, another candidate for the open round is trained on the same data, with other random numbers and
        possibly other `settings` of the method, which later trainings keep. The newest candidate is exported.
        """
        keep_compiled()
        if settings and not again:
            raise UserError("settings belong to a further candidate: say again too.")
        result = advance(self.folder, observe, self._task, checkpoint_seconds, self._trust)
        if not again:
            return result
        with self._opened(observe) as runner:
            now = runner.status()
            if now.phase not in ("collect", "finished") or not now.trained:
                raise UserError("there is no candidate yet to train another one beside: `musbo train` comes first.")
            runner.train_again(changed(runner.settings.method, settings or {}))
        return summary(self.folder)

    def export(
        self,
        *,
        out: str | Path | None = None,
        limits: str | Path | Mapping[str, Any] | None = None,
        bundle: str | None = None,
    ) -> Bundle:
        """Write the newest policy as a bundle for the open round. It spends nothing; again, it changes nothing.

        `bundle` is the id, or its beginning, of one that was exported before: to go back to it.
        """
        keep_compiled()
        with self._opened() as runner:
            now = runner.status()
            if now.phase not in ("collect", "finished") or not now.trained:
                raise UserError(f"there is nothing to export yet. {self._says(now)}")
            name = f"round-{now.deployment}"
            name = "final" if now.finished else name
            if bundle is None:
                said = bundles.read_limits(limits) if limits is not None else json.loads(now.creation.limits or "{}")
                made, about = bundles.make(self.folder, said)
                archive = runner.store.put_bytes(bundles.zip_bytes(made.files), ".zip")
                event = Exported(made.id, archive, about.deployment, about.ledger, now.finished)
                self._leave(runner, event, now)
                return bundles.put(self.folder, f"{name}-{made.id[:8]}", out, made, about)
            old = self._former(runner, bundle)
            self._leave(runner, replace(old, final=now.finished), now)
            return bundles.again(self.folder, f"{name}-{old.bundle[:8]}", out, runner.store.get(old.archive))

    def _leave(self, runner: Runner, event: Exported, now: Status) -> None:
        if event not in now.exports.get(now.deployment, ()):
            runner.ledger.append(event, now.deployment)

    def _former(self, runner: Runner, bundle: str) -> Exported:
        every = [event.what for event in runner.ledger.events() if isinstance(event.what, Exported)]
        found = {each.bundle: each for each in every if bundle and each.bundle.startswith(bundle)}
        if len(found) != 1:
            some = ", ".join(dict.fromkeys(each.bundle[:12] for each in every)) or "none"
            raise UserError(f"{len(found)} bundles of this campaign begin with {bundle!r}; it exported: {some}.")
        return next(iter(found.values()))

    def check(
        self,
        data: Sequence[Home],
        *,
        mapping: ColumnMapping | str | Path | None = None,
        bundle: str | None = None,
    ) -> Checked:
        """What `ingest` would find; nothing is changed."""
        keep_compiled()
        every, refused = homecoming.arrivals(data, mapping)
        with looked_at(self.folder, self._task, self._trust) as runner:
            said = None if bundle is None else homecoming.expected_bundle(runner.ledger, bundle)
            return homecoming.checked(runner, every, refused, said)

    def ingest(
        self,
        data: Sequence[Home],
        *,
        mapping: ColumnMapping | str | Path | None = None,
        bundle: str | None = None,
        accept: bool = False,
    ) -> Ingested:
        """Take the data of the open round, which spends it; all of them at once.

        `data` are recordings, other files (`mapping` says what their columns mean), names such as `minari:NAME`,
        batches, or what `musbo.data.from_dataframe` returns. The doctor looks at them first. Errors refuse all and
        change nothing; warnings need `accept`. Data of a bundle that did not leave here for this round are refused;
        `bundle` is the id, or its beginning, of the one that made data which do not name it. The same data again change
        nothing.
        """
        keep_compiled()
        every, refused = homecoming.arrivals(data, mapping)
        with self._opened() as runner:
            if not refused and (d := homecoming.known(runner.ledger, every)) is not None:
                return Ingested(d, sum(len(each.logs) for each in every), again=True)
            homecoming.require_open(runner.ledger)
            said = None if bundle is None else homecoming.expected_bundle(runner.ledger, bundle)
            found = homecoming.examined(runner, every, refused, said)
            homecoming.require_accepted(found, accept)
            d = runner.status().deployment
            event = homecoming.take(runner, every, found, said)
            return Ingested(d, event.transitions, again=False, findings=tuple(found))

    def withdraw(self, number: int) -> None:
        """The bundles that left for this round will not be used: nothing is spent, and it can be exported anew."""
        self._close(number, Withdrawn())

    def abandon(self, number: int, *, spent: str | None = None) -> None:
        """No data of this round will come home. `spent` says why, if the bundle ran: then the deployment is spent."""
        if spent is not None and not spent.strip():
            raise UserError("say why the deployment is spent and brings no data.")
        self._close(number, Abandoned(spent is not None, spent or ""))

    def _close(self, number: int, event: Withdrawn | Abandoned) -> None:
        with self._opened(task=False) as runner:
            now = runner.status()
            if number not in now.exports or number in now.collected:
                state = "has its data" if number in now.collected else "has no bundle in the field"
                raise UserError(f"round {number} {state}, so there is nothing to call back. {self._says(now)}")
            runner.ledger.append(event, number)

    def amend(
        self,
        *,
        budget: int | None = None,
        limits: str | Path | Mapping[str, Any] | None = None,
        reward: bool = False,
        reason: str = "",
    ) -> None:
        """Change the budget, the limits of every further bundle, or the reward function.

        With `reward`, the task as it is now counts; all data get the rewards of its function.
        """
        if budget is None and limits is None and not reward:
            raise UserError("say what to change: the budget, the limits or the reward.")
        with self._opened(task=reward, amending=reward) as runner:
            now = runner.status()
            if budget is not None and budget < max(now.deployed, 1):
                raise UserError(f"{now.deployed} deployments are spent: a budget of {budget} is too small.")
            told = None if limits is None else json.dumps(dict(bundles.read_limits(limits)))
            event = Amended(budget, told, reason=reason)
            if reward:
                name = settings.task_in(self.folder, now.creation.settings.task)
                source = digest(name) if self._task is None else None
                shape, values = shape_of(runner.task), values_of(runner.task)
                event = replace(event, task=shape, task_digest=source, task_values=values)
            runner.ledger.append(event, now.deployment)

    def _opened(self, observe: Observer = unobserved, task: bool = True, amending: bool = False) -> Any:
        """Where no `task` is needed, none is imported."""
        if task:
            return opened(self.folder, observe, self._task, trust_task=self._trust, amending=amending)
        created = read_status(self.folder).creation
        like = settings.task_like(created.settings.task, created.task)
        return opened(self.folder, observe, like, amending=True)

    def _says(self, now: Status) -> str:
        text = what_next(now, self.folder).text
        return f"{text[:1].upper()}{text[1:]}."
