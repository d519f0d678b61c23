"""`musbo play`: a film of a policy."""

import argparse
from pathlib import Path

from musbo.cli import _common
from musbo.core.errors import UserError

ORDER = 50
HELP = "Film a policy of a run, off screen."
EXAMPLES = """
  musbo play runs/pendulum-musbo-quick-s0                        writes play.gif into the run
  musbo play runs/hopper-musbo-fast-s0 --out hopper.mp4 --steps 1000
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _common.add_run(parser)
    add = parser.add_argument
    add("--out", type=Path, metavar="FILE", help=".gif or .mp4 (default: play.gif in the run)")
    add("--steps", type=int, default=300, metavar="N", help="at most this many steps (default: 300)")
    add("--seed", type=int, metavar="N", help="another episode than the first of the run's evaluation")
    _common.add_deployment(parser)
    _common.add_task(parser)


def action(arguments: argparse.Namespace) -> int:
    from musbo.campaign import api
    from musbo.reporting import video

    path = arguments.out or arguments.run / "play.gif"
    video.require_format(path)
    if arguments.steps < 1:
        raise UserError(f"--steps must be at least 1, not {arguments.steps}.")
    frames = api.film(
        arguments.run, steps=arguments.steps, deployment=arguments.deployment, seed=arguments.seed,
        task=arguments.task, trust_task=arguments.trust_task,
    )  # fmt: skip
    print(f"{path}: {video.write(path, frames)} frames")
    return 0
