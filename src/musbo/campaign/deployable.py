"""A trained policy as a function of numpy arrays: what one deploys."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float32
from numpy.typing import ArrayLike

from musbo.core.errors import UserError
from musbo.field.drive import compiled, exploring
from musbo.models.actor import Actor
from musbo.models.frame import AnyPolicy

CHUNK = 256
"""Rows are computed one alone or so many at once, filled up with copies: two programs do for every number of rows."""


class NumpyPolicy:
    """A trained policy as a function: one observation or rows of them in, the deterministic action(s) out.

    Actions lie inside the bounds of the task. What is not a finite number is refused. The first call compiles for some
    tenths of a second, and so does the first one with several rows; after that no number of rows does.
    """

    def __init__(self, policy: AnyPolicy, behaviour: Callable[[], Actor] | None = None) -> None:
        self.policy = policy
        frame = policy.frame
        self.obs_size = frame.normaliser.mean.shape[0]
        self.act_size = frame.centre.shape[0]
        self.low = np.asarray(frame.centre - frame.half_range)
        self.high = np.asarray(frame.centre + frame.half_range)
        self._call = compiled(policy)
        self._behaviour = behaviour
        self._exploring: Callable[..., Any] | None = None
        require_sound(policy, self.obs_size, self.act_size)

    def __call__(self, obs: ArrayLike) -> Float32[np.ndarray, "*b act"]:
        seen = self._rows("observation", obs, self.obs_size)
        return self._in_chunks(seen.shape, lambda number, rows: self._call(rows), np.atleast_2d(seen))

    def explore(
        self,
        obs: ArrayLike,
        rng: np.random.Generator | int,
        previous: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Float32[np.ndarray, "*b act"]:
        """The action(s) of the behaviour that collects the next batch: the policy with its exploration.

        `rng` is a numpy Generator, or a seed; the same seed gives the same noise again. `previous` are the observation
        and the action before, in the same shapes; only a behaviour that looks back at them needs them
        (`explore.zeta` lagged).
        """
        seen = self._rows("observation", obs, self.obs_size)
        before = (np.zeros_like(seen), np.zeros((*seen.shape[:-1], self.act_size), np.float32))
        if previous is not None:
            before = (
                self._rows("previous observation", previous[0], self.obs_size),
                self._rows("previous action", previous[1], self.act_size),
            )
            if (before[0].shape, before[1].shape[:-1]) != (seen.shape, seen.shape[:-1]):
                raise UserError("the previous observations and actions must be as many as the observations.")
        act = self._exploring = self._exploring or exploring(self._actor())
        key = np.random.default_rng(rng).integers(0, 2**32, 2, np.uint32)
        known = np.full(CHUNK, previous is not None)

        def chunk(number: int, *rows: np.ndarray) -> Any:
            return act(key, number, *rows, known[: len(rows[0])])[0]

        return self._in_chunks(seen.shape, chunk, *map(np.atleast_2d, (seen, *before)))

    def _actor(self) -> Actor:
        if self._behaviour is None:
            raise UserError("this is the policy alone: to explore, load it from the directory of its run.")
        actor = self._behaviour()
        if actor.needs_oracle:
            raise UserError(
                "this behaviour tries its actions in a copy of the simulator first, which there is not here: use "
                "policy(obs), or train with explore.zeta disagreement."
            )
        return actor

    def _rows(self, what: str, given: ArrayLike, size: int) -> Float32[np.ndarray, "..."]:
        try:
            seen = np.asarray(given, np.float32)
        except (ValueError, TypeError) as error:
            raise UserError(f"the policy takes numbers, not {type(given).__name__}: {error}.") from error
        if seen.ndim not in (1, 2) or seen.shape[-1] != size:
            raise UserError(
                f"the policy takes one {what} of {size} numbers or rows of such, not an array of shape {seen.shape}."
            )
        if not np.isfinite(seen).all():
            place = int(np.argwhere(~np.isfinite(np.atleast_2d(seen)))[0][1])
            raise UserError(f"{what} {place} is not a finite number: no action can be chosen for it.")
        return seen

    def _in_chunks(
        self, shape: tuple[int, ...], function: Callable[..., Any], *columns: Float32[np.ndarray, "n _"]
    ) -> Float32[np.ndarray, "*b act"]:
        """The actions of all rows; what fills a chunk up is copies of its rows."""
        n = len(columns[0])
        width = 1 if n == 1 else CHUNK
        act = np.empty((n, self.act_size), np.float32)
        for number, first in enumerate(range(0, n, width)):
            rows = [column[first : first + width] for column in columns]
            filled = [np.resize(part, (width, part.shape[1])) for part in rows]
            act[first : first + width] = np.asarray(function(number, *filled))[: len(rows[0])]
        return np.clip(act, self.low, self.high).reshape(*shape[:-1], self.act_size)


def require_sound(policy: AnyPolicy, obs_size: int, act_size: int) -> None:
    """Refuse weights that are no numbers, or that do not fit together."""
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(policy, eqx.is_inexact_array))):
        raise UserError("the policy has weights that are not finite numbers: it is damaged, or its training failed.")
    try:
        act = jax.eval_shape(policy, jax.ShapeDtypeStruct((1, obs_size), np.float32))
    except Exception as error:  # whatever JAX says about shapes
        raise UserError("the arrays of the policy do not fit together: it is damaged.") from error
    if act.shape != (1, act_size):
        raise UserError("the arrays of the policy do not fit together: it is damaged.")


def require_sound_actor(actor: Actor, obs_size: int, act_size: int) -> None:
    """The same of what collects: its networks must fit together too."""
    if actor.needs_oracle:
        return  # it does not leave
    obs, act = (jax.ShapeDtypeStruct((1, size), np.float32) for size in (obs_size, act_size))
    known = jax.ShapeDtypeStruct((1,), np.bool_)
    try:
        done, _ = jax.eval_shape(actor.act, obs, jax.random.PRNGKey(0), obs, act, known)
    except Exception as error:  # whatever JAX says about shapes
        raise UserError("the arrays of what collects do not fit together: the training's state is damaged.") from error
    if done.shape != (1, act_size):
        raise UserError("the arrays of what collects do not fit together: the training's state is damaged.")
