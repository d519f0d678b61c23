"""The circle of a campaign: collect, train, evaluate, until the budget is spent. A simulated run is a campaign whose
field is a simulator.

Every step is written down when it is complete; training is checkpointed on the way. Whatever is killed, at any
instant, `advance` goes on from the last thing written, and the final policy has the same bits.
"""

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from musbo.algorithms.method import DONE, Forecast, Method
from musbo.campaign import measure
from musbo.campaign.events import (
    Candidate,
    Checkpoint,
    Collected,
    Created,
    Evaluated,
    Exported,
    Failed,
    Finished,
    Resumed,
    Shard,
    Stopped,
    Trained,
)
from musbo.campaign.folders import noticed, open_task, task_changed
from musbo.campaign.ledger import Ledger
from musbo.campaign.news import Began, Collecting, Completed, Ended, Left, Observer, Stopping, Training, unobserved
from musbo.campaign.places import LEDGER, RECORDING, STORE
from musbo.campaign.results import export
from musbo.campaign.same_functions import probed
from musbo.campaign.settings import Campaign, Purpose
from musbo.campaign.status import Collect, Done, Evaluate, Finish, Status, Train, next_step
from musbo.campaign.store import Store, stored_batch
from musbo.campaign.summary import Summary, read_status, summarise
from musbo.campaign.versions import versions
from musbo.core import serial
from musbo.core.diagnostics import NOTHING, Caution, Findings, finite
from musbo.core.errors import UserError
from musbo.core.interrupt import noted
from musbo.core.lock import lock
from musbo.core.memory import give_back
from musbo.data.batch import Batch, concatenate, rows_of
from musbo.data.dataset import Dataset, assemble, split
from musbo.data.files import batch_bytes, batch_from_bytes
from musbo.data.finding import Finding
from musbo.data.history import stacked_batch
from musbo.data.rewards import model_rewards
from musbo.field import simulate
from musbo.field.drive import Fault
from musbo.field.worlds import no_simulator
from musbo.learning.fit import FitSettings
from musbo.learning.foresight import novelty
from musbo.tasks.history import stacked
from musbo.tasks.task import Task

CHECKPOINT_SECONDS = 20.0
CHECKPOINT_SHARE, LONGEST_PAUSE = 10, 50.0  # a large state is written less often; a kill still loses less than a minute
SIGNAL_SAMPLE = 1000  # of a shard's signal, at most


class Interrupted(Exception):
    """A person asked the campaign to stop; everything is written down."""


# Going on


def advance(
    folder: Path,
    observe: Observer = unobserved,
    given: Task | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    trust_task: bool = False,
) -> Summary:
    """Do every step that is left. Raises `Interrupted` after Ctrl-C, with everything written down."""
    with opened(folder, observe, given, checkpoint_seconds, trust_task) as runner:
        created, stop = runner.created, runner.stop
        resumed = runner.ledger_events() > 1
        if resumed and not runner.status().finished and not created.field:
            runner.ledger.append(Resumed(versions()), runner.status().deployment)
        cautions = tuple(Caution("changed task", each.text) for each in runner.noticed)
        if not created.field and given is None and task_changed(folder, created):
            cautions = (CHANGED_TASK,)
        cautions += () if resumed else created.trial.cautions  # before a batch is spent on them
        observe(Began(runner.status().deployment, summarise(runner.status()), resumed, cautions))
        runner.sweep()
        while True:
            step = next_step(runner.status(), created.settings.budget)
            if stop.is_set() and step != Done():
                runner.leave(runner.status().deployment)
            match step:
                case Collect(d) if created.field and d > len(created.brought):
                    return summarise(runner.status())  # the field has the word
                case Collect(d):
                    runner.collect(d)
                case Train(d):
                    runner.train(d)
                case Evaluate(d):
                    runner.evaluate(d)
                case Finish():
                    runner.finish()
                case Done():
                    if created.field:
                        runner.write_results()
                    return summarise(runner.status())
            give_back()


@contextmanager
def opened(
    folder: Path,
    observe: Observer = unobserved,
    given: Task | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    trust_task: bool = False,
    amending: bool = False,
) -> "Iterator[Runner]":
    """A campaign that this process alone may change; `amending`: its reward function may be another one."""
    read_status(folder)  # says what is wrong with the path, before anything is locked
    with lock(folder), Ledger(folder / LEDGER, writable=True) as ledger, _interruptible(observe) as stop:
        created, task = open_task(folder, given, trust_task, amending)
        seen = () if amending else noticed(folder, created, task, given)
        yield Runner(folder, created, task, ledger, Store(folder / STORE), observe, stop, checkpoint_seconds, seen)


@contextmanager
def looked_at(folder: Path, given: Task | None = None, trust_task: bool = False) -> "Iterator[Runner]":
    """A campaign that is read and not changed, whoever is working on it."""
    with Ledger(folder / LEDGER) as ledger:
        created, task = open_task(folder, given, trust_task)
        seen = noticed(folder, created, task, given)
        yield Runner(folder, created, task, ledger, Store(folder / STORE), unobserved, threading.Event(), 0.0, seen)


CHANGED_TASK = Caution(
    "changed task", "the file of the task has changed since this run began; what follows uses it as it is now"
)


@contextmanager
def _interruptible(observe: Observer) -> Iterator[threading.Event]:
    """The first Ctrl-C asks for a clean stop; a second one is Python's own."""
    asked = threading.Event()
    if noted.is_set():  # it came before we were ready, and nobody heard it
        asked.set()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.getsignal(signal.SIGINT)

    def on_interrupt(signum: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)
        observe(Stopping())  # what is under way may take a while, above all when it compiles

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Runner:
    """A running campaign: its parts, and one method for each step."""

    folder: Path
    created: Created
    task: Task
    ledger: Ledger
    store: Store
    observe: Observer
    stop: threading.Event
    checkpoint_seconds: float
    noticed: tuple[Finding, ...] = ()
    """What is other about the task than when the campaign began."""

    @property
    def settings(self) -> Campaign:
        return self.created.settings

    @property
    def seen(self) -> Task:
        """The task as the method knows it: its observations hold the past, where the task has a history."""
        return stacked(self.task)

    def status(self) -> Status:
        return self.ledger.status()

    def ledger_events(self) -> int:
        return len(self.ledger.events())

    def key(self, purpose: Purpose, *path: int) -> jax.Array:
        """Randomness is a function of the seed, the purpose and the deployment."""
        key = jax.random.PRNGKey(self.settings.seed)
        for number in (int(purpose), *path):
            key = jax.random.fold_in(key, number)
        return key

    def leave(self, deployment: int) -> None:
        self.ledger.append(Stopped(), deployment)
        self.observe(Left(deployment))
        raise Interrupted

    # What the last complete training left

    def state(self) -> Any:
        trained = self.status().trained
        if not trained:
            return self.settings.method.begin(self.seen, self.key(Purpose.BEGIN))
        return self.load(trained[max(trained)].state)

    def load(self, name: str) -> Any:
        return serial.decode(self.store.get(name), name)

    def batch(self, d: int) -> Batch:
        return self.paid(stored_batch(self.store, self.status().collected[d]))

    def paid(self, batch: Batch) -> Batch:
        """With the rewards that count now: those of a former function are of no use."""
        if self.status().reward_changed and callable(self.task.reward):
            return replace(batch, reward=model_rewards(self.task, batch).astype(np.float32))
        return batch

    def batches(self) -> Iterator[Batch]:
        """Every batch so far, read one at a time."""
        return map(self.batch, sorted(self.status().collected))

    def data(self) -> Dataset:
        """D_all, as the method sees it."""
        batches = (stacked_batch(self.task, batch) for batch in self.batches())
        return assemble(batches, self.capacity(), self.settings.seed)

    def capacity(self) -> int:
        """Rows of D_all at the end of the campaign: shapes are the same from the first deployment to the last.

        A field may bring more than was planned: then there is twice the room, or four times.
        """
        brought = self.created.brought
        collected = (self.settings.budget - len(brought)) * self.settings.batch_size
        room = sum(item.transitions for item in brought) + collected
        total = sum(item.transitions for item in self.status().collected.values())
        while room < total:
            room *= 2
        return room

    def sweep(self) -> None:
        """Remove what no event names any more: superseded checkpoints, and what a killed process left behind."""
        now = self.status()
        keep = {item.artefact for item in (*self.created.brought, *now.collected.values(), *now.shards)}
        keep |= {item.policy for item in now.trained.values()}
        if now.trained:
            keep.add(now.trained[max(now.trained)].state)
        if now.field:  # further candidates begin where the first one began, and any bundle may be taken again
            every = [item for each in now.candidates.values() for item in each]
            keep |= {name for item in every for name in (item.state, item.policy)}
            keep |= self._left_and_came()
        if now.checkpoint:
            keep.add(now.checkpoint.state)
        self.store.sweep(keep)

    def _left_and_came(self) -> set[str]:
        """Every bundle that was ever exported, and the recordings."""
        keep: set[str] = set()
        for event in self.ledger.events():
            match event.what:
                case Exported(archive=archive):
                    keep.add(archive)
                case Collected(files=files):
                    keep |= {f"{name}{RECORDING}" for name in files}
        return keep

    # Line 1 of Algorithm 1

    def collect(self, d: int) -> None:
        """D_all <- D_all + one batch, collected shard by shard, or brought by the user."""
        event = self._take(d) if d <= len(self.created.brought) else self._collect(d)
        self.ledger.append(event, d)
        self.sweep()
        self.observe(Completed(d, event))

    def _take(self, d: int) -> Collected:
        """A batch that was brought."""
        item = self.created.brought[d - 1]
        batch = batch_from_bytes(self.store.get(item.artefact), item.source)
        odd = tuple(Caution(f"{item.source}: {text}", f"{item.source}: {text}") for text in item.cautions)
        every = np.ones(len(batch.lengths()), bool)
        return self.described(batch, item.artefact, every, source=item.source, findings=Findings(cautions=odd))

    def _collect(self, d: int) -> Collected:
        """A batch from the simulator."""
        began, size = time.monotonic(), self.settings.batch_size
        actor = self.settings.method.actor(self.seen, self.state())
        shards, failures = list(self.status().shards), self.status().failures
        done = [batch_from_bytes(self.store.get(shard.artefact)) for shard in shards]
        self.observe(Collecting(d, sum(map(len, done)), size))
        # After a failure, what is missing is collected anew, from other starts: the same ones would fail again.
        before = failures[-1] if failures else 0
        missing = size - sum(map(len, done[:before]))
        seed = measure.seed_of(self.settings, Purpose.COLLECT, d, *((len(failures),) if failures else ()))
        try:
            for part in simulate.collect(self.task, actor, missing, seed, first_group=len(done) - before):
                done.append(part.batch)
                signal = part.signal[:: max(1, len(part.signal) // SIGNAL_SAMPLE)]
                name = self.store.put_bytes(batch_bytes(part.batch), ".parquet")
                shards.append(Shard(name, tuple(float(x) for x in signal), part.extra_steps, part.alone))
                self.ledger.append(shards[-1], d)
                self.observe(Collecting(d, sum(map(len, done)), size))
                if self.stop.is_set():
                    self.leave(d)
        except Fault as fault:
            self.ledger.append(Failed(str(fault)), d)
            raise UserError(
                f"{fault}. {sum(map(len, done))} of {size} transitions, all of whole episodes, are kept: fix the "
                f"simulator, then go on with `musbo resume {self.folder}`."
            ) from fault
        batch = concatenate(done)
        signal = np.concatenate([np.asarray(shard.signal, np.float32) for shard in shards])
        return self.described(
            batch,
            self.store.put_bytes(batch_bytes(batch), ".parquet"),
            self._whole(batch) if failures else simulate.first_episodes(self.task, batch),
            extra_steps=sum(shard.extra_steps for shard in shards),
            findings=actor.findings(signal, sum(shard.alone for shard in shards) / size),
            seconds=time.monotonic() - began,
        )

    def _whole(self, batch: Batch) -> np.ndarray:
        """Which episodes ended by themselves; all, where none did."""
        last = batch.starts() + batch.lengths() - 1
        whole = batch.terminated[last] | (batch.lengths() == self.task.episode_steps)
        return whole if whole.any() else np.ones_like(whole)

    def described(self, batch: Batch, artefact: str, telling: np.ndarray, **more: Any) -> Collected:
        """Return and length are those of the episodes that tell what an episode brings."""
        earlier = (before.obs for before in self.batches())  # one at a time: months of them may not fit
        return Collected(
            artefact,
            transitions=len(batch),
            episodes=len(telling),
            mean_return=finite(float(self.paid(batch).returns()[telling].mean())),
            mean_length=finite(float(batch.lengths()[telling].mean())),
            novelty=novelty(batch.obs, earlier) if self.status().collected else None,
            terminations=int(batch.terminated.sum()),
            rewards=measure.rewards(self.task, batch),
            probed=probed(self.task, batch) if self.created.task_values else None,
            **more,
        )

    # Lines 2 to 4

    def train(self, d: int) -> None:
        checkpoint = self.status().checkpoint
        state = start = self.load(checkpoint.state) if checkpoint else self.state()
        spent = checkpoint.seconds if checkpoint else 0.0
        findings = dict(checkpoint.findings) if checkpoint else {}
        forecast: Forecast | None = None
        simulate.require_rewards(self.task, self.batch(d))
        data = self.data()
        began = saved = time.monotonic()
        pause = 0.0
        for state, metrics in self.settings.method.train(self.seen, data, start, self.key(Purpose.TRAIN, d)):
            findings[metrics.stage] = metrics.findings
            self.ledger.record(d, metrics.stage, metrics.index, metrics.of, metrics.numbers)
            self.observe(Training(d, metrics))
            if metrics.stage == DONE:
                forecast = metrics.forecast
                continue
            now, asked = time.monotonic(), self.stop.is_set()
            if asked or now - saved >= max(self.checkpoint_seconds, pause):
                name = self.store.put_bytes(serial.encode(state), ".safetensors")
                self.ledger.replace_checkpoint(Checkpoint(name, spent + now - began, tuple(findings.items())), d)
                self.sweep()
                saved = time.monotonic()
                pause = min(CHECKPOINT_SHARE * (saved - now), LONGEST_PAUSE)
            if asked:
                self.leave(d)
        event = self._trained(state, spent + time.monotonic() - began, forecast, findings)
        self.ledger.append(event, d)
        self.sweep()
        self.observe(Completed(d, event))

    def train_again(self, method: Method) -> int:
        """Another policy from the same data, from where the first one began; returns how many there are now.

        It is short of a checkpoint: a training that was killed is begun anew.
        """
        d = max(self.status().trained)
        number = len(self.status().candidates[d])
        state = start = self._before(d, method)
        forecast: Forecast | None = None
        findings: dict[str, Findings] = {}
        began = time.monotonic()
        data = self.data()
        for reached, metrics in method.train(self.seen, data, start, self.key(Purpose.TRAIN, d, number)):
            state = reached
            findings[metrics.stage] = metrics.findings
            self.observe(Training(d, metrics))
            forecast = metrics.forecast if metrics.stage == DONE else forecast
            if self.stop.is_set():
                self.leave(d)
        event = self._trained(state, time.monotonic() - began, forecast, findings)
        self.ledger.append(Candidate(event, method), d)
        self.observe(Completed(d, event))
        return number + 1

    def _before(self, d: int, method: Method) -> Any:
        """The state that the first training after deployment `d` began with."""
        start, before = (each.begin(self.seen, self.key(Purpose.BEGIN)) for each in (method, self.settings.method))
        earlier = [i for i in self.status().trained if i < d]
        if not earlier:
            return start
        if _sizes(start) != _sizes(before) or _models(method) != _models(self.settings.method):
            raise UserError(
                "these settings change the size of a network, and what was learned before does not fit: leave them as "
                "they are, or begin a new campaign with `musbo new --data`."
            )
        return self.load(self.status().trained[max(earlier)].state)

    def _trained(
        self, state: Any, seconds: float, forecast: Forecast | None, findings: Mapping[str, Findings]
    ) -> Trained:
        return Trained(
            state=self.store.put_bytes(serial.encode(state), ".safetensors"),
            policy=self.store.put_bytes(serial.encode(state.policy), ".safetensors"),
            seconds=seconds,
            forecast=forecast,
            findings=sum(findings.values(), NOTHING),
        )

    # The policy in the simulator, counted apart

    def evaluate(self, d: int) -> None:
        began = time.monotonic()
        training = self.status().trained[d]
        state = self.load(training.state)
        model = self.settings.method.foresight(state)
        skipped = no_simulator(self.task)
        first = self.batch(min(self.status().collected))
        episodes = stretch = None
        if skipped is not None:
            batch, place = self.batch(d), sorted(self.status().collected).index(d) + 1
            heldout = rows_of(stacked_batch(self.task, batch), split(batch, self.settings.seed, place))
            agreement = measure.agreement(self.seen, model, heldout, first, replay=True)
        else:
            seed = measure.evaluation_seed(self.settings)
            measured = simulate.evaluate(self.task, state.policy, self.settings.episodes, seed)
            episodes = measure.describe(measured)
            real = stacked_batch(self.task, measured.batch)
            agreement = measure.agreement(self.seen, model, real, first, replay=False)
            stretch = measure.stretch(measured, training.forecast, model)
        event = Evaluated(time.monotonic() - began, skipped, episodes, agreement, stretch)
        self.ledger.append(event, d)
        self.observe(Completed(d, event))

    def write_results(self) -> None:
        """The files that a person looks for; none where every deployment was lost."""
        if self.status().trained:
            export(self.folder, self.ledger, self.store)

    def finish(self) -> None:
        self.write_results()
        self.ledger.append(Finished(), self.settings.budget)
        self.observe(Ended(summarise(self.status())))


def _sizes(state: Any) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in jax.tree.leaves(state)]


def _models(settings: Any) -> list[tuple[Any, ...]]:
    """What gives the ensembles their size: a state that no deployment has trained has none yet."""
    if isinstance(settings, FitSettings):
        return [(settings.members, settings.hidden, settings.activation)]
    parts = [getattr(settings, each.name) for each in fields(settings)] if is_dataclass(settings) else []
    return [each for part in parts for each in _models(part)]
