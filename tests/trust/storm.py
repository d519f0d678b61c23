"""A campaign in the field whose process dies again and again, by SIGKILL: at random instants, and at durable writes.

`python -m tests.trust.storm` is the server: it has imported everything, and forks a process for every attempt.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from musbo.algorithms import recipes
from musbo.campaign.events import Candidate, Judged, Withdrawn
from musbo.campaign.field_campaign import Campaign
from musbo.campaign.ledger import Ledger
from musbo.campaign.summary import read_status
from tests.stories import tiny
from tests.stories.test_rounds import deploy

ROOT = Path(__file__).parents[2]
BUDGET = 4
VERBS = ("new", "export", "ingest", "train", "amend", "withdraw", "judge", "train --again", "abandon")
"""That writes are counted in."""
SHORT = ("amend", "withdraw", "judge", "abandon")
"""Those that write an event and nothing else."""
Mark = Callable[[str], None]


def finish(folder: Path, field: Path, mark: Mark = lambda verb: None, algo: str = "musbo") -> Campaign:
    """Do every verb that is left, as people would: whatever was killed before is simply said again."""
    if not folder.exists():
        mark("new")
        method = tiny.method() if algo == "musbo" else recipes.recipe(algo, "quick", "pointmass")
        Campaign.new("pointmass", algo=algo, preset="quick", budget=BUDGET, batch_size=100, method=method, out=folder)
    campaign = Campaign(folder)
    while (step := campaign.next.verb) != "done":
        last = campaign.status().rounds[-1]
        happened = [(type(event.what), event.deployment) for event in campaign.history()]
        judged = happened.count((Judged, 3))
        if last.number == 3 and last.state in ("candidate", "gated") and judged < 2:
            # The second policy may be the first one again, so its state does not say what was done.
            if judged and (Candidate, 2) not in happened:
                mark("train --again")
                campaign.train(again=True)
            else:
                mark("judge")
                campaign.judge(judged == 1, "looked at")
        elif step == "train":
            mark("train")
            campaign.train(checkpoint_seconds=0.0)
        elif step == "export":
            if last.number == 2 and not read_status(folder).creation.limits:
                mark("amend")
                campaign.amend(limits={"change": 0.5}, reason="the valve is slow")
            mark("export")
            campaign.export()
        elif last.number == 2 and (Withdrawn, 2) not in happened:
            mark("withdraw")
            campaign.withdraw(2)
        elif last.number == BUDGET:
            mark("abandon")
            campaign.abandon(BUDGET, spent="the pump broke")
        else:
            recording = field / f"{last.number}.musbo"
            if not recording.exists():
                mark("export")
                bundle = campaign.export()
                mark("the field")
                part = field / f"{last.number}.part"
                part.unlink(missing_ok=True)
                os.rename(deploy(bundle.folder, part, last.number), recording)
            mark("ingest")
            campaign.ingest([recording], accept=True)
    mark("train")
    campaign.train()
    mark("export")
    campaign.export()
    return campaign


def outcome(campaign: Campaign) -> tuple[object, ...]:
    """What must not depend on who was killed when: nothing is lost or doubled, and the last policy is the same."""
    status = campaign.status()
    counts = Counter(type(event.what).__name__ for event in campaign.history())
    each = {"Collected": BUDGET - 1, "Trained": BUDGET - 1, "Evaluated": BUDGET - 1}
    once = {"Created": 1, "Amended": 1, "Withdrawn": 1, "Candidate": 1, "Abandoned": 1}
    # One more for the round that was called back, and one for the final policy.
    assert counts == {**each, **once, "Judged": 2, "Exported": BUDGET + 2}
    assert [each.state for each in status.rounds] == ["returned"] * (BUDGET - 1) + ["abandoned"]
    assert status.summary.deployed == BUDGET
    assert campaign.verify().problems == ()
    final = (campaign.folder / "policy.safetensors").read_bytes()
    batches = [item.batch.artefact for item in status.summary.deployments]
    policies = [item.training.policy for item in status.summary.deployments if item.training]
    return batches, policies, status.summary.transitions, final


# A process that dies


def serve() -> None:
    """Every line asks for an attempt; the answer is where it died, or null."""
    import musbo.campaign.bundles  # noqa: F401  what a verb would import late
    import musbo.data.preview  # noqa: F401

    for line in sys.stdin:
        print(json.dumps(_attempt(**json.loads(line))), flush=True)


def _attempt(folder: str, field: str, algo: str, write: int, aim: str, seconds: float) -> str | None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _live(Path(folder), Path(field), algo, write, aim, writer)
    os.close(writer)
    done, status = 0, 0
    until = time.monotonic() + seconds if seconds else float("inf")
    while not done:
        done, status = os.waitpid(child, os.WNOHANG)
        if not done and time.monotonic() >= until:
            os.kill(child, signal.SIGKILL)
            until = float("inf")
        time.sleep(0.003)
    with os.fdopen(reader) as said:
        lines = said.read().splitlines()
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return lines[-1] if lines else "before anything"
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"an attempt failed after {lines[-1:]}")
    return None


def _live(folder: Path, field: Path, algo: str, write: int, aim: str, writer: int) -> None:
    """The attempt itself; it never returns."""
    code = 1
    try:
        verb = [""]

        def mark(name: str) -> None:
            verb[0] = name
            os.write(writer, f"{name}\n".encode())

        _watch_ledger(lambda inside: os.write(writer, f"{verb[0]}{', in the ledger' * inside}\n".encode()))
        if write:
            _die_at(write, lambda: verb[0] == aim)
        finish(folder, field, mark, algo)
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _watch_ledger(tell: Callable[[bool], Any]) -> None:
    """Say when a transaction is open."""
    from contextlib import contextmanager

    whole = Ledger._transaction

    @contextmanager
    def watched(self: Ledger) -> Any:
        tell(True)
        with whole(self):
            yield
        tell(False)

    Ledger._transaction = watched  # type: ignore[method-assign]


def _die_at(count: int, here: Callable[[], bool]) -> None:
    """Die at the durable write of this number in a verb: before a rename, after a sync, inside a transaction."""
    left = [count]

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            left[0] -= here()
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*words, **more)

        return call

    os.fsync, os.replace, os.rename = dying(os.fsync), dying(os.replace), dying(os.rename)
    Ledger._write_seal = dying(Ledger._write_seal)  # type: ignore[method-assign]
    Ledger.append = dying(Ledger.append)  # type: ignore[method-assign]


class Storm:
    """The server, and the lots that say when to kill."""

    def __init__(self, seed: int, algo: str) -> None:
        self.lots, self.algo = random.Random(seed), algo
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        words = [sys.executable, "-m", "tests.trust.storm"]
        pipe = subprocess.PIPE
        self.server = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=ROOT)

    def close(self) -> None:
        assert self.server.stdin and self.server.stdout
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()

    def attempt(self, folder: Path, field: Path, write: int = 0, seconds: float = 0.0, aim: str = "") -> str | None:
        assert self.server.stdin and self.server.stdout
        words = {"folder": str(folder), "field": str(field), "algo": self.algo, "write": write, "aim": aim}
        words |= {"seconds": seconds}
        self.server.stdin.write(json.dumps(words) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def calm(self, folder: Path, field: Path) -> float:
        """How long a campaign takes that nobody kills."""
        field.mkdir()
        began = time.monotonic()
        assert self.attempt(folder, field) is None
        return time.monotonic() - began

    def killed(self, folder: Path, field: Path, kills: int, lasting: float, first: str) -> Counter[str]:
        """A campaign that was killed up to so many times, in the verb `first` to begin with, and then left alone; where
        it was. By turns it dies at a durable write of a verb and at any instant."""
        field.mkdir()
        where: Counter[str] = Counter()
        for i in range(kills):
            aim = self.lots.choice(VERBS) if i else first
            most = 2 if aim in SHORT else 6
            write, seconds = (0, self.lots.uniform(0.01, lasting)) if i % 2 else (self.lots.randint(1, most), 0.0)
            if (died := self.attempt(folder, field, write, seconds, aim)) is None:
                break
            where[died] += 1
        else:
            assert self.attempt(folder, field) is None
        return where


if __name__ == "__main__":
    serve()
