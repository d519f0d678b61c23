"""Names to values: which method is which value of which class, and the three presets with the source of every
number.

`paper` has every number of the paper's tables, `fast` is for two CPU cores, `quick` for demonstrations and tests.
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
from musbo.learning.window import WindowSettings
from musbo.models.policy import PolicySettings

Preset = Literal["quick", "fast", "paper"]
Imagined = Literal["musbo", "musbo-coefficient", "musbo-collection", "musbo-constant-noise", "bremen", "me-trpo"]
PRESETS: dict[str, str] = {
    "quick": "a minute or two: demonstrations and tests",
    "fast": "two CPU cores: deeper, narrower networks and fewer, larger updates",
    "paper": "every number of the paper's tables: hours on a GPU",
}


@dataclass(frozen=True)
class Recipe:
    """A method: what it is in one line, and how it is made for a preset and a task."""

    line: str
    make: Callable[[Preset, str], Method]
    floor: bool = False
    """Made to be beaten: it need not get better than its data."""


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
SHORT_LIVED = ("hopper", "walker2d")
BUILT_IN = ("pendulum", "pointmass")


def default_preset(task: str) -> Preset:
    return "quick" if task in BUILT_IN else "fast"


def scale(preset: Preset, task: str) -> Scale:
    if task == "pointmass":
        return Scale(2, 1000)
    if task == "pendulum":
        return Scale(4, 2000)
    if preset == "quick":
        return Scale(2, 2000, episodes=5)
    size = {"fast": 50_000, "paper": 100_000}[preset]
    return Scale(10, size // 2) if task in SHORT_LIVED else Scale(5, size)


@overload
def recipe(name: Imagined, preset: Preset, task: str) -> ImaginedTRPO: ...
@overload
def recipe(name: str, preset: Preset, task: str) -> Method: ...
def recipe(name: str, preset: Preset, task: str) -> Method:
    """The value of a method for a task (a name of ours, or any other for a task of one's own)."""
    registry.load()  # other packages may bring methods of their own
    if name not in ALGORITHMS:
        raise UserError(f"there is no algorithm {name!r}: choose one of {', '.join(ALGORITHMS)}.")
    if preset not in PRESETS:
        raise UserError(f"there is no preset {preset!r}: choose one of {', '.join(PRESETS)}.")
    return ALGORITHMS[name].make(preset, task)


def add_method(name: str, line: str, make: Callable[[Preset, str], Method], floor: bool = False) -> None:
    """Make a method known under `name`: `make(preset, task)` returns its settings, `line` describes it.

    It is then a choice of `--algo`, with a flag for every setting. The class of its settings and that of its state need
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
    label: Callable[[Preset, str], Label], start: Start, explore: Explore
) -> Callable[[Preset, str], ImaginedTRPO]:
    """A recipe by the three parts that tell these methods apart."""

    def make(preset: Preset, task: str) -> ImaginedTRPO:
        return replace(SCALES[preset](task), label=label(preset, task), start=start, explore=explore)

    return make


def coefficient(preset: Preset, task: str) -> Disagreement:
    """The paper's U. In `fast`, 0.028 is nearly inert with good models: docs/decisions/alpha.md."""
    return Disagreement(alpha="auto") if preset == "fast" and task not in SHORT_LIVED else Disagreement()


def trust(preset: Preset, task: str) -> Trust:
    return Trust()


def _bremen(preset: Preset, task: str) -> ImaginedTRPO:
    parts = imagined(trust, Clone(), Plain(0.1))(preset, task)
    if preset == "paper" and task in ("halfcheetah", "cheetah-run", "cheetah-run-gym"):
        parts = replace(parts, trpo=replace(parts.trpo, delta=0.1))  # BREMEN's own delta on both cheetahs
    return parts


def _paper(task: str) -> ImaginedTRPO:
    updates, horizon, delta, lam = PAPER_TABLE.get(task, (2000, 250, 0.05, 0.95))
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


def _fast(task: str) -> ImaginedTRPO:
    fit = FitSettings(
        hidden=(128, 128, 128, 128),
        activation="silu",
        learning_rate=3e-3,
        batch=125,
        epochs=80,
        max_steps=22_000,
        decay="cosine",
        patience=80,
    )
    parts = ImaginedTRPO(
        # M is fitted much longer than P: a short fit never imagines the rare falls, so the policy meets them in the
        # world only (benchmarks/fast-preset).
        dynamics=replace(fit, members=5),
        labeler=replace(fit, members=3, learning_rate=5e-3, max_steps=5000),
        policy=PolicySettings(hidden=(128, 128), activation="tanh", sigma=0.2),
        # From many states of the data and not from the beginning alone: the rare states before a fall are among them.
        imagine=Imagine(250, 100, "mixed"),
        discount=Discounting(0.99, 0.97 if task == "ant" else 0.95),
        trpo=TRPO(delta=0.03, fisher_stride=10),
        updates=150,
        handover=Last(),
        check=Check(every=10, rollouts=10),
    )
    if task not in SHORT_LIVED:
        return parts
    # A body that falls within a second needs more noise than sigma 0.2 to find another way of moving; and from one
    # update to the next it may fall again, which every member sees, so the last policy is not the one to hand over.
    return replace(
        parts,
        dynamics=replace(parts.dynamics, max_steps=13_000),
        policy=replace(parts.policy, sigma=0.5),
        imagine=Imagine(100, 300, "mixed"),
        trpo=replace(parts.trpo, delta=0.02),
        handover=BestImagined(),
    )


def _quick(task: str) -> ImaginedTRPO:
    fit = FitSettings(
        hidden=(64, 64, 64),
        activation="silu",
        learning_rate=3e-3,
        batch=64,
        epochs=50,
        max_steps=2000,
        decay="cosine",
        patience=50,
    )
    return ImaginedTRPO(
        dynamics=replace(fit, members=5),
        labeler=replace(fit, members=3),
        policy=PolicySettings(hidden=(64, 64), activation="tanh", sigma=0.3),
        # Ten episodes hold too few initial states to learn from; the built-in tasks know their own.
        imagine=Imagine(50, 50 if task == "pointmass" else 200, "reset" if task in BUILT_IN else "mixed"),
        trpo=TRPO(delta=0.03, fisher_stride=5),
        updates=80,
        handover=BestImagined(),
        check=Check(every=5),
    )


SCALES = {"paper": _paper, "fast": _fast, "quick": _quick}


# Model-free methods: the number of gradient steps is the same for all


def model_free(regulariser: Regulariser) -> Callable[[Preset, str], ModelFree]:
    def make(preset: Preset, task: str) -> ModelFree:
        if preset == "quick":
            networks = SoftSettings(actor=(64, 64), critic=(64, 64), learning_rate=1e-3, batch=128)
            return ModelFree(regulariser.narrower(64), networks, steps=4000)
        if preset == "fast":
            return ModelFree(regulariser.narrower(200), steps=12_000)
        return ModelFree(regulariser, steps=200_000)

    return make


# MOPO


def _mopo(preset: Preset, task: str) -> MOPO:
    horizon = 1 if task == "walker2d" else 5  # with lambda_p = 1: MOPO's tables per dataset
    if preset == "paper":
        return MOPO(horizon=horizon)
    shape = SCALES[preset](task).dynamics
    fit = replace(shape, members=7, weights="fresh", bootstrap=True, l2=0.0)
    if preset == "quick":
        networks = SoftSettings(actor=(64, 64), critic=(64, 64), learning_rate=1e-3, batch=128)
        return MOPO(
            fit, (2.5e-5, 5e-5, 7.5e-5, 1e-4), horizon=horizon, branches=500, refresh=250, soft=networks, steps=4000
        )
    own = replace(fit, hidden=(200, 200, 200, 200), learning_rate=5e-3, max_steps=5000)  # MOPO's shape, as in `paper`
    return MOPO(own, horizon=horizon, branches=10_000, steps=10_000)


# Value gradients


def _value_gradients(preset: Preset, task: str) -> ValueGradients:
    """The same for every task: what depends on the task follows from its declaration and its data."""
    fit = FitSettings(
        members=5,
        hidden=(128, 128, 128),
        activation="silu",
        learning_rate=3e-3,
        batch=128,
        epochs=100,
        max_steps=5000,
        decay="cosine",
        patience=100,
    )
    if preset == "quick":
        return ValueGradients(
            dynamics=replace(fit, hidden=(64, 64, 64), batch=64, max_steps=2000),
            climb=ClimbSettings(actor=(64, 64), critic=(64, 64)),
            window=WindowSettings(imagined=1024),
            updates=200,
        )
    if preset == "fast":
        return ValueGradients(dynamics=fit)
    return ValueGradients(
        dynamics=replace(fit, hidden=(200, 200, 200, 200), batch=256, epochs=200, max_steps=None),
        climb=ClimbSettings(actor=(256, 256), critic=(256, 256)),
        window=WindowSettings(imagined=4096),
        updates=3000,
    )


def _imitation(preset: Preset, task: str) -> Imitation:
    return Imitation(policy=SCALES[preset](task).policy)


ALGORITHMS: dict[str, Recipe] = {
    "musbo": Recipe(
        "the paper's method: uncertainty coefficient and low-support collection",
        imagined(coefficient, Clone(), Seeking()),
    ),
    "musbo-coefficient": Recipe(
        "MUSBO without zeta: the uncertainty coefficient only", imagined(coefficient, Clone(), Plain(0.01))
    ),
    "musbo-collection": Recipe("MUSBO without U: low-support collection only", imagined(trust, Clone(), Seeking())),
    "musbo-constant-noise": Recipe(
        "a control: MUSBO whose noise has the same mean size everywhere and does not seek",
        imagined(coefficient, Clone(), Seeking(pooled=True)),
    ),
    "bremen": Recipe("behaviour cloning, then TRPO in the ensemble (Matsushima et al., 2020)", _bremen),
    "me-trpo": Recipe(
        "TRPO in the ensemble, the policy carried over (Kurutach et al., 2018)",
        imagined(trust, Continue(), Plain(0.1)),
    ),
    "mopo": Recipe("actor-critic on imagined branches, doubt lowers the reward (Yu et al., 2020)", _mopo),
    "uvg": Recipe("our own: value gradients in the ensemble, doubt shortens the future", _value_gradients),
    "sac": Recipe("soft actor-critic on D_all (Haarnoja et al., 2018)", model_free(Entropy())),
    "bcq": Recipe("only actions that the data support (Fujimoto et al., 2019)", model_free(Support())),
    "brac": Recipe("actor-critic kept near the behaviour, value penalty (Wu et al., 2019)", model_free(Nearness())),
    "bc": Recipe("a floor: behaviour cloning of the newest batch", _imitation, floor=True),
    "random": Recipe("a floor: uniformly random actions", lambda preset, task: Chance(), floor=True),
}
"""Every method by its name; `add_method` adds to them."""
