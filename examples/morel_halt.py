"""A method of your own as one new label: imagined trajectories halt where the models are uncertain (after MOReL).

    python examples/morel_halt.py
    musbo run pointmass --import examples/morel_halt.py --algo halt --label.penalty 30     the same on the command line
    musbo run pointmass --import examples/morel_halt.py --label halt                       MUSBO with this label

A label is applied between imagination and the trust-region step: it takes imagined trajectories and the uncertainty
model, and returns them changed. MUSBO's lowers the weight of uncertain steps. This one ends the trajectory at the first
of them, with a penalty, so that the policy learns to stay where the models are accurate.
"""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

import musbo
from musbo.labels import Labeler, Rollout, Seen, Signals, clock, disagreement, trajectory_count
from musbo.methods import ImaginedTRPO, add_method


@musbo.stored("label/halt")
@dataclass(frozen=True)
class Halt:
    """The first uncertain step ends its imagined trajectory, with a penalty."""

    multiple: float = 1.0
    """Threshold, as a multiple of the held-out level (95th percentile) of the largest disagreement."""
    penalty: float = 100.0
    """Subtracted from the reward of the last step; with negative rewards, more than an early end can save."""

    def __call__(self, rollout: Rollout, judge: Labeler, key: PRNGKeyArray) -> tuple[Rollout, Signals]:
        """The shortened rollout, the disagreement behind it, and the share of trajectories that were halted."""
        apart = disagreement("max", "mean", rollout, judge, key)
        known = apart <= self.multiple * judge.levels.spread_p95  # false for NaN
        uncertain = rollout.live & ~known
        before = jnp.cumsum(uncertain, axis=0) - uncertain.astype(int)
        begun = jnp.arange(len(before))[:, None] - clock(rollout)[:-1]  # a row may hold several trajectories
        live = rollout.live & (before == jnp.take_along_axis(before, begun, axis=0))
        terminated = live & (rollout.terminated | uncertain)
        reward = jnp.where(uncertain, rollout.reward - self.penalty, rollout.reward)
        shortened = replace(rollout, reward=jnp.where(live, reward, 0.0), terminated=terminated, live=live)
        halted = jnp.sum(live & uncertain) / trajectory_count(rollout)
        return shortened, {"disagreement": apart, "halted": jnp.full_like(apart, halted)}

    def findings(self, judge: Labeler, seen: Seen) -> musbo.Findings:
        """What the page, the live display and the tables show of it."""
        share = None if seen["halted"] is None else seen["halted"].median  # the same at every step
        shown = musbo.Diagnostic(
            "halted",
            share,
            "trajectories halted",
            "Share of the imagined trajectories of an update that ended at an uncertain step.",
            column="halted",
            percent=True,
            series="improve",
        )
        if share is None or share <= 0.9:
            return musbo.Findings((shown,))
        text = f"{share:.0%} of the imagined trajectories are halted; raise --label.multiple, or fit longer"
        return musbo.Findings((shown,), (musbo.Caution("nearly all halted", text),))


def halt(preset, task) -> ImaginedTRPO:
    """ME-TRPO with this label."""
    return replace(musbo.recipe("me-trpo", preset, task), label=Halt())


add_method("halt", "imagined trajectories end at the first uncertain step (after MOReL)", halt)


def small(label: Halt) -> ImaginedTRPO:
    """The same with models so small that training takes seconds."""
    method = halt("quick", "pointmass")
    fit = {"members": 3, "hidden": (32, 32), "epochs": 60, "batch": 100}
    dynamics, labeler = replace(method.dynamics, **fit), replace(method.labeler, **fit)
    imagine = replace(method.imagine, rollouts=30)
    return replace(method, label=label, dynamics=dynamics, labeler=labeler, imagine=imagine, updates=40)


def main(multiple: float = 1.0, penalty: float = 100.0, **settings) -> musbo.Result:
    """A whole campaign; `musbo resume` and `musbo report` with `--import examples/morel_halt.py` know it too."""

    def watch(news) -> None:
        seen = getattr(news, "metrics", None)
        if seen is not None and seen.stage == "improve" and (seen.index == 1 or seen.index % 10 == 0):
            share = seen.findings.diagnostics[0].value
            print(f"update {seen.index:2}: {seen.numbers['length']:.1f} steps, {share:.0%} of the trajectories halted")

    result = musbo.run("pointmass", algo="halt", method=small(Halt(multiple, penalty)), observe=watch, **settings)
    print("return after each deployment:", [round(value, 1) for value in result.returns if value is not None])
    print("everything about the run:", result.folder)
    return result


if __name__ == "__main__":
    main()
