"""A dry run of a task, before anything is created: its functions on a few examples, its simulator for a few steps.

What is wrong with a task of one's own is said here in one sentence, and not after a batch was collected; where its
formulas disagree with the simulator, that is a warning with numbers. The simulator's steps are counted apart. The
values of the functions are kept: they show, when a run goes on, that the task is still the same.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from musbo.core.diagnostics import NOTHING, Findings
from musbo.core.errors import UserError
from musbo.data.batch import Batch
from musbo.field.drive import Fault, Steady, drive
from musbo.field.formulas import agreement
from musbo.field.probes import Transitions, covering
from musbo.field.simulate import require_rewards
from musbo.field.worlds import make_world, no_simulator
from musbo.tasks.task import BuiltIn, Task

EXAMPLES = 8
STEPS = 50
"""Of the simulator, with random actions."""


class Tried(NamedTuple):
    """What a dry run showed."""

    values: tuple[float, ...]
    """Of the task's functions on made-up transitions."""
    steps: int = 0
    """That the simulator took."""
    findings: Findings = NOTHING
    """How far the formulas agree with it."""


def dry_run(task: Task) -> Tried:
    """Refuse a task that cannot work."""
    values = probe_values(task)
    keys = jax.random.split(jax.random.PRNGKey(0), EXAMPLES)
    if task.initial is not None:
        _called(task, "initial", task.initial, (keys,), (task.obs_size,), jnp.floating)
    if isinstance(task.simulator, BuiltIn):
        _require_built_in(task, task.simulator, keys)
    if no_simulator(task) is not None:
        return Tried(values)
    batch = _few_steps(task)
    require_rewards(task, batch)
    return Tried(values, len(batch), agreement(task, batch, "the simulator's"))


def values_of(task: Task) -> tuple[float, ...]:
    """What the task's reward and termination give for a few made-up transitions."""
    return tuple(value for values in values_on(task, _made_up(task)) for value in values)


def probe_values(task: Task) -> tuple[float, ...]:
    """The same, then for others that cover the ranges which the task declares. (Old runs have the first ones only.)"""
    return values_of(task) + tuple(value for values in values_on(task, covering(task)) for value in values)


def values_on(task: Task, rows: Transitions) -> tuple[tuple[float, ...], ...]:
    """What each of the task's functions gives for some transitions: the reward, then the termination."""
    found: list[Callable[[], Any]] = []
    if callable(task.reward):
        found.append(_called(task, "reward", task.reward, rows, (), jnp.floating))
    if callable(task.terminated):
        found.append(_called(task, "terminated", task.terminated, rows[2:], (), jnp.bool_))
    return tuple(tuple(_short(value) for value in np.asarray(call(), np.float64).tolist()) for call in found)


def _short(value: float) -> float:
    """As many digits as float32 has."""
    return float(f"{value:.9g}")


def same_values(before: Sequence[float], now: Sequence[float]) -> bool:
    """Whether a task's functions still give what they gave; where they gave no number, they may have been corrected."""
    if len(before) != len(now):
        return False
    old, new = np.asarray(before), np.asarray(now)
    known = np.isfinite(old)
    size = float(np.abs(old[known]).mean()) if known.any() else 0.0
    # Terms that cancel leave rounding of their own size; rewards of a millionth are rewards, too.
    return bool(np.allclose(old[known], new[known], rtol=1e-4, atol=1e-5 * min(1.0, size)))


def _made_up(task: Task) -> Transitions:
    """Transitions that need not be possible: the same ones on every machine."""
    random = np.random.default_rng(0)
    obs, next_obs = random.normal(size=(2, EXAMPLES, task.obs_size)).astype(np.float32)
    act = random.uniform(task.low, task.high, (EXAMPLES, task.act_size)).astype(np.float32)
    return obs, act, next_obs


def _called(
    task: Task, name: str, function: Callable[..., Any], rows: tuple[Any, ...], shape: tuple[int, ...], kind: Any
) -> Callable[[], Any]:
    """The function on every row, as training will call it; what it returns has this shape and kind."""
    every = jax.vmap(function)
    try:
        found = jax.eval_shape(every, *rows)  # compiles nothing
    except UserError:
        raise
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        text = "is Python or NumPy that JAX cannot compile: write it with jax.numpy, and jnp.where in place of if"
        # Without the traceback of JAX, which is long and does not help here.
        raise UserError(f"{name} of task {task.name} {text}{_line(function, error)}.") from None
    except (Exception, SystemExit) as error:
        why = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            f"{name} of task {task.name} failed on an example: {type(error).__name__}: {why}. It is called with one "
            f"transition at a time, in arrays of {task.obs_size} observations and {task.act_size} actions."
        ) from error
    known = isinstance(found, jax.ShapeDtypeStruct)
    if not known or found.shape != (len(rows[0]), *shape) or not jnp.issubdtype(found.dtype, kind):
        wanted = "true or false" if kind is jnp.bool_ else f"{shape[0]} floats" if shape else "one float"
        given = f"an array of shape {found.shape[1:]} and type {found.dtype}" if known else f"a {type(found).__name__}"
        raise UserError(f"{name} of task {task.name} must return {wanted} for one example, but it returns {given}.")
    return lambda: jax.jit(every)(*rows)


def _line(function: Callable[..., Any], error: Exception) -> str:
    """Where in the user's function it happened."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if file and lines else ""


def _require_built_in(task: Task, simulator: BuiltIn, keys: jax.Array) -> None:
    def one_step(key: Any) -> Any:
        state, reward = simulator.step(simulator.reset(key), jnp.asarray(task.centre))
        return jnp.concatenate([simulator.observe(state), jnp.asarray(reward)[None]])

    def begin(key: Any) -> Any:
        return simulator.observe(simulator.reset(key))

    _called(task, "the simulator's observe", begin, (keys,), (task.obs_size,), jnp.floating)
    _called(
        task, "the simulator's step (observations and reward)", one_step, (keys,), (task.obs_size + 1,), jnp.floating
    )


def _few_steps(task: Task) -> Batch:
    """Random actions in the simulator."""
    rng = np.random.default_rng(0)

    def act(obs: Any) -> Any:
        return rng.uniform(task.low, task.high, (len(obs), task.act_size)).astype(np.float32)

    try:
        with closing(make_world(task, 1)) as world:
            return drive(task, world, Steady(task, act), [0], [STEPS], 1, once=False)[0]
    except Fault as fault:
        raise UserError(f"{fault}. Correct it and try again; nothing was written.") from fault
