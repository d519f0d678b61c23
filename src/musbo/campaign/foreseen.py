"""What the gate foresaw of each round, beside what came true.

A forecast is of a policy against an incumbent. So the one that counts for a round is the last one on the policy that
ran, made since the batch before came home: a policy that goes back is not measured by what was said of it long ago. No
truth is known where the reward function was changed in between.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from musbo.campaign.events import Amended, Collected, Event, Judged
from musbo.campaign.ran import collector, trained_as
from musbo.campaign.status import Status
from musbo.gate.real import per_episode
from musbo.gate.score import Scored, scored
from musbo.gate.verdict import Gain, Past, Rule, forecast


@dataclass(frozen=True)
class Foreseen:
    """A verdict of the gate, and what came of it."""

    judged: Judged
    truth: float | None = None
    """What an episode of the batch brought more than one of the incumbent had; None: nobody knows yet."""

    @property
    def scored(self) -> Scored:
        return scored(gain_of(self.judged), self.truth)


def gain_of(judged: Judged) -> Gain:
    """What was forecast."""
    assert judged.ruling is not None
    return judged.ruling.gain


def foreseen(events: Iterable[Event], now: Status) -> dict[int, Foreseen]:
    """By round; of the open one, what was said of the policy that may leave or has left."""
    said: dict[str, Judged] = {}
    found: dict[int, Foreseen] = {}
    for event in events:
        match event.what:
            case Judged(ruling=ruling) as judged if ruling is not None:
                said[judged.policy] = judged
            case Collected() as batch:
                ran = collector(event.deployment, now)
                training = trained_as(ran, now) if ran else None
                if training and training.policy in said:
                    judged = said[training.policy]
                    found[event.deployment] = Foreseen(judged, _truth(judged, batch, now))
                said.clear()
            case Amended(task=task) if task is not None:
                said.clear()
    left = now.exports.get(now.deployment, ())
    last = left[-1].policy if left else now.trained[max(now.trained)].policy if now.trained else ""
    if now.deployment not in now.collected and last in said:
        found[now.deployment] = Foreseen(said[last])
    return found


def _truth(judged: Judged, batch: Collected, now: Status) -> float | None:
    if judged.beside is None or batch.mean_return is None or batch.mean_length is None:
        return None
    steps = now.creation.task.episode_steps
    return per_episode(steps, batch.mean_return, batch.mean_length, batch.terminations) - judged.beside.earned


def past(every: dict[int, Foreseen], rule: Rule) -> tuple[Past, ...]:
    """Forecasts as the evidence alone had them, without the corrections of their time, and what came true."""
    known = [(each.judged.ruling, each.truth) for each in every.values()]
    return tuple(
        Past(forecast(rule, ruling.evidence), truth) for ruling, truth in known if ruling and truth is not None
    )
