"""Floating-point operations of every method per deployment, by XLA's own count, fits included.

    python benchmarks/methods/operations.py [--task halfcheetah] [--preset fast]

Nothing is run: functions are lowered for their shapes, and XLA's cost analysis is read. It counts the body of a loop
once, so bodies are counted apart and multiplied by the length of their loops. Conjugate gradients count as all their
iterations, the line search as one try, and a fit as all the minibatches that it may take.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from functools import partial, singledispatch
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from musbo.algorithms import imagined_trpo
from musbo.algorithms.floors import Chance, Imitation
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.model_free import Likelihood, ModelFree
from musbo.algorithms.mopo import MOPO, DecayedLikelihood
from musbo.algorithms.recipes import ALGORITHMS, PRESETS, Preset, recipe, scale
from musbo.algorithms.together import Together
from musbo.algorithms.value_gradients import CHUNK, ValueGradients
from musbo.data.scaling import Scaling
from musbo.field.find import find_task
from musbo.learning import climb, fit, replay, soft
from musbo.learning.branch import refill
from musbo.learning.climb import Worth
from musbo.learning.dream import dream
from musbo.learning.fit import FitSettings, planned_epochs
from musbo.learning.imagine import Starts, draw, trajectories
from musbo.learning.objectives import GaussianLikelihood, SquaredError
from musbo.learning.soft import Nearness, SoftSettings
from musbo.learning.start import ActionError
from musbo.learning.value import Ensemble
from musbo.learning.window import Ordinary
from musbo.models import dynamics, labeler
from musbo.models.dynamics import Dynamics
from musbo.models.frame import frame_of
from musbo.models.labeler import Labeler, Levels
from musbo.models.mlp import init_mlp
from musbo.models.policy import init_policy
from musbo.models.probabilistic import init_probabilistic
from musbo.models.stochastic import Stochastic
from musbo.tasks.task import Task

HERE = Path(__file__).parent
TRAINING_SHARE = 0.85
KEY = jax.random.PRNGKey(0)


def operations(function: Callable[..., Any], *arguments: Any, passes: tuple[int, ...] = ()) -> float:
    """Of one call, loops included; `passes` says how often each loop of unknown length is taken, in their order."""
    return _total(jax.make_jaxpr(function)(*arguments), iter(passes))


def _total(program: core.ClosedJaxpr, passes: Iterator[int]) -> float:
    """XLA's count, which has every loop's body once, plus what the other passes add."""
    extra = sum(length * _total(body, passes) - _once(body) for length, body in _loops(program.jaxpr, passes))
    return _once(program) + extra


def _once(program: core.ClosedJaxpr) -> float:
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in program.jaxpr.invars]  # type: ignore[union-attr]
    counted = jax.jit(core.jaxpr_as_fun(program)).lower(*shapes).cost_analysis()
    return float((counted or {}).get("flops", 0.0))


def _loops(program: core.Jaxpr, passes: Iterator[int]) -> Iterator[tuple[int, core.ClosedJaxpr]]:
    for equation in program.eqns:
        if equation.primitive.name == "scan":
            yield equation.params["length"], equation.params["jaxpr"]
        elif equation.primitive.name == "while":
            yield next(passes), equation.params["body_jaxpr"]
        else:
            parts: Any = equation.params
            if equation.primitive.name == "custom_linear_solve":
                parts = parts["jaxprs"].solve  # it also holds what its derivatives would need
            for inner in jax.tree.leaves(parts, is_leaf=lambda p: isinstance(p, core.ClosedJaxpr)):
                if isinstance(inner, core.ClosedJaxpr):
                    yield from _loops(inner.jaxpr, passes)


def fitting(settings: FitSettings, objective: Any, networks: Any, n_in: int, n_out: int, rows: int) -> float:
    """A whole fit of all members on this many training rows."""
    x, y = jnp.zeros((settings.batch, n_in)), jnp.zeros((settings.batch, n_out))
    network = jax.tree.map(lambda leaf: leaf[0], networks)

    def minibatch(network: Any, moments: Any) -> Any:
        gradient = jax.grad(lambda n: objective.loss(n, x, y) + sum(jnp.sum(w**2) for w in objective.kernels(n)))
        updates, moments = fit.adam(gradient(network), moments)
        return jax.tree.map(lambda p, u: p - 1e-3 * u, network, updates), moments

    steps = max(1, rows // settings.batch)
    minibatches = settings.members * planned_epochs(settings, steps) * steps
    return minibatches * operations(minibatch, network, fit.ADAM.init(network))


def some_scaling(task: Task, targets: int) -> Scaling:
    return Scaling(
        *(jnp.ones(n) for n in (task.obs_size,) * 2 + (task.act_size,) * 2 + (targets,) * 2 + (task.obs_size,) * 2)
    )


@singledispatch
def work(method: Any, task: Task, rows: int, newest: int) -> dict[str, float]:
    """Operations of one training on `rows` logged rows, of which `newest` came last, part by part."""
    raise NotImplementedError(f"say here what a {type(method).__name__} computes")


def _passes(method: ImaginedTRPO) -> tuple[int, ...]:
    """Of the loops of an update: V, where it is new (it is not), conjugate gradients, one line search, V."""
    if not isinstance(method.baseline, Ensemble):
        return (method.trpo.cg_iterations, 1)
    n, steps = method.baseline.members, method.baseline.steps
    return (*(0,) * n, method.trpo.cg_iterations, 1, *(steps,) * n)


@work.register
def _(method: ImaginedTRPO, task: Task, rows: int, newest: int) -> dict[str, float]:
    # The clone stops after few epochs and is not counted.
    n_in, n_out = task.obs_size + task.act_size, dynamics.target_size(task)
    scaling = some_scaling(task, n_out)
    members = dynamics.init_members(KEY, task, method.dynamics.hidden, method.dynamics.activation, 5)
    judges = labeler.init_members(KEY, task, method.labeler.hidden, method.labeler.activation, 3)
    M, P = Dynamics(members, scaling), Labeler(judges, scaling, Levels(*(jnp.ones(()) for _ in range(4))))
    policy = init_policy(KEY, task, method.policy)
    value = method.baseline.begin(task.obs_size, KEY)
    somewhere = Starts(jnp.zeros((10, task.obs_size)), jnp.asarray(10))
    trained = int(TRAINING_SHARE * rows)

    def one_update(policy: Any, value: Any, index: Any) -> Any:
        """`imagined_trpo.update` without its threads, in which nothing can be traced."""
        where, again, k_imagine, keys = imagined_trpo._begin_update(
            method.imagine, task, somewhere, somewhere, index, KEY
        )
        shape = method.imagine.rollouts, task.act_size
        drawn = draw(method.imagine, shape, method.dynamics.members, index, k_imagine, KEY)
        rollout = trajectories(task, method.imagine, policy, M, where, *drawn, again=again)
        noise = method.policy
        parts = imagined_trpo.Learning(
            method.label, method.baseline, method.discount, method.trpo, noise.learned_sigma, noise.least_sigma
        )
        no = jnp.zeros((), bool)
        return imagined_trpo._learn(parts, task, policy, value, P, rollout, no, jnp.ones(()), *keys)

    improve = operations(one_update, policy, value, jnp.asarray(0), passes=_passes(method))
    return {
        "dynamics": fitting(method.dynamics, SquaredError(), members, n_in, n_out, trained),
        "labeler": fitting(method.labeler, GaussianLikelihood(), judges, n_in, task.obs_size, trained),
        "improve": method.updates * improve,
    }


def gradient_steps(steps: int, per_transition: float, rows: int) -> int:
    """Of a model-free learner: so many, or more where there are many transitions."""
    return max(steps, round(per_transition * rows))


def _learning(settings: SoftSettings, steps: int, regulariser: Any, task: Task) -> float:
    networks = soft.begin(settings, regulariser, task.obs_size, task.act_size, KEY)
    source = replay.empty(1, 1000, task.obs_size, task.act_size)
    behaviour = init_mlp(KEY, (task.obs_size, 200, 200, 2 * task.act_size), "relu")
    drawn = source.draw(settings.batch, KEY)
    return steps * operations(partial(soft.soft_step, settings, regulariser), networks, behaviour, drawn, KEY)


@work.register
def _(method: ModelFree, task: Task, rows: int, newest: int) -> dict[str, float]:
    parts = {}
    if isinstance(method.regulariser, Nearness):
        sizes = (task.obs_size, *method.behaviour.hidden, 2 * task.act_size)
        network = jax.tree.map(lambda leaf: leaf[None], init_mlp(KEY, sizes, "relu"))
        parts["behaviour"] = fitting(
            method.behaviour, Likelihood(), network, task.obs_size, task.act_size, int(TRAINING_SHARE * newest)
        )
    steps = gradient_steps(method.steps, method.per_transition, rows)
    return {**parts, "learn": _learning(method.soft, steps, method.regulariser, task)}


@work.register
def _(method: MOPO, task: Task, rows: int, newest: int) -> dict[str, float]:
    n_in, n_out = task.obs_size + task.act_size, task.obs_size + 1
    members = init_probabilistic(KEY, (n_in, *method.dynamics.hidden, n_out), "silu", method.dynamics.members)
    model = Stochastic(members, some_scaling(task, n_out), jnp.arange(method.elites))
    actor = soft.begin(method.soft, soft.Entropy(), task.obs_size, task.act_size, KEY).parts.actor
    held = replay.empty(method.kept, method.branches * method.horizon, task.obs_size, task.act_size)
    one = partial(refill, task, method.horizon, method.branches, method.penalty)
    somewhere = Starts(jnp.zeros((10, task.obs_size)), jnp.asarray(10))
    steps = gradient_steps(method.steps, method.per_transition, rows)
    rollouts = -(-steps // method.refresh)
    objective = DecayedLikelihood(method.decay, method.dynamics.members)
    return {
        "dynamics": fitting(method.dynamics, objective, members, n_in, n_out, int(TRAINING_SHARE * rows)),
        "branches": rollouts * operations(one, actor, frame_of(task), model, somewhere, held, jnp.asarray(0), KEY),
        "learn": _learning(method.soft, steps, soft.Entropy(), task),
    }


@work.register
def _(method: ValueGradients, task: Task, rows: int, newest: int) -> dict[str, float]:
    """The appraisals of policies are not counted."""
    n_in, n_out = task.obs_size + task.act_size, dynamics.target_size(task)
    members = dynamics.init_members(KEY, task, method.dynamics.hidden, method.dynamics.activation, 5)
    M = Dynamics(members, some_scaling(task, n_out))
    level = jnp.ones(())
    ordinary = Ordinary(jnp.ones(n_out), level, level, level)
    somewhere, frame, worth = (
        Starts(jnp.zeros((10, task.obs_size)), jnp.asarray(10)),
        frame_of(task),
        Worth(*(level,) * 3),
    )
    window = method.window.lasting(1.0)
    climber = climb.begin(method.climb, task.obs_size, task.act_size, KEY)

    def one_window(climber: Any, lanes: Any) -> Any:
        return climb.climb(
            task, method.climb, window, climber, frame, worth, M, ordinary, somewhere, somewhere, lanes, level,
            jnp.asarray(0), KEY,
        )  # fmt: skip

    def one_dream(lanes: Any, held: Any) -> Any:
        return dream(
            task, method.dream, climber.actor, frame, (level, level), M, ordinary, somewhere, somewhere, lanes, held,
            jnp.asarray(0), KEY,
        )  # fmt: skip

    lanes, dreaming = (jnp.zeros((each.lanes, task.obs_size)) for each in (window, method.dream))
    held = replay.empty(1, method.dream.lanes * (method.dream.steps or 1), task.obs_size, task.act_size, True)
    twice = 2 if method.noise else 1  # the rows, and a copy of them with noise
    parts = {
        "dynamics": fitting(method.dynamics, SquaredError(), members, n_in, n_out, twice * int(TRAINING_SHARE * rows)),
        "climb": method.updates * operations(one_window, climber, lanes),
    }
    if not method.steps:
        return parts
    dreams = -(-method.steps // CHUNK) * operations(one_dream, dreaming, held) if method.imagined_share else 0.0
    return {**parts, "dream": dreams, "learn": _learning(method.soft, method.steps, soft.Entropy(), task)}


@work.register
def _(method: Together, task: Task, rows: int, newest: int) -> dict[str, float]:
    both = {"trust region": method.first, "gradients": method.second}
    return {name: sum(work(each, task, rows, newest).values()) for name, each in both.items()}


@work.register
def _(method: Imitation, task: Task, rows: int, newest: int) -> dict[str, float]:
    policy = init_policy(KEY, task, method.policy)
    networks = jax.tree.map(lambda leaf: leaf[None], policy.mlp)
    rows = int(TRAINING_SHARE * newest)
    return {"start": fitting(method.clone.as_fit(), ActionError(), networks, task.obs_size, task.act_size, rows)}


@work.register
def _(method: Chance, task: Task, rows: int, newest: int) -> dict[str, float]:
    return {}


def per_deployment(method: Any, task: Task, allowed: Any) -> dict[str, float]:
    """Mean over the deployments of a campaign with this budget, part by part."""
    total: dict[str, float] = {}
    for d in range(1, allowed.budget + 1):
        for part, count in work(method, task, d * allowed.batch_size, allowed.batch_size).items():
            total[part] = total.get(part, 0.0) + count / allowed.budget
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="halfcheetah")
    parser.add_argument("--preset", default="fast", choices=[*PRESETS])
    chosen = parser.parse_args()
    preset: Preset = chosen.preset
    task, allowed = find_task(chosen.task), scale(preset, chosen.task)
    table, ours = [], 0.0
    for name in ALGORITHMS:
        total = per_deployment(recipe(name, preset, chosen.task), task, allowed)
        whole = sum(total.values())
        ours = ours or whole
        row = {"algo": name, "tera_operations": round(whole / 1e12, 3), "of_musbo": round(whole / ours, 3)}
        row["parts"] = " ".join(f"{part} {count / 1e12:.2f}" for part, count in total.items())
        table.append(row)
        print(f"{name:22} {row['tera_operations']:9.3f} {row['of_musbo']:7.2f}  {row['parts']}", flush=True)
    with (HERE / f"operations-{chosen.task}-{preset}.csv").open("w") as out:
        writer = csv.DictWriter(out, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


if __name__ == "__main__":
    main()
