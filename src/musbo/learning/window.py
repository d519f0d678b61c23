"""Windows of imagination that can be differentiated: some steps of many lanes through the ensemble M, and their value.

The return of a window counts what follows a step as far as it is trusted and as far as the lane lives,

    X_t = r_t - r_0 + gamma (1 - end_t) ((1 - lambda) V(s_{t+1}) + lambda G_{t+1})
    G_t = X_t - (1 - U_t) max(0, X_t)

with V(s_H) after the last step. r_0 is what a step is worth of which nothing is known, so doubt never pays. U is the
trust in a step by the disagreement d of two members of M in units of d95, its level on held-out data,

    U = exp(-k max(0, d / d95 - 1)).

A termination is a jump, and no gradient passes through a jump. Its value here is that of the jump, 0 or 1; its gradient
is that of the jump smoothed by a Gaussian kernel of the width of one ordinary step, which is an estimate of the
boundary term of the true gradient. Where the termination is learned, the gradient is that of its probability.
"""

from dataclasses import dataclass, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from musbo.core.errors import UserError
from musbo.core.registry import stored
from musbo.data.scaling import Scaling
from musbo.learning.imagine import Starts, draw_starts
from musbo.models.dynamics import Dynamics, inputs, outcome, predict, target_size
from musbo.models.frame import Frame
from musbo.models.gaussian import sample
from musbo.models.mlp import MLP, count, member
from musbo.tasks.history import follows, newest
from musbo.tasks.task import Task

CLIP = 10.0  # of the normalised observation that V reads
DIRECTIONS = 8  # pairs of probes by which a termination is smoothed


@stored("settings/window")
@dataclass(frozen=True)
class WindowSettings:
    """Imagined steps per update."""

    imagined: int = 2048
    """Imagined steps per window, over all lanes; the lanes go on from window to window."""
    steps: int | None = None
    """H: steps through which an update is differentiated; `None`: three times the time in which the state changes."""
    fresh: float = 0.05
    """Share of the lanes that begin anew at every window, wherever they are."""
    initial: float = 0.2
    """Share of the beginnings that are those of episodes; the others are any states of D_all."""
    k: float = 0.5
    """k: how fast trust falls with disagreement beyond its held-out level; 0: everything is trusted."""
    lam: float = 0.95
    """lambda of the returns."""
    least: float = 0.0
    """A lane begins anew where U falls below this."""
    kernel: float = 1.0
    """Width of the kernel that smooths a termination, in standard deviations of one step's change."""

    def __post_init__(self) -> None:
        if self.steps is not None and not 1 <= self.steps <= self.imagined:
            raise UserError(f"a window of {self.imagined} imagined steps cannot have lanes of {self.steps}.")
        if not (0 <= self.fresh <= 1 and 0 <= self.initial <= 1 and 0 <= self.lam <= 1):
            raise UserError("fresh, initial and lam of a window must lie in [0, 1].")
        if not self.k >= 0 or not self.kernel > 0 or not 0 <= self.least <= 1:
            raise UserError("k of a window must be at least 0, its kernel above 0, and least in [0, 1].")

    def lasting(self, time: float) -> "WindowSettings":
        """With H as a number, by the time in which the state changes. A few lengths only: each is compiled."""
        return self if self.steps else replace(self, steps=32 if time > 8 else 16)

    @property
    def lanes(self) -> int:
        assert self.steps is not None  # `lasting` came before
        return max(1, self.imagined // self.steps)


class Window(eqx.Module):
    """One window. `obs` are the states in which an action was taken, `next_obs` where it led."""

    obs: Float[Array, "t b obs"]
    next_obs: Float[Array, "t b obs"]
    reward: Float[Array, "t b"]
    on: Float[Array, "t b"]
    """1 where the episode goes on, 0 where it terminates; its gradient is the smoothed one."""
    trust: Float[Array, "t b"]
    cut: Bool[Array, "t b"]
    """Whether the lane begins anew after this step: it terminated or left all that is known."""
    logp: Float[Array, "t b"]
    apart: Float[Array, "t b"]
    share: Float[Array, "t b act"]
    """Actions, as shares of the half-range."""


def trust(k: float, apart: Float[Array, "*n"], ordinary: Float[Array, ""]) -> Float[Array, "*n"]:
    """U: ordinary disagreement is trusted wholly."""
    return jnp.exp(-k * jax.nn.relu(apart / ordinary - 1.0))


@stored("networks/ordinary")
class Ordinary(eqx.Module):
    """What disagreement is ordinary."""

    columns: Float[Array, " target"]
    """95th percentile of the disagreement about every predicted column on held-out data."""
    heldout: Float[Array, ""]
    """d95: the same of the mean over columns."""
    lanes: Float[Array, ""]
    """The 90th percentile of the mean over columns on the latest imagined windows."""
    logit: Float[Array, ""]
    """By how much a learned termination's logit differs from step to step: the width that smooths it."""

    @property
    def level(self) -> Float[Array, ""]:
        return jnp.maximum(self.heldout, self.lanes)


MOST = 5.0  # of a column's ordinary disagreement: one column that nobody can predict must not decide alone


def distance(
    columns: Float[Array, " target"], one: Float[Array, "b out"], other: Float[Array, "b out"]
) -> Float[Array, " b"]:
    """Disagreement of two members: the mean over predicted columns, each in units of what is ordinary for it."""
    size = columns.shape[0]
    return jnp.mean(jnp.minimum(jnp.abs(one[:, :size] - other[:, :size]) / columns[None], MOST), axis=1)


def goes_on(
    task: Task,
    width: Float[Array, " obs"],
    slack: Float[Array, ""],
    said: Float[Array, "b out"],
    next_obs: Float[Array, "b obs"],
    probes: Float[Array, "m obs"],
) -> Float[Array, " b"]:
    """1 or 0 with the gradient of the smoothed termination."""
    if task.terminated is None:
        return jnp.ones(next_obs.shape[0])
    if task.terminated == "learned":
        on = jax.nn.sigmoid(-said[:, -1] / slack)
        hard = (said[:, -1] <= 0).astype(jnp.float32)
        return on + jax.lax.stop_gradient(hard - on)
    ends = jax.vmap(task.terminated)
    here = jax.lax.stop_gradient(next_obs)

    def jump(probe: Float[Array, " obs"]) -> Float[Array, " b"]:
        away = (probe * width)[None]
        return ends(here + away).astype(jnp.float32) - ends(here - away).astype(jnp.float32)

    jumps = jax.vmap(jump)(probes)  # m b
    slope = 0.5 * jnp.mean(jumps[:, :, None] * (probes / width[None])[:, None, :], axis=0)
    hard = 1.0 - ends(here).astype(jnp.float32)
    return hard - jnp.sum(slope * (next_obs - here), axis=1)


def lived(
    task: Task,
    settings: WindowSettings,
    actor: MLP,
    frame: Frame,
    model: Dynamics,
    ordinary: Ordinary,
    start: Float[Array, "b obs"],
    instead: Float[Array, "t b obs"],
    key: PRNGKeyArray,
) -> tuple[Window, Float[Array, "b obs"]]:
    """A window from `start`, and where its lanes stand afterwards; a lane that is cut goes on from `instead`."""
    n = count(model.members)
    scaling = model.scaling
    reach = scaling.reach(jnp.broadcast_to(scaling.obs_mean[None], start.shape))
    width = settings.kernel * scaling.target_std[: task.predicted]

    def one_step(obs: Float[Array, "b obs"], xs: tuple) -> tuple:
        k, other = xs
        k_act, k_mover, k_judge, k_probe = jax.random.split(k, 4)
        share, logp = sample(actor, frame.see(obs), k_act)
        act = frame.action(share)
        mover = jax.random.randint(k_mover, (), 0, n)
        said = said_by(task, model, mover, obs, act)
        next_obs, reward = moved(task, scaling, obs, act, said)
        if n > 1 and settings.k > 0:
            judge = (mover + jax.random.randint(k_judge, (), 1, n)) % n
            apart = distance(ordinary.columns, said, said_by(task, model, judge, obs, act))
        else:
            apart = jnp.zeros(obs.shape[0])
        known = reach.holds(next_obs) & jnp.isfinite(reward)
        on = goes_on(
            task,
            width,
            settings.kernel * ordinary.logit,
            said,
            newest(task, next_obs),  # what ends an episode is the newest observation
            jax.random.normal(k_probe, (DIRECTIONS, task.predicted)),
        )
        next_obs = jnp.where(known[:, None], next_obs, obs)
        reward = jnp.where(known, reward, 0.0)
        U = jnp.where(known, trust(settings.k, apart, ordinary.level), 0.0)
        doubted = settings.least > U
        cut = ~known | (on < 0.5) | doubted
        after = jnp.where(cut[:, None], other, next_obs)
        return after, (obs, next_obs, reward, on, U, cut, logp, apart, share)

    last, columns = jax.lax.scan(one_step, start, (jax.random.split(key, len(instead)), instead))
    return Window(*columns), last


BEYOND = 0.1
"""How far imagination may leave the range of a column, as a share of that range."""


def moved(
    task: Task, scaling: Scaling, obs: Float[Array, "b obs"], act: Float[Array, "b act"], said: Float[Array, "b out"]
) -> tuple[Float[Array, "b obs"], Float[Array, " b"]]:
    """Next state and reward, by what a member said.

    A state is kept in the range of the data, a little widened. Models drift where columns are bound to each other: the
    cosine of an angle becomes 1.2 within twenty steps, and nothing that follows is worth anything.
    """
    known_low, known_high = newest(task, scaling.obs_low), newest(task, scaling.obs_high)
    margin = BEYOND * (known_high - known_low)
    low, high = known_low - margin, known_high + margin

    def one(s: Array, a: Array, o: Array) -> tuple[Array, Array]:
        next_obs, reward = outcome(task, scaling, s, a, o)
        before = newest(task, s)
        new = jnp.clip(newest(task, next_obs), jnp.minimum(low, before), jnp.maximum(high, before))
        kept = follows(task, s, a, new)
        return kept, reward if task.reward == "learned" else task.reward(s, a, kept)

    return jax.vmap(one)(obs, act, said)


def said_by(
    task: Task, model: Dynamics, index: Int[Array, ""], obs: Float[Array, "b obs"], act: Float[Array, "b act"]
) -> Float[Array, "b out"]:
    network = member(model.members, index)
    return jax.vmap(lambda s, a: predict(network, model.scaling, s, a))(obs, act)


def beginnings(
    settings: WindowSettings, initial: Starts, anywhere: Starts, shape: tuple[int, ...], key: PRNGKeyArray
) -> Float[Array, "*n obs"]:
    """States to begin in, one for each place of `shape`."""
    k_which, k_initial, k_any = jax.random.split(key, 3)
    size = 1
    for each in shape:
        size *= each
    which = jax.random.uniform(k_which, (size,)) < settings.initial
    states = jnp.where(which[:, None], draw_starts(initial, size, k_initial), draw_starts(anywhere, size, k_any))
    return states.reshape(*shape, -1)


def returns(
    gamma: Float[Array, ""],
    lam: float,
    reward: Float[Array, "t b"],
    on: Float[Array, "t b"],
    trusted: Float[Array, "t b"],
    cut: Bool[Array, "t b"],
    after: Float[Array, "t b"],
) -> Float[Array, "t b"]:
    """G_t; `after` is V(s_{t+1}), the only future of a step after which the lane was cut."""

    def backward(later: Float[Array, " b"], xs: tuple) -> tuple:
        r, on, U, cut, v = xs
        future = jnp.where(cut, v, (1 - lam) * v + lam * later)
        x = r + gamma * on * future
        G = x - (1 - U) * jax.nn.relu(x)
        return G, G

    _, G = jax.lax.scan(backward, after[-1], (reward, on, trusted, cut, after), reverse=True)
    return G


def values(critics: MLP, x: Float[Array, "n obs"]) -> Float[Array, "2 n"]:
    """What both critics say of normalised states, in units of value."""
    x = jnp.clip(x, -CLIP, CLIP)
    return jnp.stack([jax.vmap(member(critics, i))(x)[:, 0] for i in range(count(critics))])


@partial(jax.jit, static_argnames="task")
def measure_ordinary(task: Task, model: Dynamics, obs: Float[Array, "n obs"], act: Float[Array, "n act"]) -> Ordinary:
    """By every member and the next one, on held-out data."""
    k, size = count(model.members), target_size(task)
    said = [said_by(task, model, jnp.asarray(i), obs, act) for i in range(k)]
    pairs = [(said[i], said[(i + 1) % k]) for i in range(k)]
    apart = jnp.concatenate([jnp.abs(one - other)[:, :size] for one, other in pairs])
    columns = jnp.maximum(jnp.quantile(apart, 0.95, axis=0), 1e-6)
    mean = jnp.concatenate([distance(columns, one, other) for one, other in pairs])
    logit = jnp.maximum(0.25 * jnp.std(said[0][:, -1]), 1.0)
    return Ordinary(columns, jnp.maximum(jnp.quantile(mean, 0.95), 1e-6), jnp.zeros(()), logit)


@jax.jit
def spread(model: Dynamics, obs: Float[Array, "n obs"], act: Float[Array, "n act"]) -> Float[Array, "k n"]:
    """The same in units of the state, summed over its columns, for people."""
    k, size = count(model.members), min(obs.shape[1], model.scaling.target_std.shape[0])  # less where the past is seen
    x = jax.vmap(lambda s, a: inputs(model.scaling, s, a))(obs, act)
    said = [jax.vmap(member(model.members, i))(x)[:, :size] * model.scaling.target_std[None, :size] for i in range(k)]
    return jnp.stack([jnp.sum(jnp.abs(said[i] - said[(i + 1) % k]), axis=1) for i in range(k)])
