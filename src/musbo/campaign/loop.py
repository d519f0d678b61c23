"""The circle of a campaign: collect, train, evaluate, until the budget is spent. A simulated run is a campaign whose
field is a simulator.

Every step is written down when it is complete; training is checkpointed on the way. Whatever is killed, at any
instant, `advance` goes on from the last thing written, and the final policy has the same bits.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from musbo.algorithms.method import Foresight
from musbo.campaign import steps
from musbo.campaign.folders import LEDGER, STORE, open_task, versions
from musbo.campaign.ledger import Ledger, lock
from musbo.campaign.results import export, summary
from musbo.campaign.settings import Campaign
from musbo.campaign.store import Store
from musbo.core import serial
from musbo.core.interrupt import noted
from musbo.core.memory import give_back
from musbo.data.batch import Batch, concatenate, rows_of
from musbo.data.dataset import assemble, split
from musbo.data.files import batch_bytes, batch_from_bytes
from musbo.data.scaling import observed
from musbo.field import simulate
from musbo.field.worlds import no_simulator
from musbo.learning.foresight import novelty, trajectories_apart
from musbo.models.actor import SeekingActor
from musbo.models.frame import AnyPolicy
from musbo.tasks.task import Task

CHECKPOINT_SECONDS = 20.0
CHECKPOINT_SHARE, LONGEST_PAUSE = 10, 50.0  # a large state is written less often; a kill still loses less than a minute
FORESIGHT_STARTS, FORESIGHT_STEPS = 20, 250  # of the imagined and real courses that are compared
CALIBRATION = ("rank_correlation", "reliability_doubt", "reliability_error")


@dataclass(frozen=True)
class News:
    """Something that a person may want to see now: `kind` is a step or a row of metrics."""

    # begin, collecting, collected, training, trained, evaluated, finished, stopping or stopped
    kind: str
    deployment: int
    numbers: dict[str, Any]


Observer = Callable[[News], None]


class Stopped(Exception):
    """A person asked the campaign to stop; everything is written down."""


# Going on


def advance(
    folder: Path,
    observe: Observer = lambda news: None,
    given: Task | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> dict[str, Any]:
    """Do every step that is left; returns the summary. Raises `Stopped` after Ctrl-C, with everything written down."""
    settings, task = open_task(folder, given)
    with lock(folder), Ledger(folder / LEDGER) as ledger, _interruptible(observe) as stop:
        field = _Field(folder, settings, task, ledger, Store(folder / STORE), observe, stop, checkpoint_seconds)
        created = field.status().settings
        assert created is not None
        if ledger.events()[-1].kind != "created" and not field.status().finished:
            ledger.append("resumed", field.status().deployment, {"versions": versions()})
        known = {"settings": settings, "resumed": len(ledger.events()) > 1, "brought": len(created["data"])}
        observe(News("begin", field.status().deployment, known | summary(folder)))
        field.sweep()
        while True:
            step = steps.next_step(field.status(), settings.deployments)
            if stop.is_set() and not isinstance(step, steps.Done):
                field.leave(field.status().deployment)
            match step:
                case steps.Collect(d):
                    field.collect(d)
                case steps.Train(d):
                    field.train(d)
                case steps.Evaluate(d):
                    field.evaluate(d)
                case steps.Finish():
                    field.finish()
                case steps.Done():
                    return summary(folder)
            give_back()


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
        observe(News("stopping", 0, {}))  # what is under way may take a while, above all when it compiles

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class _Field:
    """The hands of a running campaign."""

    folder: Path
    settings: Campaign
    task: Task
    ledger: Ledger
    store: Store
    observe: Observer
    stop: threading.Event
    checkpoint_seconds: float

    def status(self) -> steps.Status:
        return steps.status(self.ledger.events())

    def key(self, *path: int) -> jax.Array:
        """Randomness is a function of the seed, the purpose and the deployment."""
        key = jax.random.PRNGKey(self.settings.seed)
        for number in path:
            key = jax.random.fold_in(key, number)
        return key

    def leave(self, deployment: int) -> None:
        self.ledger.append("stopped", deployment, {})
        self.observe(News("stopped", deployment, {}))
        raise Stopped

    # What the last complete training left

    def state(self) -> Any:
        trained = self.status().trained
        if not trained:
            return self.settings.method.begin(self.task, self.key(0))
        return self.load(trained[max(trained)]["state"])

    def load(self, name: str) -> Any:
        return serial.decode(self.store.get(name), name)

    def batch(self, d: int) -> Batch:
        name = self.status().batches[d]["batch"]
        return batch_from_bytes(self.store.get(name), name)

    def batches(self) -> Iterator[Batch]:
        """Every batch so far, read one at a time."""
        return map(self.batch, sorted(self.status().batches))

    def capacity(self) -> int:
        """Rows of D_all at the end of the campaign: shapes are the same from the first deployment to the last."""
        created = self.status().settings
        assert created is not None
        brought = [item["size"] for item in created["data"]]
        return sum(brought) + (self.settings.deployments - len(brought)) * self.settings.batch

    def sweep(self) -> None:
        """Remove what no event names any more: superseded checkpoints, and what a killed process left behind."""
        now = self.status()
        assert now.settings is not None
        keep = {item["batch"] for item in now.settings["data"]}
        keep |= {item["batch"] for item in now.batches.values()}
        keep |= {item["shard"] for item in now.shards}
        keep |= {item["policy"] for item in now.trained.values()}
        if now.trained:
            keep.add(now.trained[max(now.trained)]["state"])
        if now.checkpoint:
            keep.add(now.checkpoint["state"])
        self.store.sweep(keep)

    # Line 1 of Algorithm 1

    def collect(self, d: int) -> None:
        """D_all <- D_all + one batch, collected shard by shard, or brought by the user."""
        created = self.status().settings
        assert created is not None
        brought = created["data"]
        began = time.monotonic()
        if d <= len(brought):
            item = brought[d - 1]
            batch = batch_from_bytes(self.store.get(item["batch"]), item["source"])
            numbers = {"source": item["source"], "warnings": item["warnings"]}
            numbers |= {**_describe(batch, np.ones(len(batch.lengths()), bool)), **self.novelty(batch)}
            self.ledger.append("batch", d, {"batch": item["batch"], **numbers})
            self.observe(News("collected", d, numbers))
            return
        size = self.settings.batch
        actor = self.settings.method.actor(self.task, self.state())
        done = [batch_from_bytes(self.store.get(s["shard"])) for s in self.status().shards]
        zeta = [np.asarray(s["zeta"], np.float32) for s in self.status().shards]
        extra = sum(s["extra_steps"] for s in self.status().shards)
        self.observe(News("collecting", d, {"done": sum(map(len, done)), "size": size}))
        for shard in simulate.collect(self.task, actor, size, _seed(self.settings, 1, d), first_group=len(done)):  # type: ignore[arg-type]
            done.append(shard.batch)
            thinned = shard.zeta[:: max(1, len(shard.zeta) // 1000)]
            zeta.append(thinned)
            extra += shard.extra_steps
            row = {"zeta": [float(z) for z in thinned], "extra_steps": shard.extra_steps}
            self.ledger.append("shard", d, {"shard": self.store.put_bytes(batch_bytes(shard.batch), ".parquet"), **row})
            self.observe(News("collecting", d, {"done": sum(map(len, done)), "size": size}))
            if self.stop.is_set():
                self.leave(d)
        batch = concatenate(done)
        numbers = {
            **_describe(batch, simulate.first_episodes(self.task, batch)),
            **self.novelty(batch),
            "seconds": time.monotonic() - began,
            "extra_steps": extra,
            **_zeta(actor, np.concatenate(zeta)),
            **self.alone(actor),
        }
        self.ledger.append("batch", d, {"batch": self.store.put_bytes(batch_bytes(batch), ".parquet"), **numbers})
        self.sweep()
        self.observe(News("collected", d, numbers))

    def novelty(self, batch: Batch) -> dict[str, float]:
        """How far a batch is from everything before it."""
        earlier = [before.obs for before in self.batches()]
        return {"novelty": novelty(batch.obs, np.concatenate(earlier))} if earlier else {}

    def alone(self, actor: Any) -> dict[str, float]:
        """Where zeta is pooled: the share of the steps that have nothing to pool it with."""
        if not isinstance(actor, SeekingActor) or not actor.settings.pooled:
            return {}
        if any("zeta_alone" in earlier for earlier in self.status().batches.values()):
            return {}  # it is the same for all batches of a campaign, so it is told once
        return {"zeta_alone": simulate.alone(self.task, self.settings.batch)}

    # Lines 2 to 4

    def train(self, d: int) -> None:
        checkpoint = self.status().checkpoint
        state = start = self.load(checkpoint["state"]) if checkpoint else self.state()
        spent = checkpoint["seconds"] if checkpoint else 0.0
        data = assemble(self.batches(), self.capacity(), self.settings.seed)
        began = saved = time.monotonic()
        pause = 0.0
        last: dict[str, Any] = {}
        for state, metrics in self.settings.method.train(self.task, data, start, self.key(2, d)):
            last = metrics if metrics["stage"] == "done" else last
            row = {name: value for name, value in metrics.items() if name not in ("stage", "index")}
            self.ledger.record(d, metrics["stage"], metrics["index"], row)
            self.observe(News("training", d, metrics))
            now = time.monotonic()
            asked = self.stop.is_set()
            if metrics["stage"] != "done" and (asked or now - saved >= max(self.checkpoint_seconds, pause)):
                name = self.store.put_bytes(serial.encode(state), ".safetensors")
                self.ledger.replace_checkpoint(d, {"state": name, "seconds": spent + now - began})
                self.sweep()
                saved = time.monotonic()
                pause = min(CHECKPOINT_SHARE * (saved - now), LONGEST_PAUSE)
            if asked and metrics["stage"] != "done":
                self.leave(d)
        policy = self.store.put_bytes(serial.encode(state.policy), ".safetensors")
        payload = {
            "state": self.store.put_bytes(serial.encode(state), ".safetensors"),
            "policy": policy,
            "policy_sha256": policy.partition(".")[0],
            "seconds": spent + time.monotonic() - began,
            "chosen": last.get("chosen"),
            "alpha": last.get("alpha"),
            **{name: last[name] for name in CALIBRATION if name in last},
            **_training_summary(self.ledger.metrics(), d),
        }
        self.ledger.append("trained", d, payload)
        self.sweep()
        self.observe(News("trained", d, payload))

    # The policy in the simulator, counted apart

    def evaluate(self, d: int) -> None:
        began = time.monotonic()
        state = self.load(self.status().trained[d]["state"])
        model = self.settings.method.foresight(state)
        reason = no_simulator(self.task)
        if reason is not None:
            batch = self.batch(d)
            unseen = rows_of(batch, split(batch, self.settings.seed, d))
            payload: dict[str, Any] = {"skipped": reason, **self.foresight(model, unseen, replay=True)}
        else:
            measured = simulate.evaluate(
                self.task, state.policy, self.settings.episodes, evaluation_seed(self.settings)
            )
            payload = {**describe(measured), **self.foresight(model, measured.batch, replay=False)}
            # What was imagined of the policy is compared with the same stretch of the real: what was imagined in
            # training or, where a method rates no policy there, the courses from the starts of these episodes.
            horizon = self.status().trained[d].get("imagined_horizon")
            if horizon is not None:
                payload["early_return"], payload["early_length"] = measured.early(horizon)
            elif model is not None:
                early = measured.early(FORESIGHT_STEPS, own=model.learns_reward)
                payload["early_return"], payload["early_length"] = early
        payload["seconds"] = time.monotonic() - began
        self.ledger.append("evaluated", d, payload)
        self.observe(News("evaluated", d, payload))

    def foresight(self, model: Foresight | None, real: Batch, replay: bool) -> dict[str, float | None]:
        """How far the imagined course of the policy is from its real one, from the same start states.

        Where there is no simulator to see the policy in, the models replay logged actions that they were not fitted on.
        Distances are in units of the first batch, which a method has no part in: in units of all its data, the method
        that collects more widely would have the smaller ones.
        """
        steps = min(FORESIGHT_STEPS, self.task.episode_steps)
        starts = real.starts()[:FORESIGHT_STARTS]
        lengths = np.minimum(real.lengths()[:FORESIGHT_STARTS], steps)
        actions = jnp.asarray(_courses(real.act, starts, lengths, steps)) if replay else None
        if model is None:
            return {}
        found = model.courses(self.task, jnp.asarray(real.obs[starts]), steps, actions)
        imagined, imagined_lengths, rewards = (np.asarray(part) for part in found)
        if replay:  # nobody knows what was done after the end of a log
            imagined_lengths = np.minimum(imagined_lengths, lengths)
        units = observed(self.batch(min(self.status().batches)).obs)
        apart = trajectories_apart(
            real.obs[starts],
            imagined,
            _courses(real.next_obs, starts, lengths, steps),
            imagined_lengths,
            lengths,
            np.asarray(units.mean),
            np.asarray(units.std),
        )
        return apart if replay else {**apart, "foreseen_return": float(rewards.mean())}

    def finish(self) -> None:
        export(self.folder, self.ledger, self.store)
        self.ledger.append("finished", self.settings.deployments, {})
        self.observe(News("finished", self.settings.deployments, summary(self.folder)))


def _courses(column: np.ndarray, starts: np.ndarray, lengths: np.ndarray, steps: int) -> np.ndarray:
    """Rows [n, ...] as episodes [b, steps, ...], zero behind the end of each."""
    found = np.zeros((len(starts), steps, *column.shape[1:]), column.dtype)
    for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        found[i, :length] = column[start : start + length]
    return found


def evaluation_seed(settings: Campaign) -> int:
    """The same episodes after every deployment, so that their policies are compared on equal terms."""
    return _seed(settings, 3)


def _seed(settings: Campaign, *path: int) -> int:
    return int(np.random.SeedSequence([settings.seed, *path]).generate_state(1)[0])


def measure(task: Task, policy: AnyPolicy, episodes: int, seed: int) -> dict[str, Any]:
    """The deterministic policy over whole episodes in the simulator."""
    return describe(simulate.evaluate(task, policy, episodes, seed))


def describe(measured: simulate.Evaluation) -> dict[str, Any]:
    return {
        "return": float(measured.returns.mean()),
        "spread": float(measured.returns.std(ddof=1)) if len(measured.returns) > 1 else None,
        "returns": [float(r) for r in measured.returns],
        "model_return": float(measured.model_returns.mean()),
        "length": float(measured.lengths.mean()),
        "speed": float(measured.speeds.mean()),
        "steps": measured.steps,
    }


def _describe(batch: Batch, telling: np.ndarray) -> dict[str, Any]:
    """Return and length are those of the episodes that tell what an episode brings."""
    return {
        "size": len(batch),
        "n_episodes": len(telling),
        "batch_return": float(batch.returns()[telling].mean()),
        "batch_length": float(batch.lengths()[telling].mean()),
    }


def _zeta(actor: Any, zeta: np.ndarray) -> dict[str, Any]:
    """Quantiles of the exploration scale and the share at its cap; nothing where nobody sought."""
    if not isinstance(actor, SeekingActor):
        return {}
    cap = actor.settings.zeta_max
    at_cap = float(np.mean(zeta >= cap * (1 - 1e-6))) if cap else 0.0
    return {"zeta": [float(q) for q in np.quantile(zeta, [0.1, 0.5, 0.9])], "zeta_at_cap": at_cap}


def _training_summary(metrics: list[dict[str, Any]], d: int) -> dict[str, Any]:
    """The last word of each stage, for the table of a run."""
    rows = {row["stage"]: row for row in metrics if row["deployment"] == d}
    checks = [row for row in metrics if row["deployment"] == d and row["stage"] == "check"]
    chosen = rows.get("done", {}).get("chosen")
    handed = next((row for row in checks if row["index"] == chosen), checks[-1] if checks else {})
    improve = rows.get("improve", {})
    return {
        "dynamics_error": rows.get("dynamics", {}).get("error"),
        "labeler_error": rows.get("labeler", {}).get("error"),
        "imagined_return": handed.get("imagined_return"),
        "imagined_length": handed.get("imagined_length"),
        "imagined_horizon": handed.get("imagined_horizon"),
        "imagined_cut": handed.get("imagined_cut"),
        "path_disagreement": handed.get("path_disagreement"),
        "U": improve.get("U"),
        "disagreement": improve.get("disagreement"),
        "penalty": rows.get("learn", {}).get("penalty"),
        "updates": improve.get("index"),
    }
