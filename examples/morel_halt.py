"""A method of your own as one new label: imagination halts where the models are in doubt (after MOReL).

    python examples/morel_halt.py

A label stands between imagination and the trust-region step: it takes imagined trajectories and the labeler that judges
them, and returns them changed. MUSBO's lowers the weight of doubtful steps. This one makes the first of them the last
step of its trajectory, at a price, so that the policy learns to stay where the models know their way.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

import musbo
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.recipes import settings
from musbo.core.compilation import keep_compiled
from musbo.data.batch import concatenate
from musbo.data.dataset import assemble
from musbo.field.simulate import collect, evaluate
from musbo.learning.imagine import Imagine, Rollout
from musbo.learning.label import disagreement
from musbo.models.labeler import Labeler


@dataclass(frozen=True)
class Halt:
    """The first doubtful step ends its imagined trajectory, and pays for that."""

    multiple: float = 1.0
    """Doubt begins at this multiple of the held-out level (95th percentile) of the largest disagreement."""
    penalty: float = 100.0
    """Taken from the reward of the step that ends; where rewards are costs, more than an early end can save."""

    def __call__(self, rollout: Rollout, judge: Labeler, key: PRNGKeyArray) -> tuple[Rollout, Float[Array, "t b"]]:
        """The shortened rollout, and the disagreement behind it."""
        apart = disagreement("max", "mean", rollout, judge, key)
        known = apart <= self.multiple * judge.levels.spread_p95  # not so where it is no number
        doubtful = rollout.live & ~known
        earlier = jnp.cumsum(doubtful, axis=0)[:-1] > 0
        live = rollout.live & ~jnp.concatenate([jnp.zeros_like(doubtful[:1]), earlier])
        terminated = live & (rollout.terminated | doubtful)
        reward = jnp.where(doubtful, rollout.reward - self.penalty, rollout.reward)
        return replace(rollout, reward=jnp.where(live, reward, 0.0), terminated=terminated, live=live), apart


def small(label: Halt) -> ImaginedTRPO:
    """ME-TRPO with this label, and with models so small that training takes seconds."""
    method = settings("me-trpo", "quick", "pointmass")
    fit = {"members": 3, "hidden": (32, 32), "epochs": 60, "batch": 100}
    dynamics, labeler = replace(method.dynamics, **fit), replace(method.labeler, **fit)
    imagine = Imagine(rollouts=30, horizon=50, starts="reset")
    return replace(method, label=label, dynamics=dynamics, labeler=labeler, imagine=imagine, updates=40)


def main(multiple: float = 1.0, penalty: float = 100.0, seed: int = 0) -> tuple[float, float]:
    """One deployment by hand: collect, train, evaluate."""
    keep_compiled()  # the first run compiles for half a minute
    task, method, key = musbo.find_task("pointmass"), small(Halt(multiple, penalty)), jax.random.PRNGKey(seed)
    state = method.begin(task, key)
    batch = concatenate([shard.batch for shard in collect(task, method.actor(task, state), size=1000, seed=seed)])
    data = assemble([batch], capacity=len(batch), seed=seed)
    course = list(method.train(task, data, state, jax.random.fold_in(key, 1)))  # every state on the way, with metrics
    for _, seen in course:
        if seen["stage"] == "improve" and (seen["index"] == 1 or seen["index"] % 10 == 0):
            print(f"update {seen['index']:2}: imagined trajectories of {seen['length']:.1f} steps")
    before = float(batch.returns().mean())
    policy = course[-1][0].policy
    after = float(evaluate(task, policy, episodes=20, seed=seed).returns.mean())
    print(f"return: {before:.1f} with random actions, {after:.1f} with the policy of update {course[-1][1]['chosen']}")
    return before, after


if __name__ == "__main__":
    main()
