"""What looks wrong in a run, and what to try: every warning of musbo, in one place.

A rule is a function of a run's summary that returns one piece of advice or none. What a part of a method has to say by
itself (a `Caution`) is advice too: each kind is said once, however often it was found. `docs/advice.md` lists them all.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from musbo.algorithms import recipes
from musbo.campaign.events import Episodes
from musbo.campaign.summary import Deployment, Summary
from musbo.reporting.words import count, number, percent
from musbo.tasks.find import TASKS


@dataclass(frozen=True)
class Advice:
    """One thing that looks wrong, and what to try."""

    kind: str
    """A short name; a run has at most one piece of advice of a kind."""
    text: str
    """A sentence without its full stop."""
    deployments: tuple[int, ...] = ()
    """Where it was seen."""


OTHER = "other"
"""Stands for what parts of one's own, and logs, have to say."""
ORDER = (
    "reward formula", "termination formula", "reward disagrees", "nothing trusted", "updates rejected",
    "dynamics inaccurate", "labeler inaccurate", "learned reward", "learned termination",
    "nothing learned", "collapse", "imagined above real", "baseline better", "cut", "no terminations", "few episodes",
    "no control", OTHER, "flat penalty", "inert", "at cap", "unstable", "flat",
)  # fmt: skip
"""The kinds by weight: what spoils everything else first, what is merely worth knowing last."""

APART = 0.5
"""Standard deviations between the reward formula and the recorded rewards."""
UNEXPLAINED = 0.15
"""Share of the variance of a step that a model leaves unexplained on held-out data. On the runs that are kept in
benchmarks/ it is below 0.1, also where little was learned."""
TOO_GOOD = 0.5
"""How far imagination exceeds reality, as a share of the real reward per step or of what was gained, the larger one."""
LOST, DIPPED = 0.25, 0.5
"""Shares of the gain over the first batch: lost at the end, and lost on the way and found again."""
FLAT = 0.05
"""Returns that differ by less than this share of the gain are the same."""
SEVERAL = 3
"""So many evaluations are needed to speak of a course."""
FEW = 5
"""With fewer episodes than this, one or none is held out."""
LATEST = ("nothing trusted", "updates rejected", "cut", "learned reward", "learned termination")
"""Cautions about one training, which the next one may have put right: the newest counts."""
MOSTLY = ("inert", "at cap", "flat penalty")
"""Cautions that matter where they are the rule: in more than half of the deployments."""


def advise(summary: Summary) -> tuple[Advice, ...]:
    """All that is worth saying about a run so far, the most important first."""
    found = [advice for rule in RULES if (advice := rule(summary)) is not None]
    return in_order([*found, *_cautions(summary)])


def in_order(found: Iterable[Advice]) -> tuple[Advice, ...]:
    """By weight."""
    return tuple(sorted(found, key=lambda each: ORDER.index(each.kind if each.kind in ORDER else OTHER)))


# What the rules look at


@dataclass(frozen=True)
class Difference:
    """Of two policies over the same episodes."""

    mean: float
    error: float
    """Standard error of the mean."""
    better: float
    """Share of the episodes in which the first was better."""

    @property
    def clear(self) -> bool:
        """More than chance explains."""
        return abs(self.mean) > 2 * self.error


def difference(one: Episodes, other: Episodes) -> Difference | None:
    """`one` minus `other`, episode by episode: every evaluation of a run has the same starts."""
    both = zip(one.returns, other.returns, strict=False)
    pairs = np.array([(a, b) for a, b in both if a is not None and b is not None], float)
    if len(one.returns) != len(other.returns) or not len(pairs):
        return None
    apart = pairs[:, 0] - pairs[:, 1]
    error = float(apart.std(ddof=1)) / math.sqrt(len(apart)) if len(apart) > 1 else 0.0
    return Difference(float(apart.mean()), error, float((apart > 0).mean()))


def evaluations(summary: Summary) -> list[tuple[int, Episodes, float]]:
    """Deployment, episodes and mean return of every policy that was measured."""
    found = [(item.number, item.evaluation.episodes) for item in summary.deployments if item.evaluation]
    return [(d, each, each.mean_return) for d, each in found if each and each.mean_return is not None]


def behaviour(summary: Summary) -> float | None:
    """What an episode of the first batch brings: random actions, or the data that the run began with.

    Where episodes end by their time limit alone, logs may have shorter ones: then it is scaled to the length of an
    evaluation.
    """
    if not summary.deployments:
        return None
    first, measured = summary.deployments[0].batch, evaluations(summary)
    value, length = first.mean_return, first.mean_length
    if value is None or not length or summary.task.terminated != "never" or not measured:
        return value
    return value * measured[-1][1].mean_length / length


def _learns(summary: Summary) -> bool:
    """Whether a method is there to learn at all: the floors of a comparison are not."""
    recipe = recipes.ALGORITHMS.get(summary.settings.algo)
    return recipe is None or not recipe.floor


def _trained(summary: Summary) -> list[Deployment]:
    return [item for item in summary.deployments if item.training is not None]


def _options(summary: Summary, *known: tuple[str, str]) -> str:
    """What to try, of pairs of a setting and words: only what this method has. An empty name is a run's own flag."""
    method = summary.settings.method
    return _either([text for setting, text in known if not setting or hasattr(method, setting)])


def _either(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


GUARDED = ("handover", "hand over more carefully (--handover guarded)")
MORE_DATA = ("", "collect more (--batch-size)")


# The rules


def reward_disagrees(summary: Summary) -> Advice | None:
    """The rewards of our own tasks differ from the simulator's on purpose: docs/decisions/model-reward.md."""
    said = any("the reward formula" in each.text for item in summary.deployments for each in item.cautions)
    if summary.settings.task in TASKS or said:  # by the dry run, before the first batch
        return None
    wrong = [item for item in summary.deployments if item.batch.rewards and item.batch.rewards.apart > APART]
    if not wrong:
        return None
    last, found = wrong[-1], wrong[-1].batch.rewards
    assert found is not None
    whose = "the log has" if last.batch.source else "the simulator gives"
    text = (
        f"the reward formula gives {number(found.formula)} per step where {whose} {number(found.recorded)}, and they "
        f"differ by {number(found.apart)} standard deviations: the policy is trained for one and scored by the other; "
        'correct `reward` in the task, or leave it to be learned (reward="learned")'
    )
    return Advice("reward disagrees", text, _numbers(wrong))


def dynamics_inaccurate(summary: Summary) -> Advice | None:
    """M: what policies are trained in."""
    extra = (summary.task.reward == "learned") + (summary.task.terminated == "learned")
    return _inaccurate(summary, "dynamics", summary.task.obs_size + extra, "imagined trajectories soon mean nothing")


def labeler_inaccurate(summary: Summary) -> Advice | None:
    """P: what says how far imagination can be trusted."""
    text = "its disagreement says little about where the model can be trusted"
    return _inaccurate(summary, "labeler", summary.task.obs_size, text)


def _inaccurate(summary: Summary, stage: str, outputs: int, so: str) -> Advice | None:
    """Errors are summed over standardised outputs: a model that knows nothing but the mean has one per output."""
    every = _trained(summary)
    shares = {item.number: _value(item, f"{stage}_error") for item in every}
    if not every or (last := shares[every[-1].number]) is None or last / outputs <= UNEXPLAINED:
        return None
    wrong = [d for d, error in shares.items() if error is not None and error / outputs > UNEXPLAINED]
    share = last / outputs
    how = f"leaves {percent(share)} of the variance of a step unexplained" if share < 1 else "is worse than the mean"
    text = (
        f"the {stage} model {how} on held-out data "
        f"(error {number(last)} in standard units, over {count(outputs, 'output')}), so {so}; collect more "
        f"(--batch-size), fit longer (--{stage}.max-steps) or check that the observation holds all that the next one "
        "depends on"
    )
    return Advice(f"{stage} inaccurate", text, tuple(wrong))


def _value(item: Deployment, name: str) -> float | None:
    found = next((each.value for each in item.diagnostics if each.name == name), None)
    return float(found) if isinstance(found, float | int) else None


def nothing_learned(summary: Summary) -> Advice | None:
    """No policy is better than the first batch."""
    measured, start = evaluations(summary), behaviour(summary)
    if start is None or not _enough(summary, len(measured)):
        return None
    d, episodes, best = max(measured, key=lambda each: each[2])
    error = (episodes.deviation or 0.0) / math.sqrt(len(episodes.returns))
    if best > start + 2 * error:
        return None
    whose = "the data it began with" if summary.deployments[0].batch.source else "random actions"
    text = (
        f"no policy is clearly better than {whose} ({number(best)} at best, {number(start)} before, over "
        f"{count(len(episodes.returns), 'episode')}); "
    ) + _options(summary, MORE_DATA, ("updates", "train longer (--updates)"), ("", "try another --algo"))
    return Advice("nothing learned", text, (d,))


def flat(summary: Summary) -> Advice | None:
    """The first policy was better than the first batch, and no later one is better or worse than it."""
    measured, start = evaluations(summary), behaviour(summary)
    if not _enough(summary, len(measured)) or len(measured) < SEVERAL or nothing_learned(summary) is not None:
        return None
    (_, first, before), *later = measured
    gain = 0.0 if start is None else abs(max(mean for _, _, mean in measured) - start)
    for _, episodes, mean in later:
        apart = difference(episodes, first)
        noise = 2 * apart.error if apart else 0.0
        if abs(mean - before) > max(noise, FLAT * gain):
            return None
    text = (
        f"the return has not moved since the first deployment ({number(before)}, now {number(later[-1][2])}): if that "
        "is as good as it gets, a smaller --budget is enough; if not, "
        + _options(
            summary, ("explore", "explore more (--explore.sigma)"), ("updates", "train longer (--updates)"), MORE_DATA
        )
    )
    return Advice("flat", text, tuple(d for d, _, _ in measured))


def _enough(summary: Summary, measured: int) -> bool:
    """Whether a run is far enough to speak of what it learned."""
    return _learns(summary) and measured > 0 and (summary.finished or measured >= SEVERAL)


def collapse(summary: Summary) -> Advice | None:
    """The newest policy is far worse than an earlier one."""
    measured, start = evaluations(summary), behaviour(summary)
    if not _learns(summary) or len(measured) < 2 or start is None:
        return None
    d, episodes, best = max(measured, key=lambda each: each[2])
    last, now, mean = measured[-1]
    apart = difference(now, episodes)
    if best <= start or best - mean <= LOST * (best - start) or (apart and not apart.clear):
        return None
    text = (
        f"the policy after deployment {last} earns {number(mean)}, that after deployment {d} earned {number(best)}: "
        f"use the earlier one (musbo.load_policy(run, deployment={d})), and for the next one "
        + _options(summary, GUARDED, ("updates", "train shorter (--updates)"), MORE_DATA)
    )
    return Advice("collapse", text, (last,))


def unstable(summary: Summary) -> Advice | None:
    """A policy lost most of what was gained, and a later one found it again."""
    measured, start = evaluations(summary), behaviour(summary)
    if not _learns(summary) or start is None or collapse(summary) is not None:
        return None
    fell = [
        (d, before, mean)
        for (_, _, before), (d, _, mean) in zip(measured, measured[1:-1], strict=False)
        if before > start and before - mean > DIPPED * (before - start)
    ]
    if not fell:
        return None
    d, before, mean = max(fell, key=lambda each: each[1] - each[2])
    text = (
        f"the return fell from {number(before)} to {number(mean)} at deployment {d} before it rose again, and the next "
        "policy may fall too; " + _options(summary, GUARDED, MORE_DATA)
    )
    return Advice("unstable", text, tuple(d for d, _, _ in fell))


def imagined_above_real(summary: Summary) -> Advice | None:
    """The newest policy that was measured exploits errors of its model."""
    known = [item for item in summary.deployments if None not in (item.imagined_per_step, item.real_per_step)]
    if not known:
        return None
    last = known[-1]
    imagined, real, first = last.imagined_per_step, last.real_per_step, summary.deployments[0].batch
    assert imagined is not None and real is not None
    before = first.mean_return / first.mean_length if first.mean_return is not None and first.mean_length else real
    if imagined - real <= TOO_GOOD * max(abs(real), abs(real - before)):
        return None
    text = (
        f"imagination promises {number(imagined)} per step and {number(real)} comes true: the policy exploits errors "
        "of the model; "
        + _options(
            summary, GUARDED, ("updates", "train shorter (--updates)"),
            ("label", "trust the model less (--label disagreement, a larger --label.alpha)"), MORE_DATA,
        )
    )  # fmt: skip
    return Advice("imagined above real", text, (last.number,))


def no_terminations(summary: Summary) -> Advice | None:
    """What has never been seen cannot be learned."""
    counts = [item.batch.terminations for item in summary.deployments]
    if summary.task.terminated != "learned" or not counts or any(each is None or each > 0 for each in counts):
        return None
    episodes = sum(item.batch.episodes for item in summary.deployments)
    text = (
        f"termination is learned, and none of the {count(episodes, 'episode')} so far ended by itself, so imagined "
        "episodes never end; give the task a `terminated` function, or terminated=None if episodes end by their time "
        "limit alone"
    )
    return Advice("no terminations", text, _numbers(summary.deployments))


def few_episodes(summary: Summary) -> Advice | None:
    """Data are held out by the episode."""
    episodes = sum(item.batch.episodes for item in summary.deployments)
    if not summary.deployments or not _learns(summary):
        return None
    planned = episodes * summary.settings.budget / len(summary.deployments)  # if it goes on like this
    if (episodes if summary.finished else planned) >= FEW:
        return None
    text = (
        f"there {'is' if episodes == 1 else 'are'} only {count(episodes, 'episode')} so far, of which one or two are "
        "held out: errors and early stopping depend on chance; raise --batch-size until a batch has ten episodes"
    )
    return Advice("few episodes", text, _numbers(summary.deployments))


RULES: tuple[Callable[[Summary], Advice | None], ...] = (
    reward_disagrees, dynamics_inaccurate, labeler_inaccurate, nothing_learned, collapse, imagined_above_real,
    no_terminations, few_episodes, unstable, flat,
)  # fmt: skip


def _numbers(items: Sequence[Deployment]) -> tuple[int, ...]:
    return tuple(item.number for item in items)


# What the parts of a method say themselves


def _cautions(summary: Summary) -> Iterator[Advice]:
    """Each kind once, with the words of the newest."""
    where: dict[str, list[int]] = {}
    texts: dict[str, str] = {}
    for item in summary.deployments:
        for caution in item.cautions:
            where.setdefault(caution.kind, []).append(item.number)
            texts[caution.kind] = caution.text
    trained = _numbers(_trained(summary))
    for kind, days in where.items():
        days = sorted(set(days))
        if kind in LATEST and trained and days[-1] < trained[-1]:
            continue
        if kind in MOSTLY and not _mostly(summary, len(days)):
            continue
        yield Advice(kind, texts[kind], tuple(days))


def _mostly(summary: Summary, days: int) -> bool:
    """In more than half of the deployments, and not on the strength of the first few alone."""
    so_far = len(summary.deployments)
    enough = max(2, min(SEVERAL, summary.settings.budget))
    return 2 * days > so_far and (so_far >= enough or summary.finished)


# Beside other methods


@dataclass(frozen=True)
class Standing:
    """A method beside the first one of a comparison, over the same seeds."""

    method: str
    mean: float
    floor: bool
    """Whether it is there for comparison alone."""
    low: float | None = None
    """Lower end of the interval of its return minus that of the first; None where there is none."""


def baseline_better(first: Standing, others: Sequence[Standing], place: str) -> Advice | None:
    """Another method does clearly better, or a floor does better at all."""
    better = [each for each in others if (each.low or 0.0) > 0 or (each.floor and each.mean > first.mean)]
    if not better or first.floor:
        return None
    best = max(better, key=lambda each: each.mean)
    against = f"{number(best.mean)} against {number(first.mean)}"
    text = f"on {place}, {best.method} does better than {first.method} ({against}): " + (
        "nothing useful was learned there" if best.floor else f"use it there (--algo or settings of {best.method})"
    )
    return Advice("baseline better", text)
