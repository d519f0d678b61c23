"""A campaign in the field, from Python. Its verbs are those of the command line, and each says what comes next.

campaign = musbo.Campaign.new("my_task.py:TASK", data=["logs.parquet"], budget=5)
campaign.train()
bundle = campaign.export()                 # to the site, which sends a recording back
campaign.ingest(["monday.musbo"])
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from musbo.algorithms.method import Method
from musbo.algorithms.recipes import Preset
from musbo.campaign import bundles, gating, homecoming, settings
from musbo.campaign.api import start
from musbo.campaign.bundles import Bundle, Leaving, Made
from musbo.campaign.changes import changed
from musbo.campaign.events import Abandoned, Amended, Created, Event, Exported, Judged, Trained, Withdrawn
from musbo.campaign.gating import Gated
from musbo.campaign.history import parting
from musbo.campaign.homecoming import Checked, Home
from musbo.campaign.kept_task import files_to_keep, keep, task_place
from musbo.campaign.ledger import Ledger
from musbo.campaign.news import Observer, unobserved
from musbo.campaign.places import LEDGER
from musbo.campaign.rounds import Next, Round, rounds, what_next
from musbo.campaign.runner import CHECKPOINT_SECONDS, Runner, advance, looked_at, opened
from musbo.campaign.same_functions import probed_again
from musbo.campaign.settings import shape_of, task_name
from musbo.campaign.status import Status
from musbo.campaign.summary import Summary, read_status, summary
from musbo.campaign.verify import Verified, verify
from musbo.core.compilation import keep_compiled
from musbo.core.diagnostics import Diagnostic
from musbo.core.errors import UserError
from musbo.core.inside import given
from musbo.core.plain import plain
from musbo.data.batch import Batch
from musbo.data.finding import Finding
from musbo.data.logs import Logs
from musbo.data.mapping import Mapping as ColumnMapping
from musbo.field.bundle import zip_bytes
from musbo.field.dry_run import probe_values
from musbo.field.find import find_task
from musbo.learning.learned import STAGE as LEARNED
from musbo.tasks.find import digest
from musbo.tasks.task import Task

Make: TypeAlias = Callable[[Leaving], Made]
"""A bundle, as soon as it is known what it says of its round."""


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

    @property
    def learned(self) -> tuple[Diagnostic, ...]:
        """How far a learned reward and a learned termination agree with real data that the newest models were not
        fitted on; empty where both are functions."""
        newest = [each.training for each in self.summary.deployments if each.training][-1:]
        every = [shown for training in newest for shown in training.findings.diagnostics]
        return tuple(shown for shown in every if shown.name.startswith(f"{LEARNED}_"))

    def plain(self) -> dict[str, Any]:
        """As JSON: what `musbo status --json` prints."""
        learned = {shown.name: shown.value for shown in self.learned}
        rounds = plain(list(self.rounds))
        return {**self.summary.plain(), "learned": learned, "rounds": rounds, **self.next.plain()}


class Campaign:
    """The campaign in `folder`, whose batches come home from a real field.

    A task of your own is not imported by itself: pass it as `task`, or set `trust_task=True`. Every verb that changes
    something holds a lock; a second process is told who has it.
    """

    def __init__(self, folder: str | Path, *, task: str | Task | None = None, trust_task: bool = False) -> None:
        self.folder = given(folder)
        self._named = task_name(task) if isinstance(task, str) else None
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
        data: Sequence[str | Path | Batch | Logs] = (),
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
        """A new campaign. `musbo.run` says what the arguments are.

        Each item of `data` counts as a deployment. Without data, the controller of the site acts in the first round,
        with a little noise around it.
        """
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

    def parts_from(self, other: "str | Path | Campaign") -> str | None:
        """Where this and another copy of the campaign part, as a sentence; None where they are two campaigns."""
        return parting(self.folder, other.folder if isinstance(other, Campaign) else given(other))

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
        possibly other `settings` of the method. The newest candidate counts until another one is exported: later
        trainings go on from it, with its settings.
        """
        keep_compiled()
        if settings and not again:
            raise UserError("settings belong to a further candidate: say again too.")
        result = advance(self.folder, observe, self._task, checkpoint_seconds, self._trust)
        if not again:
            return result
        with self._opened(observe) as runner:
            now = runner.status()
            if not (now.may_leave and now.trained):
                raise UserError(f"there is no candidate yet to train another one beside. {self._says(now)}")
            runner.train_again(changed(now.creation.settings.method, settings or {}))
            if now.finished:
                runner.write_results()
        return summary(self.folder)

    def export(
        self,
        *,
        out: str | Path | None = None,
        limits: str | Path | Mapping[str, Any] | None = None,
        bundle: str | None = None,
        candidate: int | None = None,
    ) -> Bundle:
        """Write the policy as a bundle for the open round. It spends nothing; again, it changes nothing.

        In the first round of a campaign without data there is no policy: the bundle runs the site's own controller
        with a little noise. `candidate` is the number of one of several policies, from 1; it counts from then on. By
        default the newest leaves, or the one that left already. `bundle` is the id, or its beginning, of one that was
        exported before: its policy goes out again, for this round. `limits` come on top of those of `amend`.
        """
        keep_compiled()
        if bundle is not None and candidate is not None:
            raise UserError("say a bundle to go back to, or a candidate: not both.")
        with self._opened() as runner:
            now = runner.status()
            if not now.may_leave:
                raise UserError(f"there is nothing to export yet. {self._says(now)}")
            told = {**bundles.parse_limits(now.creation.limits, self.folder), **bundles.read_limits(limits)}
            if bundle is None:
                make, event = self._leaving(runner, candidate, told)
            else:
                make, event = self._going_back(runner, bundle, told)
            return self._leave(runner, make, event, out)

    def _leaving(self, runner: Runner, candidate: int | None, limits: Mapping[str, Any]) -> tuple[Make, Exported]:
        """How the bundle of a candidate is made, and what is written down of it."""
        now = runner.status()
        if now.begins:
            if candidate is not None:
                raise UserError("there is no candidate yet: your own controller acts in the first round.")
            return partial(bundles.make_first, now.creation, limits), Exported("", "", 0, "")
        d = max(now.trained)
        chosen = now.trained[d] if candidate is None else self._candidate(now, candidate)
        verdict = self._verdict(now, chosen.policy)
        event = Exported("", "", d, "", now.finished, verdict and verdict.text, chosen.policy)
        return partial(bundles.make, self.folder, limits, policy=chosen.policy), event

    def _going_back(self, runner: Runner, bundle: str, limits: Mapping[str, Any]) -> tuple[Make, Exported]:
        """The same of a bundle that left before."""
        old, awaited = self._former(runner, bundle), not runner.status().finished
        self._verdict(runner.status(), old.policy)
        make = partial(bundles.again, runner.store.get(old.archive), limits, awaited)
        # One that goes back stands for the one that it goes back to.
        return make, replace(old, final=not awaited, of=old.of or old.bundle)

    def _verdict(self, now: Status, policy: str) -> Judged | None:
        """The verdict on a policy that is to leave; refused after a NO-GO, and after a NEED-DATA."""
        verdict = now.verdicts.get(policy)
        if verdict is not None and not verdict.go:
            raise UserError(
                f"this policy was judged a {verdict.word} ({verdict.reason}): train another one with `musbo train "
                f"{self.folder} --again`, or overrule it with `musbo judge {self.folder} --go REASON`."
            )
        return verdict

    def _leave(self, runner: Runner, make: Make, event: Exported, out: str | Path | None) -> Bundle:
        """Write the bundle down, unless it left for this round already, and put its files in their place."""
        now = runner.status()
        number = None if now.finished else now.deployment
        made, event = self._once(runner, make, event, number)
        current = now.trained[max(now.trained)].policy if now.trained else ""
        another = event.of is None and event.policy not in ("", current)
        if another or event not in now.exports.get(now.deployment, ()):
            runner.ledger.append(event, now.deployment)
            if now.finished:
                runner.write_results()  # another candidate may count from now on
        name = "final" if number is None else f"round-{number}"
        bundle = bundles.put(self.folder, f"{name}-{event.bundle[:8]}", out, made)
        return replace(bundle, notes=(*bundle.notes, *(each.text for each in runner.noticed)))

    def _once(self, runner: Runner, make: Make, event: Exported, number: int | None) -> tuple[Made, Exported]:
        """The bundle, and what is written down of it: the same again, if it left for this round before."""
        now = runner.status()
        for left in reversed(now.exports.get(now.deployment, ())):
            if (left.policy, left.of, left.verdict) == (event.policy, event.of, event.verdict):
                made = make(Leaving(number, left.head, left.verdict))
                if made.contents.id == left.bundle:
                    return made, left
        head = runner.ledger.digests()[-1]
        made = make(Leaving(number, head, event.verdict))
        if (before := self._exported(runner).get(made.contents.id)) is not None:
            return made, before  # it was called back, and is awaited again
        archive = runner.store.put_bytes(zip_bytes(made.contents.files), ".zip")
        return made, replace(event, bundle=made.contents.id, archive=archive, head=head)

    def _exported(self, runner: Runner) -> dict[str, Exported]:
        """Everything that ever left, by its id."""
        every = [event.what for event in runner.ledger.events() if isinstance(event.what, Exported)]
        return {each.bundle: each for each in every}

    def _former(self, runner: Runner, bundle: str) -> Exported:
        every = self._exported(runner)
        found = {name: each for name, each in every.items() if bundle and name.startswith(bundle)}
        if len(found) != 1:
            some = ", ".join(name[:12] for name in every) or "none"
            raise UserError(f"{len(found)} bundles of this campaign begin with {bundle!r}; it exported: {some}.")
        return next(iter(found.values()))

    def _candidate(self, now: Status, number: int) -> Trained:
        made = now.candidates[max(now.trained)]
        if not 1 <= number <= len(made):
            raise UserError(f"there is no candidate {number}: this round has {len(made)}, counted from 1.")
        return made[number - 1]

    def judge(self, go: bool, reason: str, *, candidate: int | None = None) -> None:
        """Write a verdict on the policy that may leave next, or on another `candidate`: a GO, or a NO-GO.

        After a NO-GO it cannot be exported. The last verdict counts; the ledger and the bundle keep it.
        """
        if not reason.strip():
            raise UserError("say why: the verdict is kept with its reason.")
        with self._opened(task=False) as runner:
            now = runner.status()
            chosen = self._to_judge(now, candidate)
            runner.ledger.append(Judged(chosen.policy, go, reason.strip()), now.deployment)

    def gate(self, candidate: int | None = None, *, margin: float | None = None, override: str | None = None) -> Gated:
        """Let the gate judge the policy that may leave next, or another `candidate`: GO, NO-GO or NEED-DATA.

        It is compared with the policy that collected the newest batch, or with the behaviour in it. `margin` is the
        loss of return per episode that is bad; by default a tenth of what the incumbent gained over the first batch.
        Only after a GO may the policy leave; with `override`, a reason, after any verdict. The verdict is kept with
        its forecast, which is compared with what the next batch brings. The same data give the same verdict.
        """
        if override is not None and not override.strip():
            raise UserError("say why the verdict is overridden: the reason is kept.")
        keep_compiled()
        with looked_at(self.folder, self._task, self._trust) as runner:  # it takes minutes: no lock is held
            now = runner.status()
            chosen = self._to_judge(now, candidate)
            number = now.candidates[max(now.trained)].index(chosen) + 1
            found = gating.gate(runner, number, margin, (override or "").strip())
        with self._opened(task=False) as runner:
            if runner.status().verdicts.get(found.judged.policy) != found.judged:
                runner.ledger.append(found.judged, now.deployment)
        return found

    def _to_judge(self, now: Status, candidate: int | None) -> Trained:
        if not (now.may_leave and now.trained):
            raise UserError(f"there is no policy to judge yet. {self._says(now)}")
        return now.trained[max(now.trained)] if candidate is None else self._candidate(now, candidate)

    def check(
        self,
        data: Sequence[Home],
        *,
        mapping: ColumnMapping | str | Path | None = None,
        bundle: str | None = None,
    ) -> Checked:
        """What `ingest` would read, and what the doctor says of it; nothing is changed, and no lock is held."""
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
            homecoming.require_open(runner.ledger, every)
            said = None if bundle is None else homecoming.expected_bundle(runner.ledger, bundle)
            found = homecoming.examined(runner, every, refused, said)
            homecoming.require_accepted(found, accept)
            d = runner.status().deployment
            event = homecoming.take(runner, every, found, said)
            return Ingested(d, event.transitions, again=False, findings=tuple(found))

    def withdraw(self, number: int, *, reason: str = "") -> None:
        """The bundles that left for this round will not be used: nothing is spent, and it can be exported anew."""
        self._close(number, Withdrawn(reason.strip()))

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
        definition: bool = False,
        reason: str = "",
    ) -> None:
        """Change the budget, the limits of every further bundle, or what counts of the task.

        Limits that are not named stay as they were. With `definition`, the names, units, ranges and interval of the
        task are those of now. With `reward`, its functions are, too; all data get the rewards of its function.
        """
        if budget is None and limits is None and not (reward or definition):
            raise UserError("say what to change: the budget, the limits, the reward or the definition of the task.")
        with self._opened(task=reward or definition, amending=reward) as runner:
            now = runner.status()
            if budget is not None and budget < max(now.deployed, 1):
                raise UserError(f"{now.deployed} deployments are spent: a budget of {budget} is too small.")
            told = None
            if limits is not None:
                found = {**json.loads(now.creation.limits or "{}"), **bundles.read_limits(limits)}
                bundles.limits_of(now.creation.task, found)
                told = json.dumps(found)
            event = Amended(budget, told, reason=reason)
            if reward or definition:
                source = self._keep_task(now.creation)
                event = replace(
                    event,
                    task=shape_of(runner.task),
                    task_digest=source,
                    task_values=probe_values(runner.task),
                    probed=probed_again(runner.task, runner.store, now),
                    reward=reward,
                )
            runner.ledger.append(event, now.deployment)

    def _keep_task(self, created: Created) -> str | None:
        """Keep the task as it is now, if it is a file; returns its digest."""
        if self._task is None:
            name = task_place(self.folder, created.settings.task, created.task_digest)
        elif self._named is not None:
            name = self._named
        else:
            return None  # an object of a Python program
        source = digest(name)
        keep(self.folder, source, files_to_keep(name))
        return source

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
