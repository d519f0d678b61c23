"""Our side of every piece of work: what is run, which matrix products it needs, the peer's case of the same size."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import limit
import numpy as np
from limit import Products
from samples import draw

from musbo.algorithms import recipes
from musbo.algorithms.imagined_trpo import ImaginedTRPO, update
from musbo.data.scaling import Scaling
from musbo.field.find import find_task
from musbo.learning import fit
from musbo.learning.fit import FitSettings, Rows
from musbo.learning.imagine import Imagine, Starts, imagine
from musbo.learning.objectives import SquaredError
from musbo.learning.trpo import TRPO, trpo_step
from musbo.models import dynamics, labeler
from musbo.models.dynamics import Dynamics
from musbo.models.labeler import Labeler, Levels
from musbo.models.policy import PolicySettings, init_policy

TASK = find_task("halfcheetah")
OBS, ACT = TASK.obs_size, TASK.act_size
MBRL, SB3 = "mbrl-lib", "sb3-contrib"


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    rows: int = 50_000  # of one epoch
    batch: int = 1000
    members: int = 5
    rollouts: int = 200
    horizon: int = 250
    wide: int = 1024
    narrow: int = 256
    policy: int = 200

    @property
    def samples(self) -> int:
        return self.rollouts * self.horizon


FULL = Sizes()
SMALL = Sizes(rows=400, batch=100, rollouts=20, horizon=10, wide=32, narrow=16, policy=8)


class Ours(NamedTuple):
    """`run` does the work once, waits for it, and says how many tries the line search took (0: there is none)."""

    run: Callable[[], int]
    products: Callable[[int], Products]


@dataclass(frozen=True)
class Work:
    """One row of the table. `wanted`: the least ratio to the peer and the least share of the limit."""

    name: str
    about: str
    prepare: Callable[[Sizes], Ours]
    peer: str | None = None
    case: Callable[[Sizes], dict[str, Any]] | None = None
    wanted: dict[str, float] = field(default_factory=dict)


def scaling(target_std: float = 0.01) -> Scaling:
    """Inputs as they are; small changes per step, since random networks would soon leave the range of numbers."""
    zero, one = jnp.zeros, jnp.ones
    far = jnp.full(OBS, 1e6)
    return Scaling(zero(OBS), one(OBS), zero(ACT), one(ACT), zero(OBS), jnp.full(OBS, target_std), -far, far)


def key(number: int) -> jax.Array:
    return jax.random.PRNGKey(number)


# Ensemble fitting


def fitting(sizes: Sizes, hidden: int) -> Ours:
    """One epoch, from new weights, of the call that a campaign makes; one row is held out, because it needs one."""
    settings = FitSettings(members=sizes.members, hidden=(hidden, hidden), batch=sizes.batch, epochs=1)
    k_x, k_y, k_net, k_order = jax.random.split(key(0), 4)
    n = sizes.rows
    x, y = (jax.random.normal(k, (n + 1, width)) for k, width in ((k_x, OBS + ACT), (k_y, OBS)))
    rows = Rows(x, y, np.arange(n, dtype=np.int32), np.asarray([n], np.int32))
    networks = dynamics.init_members(k_net, TASK, settings.hidden, settings.activation, settings.members)
    begun = jax.block_until_ready(fit.begin(networks))

    def run() -> int:
        state, _ = next(fit.epochs(settings, SquaredError(), rows, begun, k_order))
        jax.block_until_ready(state)
        return 0

    layers = (OBS + ACT, hidden, hidden, OBS)
    return Ours(run, lambda _: limit.fit(n // sizes.batch, sizes.members, sizes.batch, layers))


def fitting_case(sizes: Sizes, hidden: int) -> dict[str, Any]:
    shapes = {"rows": sizes.rows, "batch": sizes.batch, "members": sizes.members, "hidden": hidden}
    return {"kind": "fit", "obs": OBS, "act": ACT, **shapes}


# Imagined rollouts


def rolling(sizes: Sizes, hidden: int) -> Ours:
    k_policy, k_net, k_start, k_run, k_outer = jax.random.split(key(0), 5)
    policy = init_policy(k_policy, TASK, PolicySettings(hidden=(sizes.policy, sizes.policy)))
    model = Dynamics(dynamics.init_members(k_net, TASK, (hidden, hidden), "relu", sizes.members), scaling())
    start = jax.random.normal(k_start, (sizes.rollouts, OBS))
    settings = Imagine(sizes.rollouts, sizes.horizon, member="per_step")
    first = jnp.asarray(0)

    def run() -> int:
        rollout = jax.block_until_ready(imagine(TASK, settings, policy, model, start, first, k_run, k_outer))
        assert bool(rollout.live.all())
        return 0

    shapes = (OBS, sizes.policy, sizes.policy, ACT), (OBS + ACT, hidden, hidden, OBS)
    return Ours(run, lambda _: limit.rollout(sizes.rollouts, sizes.horizon, *shapes))


def rolling_case(sizes: Sizes, hidden: int) -> dict[str, Any]:
    shapes = {"rollouts": sizes.rollouts, "horizon": sizes.horizon, "members": sizes.members, "hidden": hidden}
    return {"kind": "rollout", "obs": OBS, "act": ACT, "policy": sizes.policy, **shapes}


# The TRPO step

SIGMA = 0.2
STEP = TRPO(delta=0.01, cg_iterations=10, damping=0.1, backtracks=10, shrink=0.8)
TENTH = 10


def stepping(sizes: Sizes, fisher_stride: int = 1, sample_stride: int = 1) -> Ours:
    """`fisher_stride` thins the states of the Fisher products, `sample_stride` all samples."""
    settings = replace(STEP, fisher_stride=fisher_stride)
    hidden = (sizes.policy, sizes.policy)
    policy = init_policy(key(0), TASK, PolicySettings(hidden=hidden, sigma=SIGMA, learned_sigma=True))
    states, noise, worth = (jnp.asarray(x[::sample_stride]) for x in draw(sizes.samples, OBS, ACT))
    act = policy(states) + SIGMA * noise
    live = jnp.ones(len(states))
    compiled = jax.jit(trpo_step, static_argnums=(0, 1))

    def run() -> int:
        _, info = jax.block_until_ready(compiled(settings, True, policy, states, act, worth, live))
        return int(info.tries)

    layers = (OBS, *hidden, ACT)
    return Ours(run, lambda tries: limit.trpo(len(states), fisher_stride, settings.cg_iterations, tries, layers))


def stepping_case(sizes: Sizes, stride: int, whole_batch: bool) -> dict[str, Any]:
    return {
        "kind": "trpo",
        "samples": sizes.samples,
        "obs": OBS,
        "act": ACT,
        "policy": sizes.policy,
        "stride": stride,
        "whole_batch": whole_batch,
        "iterations": STEP.cg_iterations,
        "damping": STEP.damping,
        "delta": STEP.delta,
        "tries": STEP.backtracks,
        "shrink": STEP.shrink,
        "sigma": SIGMA,
    }


# One whole update at the paper's scale


def paper(sizes: Sizes) -> ImaginedTRPO:
    """The paper's settings, with one member per step."""
    settings = recipes.recipe("musbo", "paper", TASK.name)
    settings = replace(settings, imagine=Imagine(sizes.rollouts, sizes.horizon, "initial", "per_step"))
    if sizes == FULL:
        return settings
    wide, hidden = (sizes.wide, sizes.wide), (sizes.policy, sizes.policy)
    return replace(
        settings,
        dynamics=replace(settings.dynamics, hidden=wide),
        labeler=replace(settings.labeler, hidden=wide),
        policy=replace(settings.policy, hidden=hidden),
    )


def updating(sizes: Sizes) -> Ours:
    """The second update of a deployment: the first one also fits its first baseline."""
    settings = paper(sizes)
    M, P = settings.dynamics, settings.labeler
    k_M, k_P, k_start, k_update, k_outer, k_begin = jax.random.split(key(0), 6)
    levels = Levels(*(jnp.ones(()) for _ in range(4)))
    model = Dynamics(dynamics.init_members(k_M, TASK, M.hidden, M.activation, M.members), scaling())
    judge = Labeler(labeler.init_members(k_P, TASK, P.hidden, P.activation, P.members), scaling(), levels)
    starts = Starts(jax.random.normal(k_start, (1000, OBS)), jnp.asarray(1000))
    begun = settings.begin(TASK, k_begin)
    policy = begun.policy

    def call(value: Any, index: int) -> tuple:
        here = jnp.asarray(index)
        first = jnp.asarray(index == 0), jnp.ones(())
        done = update(settings, TASK, policy, value, model, judge, starts, starts, here, k_update, k_outer, *first)
        return jax.block_until_ready(done)

    value = call(begun.value, 0)[1]

    def run() -> int:
        numbers = call(value, 1)[2]
        assert float(numbers["length"]) == sizes.horizon
        if not bool(numbers["accepted"]):
            return settings.trpo.backtracks
        return 1 + round(math.log(float(numbers["fraction"])) / math.log(settings.trpo.shrink))

    actor, wide = (OBS, *settings.policy.hidden, ACT), (OBS + ACT, *M.hidden, OBS)
    judging = (OBS + ACT, *P.hidden, OBS)
    step = settings.trpo

    def products(tries: int) -> Products:
        return limit.together(
            [
                limit.rollout(sizes.rollouts, sizes.horizon, actor, wide),
                limit.labels(sizes.samples, judging),
                limit.trpo(sizes.samples, step.fisher_stride, step.cg_iterations, tries, actor),
                limit.ridge(sizes.samples, 2 * OBS + 4),
            ]
        )

    return Ours(run, products)


def _works() -> list[Work]:
    def wide(make: Callable[[Sizes, int], Any]) -> Callable[[Sizes], Any]:
        return lambda sizes: make(sizes, sizes.wide)

    def narrow(make: Callable[[Sizes, int], Any]) -> Callable[[Sizes], Any]:
        return lambda sizes: make(sizes, sizes.narrow)

    return [
        Work(
            "update-paper",
            "imagine 200 x 250 steps in 2 x 1024 networks, label with two members, one TRPO step",
            updating,
            wanted={"limit_fraction": 1 / 1.4},
        ),
        Work(
            "fit-1024",
            "one epoch of 5 networks 2 x 1024 over 50,000 rows, batch 1000",
            wide(fitting),
            MBRL,
            wide(fitting_case),
            {"ratio": 1.15, "limit_fraction": 0.85},
        ),
        Work("fit-256", "the same with 2 x 256", narrow(fitting), MBRL, narrow(fitting_case), {"ratio": 1.3}),
        Work(
            "rollout-1024",
            "200 trajectories of 250 imagined steps, networks 2 x 1024, policy 200-200",
            wide(rolling),
            MBRL,
            wide(rolling_case),
            {"ratio": 2.0},
        ),
        Work("rollout-256", "the same with 2 x 256", narrow(rolling), MBRL, narrow(rolling_case), {"ratio": 2.5}),
        Work(
            "trpo-all",
            "one TRPO step on 50,000 samples, policy 200-200, all states in the Fisher products",
            stepping,
            SB3,
            lambda sizes: stepping_case(sizes, 1, whole_batch=False),
            {"ratio": 3.0},
        ),
        Work(
            "trpo-stride10",
            "the same with every tenth state in the Fisher products, all samples in gradient and line search",
            lambda sizes: stepping(sizes, fisher_stride=TENTH),
            SB3,
            lambda sizes: stepping_case(sizes, TENTH, whole_batch=False),
            {"ratio": 3.0},
        ),
        Work(
            "trpo-tenth",
            "the same with every tenth sample in everything, the peer's own option",
            lambda sizes: stepping(sizes, sample_stride=TENTH),
            SB3,
            lambda sizes: stepping_case(sizes, TENTH, whole_batch=True),
            {"ratio": 3.0},
        ),
    ]


WORKS = {work.name: work for work in _works()}
