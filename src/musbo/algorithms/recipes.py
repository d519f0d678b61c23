"""Names to values: which method is which value of which class, and the presets with the source of every number.

`paper` has every number of the paper's tables, `thorough` is for a deployment that counts, `fast` for two CPU cores,
`quick` for demonstrations and tests. Outside `paper` nothing depends on the name of a task: settings follow from what
it declares (how long its episodes are, whether they can end early) and, inside the fits, from the size of the data.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, overload

from musbo.algorithms.floors import Chance, Imitation
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.method import Method
from musbo.algorithms.model_free import ModelFree
from musbo.algorithms.mopo import MOPO
from musbo.algorithms.together import Together
from musbo.algorithms.value_gradients import ValueGradients
from musbo.core import registry
from musbo.core.errors import UserError
from musbo.learning.advantage import Discounting
from musbo.learning.climb import ClimbSettings
from musbo.learning.explore import Explore, Plain, Seeking
from musbo.learning.fit import FitSettings
from musbo.learning.handover import BestImagined, Check, Last
from musbo.learning.imagine import Imagine
from musbo.learning.label import Disagreement, Label, Trust
from musbo.learning.soft import Entropy, Nearness, Regulariser, SoftSettings, Support
from musbo.learning.start import Clone, Continue, Start
from musbo.learning.trpo import TRPO
from musbo.learning.value import Ensemble
from musbo.learning.window import WindowSettings
from musbo.models.policy import PolicySettings
from musbo.tasks.find import TASKS, our_task
from musbo.tasks.task import BuiltIn, Task

Preset = Literal["quick", "fast", "thorough", "paper"]
Imagined = Literal["musbo", "musbo-coefficient", "musbo-collection", "musbo-constant-noise", "bremen", "me-trpo"]
PRESETS: dict[str, str] = {
    "quick": "a minute or two: demonstrations and tests",
    "fast": "about ten minutes of two CPU cores: deeper, narrower networks and fewer, larger updates",
    "thorough": "about half an hour of two CPU cores: longer fits and more updates, as long as they help",
    "paper": "every number of the paper's tables: hours on a GPU",
}


@dataclass(frozen=True)
class Recipe:
    """A method: what it is in one line, and how it is made for a preset and a task."""

    line: str
    make: Callable[[Preset, Task], Method]
    floor: bool = False
    """Made to be beaten: it need not get better than its data."""
    why: Callable[[Preset, Task], tuple[str, ...]] = lambda preset, task: ()
    """What was derived from the task, and why: a sentence for each."""


@dataclass(frozen=True)
class Scale:
    """How large a campaign is."""

    budget: int
    """I: deployments (paper: 5, hopper and walker2d 10)."""
    batch_size: int
    """B: transitions per deployment (paper: 100,000 or 50,000; hopper and walker2d 50,000 or 25,000)."""
    episodes: int = 20
    """Evaluation episodes after every deployment; they are counted apart and never reach training."""


PAPER_TABLE = {  # table 2 of the paper: L, H, delta; lambda from appendix F
    "ant": (2000, 250, 0.05, 0.97),
    "halfcheetah": (2000, 250, 0.1, 0.95),
    "hopper": (6000, 1000, 0.05, 0.95),
    "walker2d": (2000, 1000, 0.05, 0.95),
    "cheetah-run": (2000, 250, 0.05, 0.95),
    "cheetah-run-gym": (2000, 250, 0.05, 0.95),
}
DEMONSTRATIONS = {"pendulum": Scale(4, 400), "pointmass": Scale(2, 1000)}


def default_preset(task: Task | str) -> Preset:
    """`quick` where the simulator is built in, so that a step costs nothing."""
    known = task if isinstance(task, Task) else our_task(task) if task in TASKS else None
    return "quick" if known is not None and isinstance(known.simulator, BuiltIn) else "fast"


def scale(preset: Preset, task: Task | str) -> Scale:
    """The paper's budget on its tasks; a task of one's own gets fifty episodes per deployment, or the paper's size.

    Of a name alone that is not ours nothing is known: as if its episodes had a thousand steps and never ended early.
    """
    name = task if isinstance(task, str) else task.name
    if name in DEMONSTRATIONS:
        return DEMONSTRATIONS[name]
    known = task if isinstance(task, Task) else our_task(task) if task in TASKS else None
    steps, ends = (1000, False) if known is None else (known.episode_steps, known.terminated is not None)
    if preset == "quick":
        return Scale(2, min(2000, 10 * steps))
    size = min(50_000, 50 * steps) * (2 if preset == "paper" else 1)
    return Scale(10, size // 2) if ends else Scale(5, size)


@overload
def recipe(name: Imagined, preset: Preset, task: Task | str) -> ImaginedTRPO: ...
@overload
def recipe(name: str, preset: Preset, task: Task | str) -> Method: ...
def recipe(name: str, preset: Preset, task: Task | str) -> Method:
    """The settings of a method for a preset and a task, given as a Task or as the name of a built-in one."""
    registry.load()  # other packages may bring methods of their own
    if name not in ALGORITHMS:
        raise UserError(f"there is no algorithm {name!r}: choose one of {', '.join(ALGORITHMS)}.")
    if preset not in PRESETS:
        raise UserError(f"there is no preset {preset!r}: choose one of {', '.join(PRESETS)}.")
    return ALGORITHMS[name].make(preset, _known(task))


def reasons(name: str, preset: Preset, task: Task | str) -> tuple[str, ...]:
    """Which settings of a recipe were derived from the task, and why."""
    return ALGORITHMS[name].why(preset, _known(task))


def _known(task: Task | str) -> Task:
    if isinstance(task, str) and task not in TASKS:
        raise UserError(f"a recipe is made for a Task, or for one of {', '.join(TASKS)}, not for {task!r}.")
    return our_task(task) if isinstance(task, str) else task


def add_method(name: str, line: str, make: Callable[[Preset, Task], Method], floor: bool = False) -> None:
    """Register a method under `name`: `make(preset, task)` returns its settings for a Task, `line` describes it.

    It is then a value of `--algo`, with a flag for every setting. The class of its settings and that of its state need
    names to be stored by (`@musbo.stored`). Call it at the top of a module that `--import` or an entry point brings in.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise UserError(f"a method cannot be called {name!r}: use lower case, digits and dashes.")
    known = ALGORITHMS.get(name)
    place = (make.__module__, make.__qualname__)
    if known is not None and (known.make.__module__, known.make.__qualname__) != place:
        raise UserError(f"there is a method {name!r} already: choose another name.")
    ALGORITHMS[name] = Recipe(line, make, floor)


# TRPO in imagination


def imagined(
    label: Callable[[Preset], Label], start: Start, explore: Explore
) -> Callable[[Preset, Task], ImaginedTRPO]:
    """A recipe by the three parts that tell these methods apart."""

    def make(preset: Preset, task: Task) -> ImaginedTRPO:
        return replace(SCALES[preset](task), label=label(preset), start=start, explore=explore)

    return make


def coefficient(preset: Preset) -> Disagreement:
    """The paper's U. With good models 0.028 is nearly inert: docs/decisions/alpha.md."""
    return Disagreement() if preset == "paper" else Disagreement(alpha="auto")


def trust(preset: Preset) -> Trust:
    return Trust()


def _bremen(preset: Preset, task: Task) -> ImaginedTRPO:
    parts = imagined(trust, Clone(), Plain(0.1))(preset, task)
    if preset == "paper" and task.name in ("halfcheetah", "cheetah-run", "cheetah-run-gym"):
        parts = replace(parts, trpo=replace(parts.trpo, delta=0.1))  # BREMEN's own delta on both cheetahs
    return parts


def _paper(task: Task) -> ImaginedTRPO:
    updates, horizon, delta, lam = PAPER_TABLE.get(task.name, (2000, 250, 0.05, 0.95))
    return ImaginedTRPO(
        dynamics=FitSettings(members=5),  # appendix F: 2 x 1024, Adam 1e-3, early stopping after 3
        labeler=FitSettings(members=3),
        policy=PolicySettings(hidden=(200, 200), activation="relu", sigma=0.1),
        imagine=Imagine(50_000 // horizon, horizon, "initial", "per_outer"),
        discount=Discounting(0.99, lam),
        # delta as printed is recorded, delta / 220 is applied: docs/decisions/delta-and-sigma.md
        trpo=TRPO(delta=delta, literal_delta=False),
        updates=updates,
        handover=Last(),
        check=Check(every=100),
    )


LONG = 1000
"""No further than this is imagined, however long an episode lasts."""
SHORT = 250
"""An episode of so many steps at most is imagined as a whole."""


def ends_early(task: Task) -> bool:
    return task.terminated is not None


def horizon(task: Task, part: int) -> int:
    """H: a whole episode where it can end early or is short, else a part of it, from many states of the data."""
    whole = min(task.episode_steps, LONG)
    return whole if ends_early(task) or whole <= SHORT else part


AHEAD = 300
"""gamma looks ahead so many steps where episodes can end early, at most 0.3 of an episode."""


def discount(task: Task) -> Discounting:
    """gamma and lambda: where episodes can end early, to fall must cost more than leaping into the fall earns.

    With gamma = 0.99 a hopper that leaps and falls after 140 steps is worth twice one that stands for 1000.
    """
    if not ends_early(task):
        return Discounting(0.99, 0.95)
    return Discounting(max(0.99, 1 - 1 / min(0.3 * task.episode_steps, AHEAD)), 0.97)


def _fast(task: Task) -> ImaginedTRPO:
    ends = ends_early(task)
    H = horizon(task, part=100)
    fit = FitSettings(
        hidden=(128, 128, 128, 128),
        activation="silu",
        learning_rate=3e-3,
        batch=125,
        epochs=1000,
        passes=80,
        least_steps=6000,  # where data are few, they are seen more often
        decay="cosine",
        patience=1000,
        judged_by="trimmed",
    )
    return ImaginedTRPO(
        # M is fitted much longer than P: a short fit never imagines the rare falls, so the policy meets them in the
        # world only (benchmarks/fast-preset). What ends early has twice the deployments, and fits of about half.
        dynamics=replace(fit, members=5, max_steps=13_000 if ends else 22_000),
        labeler=replace(fit, members=3, learning_rate=5e-3, least_steps=3000, max_steps=5000),
        # A body that falls within a second needs more noise than sigma 0.2 to find another way of moving.
        policy=PolicySettings((128, 128), "tanh", sigma=0.5 if ends else 0.2),
        # From many states of the data and not from the beginning alone: the rare states before a fall are among them.
        imagine=Imagine(25_000 // H, H, "mixed", restart=True),
        baseline=Ensemble(),
        discount=discount(task),
        trpo=TRPO(delta=0.02 if ends else 0.03, fisher_stride=10),
        updates=150,
        # From one update to the next a body may fall again, which every member sees: the last policy is not the one
        # to hand over there.
        handover=BestImagined() if ends else Last(),
        check=Check(every=10, rollouts=10, steps=min(task.episode_steps, LONG)),
    )


def _thorough(task: Task) -> ImaginedTRPO:
    """Three times the operations of `fast`, as long as held-out errors and the members' own ratings still improve."""
    fast = _fast(task)
    longer = replace(fast.dynamics, passes=200, least_steps=18_000, max_steps=39_000 if ends_early(task) else 66_000)
    return replace(
        fast,
        dynamics=longer,
        labeler=replace(fast.labeler, passes=200, least_steps=9000, max_steps=15_000),
        updates=450,
        handover=BestImagined(patience=150),
    )


def _quick(task: Task) -> ImaginedTRPO:
    H = horizon(task, part=200)
    whole = task.episode_steps == H and not ends_early(task)
    fit = FitSettings(
        hidden=(64, 64, 64),
        activation="silu",
        learning_rate=3e-3,
        batch=64,
        epochs=1000,
        passes=50,
        least_steps=2000,
        max_steps=2000,
        decay="cosine",
        patience=1000,
        judged_by="trimmed",
    )
    return ImaginedTRPO(
        dynamics=replace(fit, members=5),
        labeler=replace(fit, members=3),
        policy=PolicySettings((64, 64), "tanh", sigma=0.3, learned_sigma=ends_early(task), least_sigma=0.05),
        # Ten episodes hold too few initial states to learn whole ones from; a task may know its own.
        imagine=Imagine(min(50, 10_000 // H), H, "reset" if whole and task.initial else "mixed", restart=True),
        baseline=Ensemble(),
        discount=discount(task),
        trpo=TRPO(delta=0.03, fisher_stride=5, at_sigma=0.3 if ends_early(task) else None),
        updates=80,
        handover=BestImagined(),
        check=Check(every=5, rollouts=10, steps=min(task.episode_steps, LONG)),
    )


SCALES = {"paper": _paper, "thorough": _thorough, "fast": _fast, "quick": _quick}


def _why(preset: Preset, task: Task) -> tuple[str, ...]:
    """What TRPO in imagination takes from the task."""
    if preset == "paper":
        return ()
    parts = SCALES[preset](task)
    H, steps = parts.imagine.horizon, parts.imagine.horizon * parts.imagine.rollouts
    if ends_early(task):
        whole = f"whole episodes (at most {LONG} steps), because they can end early"
    elif task.episode_steps <= SHORT:
        whole = "whole episodes, because they are short"
    else:
        whole = f"a part of the {task.episode_steps} steps of an episode, because none ends early"
    said = [
        f"--imagine.horizon {H}: {whole}",
        f"--imagine.rollouts {parts.imagine.rollouts}: {steps:,} imagined steps per update; what ends begins anew",
        f"--check.steps {parts.check.steps}: policies are rated over whole episodes (at most {LONG} steps)",
    ]
    if ends_early(task):
        ahead = f"looks ahead {1 / (1 - parts.discount.gamma):.0f} steps, because to end early must cost enough"
        said.append(f"--discount.gamma {parts.discount.gamma:.4g}: {ahead}")
    if preset != "quick":
        early = "can" if ends_early(task) else "cannot"
        of = f"--policy.sigma, --trpo.delta, --dynamics.max-steps, --handover: episodes {early} end early"
        said.append(of)
    said.append("gradient steps of the fits: from the size of the data, between least-steps and max-steps")
    return tuple(said)


# Model-free methods: the number of gradient steps is the same for all, except where a step costs much more


def model_free(regulariser: Regulariser, fast: int = 12_000) -> Callable[[Preset, Task], ModelFree]:
    """A recipe with this regulariser; `fast` gradient steps per deployment in the preset of that name."""

    def make(preset: Preset, task: Task) -> ModelFree:
        if preset == "quick":
            networks = SoftSettings(actor=(64, 64), critic=(64, 64), learning_rate=1e-3, batch=128)
            return ModelFree(regulariser.narrower(64), networks, steps=4000)
        if preset == "fast":
            return ModelFree(regulariser.narrower(200), steps=fast)
        if preset == "thorough":  # as its authors: one per transition, of all that was collected so far
            return ModelFree(regulariser.narrower(200), steps=12_000, per_transition=1.0)
        return ModelFree(regulariser, steps=200_000)

    return make


# MOPO


def _mopo(preset: Preset, task: Task) -> MOPO:
    if preset == "paper":
        return MOPO(horizon=1 if task.name == "walker2d" else 5)  # with lambda_p = 1: MOPO's tables per dataset
    shape = SCALES[preset](task).dynamics
    fit = replace(shape, members=7, weights="fresh", bootstrap=True, l2=0.0)
    if preset == "quick":
        networks = SoftSettings(actor=(64, 64), critic=(64, 64), learning_rate=1e-3, batch=128)
        return MOPO(fit, (2.5e-5, 5e-5, 7.5e-5, 1e-4), branches=500, refresh=250, soft=networks, steps=4000)
    own = replace(fit, hidden=(200, 200, 200, 200), learning_rate=5e-3)  # MOPO's shape, as in `paper`
    if preset == "fast":
        return MOPO(replace(own, least_steps=2000, max_steps=5000), branches=10_000, steps=10_000)
    long = replace(own, least_steps=6000, max_steps=15_000)
    return MOPO(long, branches=10_000, steps=10_000, per_transition=1.0)


# Value gradients

RIVAL = ValueGradients().soft


def _value_gradients(preset: Preset, task: Task) -> ValueGradients:
    """The same for every task: what depends on the task follows from its declaration and its data."""
    fit = FitSettings(
        members=5,
        hidden=(128, 128, 128),
        activation="silu",
        learning_rate=3e-3,
        batch=128,
        epochs=200,
        max_steps=15_000,
        decay="cosine",
        patience=200,
    )
    if preset == "quick":
        return ValueGradients(
            dynamics=replace(fit, hidden=(64, 64, 64), batch=64, epochs=200, max_steps=4000),
            climb=ClimbSettings(actor=(64, 64), critic=(64, 64)),
            window=WindowSettings(imagined=1024),
            updates=300,
            soft=replace(RIVAL, actor=(64, 64), critic=(64, 64)),
            steps=8000,
        )
    if preset == "fast":
        return ValueGradients(dynamics=fit, updates=1000)
    if preset == "thorough":
        long = replace(fit, epochs=400, max_steps=45_000, patience=400)
        return ValueGradients(dynamics=long, updates=3000, steps=120_000)
    return ValueGradients(
        dynamics=replace(fit, hidden=(200, 200, 200, 200), batch=256, max_steps=None, patience=100),
        climb=ClimbSettings(actor=(256, 256), critic=(256, 256)),
        window=WindowSettings(imagined=4096),
        updates=3000,
        soft=replace(RIVAL, actor=(256, 256), critic=(256, 256), learning_rate=3e-4, batch=256),
        steps=200_000,
    )


def _together(preset: Preset, task: Task) -> Together:
    """Both as they are; value gradients with half their updates, because they are not alone."""
    gradients = _value_gradients(preset, task)
    half = replace(gradients, updates=max(1, gradients.updates // 2), steps=gradients.steps // 2)
    return Together(imagined(coefficient, Clone(), Seeking())(preset, task), half)


def _imitation(preset: Preset, task: Task) -> Imitation:
    return Imitation(policy=SCALES[preset](task).policy)


ALGORITHMS: dict[str, Recipe] = {
    "musbo": Recipe(
        "the paper's method: uncertainty coefficient and low-support collection",
        imagined(coefficient, Clone(), Seeking()),
        why=_why,
    ),
    "musbo-coefficient": Recipe(
        "MUSBO without zeta: the uncertainty coefficient only", imagined(coefficient, Clone(), Plain(0.01)), why=_why
    ),
    "musbo-collection": Recipe(
        "MUSBO without U: low-support collection only", imagined(trust, Clone(), Seeking()), why=_why
    ),
    "musbo-constant-noise": Recipe(
        "a control: MUSBO whose noise has the same mean size everywhere and does not seek",
        imagined(coefficient, Clone(), Seeking(pooled=True)),
        why=_why,
    ),
    "bremen": Recipe("behaviour cloning, then TRPO in the ensemble (Matsushima et al., 2020)", _bremen, why=_why),
    "me-trpo": Recipe(
        "TRPO in the ensemble, the policy carried over (Kurutach et al., 2018)",
        imagined(trust, Continue(), Plain(0.1)),
        why=_why,
    ),
    "mopo": Recipe("actor-critic on imagined branches, doubt lowers the reward (Yu et al., 2020)", _mopo),
    "uvg": Recipe(
        "our own: value gradients and an actor-critic in the ensemble, discounted by doubt, share every batch",
        _value_gradients,
    ),
    "together": Recipe("our own: musbo and uvg share every batch, and the one that earns more leads", _together),
    "sac": Recipe("soft actor-critic on D_all (Haarnoja et al., 2018)", model_free(Entropy())),
    "bcq": Recipe("only actions that the data support (Fujimoto et al., 2019)", model_free(Support(), fast=6000)),
    "brac": Recipe("actor-critic kept near the behaviour, value penalty (Wu et al., 2019)", model_free(Nearness())),
    "bc": Recipe("a floor: behaviour cloning of the newest batch", _imitation, floor=True),
    "random": Recipe("a floor: uniformly random actions", lambda preset, task: Chance(), floor=True),
}
"""Every method by its name; `add_method` adds to them."""
